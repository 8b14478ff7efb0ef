"""What integer instructions of the machine compute, on values of many threads at once.

The CUDA Binary Utilities tell instructions only by name: what they do is read off compiled programs
whose results are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.values import Array

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
LOW = U64(0xFFFFFFFF)
HALF = U64(32)


def wide(word: Array, *, signed: bool = False) -> Array:
    """Return words as 64 bits."""
    return word.view(I32).astype(I64).view(U64) if signed else word.astype(U64)


def joined(low: Array, high: Array) -> Array:
    return low.astype(U64) | high.astype(U64) << HALF


def low(value: Array) -> Array:
    return (value & LOW).astype(U32)


def high(value: Array) -> Array:
    return (value >> HALF).astype(U32)


def _signed(i: DecodedInstruction) -> bool:
    return not i.has("U32")


def imad_hi(i: DecodedInstruction, a: Array, b: Array, c: Array) -> Array:
    """Take the upper half of the product and a pair of words."""
    signed = _signed(i)
    return high(wide(a, signed=signed) * wide(b, signed=signed) + c)


def imad_wide(i: DecodedInstruction, a: Array, b: Array, c: Array) -> Array:
    signed = _signed(i)
    return wide(a, signed=signed) * wide(b, signed=signed) + c


def logic(a: Array, b: Array, c: Array, table: int) -> Array:
    """Look every bit of three words up in a table of eight."""
    found: Array = np.zeros_like(a | b | c)
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            found |= x & y & z
    return found


def lea_hi(a: Array, b: Array, c: Array, shift: int) -> Array:
    """Take the upper half of a pair of words shifted left, and add."""
    return high(joined(a, c) << U64(shift)) + b


def funnel(i: DecodedInstruction, lower: Array, count: Array, upper: Array) -> Array:
    """Shift a pair of words, or its upper half where the lower is no part of it."""
    most = U32(63 if i.has("U64") or i.has("S64") else 32)
    by = np.minimum(count, most).astype(U64)
    if i.has("W"):
        by = (count & U32(31)).astype(U64)
    pair = joined(lower, upper)
    if i.has("L"):
        moved = pair << by
        return high(moved) if i.has("HI") else low(moved)
    moved = (
        (pair.view(I64) >> by.view(I64)).view(U64) if i.has("S32") or i.has("S64") else pair >> by
    )
    return high(moved) if i.has("HI") else low(moved)


def minmax(i: DecodedInstruction, a: Array, b: Array, least: Array) -> Array:
    if _signed(i):
        a, b = a.view(I32), b.view(I32)
    found: Array = np.where(least, np.minimum(a, b), np.maximum(a, b))
    return found.view(U32)


def absolute(i: DecodedInstruction, a: Array) -> Array:
    return np.abs(a.view(I32).astype(I64)).astype(U32)


def permute(i: DecodedInstruction, a: Array, selector: Array, b: Array) -> Array:
    """Take any four bytes of two words; the fourth bit of a choice spreads the byte's sign."""
    pair = joined(a, b)
    found: Array = np.zeros_like(a | b | selector)
    for byte in range(4):
        choice = selector >> U32(4 * byte)
        taken = low(pair >> (choice & U32(7)).astype(U64) * U64(8)) & U32(255)
        sign = np.where(taken & U32(128), U32(255), U32(0))
        found |= np.where(choice & U32(8), sign, taken).astype(U32) << U32(8 * byte)
    return found


def mask(i: DecodedInstruction, first: Array, count: Array) -> Array:
    ones = (U64(1) << np.minimum(count, U32(32)).astype(U64)) - U64(1)
    return low(ones << np.minimum(first, U32(32)).astype(U64))


def sign_extended(i: DecodedInstruction, a: Array, bits: Array) -> Array:
    rest = (U32(32) - np.minimum(bits, U32(32))).astype(U64)
    moved = low(a.astype(U64) << rest)
    if i.has("U32"):
        return moved >> rest.astype(U32)
    return (moved.view(I32).astype(I64) >> rest.view(I64)).astype(I32).view(U32)


def population(i: DecodedInstruction, a: Array) -> Array:
    return np.bitwise_count(a).astype(U32)


def first_one(i: DecodedInstruction, a: Array) -> Array:
    """Find the highest bit that is set, or that differs from the sign; no bit is found as all ones."""
    value = np.where(a.view(I32) < 0, ~a, a) if _signed(i) else a
    position = np.frexp(value.astype(np.float64))[1] - 1
    if i.has("SH"):
        position = 31 - position
    return np.where(value == 0, U32(0xFFFFFFFF), position.astype(I64).astype(U32))


def reversed_bits(i: DecodedInstruction, a: Array) -> Array:
    found = np.zeros_like(a)
    for bit in range(32):
        found |= (a >> U32(bit) & U32(1)) << U32(31 - bit)
    return found


def compare(name: str, a: Array, b: Array) -> Array:
    """Compare as ``LT``, ``LTU`` and the others say; those with U hold also where one is no number."""
    unordered = name.endswith("U") and len(name) > 2
    with np.errstate(invalid="ignore"):
        found: Array = {
            "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
            "EQ": np.equal, "NE": np.not_equal,
        }[name[:2]](a, b)  # fmt: skip
    nan = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else False
    return found | nan if unordered else found & ~np.asarray(nan)


def combined(i: DecodedInstruction, found: Array, other: Array) -> Array:
    if i.has("OR"):
        return found | other
    if i.has("XOR"):
        return found ^ other
    return found & other


Function = Callable[..., Any]

INTEGER: dict[str, Function] = {
    "IABS": absolute, "PRMT": permute, "BMSK": mask, "SGXT": sign_extended, "POPC": population,
    "FLO": first_one, "BREV": reversed_bits, "SHF": funnel,
}  # fmt: skip
"""Those that write one word made of all their sources, by opcode."""


def sum_with_carries(parts: Sequence[tuple[Array, bool]], carries: Sequence[Array]) -> Array:
    """Add words as 33 bits and more; a negated one counts as its complement and one."""
    total: Any = U64(0)
    for word, negated in parts:
        total = total + ((~word).astype(U64) + U64(1) if negated else word.astype(U64))
    for carry in carries:
        total = total + carry.astype(U64)
    return np.asarray(total)
