"""Writes the PTX that instructions of the machine become, one instruction after the other.

A rule of the tables is given a ``Writer`` that stands at its instruction. It reads operands as PTX writes
them, and emits lines whose guard is that of the instruction. What is needed in between is in registers of
their own, which the next instruction may use anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import Target
from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.lift.banks import Constants
from ptxlab.machine.lift.code import CodeAddresses
from ptxlab.machine.operands import (
    TRUE_PREDICATE,
    UNIFORM_PREDICATE,
    UPT,
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassConstant,
    SassName,
    SassRegister,
)

TEMPORARIES = {"w": "b32", "d": "b64", "q": "pred", "h": "b16", "b": "b8", "x": "b128"}
"""How registers for what comes in between begin, and their type."""

TRUE, FALSE = "true", "false"
"""Predicates that always are so: of them PTX has none."""

SIGN = 0x80000000
_T = TypeVar("_T")

register = uses.name
"""What a register is called: ``R4``, ``UR4``."""


def predicate_name(number: int) -> str:
    return f"UP{number - UNIFORM_PREDICATE}" if number >= UNIFORM_PREDICATE else f"P{number}"


def is_zero(operand: Operand | None) -> bool:
    """Say whether an operand is the register that is always zero, or 0."""
    if isinstance(operand, SassRegister):
        return operand.number in (ZERO_REGISTER, URZ) and not operand.inverted
    return isinstance(operand, Immediate) and not (operand.value or operand.upper)


def is_true(predicate: Predicate) -> bool:
    return predicate.number in (TRUE_PREDICATE, UPT)


class Modifiers:
    """The modifiers of an instruction, of which each has to be asked for: what nobody knows is refused."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._known: set[str] = set()

    def has(self, *names: str) -> bool:
        """Say whether any of these is there."""
        self._known.update(names)
        return any(name in self.names for name in names)

    def ignore(self, *names: str) -> None:
        """Know modifiers that change nothing here."""
        self._known.update(names)

    def choose(self, choices: Mapping[str, _T], usual: _T) -> _T:
        """Return what the first modifier of some stands for."""
        self._known.update(choices)
        return next((choices[name] for name in self.names if name in choices), usual)

    def unknown(self) -> list[str]:
        return [name for name in self.names if name not in self._known]


