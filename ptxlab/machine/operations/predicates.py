"""Instructions of the machine about predicates: comparisons, choices, logic, and predicates as bits of a word."""

from __future__ import annotations

import numpy as np

from ptxlab.machine import words
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import TRUE_PREDICATE, Immediate, Predicate
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import rows
from ptxlab.machine.values import Where
from ptxlab.machine.words import U32


def _setp(r: Registers, i: DecodedInstruction, where: Where) -> None:
    values = [r.source(i, source, where) for source in i.sources]
    ins = [r.predicate(operand, where) for operand in i.ins]
    if any(value is None for value in (*values, *ins)):
        r.forget(i, where)
        return
    a, b = (np.asarray(value) for value in values)
    name = i.sass.modifiers[0]
    if not i.has("U32") and not i.has("U64"):
        signed = np.int64 if i.takes_pairs else np.int32
        a, b = a.view(signed), b.view(signed)
    holds = words.compare(name, a, b)
    if i.has("EX"):
        strict = words.compare(name[:1] + "T" if name in ("LE", "GE") else name, a, b)
        equal = a == b
        holds = {"EQ": equal & ins[1], "NE": ~equal | ins[1]}.get(name, strict | equal & ins[1])
    r.tell_compared(i, where, holds, ins)


def _select(r: Registers, i: DecodedInstruction, where: Where) -> None:
    a, b = (r.source(i, source, where) for source in i.sources[:2])
    chosen = r.predicate(i.ins[0], where)
    known = a is not None and b is not None and chosen is not None
    result = np.where(chosen, a, b) if known else None
    r.write(i, where, result, count=2 if i.has("64") else 1)


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
                words.logic(bits[0], bits[1], bits[2], table.value) != 0 if known else None,
            )


def _to_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """P2R: the predicates as bits, those in the mask."""
    wanted = i.sources[-1]
    values = [r.predicates.read(number, where) for number in range(TRUE_PREDICATE)]
    mask = wanted.value if isinstance(wanted, Immediate) else 127
    known = [value for number, value in enumerate(values) if mask >> number & 1]
    if any(value is None for value in known):
        r.forget(i, where)
        return
    word = np.zeros(
        np.broadcast_shapes(*(value.shape for value in known if value is not None)), U32
    )
    for number, value in enumerate(values):
        if mask >> number & 1 and value is not None:
            word |= value.astype(U32) << U32(number)
    r.write(i, where, word)


def _from_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """R2P: bits to predicates."""
    word = r.value(i.sources[1], where)
    wanted = i.sources[-1]
    mask = wanted.value if isinstance(wanted, Immediate) else 127
    for number in range(TRUE_PREDICATE):
        if mask >> number & 1:
            value = None if word is None else (word >> U32(number) & U32(1)).astype(bool)
            r.predicates.write(number, where, value)


ROWS = (
    *rows("ISETP", "alu", _setp, uniform=True, pairs=True, of_pairs=("64", "S64", "U64")),
    *rows("SEL", "alu", _select, uniform=True, pairs=True),
    *rows("PLOP3", "alu", _plop3, uniform=True, operands="predicates first"),
    *rows("P2R", "alu", _to_register, every_predicate="read"),
    *rows(
        "R2P",
        "alu",
        _from_register,
        every_predicate="written",
        operands="predicates first",
        latency="r2p",
    ),
)
