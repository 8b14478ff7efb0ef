"""A place in the list of tokens: what every parsing function reads from and complains through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from ptxlab.errors import PtxSyntaxError, did_you_mean, shortened
from ptxlab.syntax.lexer import Token, TokenKind, locate, tokenize
from ptxlab.syntax.tree import Position, SourceText

T = TypeVar("T")

_TAKEN = ("_", "WARP_SZ")


class Cursor:
    """Walks over the tokens of ``source``; ``token`` is the one not yet taken.

    With ``skim`` it passes over functions' bodies; one ``body`` passed over has a cursor of its own.
    """

    __slots__ = ("_index", "_tokens", "source", "token")

    def __init__(
        self, source: SourceText, body: Token | None = None, *, skim: bool = False
    ) -> None:
        self.source = source
        self._tokens = tokenize(source, body, skim=skim)
        self._index = 0
        self.token = self._tokens[0]

    def advance(self) -> Token:
        """Take the current token. The last one, of kind END, is never passed."""
        taken = self.token
        if taken.kind is not TokenKind.END:
            self._index += 1
            self.token = self._tokens[self._index]
        return taken

    def peek(self) -> Token:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def accept(self, text: str) -> bool:
        """Take the current token if it reads ``text``, and say whether it did."""
        if self.token.text != text:
            return False
        self.advance()
        return True

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """item { "," item }"""
        items = [item()]
        while self.token.text == ",":
            self.advance()
            items.append(item())
        return tuple(items)

    def expect(self, text: str, after: str) -> Token:
        """Take ``text``; ``after`` says what it must follow, for the error."""
        if self.token.text == text:
            return self.advance()
        if text == ";":
            self.fail_unended(after)
        return self.fail(f"expected '{text}' after {after}, found {self.found()}")

    def word(self, what: str) -> Token:
        token = self.token
        if token.kind is not TokenKind.WORD:
            self.fail(f"expected {what}, found {self.found()}")
        if "." in token.text:
            self.fail(f"expected {what}, found {self.found()}", hint="a name has no '.' in it")
        return self.advance()

    def name(self, what: str) -> Token:
        """Take a word that something may be called."""
        if self.token.text in _TAKEN:
            self.fail(f"{self.found()} is no name", hint="it has a meaning of its own")
        return self.word(what)

    def string(self, what: str) -> str:
        """Take a string and return what stands between its quotes."""
        if self.token.kind is not TokenKind.STRING:
            self.fail(f"expected {what} in quotes, found {self.found()}")
        return self.advance().text[1:-1]

    def integer(self, what: str) -> int:
        if self.token.kind is not TokenKind.INTEGER:
            self.fail(f"expected {what}, found {self.found()}")
        return self.integer_value(self.advance())

    def integer_value(self, token: Token) -> int:
        """Return the value of an integer literal (PTX ISA, "Integer Constants")."""
        digits = token.text.rstrip("U")
        octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
        # Python refuses to convert thousands of decimal digits; no literal needs a hundred.
        value = int(digits, 8 if octal else 0) if len(digits) < 100 else 1 << 64
        if value >= 1 << 64:
            self.fail("integer does not fit in 64 bits", token.position)
        return value

    def at_end(self) -> bool:
        return self.token.kind is TokenKind.END

    def starts_line(self) -> bool:
        """Say whether the current token is on a later line than the one before it."""
        before = self._tokens[self._index - 1]
        return self._index == 0 or self.token.position.line > before.position.line

    def behind(self) -> Position:
        """Return the place just behind the last token taken."""
        if self._index == 0:
            return self.token.position
        last = self._tokens[self._index - 1]
        return Position(last.position.line, last.position.column + len(last.text))

    def found(self) -> str:
        """Describe the current token for an error."""
        return "the end of the file" if self.at_end() else f"'{shortened(self.token.text)}'"

    def fail(
        self, message: str, position: Position | None = None, hint: str | None = None
    ) -> NoReturn:
        """Raise PtxSyntaxError at ``position``, by default at the current token."""
        location = locate(self.source, position or self.token.position)
        raise PtxSyntaxError(message, location=location, hint=hint)

    def fail_unended(self, what: str, position: Position | None = None) -> NoReturn:
        """Raise PtxSyntaxError at ``position``, by default behind the last token taken."""
        self.fail(f"missing ';' after {what}", position or self.behind(), "end it with ';'")

    def fail_unknown(self, what: str, known: Iterable[str]) -> NoReturn:
        """Raise PtxSyntaxError about the current directive, naming the nearest of ``known``."""
        self.fail(f"unknown {what} {self.found()}", hint=did_you_mean(self.token.text, known))
