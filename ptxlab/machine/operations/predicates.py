"""Instructions of the machine about predicates: comparisons, choices, logic, and predicates as bits of a word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxlab.machine import words
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import TRUE_PREDICATE, Immediate, Predicate, SassRegister
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
        lower = np.asarray(ins[1] if len(ins) > 1 else True)
        holds = {"EQ": equal & lower, "NE": ~equal | lower}.get(name, strict | equal & lower)
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
    """P2R: the predicates as bits of a byte, those in the mask; the other bits are another register's."""
    shift = next((8 * n for n in range(4) if i.has(f"B{n}")), 0)
    word = r.value(i.sources[-2], where)
    for number in _masked(i):
        value = r.predicates.read(number, where)
        if word is None or value is None:
            r.forget(i, where)
            return
        bit = U32(1 << number + shift)
        word = word & ~bit | np.where(value, bit, U32(0))
    r.write(i, where, word)


def _from_register(r: Registers, i: DecodedInstruction, where: Where) -> None:
    """R2P: bits of a byte to predicates."""
    source = i.sources[1]
    shift = 0
    if isinstance(source, SassRegister) and source.part:
        shift = 8 * int(source.marks[0].removeprefix("B"))
        source = replace(source, part=False)
    word = r.value(source, where)
    for number in _masked(i):
        value = None if word is None else (word >> U32(number + shift) & U32(1)).astype(bool)
        r.predicates.write(number, where, value)


def _masked(i: DecodedInstruction) -> list[int]:
    """Return the predicates that a mask has, by number: all where no register is told as a number."""
    wanted = i.sources[-1]
    mask = wanted.value if isinstance(wanted, Immediate) else 127
    return [number for number in range(TRUE_PREDICATE) if mask >> number & 1]


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
