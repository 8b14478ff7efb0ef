"""Integer instructions of the machine: sums, products, logic, shifts, bits.

The CUDA Binary Utilities tell instructions only by name: what they do is read off compiled programs
whose results are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxlab.machine import words
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import (
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    SassConstant,
    SassRegister,
)
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import one_word, rows
from ptxlab.machine.values import Array, Where
from ptxlab.machine.words import I32, I64, U32, U64

Compute = Callable[[Registers, DecodedInstruction, Where], None]


def _signed(i: DecodedInstruction) -> bool:
    return not i.has("U32")


# ---- of words alone -------------------------------------------------------------------------


def _of_words(function: Callable[..., Array]) -> Compute:
    """Return an instruction that writes one word, made of all its sources."""

    def compute(r: Registers, i: DecodedInstruction, where: Where) -> None:
        values = [r.value(source, where) for source in i.sources]
        known = all(value is not None for value in values)
        r.write(i, where, function(i, *map(np.asarray, values)) if known else None)

    return compute


def _funnel(i: DecodedInstruction, lower: Array, count: Array, upper: Array) -> Array:
    """Shift a pair of words, or its upper half where the lower is no part of it."""
    most = U32(63 if i.has("U64") or i.has("S64") else 32)
    by = np.minimum(count, most).astype(U64)
    if i.has("W"):
        by = (count & U32(31)).astype(U64)
    pair = words.joined(lower, upper)
    if i.has("L"):
        moved = pair << by
        return words.high(moved) if i.has("HI") else words.low(moved)
    moved = (
        (pair.view(I64) >> by.view(I64)).view(U64) if i.has("S32") or i.has("S64") else pair >> by
    )
    return words.high(moved) if i.has("HI") else words.low(moved)


def _absolute(i: DecodedInstruction, a: Array) -> Array:
    return np.abs(a.view(I32).astype(I64)).astype(U32)


def _permute(i: DecodedInstruction, a: Array, selector: Array, b: Array) -> Array:
    """Take any four bytes of two words; the fourth bit of a choice spreads the byte's sign."""
    pair = words.joined(a, b)
    result: Array = np.zeros_like(a | b | selector)
    for byte in range(4):
        choice = selector >> U32(4 * byte)
        taken = words.low(pair >> (choice & U32(7)).astype(U64) * U64(8)) & U32(255)
        sign = np.where(taken & U32(128), U32(255), U32(0))
        result |= np.where(choice & U32(8), sign, taken).astype(U32) << U32(8 * byte)
    return result


def _mask(i: DecodedInstruction, first: Array, count: Array) -> Array:
    ones = (U64(1) << np.minimum(count, U32(32)).astype(U64)) - U64(1)
    return words.low(ones << np.minimum(first, U32(32)).astype(U64))


def _sign_extended(i: DecodedInstruction, a: Array, bits: Array) -> Array:
    rest = (U32(32) - np.minimum(bits, U32(32))).astype(U64)
    moved = words.low(a.astype(U64) << rest)
    if i.has("U32"):
        return moved >> rest.astype(U32)
    return (moved.view(I32).astype(I64) >> rest.view(I64)).astype(I32).view(U32)


def _population(i: DecodedInstruction, a: Array) -> Array:
    return np.bitwise_count(a).astype(U32)


def _first_one(i: DecodedInstruction, a: Array) -> Array:
    """Find the highest bit that is set, or that differs from the sign; no bit is found as all ones."""
    value = np.where(a.view(I32) < 0, ~a, a) if _signed(i) else a
    position = np.frexp(value.astype(np.float64))[1] - 1
    if i.has("SH"):
        position = 31 - position
    return np.where(value == 0, U32(0xFFFFFFFF), position.astype(I64).astype(U32))


def _reversed_bits(i: DecodedInstruction, a: Array) -> Array:
    result = np.zeros_like(a)
    for bit in range(32):
        result |= (a >> U32(bit) & U32(1)) << U32(31 - bit)
    return result


# ---- products and sums ----------------------------------------------------------------------


def _upper_product(i: DecodedInstruction, a: Array, b: Array, c: Array) -> Array:
    """Take the upper half of the product and a pair of words."""
    signed = _signed(i)
    return words.high(words.wide(a, signed=signed) * words.wide(b, signed=signed) + c)


def _wide_product(i: DecodedInstruction, a: Array, b: Array, c: Array) -> Array:
    signed = _signed(i)
    return words.wide(a, signed=signed) * words.wide(b, signed=signed) + c


