"""Layouts as text, swizzled or of a pointer too:

    text   := [swizzle "o"] [offset "o"] layout  |  [swizzle ["_" | "o"]] pointer "o" layout
    swizzle:= ("Sw<" | "S<") bits "," base "," shift ">"
    pointer:= ("smem" | "gmem") "_ptr[" bits "b](" whatever ")"

A layout is what ``ptxlab.layouts.reading`` has. A swizzle before a pointer is one of addresses in bytes, as CuTe
prints it; it is given here in elements of as many bits as the pointer says.
"""

from __future__ import annotations

import re

from ptxlab.layouts.layout import IDENTITY, ComposedLayout, Layout, Swizzle
from ptxlab.layouts.reading import LayoutReader

_POINTER = r"[gs]mem_ptr\[(\d+)b\]\([^)]*\)\s*"
_SWIZZLE = r"Sw?<\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*>"


def parse_layout(text: str) -> Layout | ComposedLayout:
    """Read a layout. Raises PtxlabError with the place of what cannot be read."""
    reader = _Reader(text)
    layout = reader.whole()
    reader.end()
    return layout


def element_bits(text: str) -> int | None:
    """Return how many bits an element has by the pointer of a layout that CuTe prints, None where there is none."""
    pointer = re.search(r"_ptr\[(\d+)b\]", text)
    return int(pointer[1]) if pointer else None


class _Reader(LayoutReader):
    def whole(self) -> Layout | ComposedLayout:
        self.take(_POINTER + r"o\b")
        swizzle, offset = self.swizzle(), self.take(r"_?(\d+)\s*o\b")
        layout = Layout(*self.plain())
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
