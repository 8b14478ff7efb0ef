"""The registers, predicates and constants of the threads of some CTAs, as instructions name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ptxlab.machine import uses
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
from ptxlab.machine.values import Array, Bank, Where, numbers

U32 = np.uint32


class Registers:
    """What ``threads`` threads hold; uniform registers are held by each of them."""

    def __init__(self, launch: Launch, ctas: Sequence[int]) -> None:
        self.launch, self.ctas = launch, ctas
        self._constants = launch.constants()
        self._shared: dict[tuple[int, int], Array | None] = {}
        """Words of constant memory, as what all threads have."""
        self.threads = len(launch.alive(ctas))
        self.words = Bank(512, self.threads, np.uint32, {ZERO_REGISTER: 0, URZ: 0})
        self.predicates = Bank(16, self.threads, np.bool_, {TRUE_PREDICATE: 1, UPT: 1})

    def predicate(self, predicate: Predicate, where: Where) -> Any:
        """Return for which threads a predicate, or its opposite, holds; None if it is not known."""
        value = self.predicates.read(predicate.number, where)
        return ~value if value is not None and predicate.negated else value

    def holding(
        self, number: int, predicates: Iterable[Predicate | None], where: Where
    ) -> Array | bool | None:
        """Say for which threads all predicates of an instruction, by ``number``, hold: all, or some.

        Where that is not known it is what the launch assumes of the instruction, None where it assumes nothing.
        """
        holding: Array | bool = True
        for predicate in predicates:
            if predicate is not None:
                value = self.predicate(predicate, where)
                if value is None:
                    assumed = self.launch.assumed.get(number)
                    threads = len(numbers(where, self.threads))
                    return np.zeros(threads, bool) if assumed is False else assumed
                holding = value if holding is True else holding & value
        if holding is True or bool(np.all(holding)):
            return True
        return holding

    def value(self, operand: Operand, where: Where) -> Any:
        """Return an operand as words; None if it is not known."""
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
        if value is None:
            return value
        if operand.inverted:
            return ~value
        return U32(0) - value if operand.negated else value

    def constant(self, constant: SassConstant, where: Where) -> Any:
        offset = constant.offset
        if constant.register is not None and constant.register.number not in (ZERO_REGISTER, URZ):
            return self._indexed(constant.bank, offset, constant.register, where)
        word = constant.bank, offset & ~3
        if word not in self._shared:
            held = self._constants.get(word)
            self._shared[word] = None if held is None else np.array([held], U32)
        return self._shared[word]

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

    def tell(self, predicate: Predicate, where: Where, value: Any) -> None:
        self.predicates.write(predicate.number, where, value)

    def forget(self, bits: Sequence[int], where: Where) -> None:
        """Have some words and predicates be unknown, by the bits of ``machine.uses``."""
        self.words.forget([bit for bit in bits if bit < uses.PREDICATES], where)
        for bit in bits:
            if bit >= uses.PREDICATES:
                self.predicates.write(bit - uses.PREDICATES, where, None)