def _imad(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b, c = i.sources[:3]
    if i.has("WIDE") or i.has("HI"):
        signed = not i.has("U32")
        parts = (r.value(a, where), r.value(b, where), r.pair(c, where, signed=signed))
        known = all(part is not None for part in parts)
        function = _wide_product if i.has("WIDE") else _upper_product
        result = function(i, *map(np.asarray, parts)) if known else None
        over = None if result is None else result < np.asarray(parts[2])
        if i.has("X"):
            carry = r.predicate(i.ins[0], where)
            if result is None or over is None or carry is None:
                result = over = None
            else:
                before, result = result, result + carry.astype(U64)
                over = over | (result < before)
        r.write(i, where, result, count=2 if i.has("WIDE") else 1)
        for predicate in i.outs:
            r.tell(predicate, where, over)
        return
    # A product with zero is zero, whatever the other factor: that is how values are moved.
    moved = SassRegister(ZERO_REGISTER) in (a, b) or SassRegister(URZ) in (a, b)
    values: list[Any] = [U32(0), U32(0)] if moved else [r.value(a, where), r.value(b, where)]
    values += [r.value(c, where), *(r.predicate(operand, where) for operand in i.ins)]
    if any(value is None for value in values):
        r.write(i, where, None)
        return
    result = values[0] * values[1] + values[2]
    for carry in values[3:]:
        result = result + carry.astype(U32)
    r.write(i, where, result)


def _sum_with_carries(parts: Sequence[tuple[Array, bool]], carries: Sequence[Array]) -> Array:
    """Add words as 33 bits and more; a negated one counts as its complement and one."""
    total: Any = U64(0)
    for word, negated in parts:
        total = total + ((~word).astype(U64) + U64(1) if negated else word.astype(U64))
    for carry in carries:
        total = total + carry.astype(U64)
    return np.asarray(total)


def _iadd3(r: Registers, i: DecodedInstruction, where: Where) -> None:
    if i.has("64"):
        pairs = [r.pair(source, where, signed=True) for source in i.sources]
        known = all(pair is not None for pair in pairs)
        r.write(i, where, sum(pairs[1:], pairs[0]) if known else None, count=2)
        return
    addends = [r.value(source, where, bare=_is_negated(source)) for source in i.sources]
    carries = [r.predicate(operand, where) for operand in i.ins] if i.has("X") else []
    if any(part is None for part in (*addends, *carries)):
        r.forget(i, where)
        return
    parts = [
        (np.asarray(w), _is_negated(source)) for w, source in zip(addends, i.sources, strict=True)
    ]
    total = _sum_with_carries(parts, [c for c in carries if c is not None])
    r.write(i, where, words.low(total))
    for least, predicate in enumerate(i.outs, 1):
        r.tell(predicate, where, words.high(total) >= least)


def _is_negated(operand: Operand) -> bool:
    return isinstance(operand, SassRegister | SassConstant) and operand.negated


def _upper_sum(a: Array, b: Array, c: Array, shift: int) -> Array:
    """Take the upper half of a pair of words shifted left, and add."""
    return words.high(words.joined(a, c) << U64(shift)) + b


def _lea(r: Registers, i: DecodedInstruction, where: Where) -> None:
    *sources, last = i.sources
    shift = last.value if isinstance(last, Immediate) else 0
    values = [r.value(source, where) for source in sources]
    carry = r.predicate(i.ins[0], where) if i.has("X") and i.ins else U32(0)
    if any(value is None for value in (*values, carry)):
        r.forget(i, where)
        return
    a, b = np.asarray(values[0]), np.asarray(values[1])
    if i.has("HI"):
        c = np.asarray(values[2]) if len(values) > 2 else words.high(words.wide(a, signed=True))
        result = _upper_sum(a, b, c, shift)
        total = result.astype(U64)
    else:
        total = (a << U32(shift)).astype(U64) + b.astype(U64)
    total = total + np.asarray(carry).astype(U64)
    r.write(i, where, words.low(total))
    for predicate in i.outs:
        r.tell(predicate, where, words.high(total) >= 1)


def _least_or_most(i: DecodedInstruction, a: Array, b: Array, least: Array) -> Array:
    if _signed(i):
        a, b = a.view(I32), b.view(I32)
    result: Array = np.where(least, np.minimum(a, b), np.maximum(a, b))
    return result.view(U32)


def _minmax(r: Registers, i: DecodedInstruction, where: Where) -> None:
    *parts, a, b = (r.value(source, where) for source in i.sources)
    least = r.predicate(i.ins[0], where)
    if any(part is None for part in (*parts, a, b, least)):
        r.forget(i, where)
        return
    if parts:  # VIADDMNMX adds first
        a = parts[0] + a
    r.write(i, where, _least_or_most(i, np.asarray(a), np.asarray(b), np.asarray(least)))


def _lop3(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b, c, table = i.sources[:4]
    assert isinstance(table, Immediate)
    parts = [r.value(source, where) for source in (a, b, c)]
    if any(part is None for part in parts):
        r.forget(i, where)
        return
    x, y, z = map(np.asarray, parts)
    result = words.logic(x, y, z, table.value)
    r.write(i, where, result)
    other = r.predicate(i.ins[0], where) if i.ins else None
    for predicate in i.outs:
        r.tell(predicate, where, (result != 0) | other if other is not None else None)


ROWS = (
    *rows("IMAD", "fmaheavy", _imad, uniform=True, sums_pairs=("WIDE", "HI")),
    *rows("IADD3", "alu", _iadd3, uniform=True, pairs=True),
    *rows("IADD", "alu", _iadd3, pairs=True),
    *rows("VIADD", "alu", _iadd3, latency="fma"),
    *rows("LEA", "alu", _lea, uniform=True),
    *rows("LOP3", "alu", _lop3, uniform=True, operands="a predicate first"),
    *rows("IMNMX VIADDMNMX", "alu", _minmax),
    *rows("VIMNMX", "alu", _minmax, uniform=True),
    *rows("IABS", "alu", _of_words(_absolute), slot=1),
    *rows("PRMT", "alu", _of_words(_permute), uniform=True),
    *rows("BMSK", "alu", _of_words(_mask), uniform=True),
    *rows("SGXT", "alu", _of_words(_sign_extended), uniform=True),
    *rows("SHF", "alu", _of_words(_funnel), uniform=True, writes=one_word),
    *rows("POPC", "xu", _of_words(_population), uniform=True, scoreboard="xu", slot=1),
    *rows("FLO", "xu", _of_words(_first_one), uniform=True, scoreboard="xu", slot=1),
    *rows("BREV", "xu", _of_words(_reversed_bits), uniform=True, scoreboard="xu", slot=1),
)