class Writer:
    """The PTX of a kernel, line by line, and of which instruction each line is."""

    def __init__(self, target: Target, banks: Constants, addresses: CodeAddresses) -> None:
        self.target = target
        self.banks = banks
        self.addresses = addresses
        self.arguments: dict[str, str] = {}
        """What is passed to functions of the driver, and its type."""
        self.special: dict[str, str] = {}
        """Registers that machine code has beside its numbered ones, and their types."""
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.most: Counter[str] = Counter()
        self.written: set[str] = set()
        self.first: dict[str, None] = {}
        """Lines that stand before the first instruction."""
        self.strangers: set[int] = set()
        """Predicates that say last of each lane whether it holds something else than the first."""
        self._used: Counter[str] = Counter()
        self._guard = ""

    # ---- the instruction ----

    def begin(self, i: DecodedInstruction) -> None:
        """Stand at an instruction."""
        self.i, self.modifiers = i, Modifiers(i.sass.modifiers)
        self._used.clear()
        self.strangers.difference_update(out.number for out in i.outs)
        self._guard = ""
        guard = i.guard
        if guard is not None and is_true(guard):
            self._guard = "@false " if guard.negated else ""
            if guard.negated:
                self.name(FALSE)
        elif guard is not None:
            name = self.name(predicate_name(guard.number))
            if sum(out.number == guard.number for out in i.outs):
                kept = self.temporary("q")
                self.emit(f"mov.pred {kept}, {name}")
                name = kept
            self._guard = f"@{'!' * guard.negated}{name} "

    def end(self) -> None:
        """Leave the instruction, of which every modifier must be known."""
        for name in self.modifiers.unknown():
            raise self.refused(f"what .{name} does here is not modelled")

    def refused(self, why: str) -> Unsupported:
        """Return the error that the instruction is not modelled, and why."""
        return Unsupported(f"'{self.i.sass.text}' at {self.i.sass.address:#06x}: {why}")

    def emit(self, line: str) -> None:
        """Write an instruction of PTX that is guarded as this one is."""
        self.raw(f"{self._guard}{line};")

    def raw(self, line: str) -> None:
        self.lines.append(line)
        self.numbers.append(self.i.number)

    @contextmanager
    def once(self, condition: str = TRUE) -> Iterator[None]:
        """Have what is emitted be done by the lowest of the lanes that execute this, for all of them, on a condition."""
        guard, chosen, mask = self._guard, self.temporary("q"), self.temporary("w")
        self.unguarded(f"mov.pred {chosen}, {self.name(FALSE)}")
        self.emit(f"activemask.b32 {mask}")
        self.emit(f"elect.sync _|{chosen}, {mask}")
        with self.for_all():  # who is held back was not chosen
            chosen = self.both(chosen, condition)
        self._guard = f"@{chosen} "
        yield
        self._guard = guard

    @contextmanager
    def for_all(self) -> Iterator[None]:
        """Have what is emitted be done by all threads, whatever the guard says."""
        guard, self._guard = self._guard, ""
        yield
        self._guard = guard

    def unguarded(self, line: str) -> None:
        """Write an instruction of PTX whatever the guard says."""
        self.raw(f"{line};")

    @property
    def guarded(self) -> bool:
        return bool(self._guard)

    # ---- registers ----

    def temporary(self, kind: str) -> str:
        """Return a register that no other line of this instruction has, of a kind of TEMPORARIES."""
        number = self._used[kind]
        self._used[kind] += 1
        self.most[kind] = max(self.most[kind], number + 1)
        return f"{kind}{number}"

    def name(self, name: str) -> str:
        """Note that a register is named, so that it is declared."""
        self.written.add(name)
        return name

    def made(self, operation: str, *operands: str, kind: str = "w") -> str:
        """Emit what makes a value, and return where it is."""
        to = self.temporary(kind)
        self.emit(f"{operation} {', '.join((to, *operands))}")
        return to

    def special_register(self, name: str, kind: str = "b32") -> str:
        """Return a register that instructions share beside the numbered ones."""
        self.special[name] = kind
        return name

    def row(self, first: Operand | None, count: int) -> list[str]:
        """Return registers that follow each other to be written; zero registers are written in vain."""
        if not isinstance(first, SassRegister) or first.number in (ZERO_REGISTER, URZ):
            return [self.temporary("w") for _ in range(count)]
        return [self.name(register(first.number + n)) for n in range(count)]

    def dest(self, operand: Operand | None = None) -> str:
        """Return the register that is written."""
        return self.row(self.i.dest if operand is None else operand, 1)[0]

    def write_pair(self, value: str, operand: Operand | None = None) -> None:
        low, high = self.row(self.i.dest if operand is None else operand, 2)
        self.emit(f"mov.b64 {{{low}, {high}}}, {value}")

    def out(self, predicate: Predicate) -> str:
        """Return the predicate to write; what always is true is written in vain."""
        if is_true(predicate):
            return self.temporary("q")
        return self.name(predicate_name(predicate.number))

    # ---- sources ----

    def bare(self, operand: Operand) -> str:
        """Return a word as it is, without a sign in front of it."""
        if isinstance(operand, SassRegister):
            if operand.number in (ZERO_REGISTER, URZ):
                return "0"
            return self.name(register(operand.number))
        if isinstance(operand, Immediate):
            return str(operand.value)
        if isinstance(operand, SassConstant):
            return self.constant(operand)
        if isinstance(operand, SassName):
            symbol = self.banks.address_word(operand.text)
            if symbol is not None:
                return self.name(symbol)
        raise self.refused("this operand is not modelled")

    def constant(self, operand: SassConstant, at: int = 0) -> str:
        """Return a word of constant memory ``at`` so many bytes behind where the operand says."""
        if operand.register is not None and not is_zero(operand.register):
            index = self.bare(operand.register)
            return self.banks.indexed(self, operand.bank, operand.offset + at, index)
        word = self.banks.word(operand.bank, operand.offset + at)
        if word is None:
            raise self.refused(
                f"nothing is known of c[{operand.bank:#x}][{operand.offset + at:#x}]"
            )
        return word

    def unmarked(self, operand: Operand) -> None:
        """Refuse an operand of which only a part is meant."""
        if isinstance(operand, SassRegister | SassConstant) and {*operand.marks} - {"U32", "S32"}:
            raise self.refused(f"the part .{'.'.join(operand.marks)} of an operand is not modelled")

    def word(self, operand: Operand) -> str:
        """Return a word, negated or inverted as it says."""
        self.unmarked(operand)
        value = self.bare(operand)
        if not isinstance(operand, SassRegister | SassConstant):
            return value
        if operand.absolute:
            raise self.refused("the absolute value of a word is not modelled")
        if operand.inverted:
            return "0xffffffff" if value == "0" else self.made("not.b32", value)
        if operand.negated and value != "0":
            return self.made("neg.s32", value)
        return value

    def inverse(self, operand: Operand) -> str:
        """Return the complement of a word that is negated: with one more it is the negative."""
        value = self.bare(operand)
        return "0xffffffff" if value == "0" else self.made("not.b32", value)

    def is_negated(self, operand: Operand) -> bool:
        return isinstance(operand, SassRegister | SassConstant) and operand.negated

    def words(self, first: Operand, count: int) -> list[str]:
        """Return words that follow each other, as they are."""
        if isinstance(first, SassConstant):
            return [self.constant(first, 4 * n) for n in range(count)]
        if isinstance(first, SassRegister) and not is_zero(first):
            return [self.name(register(first.number + n)) for n in range(count)]
        return [self.bare(first)] + ["0"] * (count - 1)

    def stored(self, words: list[str]) -> list[str]:
        """Return words as registers: a vector has no numbers."""
        return [word if word[0].isalpha() else self.made("mov.b32", word) for word in words]

    def pair(self, operand: Operand, *, signed: bool = False) -> str:
        """Return 64 bits; an immediate is extended by its sign where ``signed`` says so."""
        if is_zero(operand):
            return "0"
        if isinstance(operand, Immediate):
            if operand.upper:
                return str(operand.upper << 32 | operand.value)
            below = signed and operand.value & SIGN
            return str(operand.value - (1 << 32) if below else operand.value)
        low, high = self.words(operand, 2)
        value = self.made("mov.b64", f"{{{low}, {high}}}", kind="d")
        if self.is_negated(operand):
            return self.made("neg.s64", value, kind="d")
        if isinstance(operand, SassRegister) and operand.inverted:
            return self.made("not.b64", value, kind="d")
        return value

    def real(self, operand: Operand) -> str:
        """Return an f32, with the signs that stand before it."""
        self.unmarked(operand)
        if isinstance(operand, Immediate):
            with np.errstate(over="ignore"):
                bits = int(np.float32(operand.real).view(np.uint32))
            return f"0f{bits:08x}"
        value = self.bare(operand)
        assert isinstance(operand, SassRegister | SassConstant | SassName)
        if isinstance(operand, SassName):
            return value
        if value == "0":
            return "0f80000000" if operand.negated else "0f00000000"
        if operand.absolute:
            value = self.made("and.b32", value, str(SIGN - 1))
        return self.made("xor.b32", value, str(SIGN)) if operand.negated else value

    def double(self, operand: Operand) -> str:
        """Return an f64, with the signs that stand before it."""
        if isinstance(operand, Immediate):
            bits = int(np.float64(operand.real).view(np.uint64)) + SIGN >> 32
            return f"0d{bits << 32:016x}"
        assert isinstance(operand, SassRegister | SassConstant)
        if is_zero(operand):
            return "0d8000000000000000" if operand.negated else "0d0000000000000000"
        low, high = self.words(operand, 2)
        if operand.absolute:
            high = self.made("and.b32", high, str(SIGN - 1))
        if operand.negated:
            high = self.made("xor.b32", high, str(SIGN))
        return self.made("mov.b64", f"{{{low}, {high}}}", kind="d")

    # ---- predicates ----

    def given(self, predicate: Predicate) -> str:
        """Return a predicate to read: ``P0``, ``!P0``, or TRUE or FALSE."""
        if is_true(predicate):
            return FALSE if predicate.negated else TRUE
        return "!" * predicate.negated + self.name(predicate_name(predicate.number))

    def source(self, predicate: str) -> str:
        """Return a predicate as an instruction of PTX takes it."""
        return self.name(predicate) if predicate in (TRUE, FALSE) else predicate

    def negation(self, predicate: str) -> str:
        if predicate in (TRUE, FALSE):
            return FALSE if predicate == TRUE else TRUE
        return predicate[1:] if predicate[0] == "!" else f"!{predicate}"

    def straight(self, predicate: str) -> str:
        """Return a predicate that is not negated."""
        predicate = self.source(predicate)
        return self.made("not.pred", predicate[1:], kind="q") if predicate[0] == "!" else predicate

    def both(self, a: str, b: str) -> str:
        return self._joined("and", a, b, TRUE, FALSE)

    def either(self, a: str, b: str) -> str:
        return self._joined("or", a, b, FALSE, TRUE)

    def differ(self, a: str, b: str) -> str:
        if a in (TRUE, FALSE):
            a, b = b, a
        if b in (TRUE, FALSE):
            return a if b == FALSE else self.negation(a)
        flip = (a[0] == "!") != (b[0] == "!")
        made = self.made("xor.pred", a.lstrip("!"), b.lstrip("!"), kind="q")
        return self.negation(made) if flip else made

    def _joined(self, operation: str, a: str, b: str, neutral: str, decides: str) -> str:
        if decides in (a, b):
            return decides
        if neutral in (a, b):
            return b if a == neutral else a
        return self.made(f"{operation}.pred", self.straight(a), self.straight(b), kind="q")

    def selected(
        self, a: str, b: str, predicate: str, operation: str = "selp.b32", kind: str = "w"
    ) -> str:
        """Return the first of two values where a predicate holds, and the other one where it does not."""
        if predicate in (TRUE, FALSE):
            return a if predicate == TRUE else b
        if predicate[0] == "!":
            a, b = b, a
        return self.made(operation, a, b, predicate.lstrip("!"), kind=kind)

    @property
    def outs(self) -> list[Predicate]:
        """The predicates that are not written in vain."""
        return [out for out in self.i.outs if not is_true(out)]

    def tell(self, predicate: Predicate, value: str) -> None:
        """Write a predicate."""
        if not is_true(predicate):
            self.tell_named(self.out(predicate), value)

    def tell_named(self, name: str, value: str) -> None:
        value = self.source(value)
        operation = "not.pred" if value[0] == "!" else "mov.pred"
        self.emit(f"{operation} {name}, {value.lstrip('!')}")

    def combined(self, value: str, other: str, how: str) -> str:
        """Combine two predicates by AND, OR or XOR."""
        return {"and": self.both, "or": self.either, "xor": self.differ}[how](value, other)
