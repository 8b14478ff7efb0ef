"""Bit fields and byte permutations: bfe bfi bfind brev clz popc fns bmsk szext prmt.

PTX ISA, "Integer Arithmetic Instructions" and "Data Movement and Conversion Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, alu

_BYTE = np.uint32(0xFF)


@alu("popc")
def _popc(m: Modifiers) -> Alu:
    name = m.type("b32", "b64").name
    return Alu(("u32",), (name,), lambda a: np.bitwise_count(a).astype(np.uint32))


def bit_length(x: Array) -> Array:
    """Return the bits needed to write each unsigned 32- or 64-bit number: 0 for 0, as int32."""
    if x.dtype == np.uint32:
        return np.frexp(x.astype(np.float64))[1]
    high = np.frexp((x >> 32).astype(np.float64))[1]
    low = np.frexp((x & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low)


@alu("clz")
def _clz(m: Modifiers) -> Alu:
    kind = m.type("b32", "b64")
    return Alu(("u32",), (kind.name,), lambda a: (kind.bits - bit_length(a)).astype(np.uint32))


@alu("bfind")
def _bfind(m: Modifiers) -> Alu:
    """``bfind{.shiftamt}.type``: the place of the leading bit that differs from the sign.

    All ones where there is none; with ``.shiftamt`` the left shift that brings it to the top.
    """
    shift = m.take("shiftamt")
    kind = m.type("u32", "u64", "s32", "s64")

    def compute(a: Array) -> Array:
        bits = np.where(a < 0, ~a, a) if kind.kind == "signed" else a
        place = bit_length(bits.view(f"u{kind.bytes}")) - 1
        if shift:
            place = np.where(place < 0, place, kind.bits - 1 - place)
        return place.astype(np.uint32)

    return Alu(("u32",), (kind.name,), compute)


@alu("fns")
def _fns(m: Modifiers) -> Alu:
    """``fns.b32 d, mask, base, offset``: the place of the offset-th one from ``base``, up or down.

    All ones where there is none. An offset of 0 asks for ``base`` itself.
    """
    m.type("b32")

    def compute(mask: Array, base: Array, offset: Array) -> Array:
        down = offset < 0
        width = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
        left = np.broadcast_to(np.where(down, -offset, np.maximum(offset, 1)), width).astype(
            np.int64
        )
        found = np.full(width, 0xFFFFFFFF, np.uint32)
        for distance in range(32):
            place = np.where(down, -distance, distance) + base.astype(np.int64)
            inside = (place >= 0) & (place < 32) & ((offset != 0) | (distance == 0))
            one = inside & (mask >> np.clip(place, 0, 31).astype(np.uint32) & 1).astype(bool)
            left = left - one
            found = np.where(one & (left == 0), place, found).astype(np.uint32)
        return found

    return Alu(("b32",), ("b32", "u32", "s32"), compute)


_REVERSED_BYTE = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


@alu("brev")
def _brev(m: Modifiers) -> Alu:
    kind = m.type("b32", "b64")

    def compute(a: Array) -> Array:
        return _REVERSED_BYTE[np.ascontiguousarray(a).view(np.uint8)].view(a.dtype).byteswap()

    return Alu((kind.name,), (kind.name,), compute)


@alu("bfe")
def _bfe(m: Modifiers) -> Alu:
    """``bfe.type d, a, b, c``: c bits of a from bit b up; signed types extend the field's sign."""
    kind = m.type("u32", "s32", "u64", "s64")
    dtype = kind.dtype

    def compute(a: Array, b: Array, c: Array) -> Array:
        unused = np.maximum(kind.bits - (c & _BYTE).astype(np.int32), 0).astype(dtype)
        field = a >> (b & _BYTE).astype(dtype)
        return (field << unused) >> unused

    return Alu((kind.name,), (kind.name, "u32", "u32"), compute)


