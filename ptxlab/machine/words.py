"""Words of many threads at once: halves, pairs, comparisons, the bits of logic."""

from __future__ import annotations

import numpy as np

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.values import Array

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64
LOW = U64(0xFFFFFFFF)
_HALF = U64(32)


def wide(word: Array, *, signed: bool = False) -> Array:
    """Return words as 64 bits."""
    return word.view(I32).astype(I64).view(U64) if signed else word.astype(U64)


def joined(low: Array, high: Array) -> Array:
    return low.astype(U64) | high.astype(U64) << _HALF


def low(value: Array) -> Array:
    return (value & LOW).astype(U32)


def high(value: Array) -> Array:
    return (value >> _HALF).astype(U32)


def logic(a: Array, b: Array, c: Array, table: int) -> Array:
    """Look every bit of three words up in a table of eight."""
    result: Array = np.zeros_like(a | b | c)
    for row in range(8):
        if table >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            result |= x & y & z
    return result


def compare(name: str, a: Array, b: Array) -> Array:
    """Compare as ``LT``, ``LTU`` and the others say; those with U hold also where one is no number."""
    unordered = name.endswith("U") and len(name) > 2
    with np.errstate(invalid="ignore"):
        holds: Array = {
            "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
            "EQ": np.equal, "NE": np.not_equal,
        }[name[:2]](a, b)  # fmt: skip
    nan = np.isnan(a) | np.isnan(b) if a.dtype.kind == "f" else False
    return holds | nan if unordered else holds & ~np.asarray(nan)


def combined(i: DecodedInstruction, holds: Array, other: Array) -> Array:
    """Combine what a comparison found with a predicate, as its modifiers say."""
    if i.has("OR"):
        return holds | other
    if i.has("XOR"):
        return holds ^ other
    return holds & other
