"""Layouts as text: CuTe's notation, and ``RxC`` for a row-major matrix.

    text   := [swizzle "o"] [offset "o"] layout
    swizzle:= "Sw<" bits "," base "," shift ">"
    layout := size "x" size {"x" size}  |  tuple [":" tuple]
    tuple  := integer  |  "(" tuple {"," tuple} ")"

A shape without a stride is column-major, as in CuTe.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ptxlab.errors import Location, PtxlabError
from ptxlab.layouts.int_tuple import IntTuple, congruent
from ptxlab.layouts.layout import IDENTITY, ComposedLayout, Layout, Swizzle

HINT = "layouts look like 2x6, (2,6):(6,1), ((2,2),8):((1,16),2) or Sw<3,3,3> o (8,64):(64,1)"
_SWIZZLE = re.compile(r"Sw<\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*>")
_OFFSET = re.compile(r"(\d+)\s*o")
_SIZES = re.compile(r"\d+(?:x\d+)+")
_INTEGER = re.compile(r"\d+")


def parse_layout(text: str) -> Layout | ComposedLayout:
    """Read a layout. Raises PtxlabError with the place of what cannot be read."""
    return _Reader(text).whole()


class _Reader:
    """A cursor over the text; each method reads the rule of its name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> Layout | ComposedLayout:
        swizzle, offset = self.swizzle(), self.offset()
        layout = self.layout()
        if self.next():
            self.fail("the layout ends here")
        if swizzle is None and offset is None:
            return layout
        return ComposedLayout(swizzle or IDENTITY, offset or 0, layout)

    def swizzle(self) -> Swizzle | None:
        if not self.next("S"):
            return None
        self.at += self.blanks()
        found = _SWIZZLE.match(self.text, self.at)
        if found is None:
            self.fail("a swizzle is Sw<bits,base,shift>")
        try:
            swizzle = Swizzle(*map(int, found.groups()))
        except ValueError as error:
            self.fail(str(error))
        self.at = found.end()
        self.expect("o", "and then the layout")
        return swizzle

    def offset(self) -> int | None:
        found = _OFFSET.match(self.text, self.at + self.blanks())
        if found is None:
            return None
        self.at = found.end()
        return int(found[1])

    def layout(self) -> Layout:
        start = self.at + self.blanks()
        sizes = _SIZES.match(self.text, start)
        if sizes:
            self.at = sizes.end()
            return self.made(start, tuple(map(int, sizes[0].split("x"))), None)
        shape = self.tuple_()
        if not self.next(":"):
            return self.made(start, shape, None)
        self.expect(":")
        colon = self.at
        stride = self.tuple_()
        if not congruent(shape, stride):
            self.fail("the stride does not nest as the shape does", colon + self.blanks(colon))
        return self.made(start, shape, stride)

    def made(self, start: int, shape: IntTuple, stride: IntTuple | None) -> Layout:
        try:
            if stride is not None:
                return Layout(shape, stride)
            by_columns = self.text[start] == "(" or isinstance(shape, int)
            return Layout.col_major(shape) if by_columns else Layout.row_major(shape)
        except ValueError:
            self.fail("a size is 1 or more", start)

    def tuple_(self) -> IntTuple:
        if not self.next("("):
            return self.integer()
        self.expect("(")
        parts = [self.tuple_()]
        while self.next(","):
            self.expect(",")
            parts.append(self.tuple_())
        self.expect(")", "or a comma")
        return tuple(parts)

    def integer(self) -> int:
        found = _INTEGER.match(self.text, self.at + self.blanks())
        if found is None:
            self.fail("expected an integer or (")
        self.at = found.end()
        return int(found[0])

    def blanks(self, start: int | None = None) -> int:
        rest = self.text[self.at if start is None else start :]
        return len(rest) - len(rest.lstrip())

    def next(self, wanted: str = "") -> bool:
        """Say whether something is left, and starts with ``wanted``."""
        rest = self.text[self.at :].lstrip()
        return bool(rest) and rest.startswith(wanted)

    def expect(self, token: str, also: str = "") -> None:
        if not self.next(token):
            self.fail(f"expected {token!r} {also}".rstrip())
        self.at += self.blanks() + len(token)

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        column = (self.at + self.blanks() if at is None else at) + 1
        raise PtxlabError(message, location=Location("layout", 1, column, self.text), hint=HINT)
