"""The forms from registers to registers: of conversions, those of the grammar that their builder takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

from ptxlab.emulator.operations import convert
from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.row import ROWS, Alu, Compute, Fidelity, Form, UnknownForm
from ptxlab.emulator.prepare.row import forms as forms_of_rows
from ptxlab.isa.grammar import GRAMMAR
from ptxlab.isa.legality import Needs, needs
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS


@dataclass(frozen=True, eq=False)
class Conversion(Form):
    """A form of ``cvt``."""

    alu: Alu

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The types of the results."""
        return self.alu.results

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The types of the source operands."""
        return self.alu.operands

    @cached_property
    def compute(self) -> Compute:
        """The function from sources to results."""
        return self.alu.compute

    @cached_property
    def needs(self) -> Needs:
        """The least target and version."""
        return needs(self.opcode, self.modifiers)

    @property
    def fidelity(self) -> Fidelity:
        """How near it comes to a GPU."""
        return "model" if "rs" in self.slots else "exact"


def opcodes() -> tuple[str, ...]:
    """Return the opcodes that have forms from registers to registers."""
    found = [name for name, rows in ROWS.items() if any(row.compute or row.make for row in rows)]
    return (*found, *GRAMMAR)


@cache
def forms(opcode: str) -> tuple[Form, ...]:
    """Return the forms of ``opcode`` that the emulator computes. Raises KeyError for a name unknown."""
    if opcode not in GRAMMAR:
        return forms_of_rows(opcode)
    found: dict[str, Form] = {}
    for slots in GRAMMAR[opcode]:
        for choice in product(*slots):
            modifiers = Modifiers([part for part in choice if part], TARGETS[DEFAULT_TARGET])
            try:
                operation = convert.build(modifiers)
                modifiers.finish()
            except UnknownForm:
                continue
            form = Conversion(ROWS[opcode][0], choice, operation)
            found.setdefault(form.name, form)
    return tuple(found.values())