@alu("bfi")
def _bfi(m: Modifiers) -> Alu:
    """``bfi.type f, a, b, c, d``: b with d bits of a put in from bit c up."""
    kind = m.type("b32", "b64")
    dtype = kind.dtype
    one = dtype.type(1)

    def compute(a: Array, b: Array, c: Array, d: Array) -> Array:
        place = (c & _BYTE).astype(dtype)
        mask = ((one << (d & _BYTE).astype(dtype)) - one) << place
        merged: Array = b ^ ((b ^ (a << place)) & mask)
        return merged

    return Alu((kind.name,), (kind.name, kind.name, "u32", "u32"), compute)


def _ones_from(place: Array) -> Array:
    return np.left_shift(np.uint32(0xFFFFFFFF), place)


@alu("bmsk")
def _bmsk(m: Modifiers) -> Alu:
    """``bmsk{.clamp, .wrap}.b32 d, a, b``: b ones from bit a up; both modulo 32 with ``.wrap``."""
    clamp = m.one_of("clamp", "wrap") == "clamp"
    m.type("b32")

    def compute(a: Array, b: Array) -> Array:
        if clamp:
            b = np.minimum(b, np.uint32(32))  # from bit 32 up there are no ones anyway
        else:
            a, b = a & np.uint32(31), b & np.uint32(31)
        return _ones_from(a) & ~_ones_from(a + b)

    return Alu(("b32",), ("u32", "u32"), compute)


@alu("szext")
def _szext(m: Modifiers) -> Alu:
    """``szext{.clamp, .wrap}.type d, a, b``: a as a number of b bits, extended to 32."""
    clamp = m.one_of("clamp", "wrap") == "clamp"
    kind = m.type("u32", "s32")

    def compute(a: Array, b: Array) -> Array:
        count = np.minimum(b, np.uint32(32)) if clamp else b & np.uint32(31)
        unused = (32 - count).astype(kind.dtype)
        return (a << unused) >> unused

    return Alu((kind.name,), (kind.name, "u32"), compute)


def _selectors(row: Callable[[int], tuple[int, ...]]) -> Array:
    """Return the prmt selector of each value of the control's two low bits, low byte first."""
    return np.array([sum(byte << 4 * i for i, byte in enumerate(row(c))) for c in range(4)], "u4")


_PRMT_MODES: dict[str, Array] = {
    "f4e": _selectors(lambda c: (c, c + 1, c + 2, c + 3)),
    "b4e": _selectors(lambda c: (c, (c - 1) % 8, (c - 2) % 8, (c - 3) % 8)),
    "rc8": _selectors(lambda c: (c, c, c, c)),
    "ecl": _selectors(lambda c: tuple(max(i, c) for i in range(4))),
    "ecr": _selectors(lambda c: tuple(min(i, c) for i in range(4))),
    "rc16": _selectors(lambda c: ((0, 1) if c % 2 == 0 else (2, 3)) * 2),
}


@alu("prmt")
def _prmt(m: Modifiers) -> Alu:
    """``prmt.b32{.mode} d, a, b, c``: four of the eight bytes of b:a, picked by nibbles of c.

    The top bit of a nibble replicates the byte's sign instead.
    """
    m.type("b32")
    mode = m.one_of(*_PRMT_MODES, default="")
    if not mode:
        return Alu(("b32",), ("b32", "b32", "b32"), _permute)
    table = _PRMT_MODES[mode]
    return Alu(
        ("b32",),
        ("b32", "b32", "b32"),
        lambda a, b, c: _permute(a, b, table[c & np.uint32(3)]),
    )


def _permute(a: Array, b: Array, selectors: Array) -> Array:
    if selectors.size == 1:
        return _permute_alike(a, b, int(selectors[0]))
    both = (b.astype(np.uint64) << 32) | a
    d: Array = np.zeros(1, np.uint32)
    for i in range(4):
        nibble = selectors >> np.uint32(4 * i)
        byte = (both >> ((nibble & np.uint32(7)) << np.uint32(3))).astype(np.uint32) & _BYTE
        if (nibble & np.uint32(8)).any():
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
