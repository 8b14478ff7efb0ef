"""Bit fields and byte permutations: bfe bfi bfind brev clz popc fns bmsk szext prmt.

PTX ISA, "Integer Arithmetic Instructions" and "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array, alike, intrinsic, looked_up, some
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import row
from ptxlab.numbers.types import TYPES

_BYTE = np.uint32(0xFF)

bits = partial(row, mix="logic and bits")

COUNTS: dict[str, Callable[[Array], Array]] = {
    "clamp": lambda count: np.minimum(count, 32),
    "wrap": lambda count: count & 31,
}
"""What counts of up to 32 bits are limited to, by the instruction's mode."""
MODES = " ".join(COUNTS)


# ---- counting and finding -------------------------------------------------------------------


@intrinsic
def bit_length(x: Array) -> Array:
    """Return the bits needed to write each unsigned 32- or 64-bit number: 0 for 0, as int32."""
    if x.dtype == np.uint32:
        return np.frexp(x.astype(np.float64))[1]
    high = np.frexp((x >> 32).astype(np.float64))[1]
    low = np.frexp((x & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low)


def _leading_zeros(T: str) -> Callable[[Array], Array]:
    width = TYPES[T].bits
    return lambda a: (width - bit_length(a)).astype(np.uint32)


def _bfind(shiftamt: str, T: str) -> Callable[[Array], Array]:
    """Find the place of the leading bit that differs from the sign; all ones where there is none.

    With ``.shiftamt`` return the left shift that brings it to the top.
    """
    kind = TYPES[T]

    def compute(a: Array) -> Array:
        number = np.where(a < 0, ~a, a) if kind.kind == "signed" else a
        position = bit_length(number.view(f"u{kind.bytes}")) - 1
        if shiftamt:
            position = np.where(position < 0, position, kind.bits - 1 - position)
        return position.astype(np.uint32)

    return compute


def _fns(mask: Array, base: Array, offset: Array) -> Array:
    """Find the place of the offset-th one from ``base``, up or down; all ones where there is none.

    An offset of 0 asks for ``base`` itself.
    """
    down = offset < 0
    width = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
    left = np.broadcast_to(np.where(down, -offset, np.maximum(offset, 1)), width).astype(np.int64)
    result = np.full(width, 0xFFFFFFFF, np.uint32)
    for distance in range(32):
        bit = np.where(down, -distance, distance) + base.astype(np.int64)
        inside = (bit >= 0) & (bit < 32) & ((offset != 0) | (distance == 0))
        is_set = inside & (mask >> np.clip(bit, 0, 31).astype(np.uint32) & 1).astype(bool)
        left = left - is_set
        result = np.where(is_set & (left == 0), bit, result).astype(np.uint32)
    return result


_REVERSED_BYTE = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


@intrinsic
def reversed_bits(a: Array) -> Array:
    return _REVERSED_BYTE[np.ascontiguousarray(a).view(np.uint8)].view(a.dtype).byteswap()


_count = partial(bits, operands="T -> u32", T="b32 b64")
_count("popc.<T>", compute=lambda a: np.bitwise_count(a).astype(np.uint32))
_count("clz.<T>", make=_leading_zeros)
bits("bfind{.shiftamt}.<T>", "T -> u32", make=_bfind, T="u32 u64 s32 s64")
bits("fns.b32", "b32 u32 s32 -> b32", _fns)
bits("brev.<T>", "T -> T", reversed_bits, T="b32 b64")


# ---- fields ---------------------------------------------------------------------------------


def _extract(T: str) -> Callable[[Array, Array, Array], Array]:
    """Return c bits of a from bit b up; signed types extend the field's sign."""
    kind = TYPES[T]
    dtype = kind.dtype

    def compute(a: Array, b: Array, c: Array) -> Array:
        unused = np.maximum(kind.bits - (c & _BYTE).astype(np.int32), 0).astype(dtype)
        field = a >> (b & _BYTE).astype(dtype)
        return (field << unused) >> unused

    return compute


def _insert(T: str) -> Callable[[Array, Array, Array, Array], Array]:
    """Return b with d bits of a put in from bit c up."""
    dtype = TYPES[T].dtype
    unit = dtype.type(1)

    def compute(a: Array, b: Array, c: Array, d: Array) -> Array:
        start = (c & _BYTE).astype(dtype)
        mask = ((unit << (d & _BYTE).astype(dtype)) - unit) << start
        merged: Array = b ^ ((b ^ (a << start)) & mask)
        return merged

    return compute


def _ones_from(start: Array) -> Array:
    return np.left_shift(np.uint32(0xFFFFFFFF), start)


def _mask(mode: str) -> Callable[[Array, Array], Array]:
    """Return b ones from bit a up; both modulo 32 with ``.wrap``."""
    limited = COUNTS[mode]

    def compute(a: Array, b: Array) -> Array:
        first, count = limited(a), limited(b)
        return _ones_from(first) & ~_ones_from(first + count)

    return compute


def _extended(mode: str, T: str) -> Callable[[Array, Array], Array]:
    """Return a as a number of b bits, extended to 32."""
    limited, dtype = COUNTS[mode], TYPES[T].dtype

    def compute(a: Array, b: Array) -> Array:
        unused = (32 - limited(b)).astype(dtype)
        return (a << unused) >> unused

    return compute


bits("bfe.<T>", "T u32<256 u32<256 -> T", make=_extract, T="u32 u64 s32 s64")
bits("bfi.<T>", "T T u32<256 u32<256 -> T", make=_insert, T="b32 b64")
bits("bmsk.<mode>.b32", "u32 u32 -> u32", make=_mask, needs="sm_70 7.6", mode=MODES)
bits("szext.<mode>.<T>", "T u32 -> T", make=_extended, needs="sm_70 7.6", mode=MODES, T="u32 s32")


# ---- prmt -----------------------------------------------------------------------------------


def _permute(a: Array, b: Array, selectors: Array) -> Array:
    """Return four of the eight bytes of b:a, picked by nibbles, whose top bit replicates the sign."""
    known = alike(selectors)
    if known is not None:
        return _permute_alike(a, b, known)
    both = (b.astype(np.uint64) << 32) | a
    d: Array = np.zeros(1, np.uint32)
    for i in range(4):
        nibble = selectors >> np.uint32(4 * i)
        byte = (both >> ((nibble & np.uint32(7)) << np.uint32(3))).astype(np.uint32) & _BYTE
        if some(nibble & np.uint32(8) != 0):
            byte = np.where(nibble & np.uint32(8), (byte >> np.uint32(7)) * _BYTE, byte)
        d = d | (byte << np.uint32(8 * i))
    return d


def _permute_alike(a: Array, b: Array, selectors: int) -> Array:
    """Permute with the same selectors in all lanes, as an immediate control gives them."""
    d: Array = np.zeros(1, np.uint32)
    for i in range(4):
        nibble = selectors >> 4 * i
        byte = (b if nibble & 4 else a) >> np.uint32(8 * (nibble & 3))
        byte = ((byte >> np.uint32(7)) & np.uint32(1)) * _BYTE if nibble & 8 else byte & _BYTE
        d = d | (byte << np.uint32(8 * i))
    return d


def _selectors(row: Callable[[int], tuple[int, ...]]) -> Array:
    """Return the prmt selector of each value of the control's two low bits, low byte first."""
    return np.array([sum(byte << 4 * i for i, byte in enumerate(row(c))) for c in range(4)], "u4")


_MODES_OF_PRMT: dict[str, Array] = {
    "f4e": _selectors(lambda c: (c, c + 1, c + 2, c + 3)),
    "b4e": _selectors(lambda c: (c, (c - 1) % 8, (c - 2) % 8, (c - 3) % 8)),
    "rc8": _selectors(lambda c: (c, c, c, c)),
    "ecl": _selectors(lambda c: tuple(max(i, c) for i in range(4))),
    "ecr": _selectors(lambda c: tuple(min(i, c) for i in range(4))),
    "rc16": _selectors(lambda c: ((0, 1) if c % 2 == 0 else (2, 3)) * 2),
}


def _permute_by_mode(mode: str) -> Callable[[Array, Array, Array], Array]:
    table = _MODES_OF_PRMT[mode]
    return lambda a, b, c: _permute(a, b, looked_up(c & np.uint32(3), table))


_prmt = partial(bits, operands="b32 b32 b32 -> b32", effects=Effects(passes="chosen"))
_prmt("prmt.b32", compute=_permute)
_prmt("prmt.b32.<mode>", make=_permute_by_mode, mode=" ".join(_MODES_OF_PRMT))
