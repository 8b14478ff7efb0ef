"""Every form of the register-to-register instructions that the emulator computes.

Found by offering each combination of the grammar to the operation that implements its opcode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.prepare import operation as registry
from ptxlab.emulator.prepare import row
from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.row import Alu, UnknownForm
from ptxlab.isa.grammar import GRAMMAR
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS

_THREE_SOURCES = ("min", "max")


@dataclass(frozen=True, slots=True)
class Form:
    """One instruction: the opcode, what fills each slot, and the types of results and sources.

    ``cc``, the carry flag, is among the types but is no operand that is written.
    """

    opcode: str
    slots: tuple[str, ...]
    results: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the opcode."""
        return tuple(part for part in self.slots if part)

    @property
    def name(self) -> str:
        """The instruction as it is written."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def sources(self) -> int:
        """How many source operands are written."""
        return sum(name != "cc" for name in self.operands)


@cache
def forms(opcode: str) -> tuple[Form, ...]:
    """Return the forms of ``opcode`` that the emulator computes. Raises KeyError for a name unknown."""
    found: dict[tuple[str, int], Form] = {}
    for slots in GRAMMAR[opcode]:
        for choice in product(*slots):
            for form in _built(opcode, choice):
                found.setdefault((form.name, form.sources), form)
    return tuple(found.values())


def _built(opcode: str, choice: tuple[str, ...]) -> Iterator[Form]:
    names = [part for part in choice if part]
    for sources in (None, 3) if opcode in _THREE_SOURCES else (None,):
        modifiers = Modifiers(names, TARGETS[DEFAULT_TARGET], sources)
        try:
            operation = build(opcode, modifiers)
            modifiers.finish()
        except UnknownForm:
            continue
        yield Form(opcode, choice, operation.results, operation.operands)


def build(opcode: str, modifiers: Modifiers) -> Alu | row.Form:
    """Build the operation of a register-to-register instruction; of video ones without selectors."""
    return registry.build(opcode, modifiers)
