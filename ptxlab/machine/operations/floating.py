"""Floating-point instructions of the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxlab.machine import words
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import ZERO_REGISTER, Immediate, SassRegister
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import Modifiers, pairs, rows
from ptxlab.machine.values import Array, Where
from ptxlab.numbers.exponential import logarithm, power_of_two
from ptxlab.numbers.floats import by_way_of_double, extremum, fma_f32, fma_f32_nearest
from ptxlab.numbers.formats import F32 as FORMAT
from ptxlab.numbers.rounding import canonical_nan, flush, narrow, saturate

U32, F32, F64 = np.uint32, np.float32, np.float64
Compute = Callable[..., Any]

_DIRECTIONS = {"RM": "rm", "RP": "rp", "RZ": "rz"}
_KNOWN = {*_DIRECTIONS, "RN", "FTZ", "SAT"}
_WHOLE: dict[str, Callable[[Array], Array]] = {
    "TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil
}  # fmt: skip
_SIZES: dict[str, type[np.integer[Any]]] = {
    "U8": np.uint8, "S8": np.int8, "U16": np.uint16, "S16": np.int16, "U32": np.uint32
}  # fmt: skip
_OTHER_SIZES = ("F16", "BF16", "U64", "S64", "F64")
_multiplied = by_way_of_double(np.multiply)


def _add(mode: str, a: Array, b: Array) -> Array:
    return fma_f32(a, np.ones_like(a), b, mode) if mode else a + b


def _multiply(mode: str, a: Array, b: Array) -> Array:
    return _multiplied(a, b, mode) if mode else a * b


def _multiply_add(mode: str, a: Array, b: Array, c: Array) -> Array:
    return fma_f32(a, b, c, mode) if mode else fma_f32_nearest(a, b, c)


_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "RCP": np.reciprocal,
    "RSQ": lambda x: 1 / np.sqrt(x),
    "SQRT": np.sqrt,
    "EX2": power_of_two,
    "LG2": logarithm,
    "TANH": np.tanh,
}
"""By modifier of MUFU, of float64. The last bits may differ on a GPU; divisions and roots put them right."""


def _rounded_once(operation: Compute) -> Compute:
    """Return the instruction of an operation, which is given how it is rounded, "" for to nearest, and its sources."""

    def compute(r: Registers, i: DecodedInstruction, where: Where) -> None:
        known = set(i.sass.modifiers) <= _KNOWN
        values = _reals(r, i, where) if known else None
        if values is None:
            r.forget(i, where)
            return
        _write(r, i, where, operation(_direction(i), *values))

    return compute


def _approximated(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """MUFU, to which numbers next to zero are zero but for TANH: ptxas scales what may be one."""
    compute = _APPROXIMATE.get(i.sass.modifiers[0])
    values = _reals(r, i, where) if compute else None
    if values is None or compute is None:
        r.forget(i, where)
        return
    scaled = compute is not np.tanh
    source = flush(values[0]) if scaled else values[0]
    result = compute(source.astype(F64)).astype(F32)
    _write(r, i, where, flush(result) if scaled else result)


def _least_or_most(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """FMNMX: the least where its predicate holds."""
    values, least = _reals(r, i, where), r.predicate(i.ins[0], where)
    if values is None or least is None or len(values) != 2:
        r.forget(i, where)
        return
    low, high = (extremum(largest, i.has("NAN"))(*values) for largest in (False, True))
    _write(r, i, where, np.where(least, low, high))


def _select(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """FSEL."""
    values, chosen = _reals(r, i, where), r.predicate(i.ins[0], where)
    if values is None or chosen is None:
        r.forget(i, where)
        return
    r.write(i, where, np.where(chosen, *values).astype(F32).view(U32))


def _compare(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """FSETP."""
    values, ins = _reals(r, i, where), [r.predicate(operand, where) for operand in i.ins]
    if values is None or any(value is None for value in ins):
        r.forget(i, where)
        return
    r.tell_compared(i, where, words.compare(i.sass.modifiers[0], *values), ins)


def _from_integer(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """I2F of words, or of their lower parts."""
    word = r.value(i.sources[0], where)
    if word is None or any(map(i.has, _OTHER_SIZES)):
        r.forget(i, where)
        return
    size = next((_SIZES[modifier] for modifier in i.sass.modifiers if modifier in _SIZES), np.int32)
    whole = np.asarray(word).view(np.int32).astype(size)
    r.write(i, where, narrow(whole.astype(F64), FORMAT, _direction(i) or "rn").view(U32))


def _to_integer(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """F2I to words, at whose limits it ends; what is no number becomes zero."""
    values = _reals(r, i, where)
    if values is None or any(map(i.has, (*_OTHER_SIZES, *_SIZES.keys() - {"U32"}))):
        r.forget(i, where)
        return
    rounded = next(
        (_WHOLE[modifier] for modifier in i.sass.modifiers if modifier in _WHOLE), np.rint
    )
    limits = (0, 2**32 - 1) if i.has("U32") else (-(2**31), 2**31 - 1)
    whole = np.nan_to_num(rounded(values[0].astype(F64)), nan=0.0)
    r.write(i, where, np.clip(whole, *limits).astype(np.int64).astype(U32))


def _half_constant(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """A sum with minus zero is how the compiler makes a word of two halves that it knows."""
    zero = [source for source in i.sources if isinstance(source, SassRegister)]
    reals = [source.real for source in i.sources if isinstance(source, Immediate)]
    if len(reals) == 2 and all(register.number == ZERO_REGISTER for register in zero):
        upper, lower = (int(np.float16(real).view(np.uint16)) for real in reals)
        r.write(i, where, U32(upper << 16 | lower))
    else:
        r.forget(i, where)


def _direction(i: DecodedInstruction) -> str:
    """Return how an instruction is rounded, "" for to nearest."""
    return next(
        (_DIRECTIONS[modifier] for modifier in i.sass.modifiers if modifier in _DIRECTIONS), ""
    )


def _reals(r: Registers, i: DecodedInstruction, where: Where) -> list[Array] | None:
    """Return the sources as f32, flushed if the instruction says so, None unless all are known."""
    values = [r.real(source, where) for source in i.sources]
    if any(value is None for value in values):
        return None
    operands = np.broadcast_arrays(*map(np.asarray, values))
    return (
        [flush(operand) for operand in operands]
        if i.has("FTZ") and operands[0].size
        else list(operands)
    )


def _write(r: Registers, i: DecodedInstruction, where: Where, result: Any) -> None:
    """Write f32, saturated and flushed as the instruction says, and one NaN for all."""
    result = np.asarray(result, F32)
    if i.has("FTZ") and result.size:
        result = flush(result)
    if i.has("SAT"):
        result = saturate(result)
    r.write(i, where, canonical_nan(result).view(U32))


def _words(*types: str) -> Callable[[Modifiers], int]:
    """Return how many words a value is: two if a modifier names one of some types of 64 bits."""
    return lambda modifiers: 1 + any(name in modifiers for name in types)


def _source_words(*types: str) -> Callable[[Modifiers, int], int]:
    words = _words(*types)
    return lambda modifiers, slot: words(modifiers)


def _changed(nth: int, modifiers: Modifiers) -> int:
    """Return the words of what F2F makes, whose type is named first, or of what it is made from."""
    types = [name for name in modifiers if name in ("F64", "F32", "F16", "BF16")]
    return 1 + (types[nth : nth + 1] == ["F64"])


_WHOLE_PAIR = ("U64", "S64")

ROWS = (
    *rows("FMUL", "fma", _rounded_once(_multiply), uniform=True, flops=1),
    *rows("FADD", "fma", _rounded_once(_add), uniform=True, floats=True, flops=1),
    *rows("FFMA", "fma", _rounded_once(_multiply_add), uniform=True, floats=True, flops=2),
    *rows("FMNMX", "alu", _least_or_most, floats=True),
    *rows("FSEL", "alu", _select, uniform=True, floats=True),
    *rows("FSETP", "alu", _compare, uniform=True),
    *rows("MUFU", "xu", _approximated, scoreboard="xu", slot=1),
    *rows(
        "I2F",
        "xu",
        _from_integer,
        uniform=True,
        writes=_words("F64"),
        reads=_source_words(*_WHOLE_PAIR),
        scoreboard="xu",
        slot=1,
    ),
    *rows("I2FP", "alu", _from_integer, uniform=True, slot=1),
    *rows(
        "F2I",
        "xu",
        _to_integer,
        uniform=True,
        writes=_words(*_WHOLE_PAIR),
        reads=_source_words("F64"),
        scoreboard="xu",
        slot=1,
    ),
    *rows(
        "F2F",
        "xu",
        writes=partial(_changed, 0),
        reads=lambda modifiers, slot: _changed(1, modifiers),
        scoreboard="xu",
        slot=1,
    ),
    *rows("FRND FCHK", "xu", reads=_source_words("F64"), scoreboard="xu"),
    *rows("HFMA2", "fma2", _half_constant, flops=4),
    *rows("HADD2", "fma2", _half_constant, flops=2),
    *rows("HMUL2", "fma2", flops=2),
    *rows("HSETP2 HMNMX2", "alu", latency="half_alu"),
    *rows("F2FP", "alu"),
    *rows("DFMA", "fp64", reads=pairs, scoreboard="fp64", words=2, flops=2),
    *rows("DADD DMUL", "fp64", reads=pairs, scoreboard="fp64", words=2, flops=1),
    *rows("DSETP", "fp64", reads=pairs, scoreboard="fp64", words=2),
)
