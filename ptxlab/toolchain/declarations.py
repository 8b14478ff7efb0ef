"""Where the declarations of a C++ text begin and end: its functions, classes with their members, the rest.

Nothing is looked up and no macro is expanded, so that a text is read whatever it includes. Of an
``#if`` whose branches open different braces only the first branch counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

CppKind = Literal["namespace", "class", "function", "other"]

_TOKEN = re.compile(
    r"""(?P<directive>^[ \t]*\#(?:\\\r?\n|/\*.*?\*/|[^\n])*)
      | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
      | (?P<text>\b(?:u8|[uUL])?R"(?P<fence>[^()\s\\]{0,16})\(.*?\)(?P=fence)"
               | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
      | (?P<word>[A-Za-z_]\w*) | (?P<number>\d(?:'?\w|\.)*) | (?P<mark>::|\S)""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_CONDITION = re.compile(r"\s*#\s*(if\s+0\b|if|else|elif|endif)")
_CLASSES = frozenset({"class", "struct", "union"})
_ACCESS = frozenset({"public", "protected", "private"})
_ATTRIBUTES = frozenset(
    {
        "__align__",
        "__attribute__",
        "__cluster_dims__",
        "__launch_bounds__",
        "__maxnreg__",
        "alignas",
    }
    | {"decltype", "explicit", "noexcept", "requires"}
)
"""Words whose parentheses are no list of parameters."""
_TYPES = frozenset({"bool", "char", "const", "double", "float", "int", "long", "short", "unsigned"})


@dataclass(slots=True, eq=False)
class CppDeclaration:
    """One declaration: ``text[start:end]``, of which ``text[start:head]`` comes before its body.

    ``parameters`` is where a function's stand, ``outer`` the class it is a member of, and ``members``
    are those of a class or namespace.
    """

    kind: CppKind
    name: str
    start: int
    head: int
    end: int
    parameters: tuple[int, int] | None = None
    outer: CppDeclaration | None = None
    members: list[CppDeclaration] = field(default_factory=list, repr=False)

    def all(self) -> Iterator[CppDeclaration]:
        """Yield it and, after it, what it holds."""
        yield self
        for member in self.members:
            yield from member.all()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def declarations(text: str) -> list[CppDeclaration]:
    """Return the declarations of a text, those of namespaces and classes within theirs."""
    reader, declared = _Reader(list(_counting(_tokens(text)))), list[CppDeclaration]()
    while not reader.done:  # a brace too many ends no scope
        declared += reader.scope(None)
    return declared


def past_template_head(text: str, declaration: CppDeclaration) -> int:
    """Return where a declaration goes on after the ``template <...>`` that it may begin with."""
    reader = _Reader(list(_tokens(text[declaration.start : declaration.head])))
    return declaration.start + reader.past_template_head()


def parameter_names(text: str) -> list[str]:
    """Return what a list of parameters calls them, "" for one without a name."""
    names, depth, words, over = [], 0, 0, False
    last = ""
    for token in _tokens(f"{text},"):
        if token.text in "([{<":
            depth += 1
        elif token.text in ")]}>":
            depth -= 1
        elif depth == 0 and token.text == ",":
            names.append(last if words > 1 and last not in _TYPES else "")
            last, words, over = "", 0, False
        elif depth == 0 and token.text == "=":
            over = True
        elif depth == 0 and not over:
            last = token.text if token.kind == "word" else ""
            words += 1
    return [] if names == [""] and not text.strip() else names


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "fence" or match["text"]:
            kind = "text"
        if kind != "comment":
            yield _Token(kind, match.group(), match.start(), match.end())


def _counting(tokens: Iterator[_Token]) -> Iterator[_Token]:
    """Yield the tokens whose braces count, without directives."""
    depth = skipped = 0
    before: list[int] = []  # how deep each open #if began
    for token in tokens:
        condition = _CONDITION.match(token.text) if token.kind == "directive" else None
        word = condition[1] if condition else ""
        if skipped:
            skipped += word.startswith("if") - (word == "endif")
            if skipped == 1 and word == "else" and depth == before[-1]:
                skipped = 0
            elif not skipped:
                before.pop()
        elif word.startswith("if"):
            before.append(depth)
            skipped = int(word != "if")
        elif word in ("else", "elif"):
            skipped = int(bool(before) and depth != before[-1])
        elif word == "endif" and before:
            before.pop()
        elif token.kind != "directive":
            depth += (token.text in "([{") - (token.text in ")]}")
            yield token


class _Reader:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def past_template_head(self) -> int:
        while self._text() == "template":
            self.at += 1
            self._skip_angles()
        return 0 if self.done else self.tokens[self.at].start

    def scope(self, outer: CppDeclaration | None) -> list[CppDeclaration]:
        """Read declarations up to the brace that ends theirs, and past it."""
        declared = []
        while not self.done:
            if self.tokens[self.at].text == "}":
                self.at += 1
                break
            declared.append(self.declaration(outer))
        return declared

    def declaration(self, outer: CppDeclaration | None) -> CppDeclaration:
        if self._text() in _ACCESS and self._text(1) == ":":
            self.at += 2
            if self._text() in ("}", ""):
                return self._made("other", "", self.tokens[self.at - 1].start, None, None, outer)
            return self.declaration(outer)
        start, words = self.tokens[self.at].start, list[str]()
        name, head, equals = "", None, False
        parameters: tuple[int, int] | None = None
        while not self.done:
            token = self.tokens[self.at]
            if token.text == "}":
                break
            if token.text == ";":
                head = token.start if head is None else head
                self.at += 1
                break
            self.at += 1
            if token.text == "template" and self._text() == "<":
                self._skip_angles()
            elif token.text == "operator":
                name = self._operator()
            elif token.text in _ATTRIBUTES:
                if self._text() == "(":
                    self.at += 1
                    self._skip()
            elif token.text in ("(", "["):
                opened = token.end
                self._skip()
                if token.text == "(" and head is None and not equals:
                    parameters = opened, self.tokens[self.at - 1].start
                    name = name or (words[-1] if words else "")
            elif token.text == "{":
                if parameters is None and not equals and "enum" not in words:
                    if "namespace" in words or words == ["extern"]:
                        name = "::".join(
                            words[words.index("namespace") + 1 :] if "namespace" in words else []
                        )
                        made = self._made("namespace", name, start, token.start, None, outer)
                        made.members = self.scope(outer)
                        made.end = self.tokens[self.at - 1].end
                        return made
                    if _CLASSES.intersection(words):
                        return self._class(words, start, token.start, outer)
                head = token.start if head is None else head
                self._skip()
                if parameters is not None and not equals and self._text() not in (",", "{", ";"):
                    break
            elif token.text == "=":
                equals = True
                name = name or (words[-1] if words else "")
            elif token.text == ":" and parameters is not None and head is None:
                head = token.start
            elif token.kind == "word":
                words.append(token.text)
        kind: CppKind = "other" if parameters is None or "typedef" in words else "function"
        return self._made(
            kind, name or (words[-1] if words else ""), start, head, parameters, outer
        )

    def _class(
        self, words: list[str], start: int, head: int, outer: CppDeclaration | None
    ) -> CppDeclaration:
        own = next(i for i, word in enumerate(words) if word in _CLASSES)
        name = words[own + 1] if own + 1 < len(words) else ""
        made = self._made("class", name, start, head, None, outer)
        made.members = self.scope(made)
        while not self.done and self._text() not in (";", "}"):
            self.at += 1
            if self.tokens[self.at - 1].text in ("(", "[", "{"):
                self._skip()
        self.at += self._text() == ";"
        made.end = self.tokens[self.at - 1].end
        return made

    def _made(
        self,
        kind: CppKind,
        name: str,
        start: int,
        head: int | None,
        parameters: tuple[int, int] | None,
        outer: CppDeclaration | None,
    ) -> CppDeclaration:
        end = self.tokens[self.at - 1].end
        return CppDeclaration(
            kind, name, start, end if head is None else head, end, parameters, outer
        )

    def _operator(self) -> str:
        name = "operator"
        if self._text() == "(" and self._text(1) == ")":
            self.at += 2
            return name + "()"
        while self._text() not in ("(", ";", "{", ""):
            name += self._text()
            self.at += 1
        return name

    def _skip(self) -> None:
        """Go past the bracket that closes the one just read."""
        depth = 1
        while depth and self.at < len(self.tokens):
            text = self.tokens[self.at].text
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            self.at += 1

    def _skip_angles(self) -> None:
        depth = 0
        while not self.done:
            text = self._text()
            self.at += 1
            depth += (text == "<") - (text == ">")
            if text in ("(", "[", "{"):
                self._skip()
            if not depth:
                return

    def _text(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead].text if self.at + ahead < len(self.tokens) else ""
