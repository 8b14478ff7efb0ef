"""The device part of a .cu file: what is left of it, and of its headers, without the code of the host.

NVRTC takes nothing of the host. What it rejects, and what is not declared for the device, is taken
out, until the rest compiles or what it rejects is the device's own. So no declaration is taken for
the host's by its looks. Lines and columns stay what they were.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from ptxlab.toolchain.declarations import CppDeclaration, declarations, past_template_head
from ptxlab.toolchain.host_headers import OF_KERNELS, PRELUDE, STANDARD, is_host
from ptxlab.toolchain.source_kernels import Template, launched, templates

PRELUDE_NAME = "ptxlab_host_prelude.h"
INSTANCES = "__nv_name_map"
"""What NVRTC calls the place of the instances it was asked for."""

_ALL_ERRORS = "-Xcudafe=--error_limit=2000"
"""NVRTC ends at 100 errors else, which the headers of one program have of the host, and reads them all once more for the next."""

_DEVICE = frozenset({"__constant__", "__device__", "__global__", "__managed__", "__shared__"})
_CONSTEXPR = frozenset({"constexpr"})
_PURE_VIRTUAL = re.compile(r"=\s*0\s*$")
_HAS_NO_DELETED_FORM = re.compile(r"~\s*\w+\s*\(|\bfriend\b|=\s*default\s*$")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_ERROR = re.compile(
    r"^(?P<path>[^\n]+?)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<what>[^\n]*)"
    r"(?:(?:\n {8,}[^\n]*)*?\n  (?P<text>[^\n]*)\n  (?P<indent>[ \t]*)\^)?",
    re.MULTILINE,
)
_FROM = re.compile(r"at line (?P<line>\d+)(?: of (?P<path>[^\n]+))?")
_OF_HOST = re.compile(r"considered a host function|explicitly marked as a __host__ function")
_ASSERTED = re.compile(r"static assertion failed")
_SYNTAX = re.compile(r"expected |this declaration has no storage|explicit type is missing|unrecog")
_NO_STD = re.compile(r'namespace "(?:cuda::)?std" has no member|name followed by "::" must be')

_INSTANCE = re.compile(r'Input name expression was: "([^"]*)"')

_KEPT, _MARKED, _DELETED, _BLANK = range(4)


class Rejected(NamedTuple):
    """An error of NVRTC: where, 1-based, and what; without a column, ``column`` is 0, and ``text`` empty."""

    path: str
    line: int
    column: int
    what: str
    text: str = ""


class DevicePart:
    """A source and its headers, by their paths, as NVRTC is given them.

    ``includes`` says which file each ``#include`` of a file means. ``hosted`` is whether it is taken for a
    file of nvcc's, which has the host's headers; ``bridged`` whether kernels see ``std`` as well.
    """

    def __init__(
        self,
        path: str,
        texts: Mapping[str, str],
        includes: Mapping[str, Mapping[str, str]],
        missing: tuple[str, ...],
    ) -> None:
        self.path = path
        self.texts = texts
        self.includes = includes
        self.host_headers = [name for name in missing if is_host(name)]
        self.hosted = bool(self.host_headers)
        self.needs_headers = False
        self.bridged = False
        self.wanted: list[str] = []
        self._refused: set[str] = set()
        self._declared: dict[str, list[CppDeclaration]] = {}
        self._taken: dict[tuple[str, int], tuple[CppDeclaration, int]] = {}
        self._why: dict[str, Rejected] = {}

    @property
    def host_text(self) -> str:
        """The text that was taken out."""
        parts = ((path, taken) for (path, _), (taken, how) in self._taken.items() if how == _BLANK)
        return "\n".join(self.texts[path][taken.start : taken.end] for path, taken in parts)

    def why_left_out(self, name: str) -> str | None:
        """Say why a function, variable or class is not there for kernels; None where it is."""
        error = self._why.get(name)
        if error is None:
            return None
        if _OF_HOST.search(error.what):
            return f"{name} is of the host here: __device__ makes it one of kernels too"
        return f"{name} was left out as the host's, for line {error.line} is rejected: {error.what}"

    def templates(self) -> list[Template]:
        return list(templates(self.texts.values()))

    def instances(self) -> list[str]:
        """Return the instances of kernel templates to be made: those wanted, or those the host launches."""
        if self.wanted or not self._taken:
            return self.wanted
        kernels = dict.fromkeys(launched(self.host_text, self.templates()))
        return [name for name in kernels if _bare(name) not in self._refused]

    def text(self) -> str:
        return self._left(self.path)

    def headers(self) -> dict[str, str]:
        """Return the headers that NVRTC is to be given, by the name they are included by."""
        headers = {
            path: f'#line 1 "{_shown(path, self.path)}"\n{self._left(path)}'
            for path in self._changed() - {self.path}
        }
        if self.hosted:
            headers[PRELUDE_NAME] = STANDARD * self.bridged + PRELUDE
            headers |= dict.fromkeys(self.host_headers, "") | OF_KERNELS
        return headers

    def _changed(self) -> set[str]:
        """Return the files that something is taken out of, and those that include them."""
        changed = {path for path, _ in self._taken}
        grown = -1
        while grown != len(changed):
            grown = len(changed)
            changed |= {
                name for name, meant in self.includes.items() if changed & set(meant.values())
            }
        return changed

    def options(self) -> list[str]:
        return [f"--pre-include={PRELUDE_NAME}", _ALL_ERRORS] if self.hosted else []

    def reduce(self, log: str) -> bool:
        """Take out what the log rejects of the host; False when all of it is of the device.

        An assertion that fails speaks to whoever compiles for the device too, so nothing hides it.
        """
        errors = list(rejections(log))
        if any(_ASSERTED.match(error.what) for error in errors):
            return False
        if not self.hosted:
            self.hosted = self.needs_headers = True
            self._reject(errors)
            return bool(errors) and not any("cannot open source" in error.what for error in errors)
        refused = set() if self.wanted else {_bare(name) for name in _INSTANCE.findall(log)}
        fewer = bool(refused - self._refused)
        self._refused |= refused
        if self._reject(errors) or fewer:
            return True
        if self.bridged or not any(_NO_STD.search(error.what) for error in errors):
            return False
        self.bridged = True
        return True

    def _reject(self, errors: list[Rejected]) -> bool:
        """Take out what is rejected: all that is meaningless here, or else the first that does not parse."""
        taken = [self._take(error) for error in errors if not _SYNTAX.match(error.what)]
        return any(taken) or any(self._take(error) for error in errors)

    def _take(self, error: Rejected) -> bool:
        path = self.known(error.path)
        if path is None:
            return False
        at = _offset(self.texts[path], error)
        around = [
            declaration
            for declaration in self._all(path)
            if declaration.start <= at < declaration.end
        ]
        around = [declaration for declaration in around if declaration.kind != "namespace"]
        if not around:
            return False
        return self._take_out(path, around[-1], error)

    def _take_out(self, path: str, declaration: CppDeclaration, error: Rejected) -> bool:
        text = self.texts[path]
        own = text[
            declaration.start : declaration.head
            if declaration.kind == "function"
            else declaration.end
        ]
        if self._words(_DEVICE) & set(_WORD.findall(own)):
            return False
        _, before = self._taken.get((path, declaration.start), (declaration, _KEPT))
        after = _BLANK
        if _OF_HOST.search(error.what) and before == _KEPT:
            # decltype asks ``auto f(...) -> type;`` for its type, and nobody calls it
            asked_for_type = "->" in own and text[declaration.head] == ";"
            constexpr = self._words(_CONSTEXPR) & set(_WORD.findall(own))
            if asked_for_type or constexpr or _PURE_VIRTUAL.search(own):
                after = _MARKED
            elif declaration.outer is not None and not _HAS_NO_DELETED_FORM.search(own):
                after = _DELETED
        field = declaration.kind == "other" and after == _BLANK
        if declaration.outer is not None and (field or before == _BLANK):
            return self._take_out(path, declaration.outer, error)
        self._taken[path, declaration.start] = declaration, after
        if after == _BLANK:
            self._why.setdefault(declaration.name, error)
        return after > before

    def _without(self, text: str, declaration: CppDeclaration, how: int) -> str:
        """Return what is in the place of a declaration, after which all has its line and column."""
        start, end = declaration.start, declaration.end
        if how == _BLANK:
            return _blank(text[start:end])
        if how == _DELETED:
            return f"{text[start : declaration.head]}= delete;{_resumed(text, end)}"
        constexpr = self._words(_CONSTEXPR)
        words = _WORD.finditer(text, start, declaration.head)
        at = next(
            (word.start() for word in words if word[0] in constexpr),
            past_template_head(text, declaration),
        )
        return f"{text[start:at]}__host__ __device__{_resumed(text, at)}{text[at:end]}"

    def _words(self, keywords: frozenset[str]) -> frozenset[str]:
        """Return keywords, and the macros of the texts that stand for one of them."""
        return _with_macros(keywords, tuple(self.texts.values()))

    def _all(self, path: str) -> list[CppDeclaration]:
        if path not in self._declared:
            declared = declarations(self.texts[path])
            self._declared[path] = [inner for each in declared for inner in each.all()]
        return self._declared[path]

    def known(self, path: str) -> str | None:
        if path == self.path:
            return path
        shown = {_shown(known, self.path): known for known in self.texts}
        return shown.get(path) or next(
            (known for known in self.texts if os.path.abspath(known) == os.path.abspath(path)), None
        )

    def _left(self, path: str) -> str:
        """Return a file without what is taken out of it."""
        text, pieces, at = self.texts[path], list[str](), 0
        taken = [taking for (where, _), taking in self._taken.items() if where == path]
        for declaration, how in sorted(taken, key=lambda taking: taking[0].start):
            if declaration.start >= at:  # or it went with the class that it is a member of
                pieces += [text[at : declaration.start], self._without(text, declaration, how)]
                at = declaration.end
        changed = self._changed()
        meant = self.includes.get(path, {})
        named = {name: file for name, file in meant.items() if file in changed or path != self.path}

        def include(match: re.Match[str]) -> str:
            name = match[2] or match[3]
            return f'{match[1]}"{named[name]}"' if name in named else match[0]

        return _INCLUDE.sub(include, "".join(pieces) + text[at:])


def _resumed(text: str, at: int) -> str:
    """Return what has the compiler take the text after it for that at an offset of ``text``."""
    line = text.count("\n", 0, at) + 1
    return f"\n#line {line}\n" + " " * (at - text.rfind("\n", 0, at) - 1)


def _blank(text: str) -> str:
    """Return blanks in place of code, on as many lines; conditions and macros stay."""
    lines = text.split("\n")
    stays = False
    for number, line in enumerate(lines):
        directive = re.match(r"\s*#\s*(?!pragma|include)\w", line)
        stays = bool(directive and number) or (stays and lines[number - 1].endswith("\\"))
        if not stays:
            lines[number] = " " * len(line)
    return "\n".join(lines)


def rejections(log: str) -> Iterator[Rejected]:
    """Yield the errors in a log of NVRTC, each with the places that it says it comes from."""
    matches = list(_ERROR.finditer(log))
    ends = [following.start() for following in matches[1:]] + [len(log)]
    for match, end in zip(matches, ends, strict=False):
        column = 0 if match["indent"] is None else 1 + len(match["indent"])
        yield Rejected(
            match["path"], int(match["line"]), column, match["what"], match["text"] or ""
        )
        for origin in _FROM.finditer(log, match.end(), end):
            path = (origin["path"] or match["path"]).strip().strip('"')
            yield Rejected(path, int(origin["line"]), 0, match["what"])


def _offset(text: str, error: Rejected) -> int:
    """Return where an error is; of a line that it names without a column, where its code begins."""
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: error.line - 1]))
    line = lines[error.line - 1] if error.line <= len(lines) else ""
    column = error.column - 1 if error.column else len(line) - len(line.lstrip())
    return start + max(0, min(column, len(line.rstrip()) - 1))


def _bare(name: str) -> str:
    return "".join(name.split())


def _shown(path: str, main: str) -> str:
    """Return what a file is called beside ``main``, which the user called it."""
    return path if path == main or os.path.isabs(main) else os.path.relpath(path)


@cache
def _with_macros(keywords: frozenset[str], texts: tuple[str, ...]) -> frozenset[str]:
    words = set(keywords)
    macros = [
        (macro[1], set(_WORD.findall(macro[2])))
        for text in texts
        for macro in _MACRO.finditer(text)
    ]
    grown = -1
    while grown != len(words):
        grown = len(words)
        words |= {name for name, used in macros if used & words}
    return frozenset(words)
