"""A shape and its stride as text: CuTe's notation, and ``RxC`` for a row-major matrix.

    layout := size "x" size {"x" size}  |  tuple [":" tuple]
    tuple  := integer  |  "(" tuple {"," tuple} ")"
    integer:= ["_"] digits

A shape without a stride is column-major, and ``_8`` is 8 known when CuTe compiles.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ptxlab.errors import Location, PtxlabError
from ptxlab.layouts.int_tuple import IntTuple, compact, congruent, leaves, reverse

HINT = "layouts look like 2x6, (2,6):(6,1), ((2,2),8):((1,16),2) or Sw<3,3,3> o (8,64):(64,1)"


def shape_and_stride(text: str) -> tuple[IntTuple, IntTuple]:
    """Read a plain layout. Raises PtxlabError with the place of what cannot be read."""
    reader = LayoutReader(text)
    read = reader.plain()
    reader.end()
    return read


class LayoutReader:
    """A cursor over the text, never before a blank; the methods read the rules of their names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.take("")

    def end(self) -> None:
        """Raise PtxlabError for what stands behind."""
        if self.at < len(self.text):
            self.fail("the layout ends here")

    def plain(self) -> tuple[IntTuple, IntTuple]:
        """Read ``layout``: its shape, and its stride."""
        start = self.at
        sizes = self.take(r"(\d+(?:x\d+)+)")
        if sizes:
            shape: IntTuple = tuple(map(int, sizes[1].split("x")))
            self.check_sizes(shape, start)
            return shape, reverse(compact(reverse(shape)))
        shape = self.tuple_()
        if not self.take(":"):
            self.check_sizes(shape, start)
            return shape, compact(shape)
        behind = self.at
        stride = self.tuple_()
        if not congruent(shape, stride):
            self.fail("the stride does not nest as the shape does", behind)
        self.check_sizes(shape, start)
        return shape, stride

    def check_sizes(self, shape: IntTuple, start: int) -> None:
        """Raise PtxlabError for a size of 0."""
        if min(leaves(shape)) < 1:
            self.fail("a size is 1 or more", start)

    def tuple_(self) -> IntTuple:
        """Read ``tuple``."""
        if not self.take(r"\("):
            return self.integer()
        parts = [self.tuple_()]
        while self.take(","):
            parts.append(self.tuple_())
        self.expect(")", "or a comma")
        return tuple(parts)

    def integer(self) -> int:
        """Read ``integer``."""
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
        """Move behind ``token``, or raise PtxlabError that says what ``also`` might stand there."""
        if not self.take(re.escape(token)):
            self.fail(f"expected {token!r} {also}")

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise PtxlabError that points to where the cursor is, or to ``at``."""
        column = (self.at if at is None else at) + 1
        raise PtxlabError(message, location=Location("layout", 1, column, self.text), hint=HINT)
