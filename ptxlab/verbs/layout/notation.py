"""Layouts as text: CuTe's notation, and ``RxC`` for a row-major matrix.

    text   := [swizzle "o"] [offset "o"] layout  |  [swizzle ["_" | "o"]] pointer "o" layout
    swizzle:= ("Sw<" | "S<") bits "," base "," shift ">"
    pointer:= ("smem" | "gmem") "_ptr[" bits "b](" whatever ")"
    layout := size "x" size {"x" size}  |  tuple [":" tuple]
    tuple  := integer  |  "(" tuple {"," tuple} ")"
    integer:= ["_"] digits

A shape without a stride is column-major, and ``_8`` is 8 known when CuTe compiles. A swizzle before a pointer is
one of addresses in bytes, as CuTe prints it; it is given here in elements of as many bits as the pointer says.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ptxlab.errors import Location, PtxlabError
from ptxlab.layouts.int_tuple import IntTuple, congruent
from ptxlab.layouts.layout import IDENTITY, ComposedLayout, Layout, Swizzle

HINT = "layouts look like 2x6, (2,6):(6,1), ((2,2),8):((1,16),2) or Sw<3,3,3> o (8,64):(64,1)"
_POINTER = r"[gs]mem_ptr\[(\d+)b\]\([^)]*\)\s*"
_SWIZZLE = r"Sw?<\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*>"


def parse_layout(text: str) -> Layout | ComposedLayout:
    """Read a layout. Raises PtxlabError with the place of what cannot be read."""
    return _Reader(text).whole()


def element_bits(text: str) -> int | None:
    """Return how many bits an element has by the pointer of a layout that CuTe prints, None where there is none."""
    pointer = re.search(r"_ptr\[(\d+)b\]", text)
    return int(pointer[1]) if pointer else None


class _Reader:
    """A cursor over the text, never before a blank; the methods read the rules of their names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.take("")

    def whole(self) -> Layout | ComposedLayout:
        self.take(_POINTER + r"o\b")
        swizzle, offset = self.swizzle(), self.take(r"_?(\d+)\s*o\b")
        layout = self.layout()
        if self.at < len(self.text):
            self.fail("the layout ends here")
        if swizzle is None and offset is None:
            return layout
        return ComposedLayout(swizzle or IDENTITY, int(offset[1]) if offset else 0, layout)

    def swizzle(self) -> Swizzle | None:
        if not self.text.startswith("S", self.at):
            return None
        start = self.at
        match = self.take(_SWIZZLE)
        if match is None:
            self.fail("a swizzle is Sw<bits,base,shift>")
        try:
            swizzle = Swizzle(*map(int, match.groups()))
        except ValueError as error:
            self.fail(str(error), start)
        pointer = self.take(r"(?:_|o\s*)" + _POINTER)
        self.expect("o", "and then the layout")
        return swizzle if pointer is None else self.of_elements(swizzle, int(pointer[1]), start)

    def of_elements(self, swizzle: Swizzle, bits: int, start: int) -> Swizzle:
        """Return a swizzle of bytes as one of elements of so many bits."""
        lower = (bits // 8).bit_length() - 1
        if bits < 8 or swizzle.base < lower:
            self.fail(f"a swizzle of bytes that is none of elements of {bits} bits", start)
        return Swizzle(swizzle.bits, swizzle.base - lower, swizzle.shift)

    def layout(self) -> Layout:
        start = self.at
        sizes = self.take(r"(\d+(?:x\d+)+)")
        if sizes:
            return self.made(start, tuple(map(int, sizes[1].split("x"))), None)
        shape = self.tuple_()
        if not self.take(":"):
            return self.made(start, shape, None)
        behind = self.at
        stride = self.tuple_()
        if not congruent(shape, stride):
            self.fail("the stride does not nest as the shape does", behind)
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
        if not self.take(r"\("):
            return self.integer()
        parts = [self.tuple_()]
        while self.take(","):
            parts.append(self.tuple_())
        self.expect(")", "or a comma")
        return tuple(parts)

    def integer(self) -> int:
        match = self.take(r"_?(\d+)")
        if match is None:
            self.fail("expected an integer or (")
        return int(match[1])

    def take(self, pattern: str) -> re.Match[str] | None:
        """Move behind ``pattern`` and the blanks that follow, where the text goes on like that."""
        match = re.compile(rf"{pattern}\s*").match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def expect(self, token: str, also: str) -> None:
        if not self.take(re.escape(token)):
            self.fail(f"expected {token!r} {also}")

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        column = (self.at if at is None else at) + 1
        raise PtxlabError(message, location=Location("layout", 1, column, self.text), hint=HINT)
