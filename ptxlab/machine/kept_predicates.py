"""Predicates that the compiler keeps in registers, for want of predicates: which of them says what another said before.

ptxas puts one there with P2R, or with an OR for those for whom it holds, of a bit that an AND has cleared, and has it back
with R2P, or by asking whether the register, or a bit of it, is zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.lift.writer import is_zero
from ptxlab.machine.operands import (
    TRUE_PREDICATE,
    Immediate,
    Operand,
    Predicate,
    SassRegister,
)

Condition = int
"""That a predicate holds, by its number, or a bit of a register is set, or any of them; the complement is the opposite."""

_PREDICATES = 16
_ANY = 32
_AND, _OR = 0xC0, 0xFC
_WORD, _EVERY = (1 << 32) - 1, (1 << TRUE_PREDICATE) - 1
_TRUE, _FALSE = Predicate(TRUE_PREDICATE), Predicate(TRUE_PREDICATE, negated=True)


def number_of(guard: Predicate | None) -> Condition | None:
    """Return the condition that a guard is, None without one."""
    return None if guard is None else ~guard.number if guard.negated else guard.number


def predicate_of(condition: Condition) -> int:
    """Return the predicate of a condition that is one, or its opposite."""
    return max(condition, ~condition)


def before(code: Sequence[DecodedInstruction]) -> list[dict[Condition, Condition | None]]:
    """Return for each instruction which condition before it says what one says behind it, None where none is known to.

    Those that it leaves as they are are not there, but where a predicate that says the same before it is made: then it is that.
    """
    restored = [_restored(i) for i in code]
    kept: dict[int, set[Condition]] = defaultdict(set)
    for each in restored:
        for condition in each.values():
            kept[_place(condition)[0]].add(condition)
    entered = {target for i in code for target in (*i.targets, i.target)}
    entered |= {i.number + 1 for i in code if i.does == "call"}
    known = _Known()
    every = []
    for i, predicates in zip(code, restored, strict=True):
        if i.number in entered:
            known = _Known()
        told = known.told(i, predicates, kept)
        opposite = {~condition: _opposite(same) for condition, same in told.items()}
        every.append(told | opposite)
    return every


class _Known:
    """What is known where instructions follow each other: which bits of registers are ``clear``, and which conditions ``equal`` predicates."""

    def __init__(self) -> None:
        self._clear: dict[int, int] = {}
        self._equal: dict[Condition, Condition] = {}

    def told(
        self,
        i: DecodedInstruction,
        predicates: Mapping[int, Condition],
        kept: Mapping[int, Collection[Condition]],
    ) -> dict[Condition, Condition | None]:
        """Return what ``before`` does of the next instruction, which has ``predicates`` back; ``kept`` are conditions by register."""
        told: dict[Condition, Condition | None] = {}
        for bit in uses.each(_written(i)):
            if bit >= uses.PREDICATES:
                told[bit - uses.PREDICATES] = predicates.get(bit - uses.PREDICATES)
                continue
            clear = self._clear.get(bit, 0)
            for condition in kept.get(bit, ()):
                same = _put(i, condition, clear)
                if same != condition:
                    told[condition] = same
            self._clear[bit] = _cleared(i, bit, clear)
        made = {condition for condition in told if condition < _PREDICATES}
        put = {
            condition: same
            for condition, same in told.items()
            if condition not in made and same is not None and predicate_of(same) not in made
        }
        for condition in [*self._equal]:
            if condition in told or predicate_of(self._equal[condition]) in made:
                told.setdefault(condition, self._equal.pop(condition))
        self._equal |= put | {predicates[number]: number for number in made & predicates.keys()}
        return told


def _written(i: DecodedInstruction) -> int:
    """Return what an instruction writes, of one that nobody knows the predicates that it names."""
    if i.row is not None:
        return uses.written(i)
    return sum(uses.of(predicate) for predicate in {*i.outs})


def _opposite(condition: Condition | None) -> Condition | None:
    return None if condition is None else ~condition


def _kept_in(register: int, bit: int) -> Condition:
    return _PREDICATES + register * (_ANY + 1) + bit


def _place(condition: Condition) -> tuple[int, int]:
    """Return the register and the bit of a condition."""
    return divmod(condition - _PREDICATES, _ANY + 1)


def _restored(i: DecodedInstruction) -> dict[int, Condition]:
    """Return which predicates an instruction has back, each from where."""
    source = i.sources[0] if i.sources else None
    if i.guard is not None or i.row is None:
        return {}
    if i.sass.opcode == "R2P":
        source, mask = i.operands[1], i.operands[-1]
        if not isinstance(source, SassRegister) or not isinstance(mask, Immediate):
            return {}
        shift = 8 * int(source.marks[0][1]) if source.marks else 0
        return {bit: _kept_in(source.number, bit + shift) for bit in _bits(mask.value)}
    if not isinstance(source, SassRegister) or source.inverted or not i.outs:
        return {}
    if i.sass.opcode == "ISETP":
        alone = i.sass.modifiers == ("NE", "AND") and i.ins == (_TRUE,) and is_zero(i.sources[1])
        return {i.outs[0].number: _kept_in(source.number, _ANY)} if alone else {}
    bits = _bits(_table(i, _AND))
    if len(bits) != 1 or not is_zero(i.dest) or i.ins != (_FALSE,):
        return {}
    return {i.outs[0].number: _kept_in(source.number, bits[0])}


def _put(i: DecodedInstruction, condition: Condition, clear: int) -> Condition | None:
    """Return what says before an instruction that writes a register what a condition of it says behind.

    The bits in ``clear`` are known to be clear before it.
    """
    register, bit = _place(condition)
    if i.sass.opcode == "P2R" and i.guard is None:
        mask, shift, rest = _from_predicates(i)
        if bit == _ANY:
            return mask.bit_length() - 1 if mask.bit_count() == 1 and is_zero(rest) else None
        if mask << shift >> bit & 1:
            return bit - shift
        return condition if _is_register(rest, register) else None
    if bit == _ANY or not _is_in_place(i, register):
        return None
    if i.guard is None and (kept := _table(i, _AND)):
        return condition if kept >> bit & 1 else None
    if put := _table(i, _OR):
        if not put >> bit & 1:
            return condition
        return number_of(i.guard) if clear >> bit & 1 else None
    return None


def _cleared(i: DecodedInstruction, register: int, clear: int) -> int:
    """Return which bits of a register that an instruction writes are known to be clear behind it."""
    if not _is_in_place(i, register):
        return 0
    if i.guard is None and (kept := _table(i, _AND)):
        return clear | ~kept & _WORD
    put = _table(i, _OR)
    return clear & ~put if put else 0


def _is_in_place(i: DecodedInstruction, register: int) -> bool:
    """Say whether an instruction makes a register of what is in it."""
    return (
        bool(i.sources) and _is_register(i.dest, register) and _is_register(i.sources[0], register)
    )


def _table(i: DecodedInstruction, table: int) -> int:
    """Return the word that an instruction combines with a register alone by such a table, 0 where it does not."""
    if i.sass.opcode != "LOP3" or i.sass.modifiers != ("LUT",) or len(i.sources) != 4:
        return 0
    _, word, zero, used = i.sources
    if not isinstance(word, Immediate) or not isinstance(used, Immediate):
        return 0
    return word.value & _WORD if used.value == table and is_zero(zero) else 0


def _from_predicates(i: DecodedInstruction) -> tuple[int, int, Operand]:
    """Return the mask of P2R, by how much its bits are shifted, and where the others are from."""
    rest, mask = i.sources[-2:]
    shift = next((8 * n for n in range(4) if i.has(f"B{n}")), 0)
    return (mask.value & _EVERY if isinstance(mask, Immediate) else 0), shift, rest


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(_ANY) if mask >> bit & 1]


def _is_register(operand: Operand | None, number: int) -> bool:
    return isinstance(operand, SassRegister) and operand.number == number and not operand.inverted
