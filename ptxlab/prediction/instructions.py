"""What each instruction of the machine that decides something does to registers and predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxlab.prediction import arithmetic as do
from ptxlab.prediction import floating, lanes
from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.operands import (
    TRUE_PREDICATE,
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassConstant,
    SassName,
    SassRegister,
)
from ptxlab.prediction.pipes import OPCODES, WIDE_SPECIAL
from ptxlab.prediction.registers import Registers, moved
from ptxlab.prediction.values import Where

U32, U64 = np.uint32, np.uint64


def _function(r: Registers, i: DecodedInstruction, where: Where) -> None:
    values = [r.value(one, where) for one in i.sources]
    known = all(value is not None for value in values)
    function = do.INTEGER[i.sass.opcode.removeprefix("U")]
    r.write(i, where, function(i, *map(np.asarray, values)) if known else None)


def _move(r: Registers, i: DecodedInstruction, where: Where) -> None:
    r.write(i, where, _read(r, i, i.sources[0], where), words=2 if i.has("64") else 1)


def _imad(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b, c = i.sources[:3]
    if i.has("WIDE") or i.has("HI"):
        signed = not i.has("U32")
        parts = (r.value(a, where), r.value(b, where), r.pair(c, where, signed=signed))
        known = all(part is not None for part in parts)
        function = do.imad_wide if i.has("WIDE") else do.imad_hi
        found = function(i, *map(np.asarray, parts)) if known else None
        over = None if found is None else found < np.asarray(parts[2])
        if i.has("X"):
            carry = r.predicate(i.ins[0], where)
            if found is None or over is None or carry is None:
                found = over = None
            else:
                before, found = found, found + carry.astype(U64)
                over = over | (found < before)
        r.write(i, where, found, words=2 if i.has("WIDE") else 1)
        for predicate in i.outs:
            r.tell(predicate, where, over)
        return
    # A product with zero is zero, whatever the other factor: that is how values are moved.
    moved = SassRegister(ZERO_REGISTER) in (a, b) or SassRegister(URZ) in (a, b)
    values: list[Any] = [U32(0), U32(0)] if moved else [r.value(a, where), r.value(b, where)]
    values += [r.value(c, where), *(r.predicate(one, where) for one in i.ins)]
    if any(value is None for value in values):
        r.write(i, where, None)
        return
    found = values[0] * values[1] + values[2]
    for carry in values[3:]:
        found = found + carry.astype(U32)
    r.write(i, where, found)


def _iadd3(r: Registers, i: DecodedInstruction, where: Where) -> None:
    if i.has("64"):
        pairs = [r.pair(one, where, signed=True) for one in i.sources]
        known = all(pair is not None for pair in pairs)
        r.write(i, where, sum(pairs[1:], pairs[0]) if known else None, words=2)
        return
    words = [r.value(one, where, bare=_is_negated(one)) for one in i.sources]
    carries = [r.predicate(one, where) for one in i.ins] if i.has("X") else []
    if any(part is None for part in (*words, *carries)):
        r.forget(i, where)
        return
    parts = [(np.asarray(w), _is_negated(one)) for w, one in zip(words, i.sources, strict=True)]
    total = do.sum_with_carries(parts, [c for c in carries if c is not None])
    r.write(i, where, do.low(total))
    for least, predicate in enumerate(i.outs, 1):
        r.tell(predicate, where, do.high(total) >= least)


def _lea(r: Registers, i: DecodedInstruction, where: Where) -> None:
    *sources, last = i.sources
    shift = last.value if isinstance(last, Immediate) else 0
    values = [r.value(one, where) for one in sources]
    carry = r.predicate(i.ins[0], where) if i.has("X") and i.ins else U32(0)
    if any(value is None for value in (*values, carry)):
        r.forget(i, where)
        return
    a, b = np.asarray(values[0]), np.asarray(values[1])
    if i.has("HI"):
        c = np.asarray(values[2]) if len(values) > 2 else do.high(do.wide(a, signed=True))
        found = do.lea_hi(a, b, c, shift)
        total = found.astype(U64)
    else:
        total = (a << U32(shift)).astype(U64) + b.astype(U64)
    total = total + np.asarray(carry).astype(U64)
    r.write(i, where, do.low(total))
    for predicate in i.outs:
        r.tell(predicate, where, do.high(total) >= 1)


def _lop3(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b, c, table = i.sources[:4]
    assert isinstance(table, Immediate)
    parts = [r.value(one, where) for one in (a, b, c)]
    if any(part is None for part in parts):
        r.forget(i, where)
        return
    x, y, z = map(np.asarray, parts)
    found = do.logic(x, y, z, table.value)
    r.write(i, where, found)
    other = r.predicate(i.ins[0], where) if i.ins else None
    for predicate in i.outs:
        r.tell(predicate, where, (found != 0) | other if other is not None else None)


def _plop3(r: Registers, i: DecodedInstruction, where: Where) -> None:
    first, second, *inputs = i.sources
    values = [r.predicate(p, where) for p in inputs[:3] if isinstance(p, Predicate)]
    for predicate, table in zip((first, second), inputs[3:], strict=False):
        if isinstance(predicate, Predicate) and isinstance(table, Immediate):
            known = all(value is not None for value in values)
            bits = [np.where(v, U32(0xFFFFFFFF), U32(0)) for v in values] if known else []
            r.tell(
                predicate,
                where,
                do.logic(bits[0], bits[1], bits[2], table.value) != 0 if known else None,
            )


def _setp(r: Registers, i: DecodedInstruction, where: Where) -> None:
    values = [_read(r, i, one, where) for one in i.sources]
    ins = [r.predicate(one, where) for one in i.ins]
    if any(value is None for value in (*values, *ins)):
        r.forget(i, where)
        return
    a, b = (np.asarray(value) for value in values)
    name = i.sass.modifiers[0]
    if not i.has("U32") and not i.has("U64"):
        signed = np.int64 if i.takes_pairs else np.int32
        a, b = a.view(signed), b.view(signed)
    found = do.compare(name, a, b)
    if i.has("EX"):
        strict = do.compare(name[:1] + "T" if name in ("LE", "GE") else name, a, b)
        equal = a == b
        found = {"EQ": equal & ins[1], "NE": ~equal | ins[1]}.get(name, strict | equal & ins[1])
    r.tell_compared(i, where, found, ins)


def _select(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b = (_read(r, i, one, where) for one in i.sources[:2])
    chosen = r.predicate(i.ins[0], where)
    known = a is not None and b is not None and chosen is not None
    found = np.where(chosen, a, b) if known else None
    r.write(i, where, found, words=2 if i.has("64") else 1)


def _minmax(r: Registers, i: DecodedInstruction, where: Where) -> None:
    *parts, a, b = (r.value(one, where) for one in i.sources)
    least = r.predicate(i.ins[0], where)
    if any(part is None for part in (*parts, a, b, least)):
        r.forget(i, where)
        return
    if parts:  # VIADDMNMX adds first
        a = parts[0] + a
    r.write(i, where, do.minmax(i, np.asarray(a), np.asarray(b), np.asarray(least)))


def _special_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    name = i.sources[0].text if isinstance(i.sources[0], SassName) else ""
    value = r.special(name, where)
    words = 2 if i.sass.opcode in WIDE_SPECIAL and not i.has("32") else 1
    if value is None:
        r.forget(i, where)
    else:
        r.write(i, where, value.astype(U64) if words == 2 else value, words=words)


def _load_constant(r: Registers, i: DecodedInstruction, where: Where) -> None:
    source = i.sources[0]
    if i.dest is None or not isinstance(source, SassConstant):
        r.forget(i, where)
        return
    words = range(OPCODES[i.sass.opcode].written(i))
    r.write_row(i.dest, where, [r.constant(moved(source, 4 * n), where) for n in words])


def _to_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """P2R: the predicates as bits, those in the mask."""
    wanted = i.sources[-1]
    values = [r.predicates.read(number, where) for number in range(TRUE_PREDICATE)]
    mask = wanted.value if isinstance(wanted, Immediate) else 127
    known = [value for number, value in enumerate(values) if mask >> number & 1]
    if any(value is None for value in known):
        r.forget(i, where)
        return
    found = np.zeros(
        np.broadcast_shapes(*(value.shape for value in known if value is not None)), U32
    )
    for number, value in enumerate(values):
        if mask >> number & 1 and value is not None:
            found |= value.astype(U32) << U32(number)
    r.write(i, where, found)


def _from_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """R2P: bits to predicates."""
    word = r.value(i.sources[1], where)
    wanted = i.sources[-1]
    mask = wanted.value if isinstance(wanted, Immediate) else 127
    for number in range(TRUE_PREDICATE):
        if mask >> number & 1:
            value = None if word is None else (word >> U32(number) & U32(1)).astype(bool)
            r.predicates.write(number, where, value)


def _granted(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """USETMAXREG: registers that are asked for are there."""
    for predicate in i.outs:
        r.tell(predicate, where, np.ones(len(np.arange(r.threads)[where]), bool))


def _read(r: Registers, i: DecodedInstruction, operand: Operand, where: Where) -> Any:
    """Return a source: a word, or 64 bits where the instruction has so many."""
    return r.pair(operand, where, signed=True) if i.takes_pairs else r.value(operand, where)


def _is_negated(operand: Operand) -> bool:
    return isinstance(operand, SassRegister | SassConstant) and operand.negated


EXECUTED: dict[str, Callable[[Registers, DecodedInstruction, Where], None]] = {
    **dict.fromkeys(do.INTEGER, _function),
    **dict.fromkeys(("MOV", "R2UR"), _move),
    **dict.fromkeys(("IADD3", "IADD", "VIADD", "VIADD3"), _iadd3),
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIADDMNMX"), _minmax),
    **dict.fromkeys(("S2R", "S2UR", *WIDE_SPECIAL), _special_register),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _load_constant),
    **dict.fromkeys(("VOTE", "VOTEU"), lanes.vote),
    **dict.fromkeys(("REDUX", "CREDUX"), lanes.reduce),
    **dict.fromkeys(("HFMA2", "HADD2"), floating.half_constant),
    **dict.fromkeys(("I2F", "I2FP"), floating.from_integer),
    "ELECT": lanes.elect,
    "F2I": floating.to_integer,
    "FMUL": floating.arithmetic,
    "FSETP": floating.compare,
    "IMAD": _imad,
    "LEA": _lea,
    "LOP3": _lop3,
    "MUFU": floating.approximated,
    "PLOP3": _plop3,
    "ISETP": _setp,
    "SEL": _select,
    "SHFL": lanes.shuffle,
    "USETMAXREG": _granted,
    "P2R": _to_register,
    "R2P": _from_register,
}
"""By opcode, of which the uniform ones, ``UIADD3``, are the same with a U before."""

OF_64_BITS = ("MOV", "IADD", "IADD3", "SEL", "ISETP", "LDC", "ULDC", "LDCU")
"""Those that are also executed of 64 bits."""


FLOATING = {
    "FADD": floating.arithmetic, "FFMA": floating.arithmetic, "FMNMX": floating.least_or_most,
    "FSEL": floating.select,
}  # fmt: skip
"""Those of floating-point numbers that no integer division is made of: mostly they only become a result."""


def executed_as(
    i: DecodedInstruction, floats: bool
) -> Callable[[Registers, DecodedInstruction, Where], None] | None:
    """Return what an instruction does, None where that is not computed, as ``FLOATING`` without ``floats``."""
    opcode = i.sass.opcode if i.sass.opcode in EXECUTED else i.sass.opcode.removeprefix("U")
    if i.takes_pairs and opcode not in OF_64_BITS:
        return None
    return EXECUTED.get(opcode) or (FLOATING.get(opcode) if floats else None)
