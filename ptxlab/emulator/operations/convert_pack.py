"""cvt.pack: two saturated integers side by side. Source: PTX ISA, "cvt.pack"."""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.row import Alu, Array, UnknownForm

_WIDE = ("u16", "s16")
_NARROW = tuple(f"{sign}{bits}" for bits in (8, 4, 2) for sign in "us")


def build(m: Modifiers) -> Alu:
    """``cvt.pack.sat{.u16, .s16}.s32 d, a, b`` and, with c shifted in above, of 8, 4 and 2 bits.

    b becomes the lowest part of d, a the one above it.
    """
    if not m.take("sat"):
        raise UnknownForm("needs .sat")
    name = m.one_of(*_WIDE, *_NARROW)
    m.type("s32")
    bits = int(name[1:])
    low, high = (
        (0, (1 << bits) - 1) if name[0] == "u" else (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    )
    mask, shift = np.uint32((1 << bits) - 1), np.uint32(bits)

    def part(x: Array) -> Array:
        return np.clip(x, low, high).view(np.uint32) & mask

    def two(a: Array, b: Array) -> Array:
        return (part(a) << shift) | part(b)

    if name in _WIDE:
        return Alu(("b32",), ("s32", "s32"), two)
    m.type("b32")
    return Alu(("b32",), ("s32", "s32", "b32"), lambda a, b, c: (c << (shift + shift)) | two(a, b))
