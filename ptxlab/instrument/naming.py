"""What a user calls the instructions of a function: of PTX each, of machine code those that one line of it became."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.syntax.functions import statements
from ptxlab.syntax.tree import Function, Instruction, Label, PtxModule

_MACHINE = re.compile(r"\s*/\*(?P<address>[0-9a-f]+)\*/ (?:@\S+ )?(?P<name>[^\s;]+)")
_REGISTER = re.compile(r"U?[RPB]\d+$")


@dataclass(frozen=True, slots=True)
class NamedInstruction:
    """An instruction by its ``name``; one of machine code is the ``sites`` of PTX that it was lifted into.

    ``labels`` are what else it is called: the labels before it, and its address.
    """

    name: str
    sites: tuple[Scoped, ...]
    labels: tuple[str, ...] = ()
    machine: bool = False

    @property
    def line(self) -> int:
        return self.sites[0].instruction.position.line

    @property
    def product(self) -> Scoped:
        """The site whose operands D, A, B and C are: the one with the most registers."""
        return max(self.sites, key=lambda site: len(named_registers(site)))

    @property
    def registers(self) -> list[str]:
        """The registers that it names, its guard first; of what was lifted, those that the machine has."""
        names = dict.fromkeys(name for site in self.sites for name in named_registers(site))
        return [name for name in names if not self.machine or is_machine_register(name)]


def named_instructions(module: PtxModule, function: Function) -> Iterator[NamedInstruction]:
    """Yield the instructions of ``function`` in text order."""
    if module.lifted:
        yield from _of_machine_code(module, function)
        return
    before: list[str] = []
    sites = instructions(function)
    for statement in statements(function):
        if isinstance(statement, Label):
            before.append(statement.name)
        elif isinstance(statement, Instruction):
            yield NamedInstruction(statement.name, (next(sites),), tuple(before))
            before = []


def _of_machine_code(module: PtxModule, function: Function) -> Iterator[NamedInstruction]:
    text = module.source.text.splitlines()
    for line, sites in groupby(instructions(function), lambda site: site.instruction.position.line):
        match = _MACHINE.match(text[line - 1]) if line else None
        if match is not None:
            address = int(match["address"], 16)
            above = text[line - 2].strip() if line > 1 else ""
            labels = (above[:-1],) if above.endswith(":") else ()
            yield NamedInstruction(match["name"], tuple(sites), (*labels, f"{address:#x}"), True)


def is_machine_register(name: str) -> bool:
    """Say whether a register of lifted machine code is the machine's, and not one that only stands in between."""
    return _REGISTER.match(name) is not None


def named_registers(site: Scoped) -> list[str]:
    """Return the registers that an instruction names, its guard first."""
    guard = site.instruction.guard
    named = [] if guard is None else [guard.name]
    for operand in site.instruction.operands:
        named += site.registers(operand)
    return list(dict.fromkeys(named))
