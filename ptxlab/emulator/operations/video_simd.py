"""SIMD video instructions: vadd vsub vavrg vabsdiff vmin vmax vset of 2 halves and of 4 bytes.

PTX ISA, "SIMD Video Instructions". Each lane of a source is any of the halves (bytes) of a and b;
results replace parts of c, or are added up and on to c.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.emulator.operations.video import (
    COMPARE,
    PRIMARY,
    SIGNS,
    THREE,
    WHOLE,
    Parts,
    clamp,
    extended,
    low_word,
    video,
)
from ptxlab.emulator.prepare.row import Array, UnknownForm


def _average(a: Array, b: Array) -> Array:
    """Halve the sum, rounding ties away from zero."""
    total = a + b
    return (total + (total >= 0)) >> 1


def _chosen(selector: str, lanes: int, default: range) -> list[int]:
    """Return which part of b:a each lane reads; ``.h32`` and ``.b7654`` name the upper lane first."""
    if not selector:
        return list(default)
    letter, digits = selector[0], selector[1:]
    known = len(digits) == lanes and all(digit in "01234567"[: 2 * lanes] for digit in digits)
    if letter != _LETTER[lanes] or not known:
        raise UnknownForm(f"does not take .{selector} as a source selector")
    return [int(digit) for digit in reversed(digits)]


_LETTER = {2: "h", 4: "b"}


def _mask(selector: str, lanes: int) -> list[int]:
    """Return the lanes that the destination's mask names, ``.h10`` or ``.b3210`` by default."""
    if not selector:
        return list(range(lanes))
    places = [int(digit) for digit in reversed(selector[1:]) if digit.isdigit()]
    ordered = places == sorted(set(places)) and places and places[-1] < lanes
    if selector[0] != _LETTER[lanes] or not ordered or len(places) != len(selector) - 1:
        raise UnknownForm(f"does not take .{selector} as a mask")
    return places


def _by_lane(
    primary: Callable[[Array, Array], Array],
    lanes: int,
    A: str,
    B: str,
    D: str = "u32",
    sat: str = "",
    add: str = "",
    parts: Parts = WHOLE,
) -> Callable[[Array, Array, Array], Array]:
    """Return vop2 or vop4 with .D.A.B{.sat, .add} for the given mask and selectors."""
    bits = 32 // lanes
    mask = _mask(parts[0], lanes)
    from_a = _chosen(parts[1], lanes, range(lanes))
    from_b = _chosen(parts[2], lanes, range(lanes, 2 * lanes))

    def pick(a: Array, b: Array, place: int, T: str) -> Array:
        word = a if place < lanes else b
        return extended(word >> np.uint32(bits * (place % lanes)), bits, T == "s32")

    def compute(a: Array, b: Array, c: Array) -> Array:
        total = c
        for lane in mask:
            x = pick(a, b, from_a[lane], A)
            y = pick(a, b, from_b[lane], B)
            r = primary(x, y).astype(np.int64)
            if add:
                total = total + low_word(r)
                continue
            field = np.uint32(((1 << bits) - 1) << (bits * lane))
            placed = low_word(clamp(r, bits, D == "s32") if sat else r) << np.uint32(bits * lane)
            total = (total & ~field) | (placed & field)
        return total

    return compute


def _compared(
    lanes: int, cmp: str, A: str, B: str, add: str, parts: Parts = WHOLE
) -> Callable[[Array, Array, Array], Array]:
    return _by_lane(COMPARE[cmp], lanes, A, B, add=add, parts=parts)


for _lanes in (2, 4):
    for _name, _primary in (*PRIMARY.items(), ("vavrg", _average)):
        _row = partial(video, make=partial(_by_lane, _primary, _lanes), D=SIGNS, A=SIGNS, B=SIGNS)
        _row(f"{_name}{_lanes}.<D>.<A>.<B>{{.sat}}", THREE)
        _row(f"{_name}{_lanes}.<D>.<A>.<B>.<add>", THREE, add="add")
    video(
        f"vset{_lanes}.<A>.<B>.<cmp>{{.add}}",
        THREE,
        make=partial(_compared, _lanes),
        A=SIGNS,
        B=SIGNS,
        cmp=" ".join(COMPARE),
    )
