"""The registers, predicates and constants of the threads of some CTAs, as instructions name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ptxlab.machine import uses, words
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.operands import (
    TRUE_PREDICATE,
    UPT,
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassConstant,
    SassRegister,
)
from ptxlab.machine.values import Array, Bank, Where

U32, U64 = np.uint32, np.uint64


class Registers:
    """What ``threads`` threads hold; uniform registers are held by each of them."""

    def __init__(self, launch: Launch, ctas: Sequence[int]) -> None:
        self._special = launch.special(ctas)
        self._constants = launch.constants()
        self.threads = len(launch.alive(ctas))
        self.words = Bank(512, self.threads, np.uint32, {ZERO_REGISTER: 0, URZ: 0})
        self.predicates = Bank(16, self.threads, np.bool_, {TRUE_PREDICATE: 1, UPT: 1})

    def special(self, name: str, where: Where) -> Array | None:
        """Return a special register, None where it is not known."""
        value = self._special.get(name)
        return None if value is None else value[where]

    def predicate(self, predicate: Predicate, where: Where) -> Any:
        """Return for which threads a predicate, or its opposite, holds; None if it is not known."""
        value = self.predicates.read(predicate.number, where)
        return ~value if value is not None and predicate.negated else value

    def value(self, operand: Operand, where: Where, *, bare: bool = False) -> Any:
        """Return an operand as words, ``bare`` without the sign in front of it; None if it is not known."""
        value: Any
        if isinstance(operand, SassRegister):
            if operand.part:
                return None
            value = self.words.read(operand.number, where)
        elif isinstance(operand, Immediate):
            return U32(operand.value)
        elif isinstance(operand, SassConstant):
            value = self.constant(operand, where)
        else:
            return None
        if value is None or bare:
            return value
        if operand.inverted:
            return ~value
        return U32(0) - value if operand.negated else value

    def pair(self, operand: Operand, where: Where, *, signed: bool) -> Any:
        """Return an operand of 64 bits: two registers, two constants, or a number."""
        if isinstance(operand, Immediate):
            return words.wide(np.asarray(U32(operand.value)), signed=signed)
        lower = self.value(operand, where, bare=True)
        upper = self.value(_next(operand), where, bare=True)
        if lower is None or upper is None:
            return None
        value = words.joined(lower, upper)
        negated = isinstance(operand, SassRegister | SassConstant) and operand.negated
        return U64(0) - value if negated else value

    def source(self, i: DecodedInstruction, operand: Operand, where: Where) -> Any:
        """Return a source: a word, or 64 bits where the instruction has so many."""
        if i.takes_pairs:
            return self.pair(operand, where, signed=True)
        return self.value(operand, where)

    def constant(self, constant: SassConstant, where: Where) -> Any:
        offset = constant.offset
        if constant.register is not None and constant.register.number not in (ZERO_REGISTER, URZ):
            return self._indexed(constant.bank, offset, constant.register, where)
        word = self._constants.get((constant.bank, offset & ~3))
        return None if word is None else U32(word)

    def _indexed(self, bank: int, offset: int, register: SassRegister, where: Where) -> Any:
        """Return the words of a bank behind ``offset`` at which a register is, thread by thread."""
        index = self.words.read(register.number, where)
        if index is None:
            return None
        places, nth = np.unique(index, return_inverse=True)
        words = [
            self._constants.get((bank, offset + distance & ~3)) for distance in places.tolist()
        ]
        return None if None in words else np.array(words, U32)[nth]

    def real(self, operand: Operand, where: Where) -> Any:
        if isinstance(operand, Immediate):
            return np.float32(operand.real)
        word = self.value(operand, where, bare=True)
        if word is None:
            return None
        value = np.asarray(word).view(np.float32)
        if not isinstance(operand, SassRegister | SassConstant):
            return value
        value = np.abs(value) if operand.absolute else value
        return -value if operand.negated else value

    def write(self, i: DecodedInstruction, where: Where, value: Any, *, count: int = 1) -> None:
        """Write ``count`` registers: a word, or the halves of 64 bits."""
        if i.dest is None:
            return
        if count == 2:
            halves = (None, None) if value is None else (words.low(value), words.high(value))
            self.write_row(i.dest, where, halves)
        else:
            self.words.write(i.dest.number, where, value)

    def write_row(self, first: SassRegister, where: Where, values: Iterable[Any]) -> None:
        """Write registers that follow each other; what follows the zero register is none of them."""
        if first.number not in (ZERO_REGISTER, URZ):
            for n, value in enumerate(values):
                self.words.write(first.number + n, where, value)

    def tell(self, predicate: Predicate, where: Where, value: Any) -> None:
        self.predicates.write(predicate.number, where, value)

    def tell_compared(
        self, i: DecodedInstruction, where: Where, holds: Array, ins: Sequence[Any]
    ) -> None:
        """Write what a comparison found, and its opposite, combined with a predicate that is known."""
        other = np.asarray(ins[0] if ins else True)
        for predicate, value in zip(i.outs, (holds, ~holds), strict=False):
            self.tell(predicate, where, words.combined(i, value, other))

    def forget(self, i: DecodedInstruction, where: Where) -> None:
        """Have what an instruction writes be unknown."""
        for bit in uses.each(uses.written(i)):
            if bit >= uses.PREDICATES:
                self.predicates.write(bit - uses.PREDICATES, where, None)
            else:
                self.words.write(bit, where, None)


def _next(operand: Operand) -> Operand:
    """Return the upper word of an operand of 64 bits."""
    if isinstance(operand, SassRegister):
        zero = operand.number in (ZERO_REGISTER, URZ)
        return operand if zero else SassRegister(operand.number + 1)
    return moved(operand, 4) if isinstance(operand, SassConstant) else operand


def moved(constant: SassConstant, by: int) -> SassConstant:
    return SassConstant(constant.bank, constant.offset + by, constant.register)
