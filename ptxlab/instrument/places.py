"""Where a user means: the instructions of a module by line, label or pattern, and their registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import dropwhile

from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.instrument.sites import Scoped, dumped_type, instructions
from ptxlab.syntax.functions import statements
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function, Instruction, Label, PtxModule

_WAIT = "wgmma.wait_group"

OPERANDS = "DABC"
"""What the PTX ISA calls the operands of an instruction that has a result, in order."""


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """An instruction in ``function`` and the registers to look at there, with their PTX types.

    ``asked`` is what each of them was asked for as: ``D[0]``, its name, or its number in the text. D, A,
    B and C are operands of the instruction ``of``, which may be another one.
    """

    function: str
    instruction: Instruction
    registers: tuple[str, ...]
    types: tuple[str, ...]
    asked: tuple[str, ...]
    of: Instruction


def find_places(
    module: PtxModule,
    kernel: Function,
    at: str | int,
    registers: Sequence[str] = (),
    of: str | int | None = None,
    *,
    needs_registers: bool,
) -> tuple[DumpPlace, ...]:
    """Return the places that ``at`` names, in text order.

    ``at`` is a line of the PTX text, a label (the instruction that follows it), an instruction
    (``mma.sync`` is every instruction that begins so, ``*.row.col.*`` those that match). Lines are looked
    for in the whole module, the rest in ``kernel``, and in the device functions where it has none.
    ``registers`` are names of registers, or D, A, B and C for the registers of an operand; none are
    all that the instruction names, which must name some where it ``needs_registers``. The operands are
    those of the instruction ``of``, named in the same way; at wgmma.wait_group, of wgmma.mma_async.
    Raises PtxlabError for what is not there, with what is near.
    """
    sites = _sites_at(module, kernel, at)
    places = []
    for function, site in sites:
        name = site.instruction.name
        other = "wgmma.mma_async" if of is None and name.startswith(_WAIT) and registers else of
        sources = (
            [site]
            if other is None
            else [other_site for _, other_site in _sites_at(module, kernel, other)]
        )
        places.append(_place(module, function, site, registers, sources))
        if needs_registers and not places[-1].registers:
            raise PtxlabError(
                f"{name} names no register",
                location=locate(module.source, site.instruction.position),
                hint="say which ones to look at",
            )
    if len({place.types for place in places}) > 1:
        raise PtxlabError(
            f"{at} means {len(places)} instructions, "
            "and not all of them have registers of the same types",
            hint="name the registers, or one line",
        )
    return tuple(places)


def _sites_at(module: PtxModule, kernel: Function, at: str | int) -> Sites:
    others = [f for f in module.functions if f is not kernel and f.body is not None]
    if str(at).isdecimal():
        sites = _on_line(module, [kernel, *others], int(at))
    else:
        sites = _named(kernel, str(at))
        for function in others if not sites else ():
            sites += _named(function, str(at))
    if not sites:
        raise PtxlabError(
            f"{called(kernel.name)} has no label or instruction {at}", hint=_near(kernel, str(at))
        )
    return sites


Sites = list[tuple[Function, Scoped]]


def _on_line(module: PtxModule, functions: Sequence[Function], line: int) -> Sites:
    everywhere = [(function, site) for function in functions for site in instructions(function)]
    sites = [(f, site) for f, site in everywhere if site.instruction.position.line == line]
    if not sites:
        lines = sorted({site.instruction.position.line for _, site in everywhere})
        near = min(lines, key=lambda other: abs(other - line), default=None)
        raise PtxlabError(
            f"there is no instruction on line {line} of {module.source.path}",
            hint=None if near is None else f"the nearest is on line {near}",
        )
    return sites


def _named(function: Function, at: str) -> Sites:
    label_on = dropwhile(
        lambda statement: not (isinstance(statement, Label) and statement.name == at),
        statements(function),
    )
    after = next((statement for statement in label_on if isinstance(statement, Instruction)), None)
    return [
        (function, site)
        for site in instructions(function)
        if site.instruction is after or matches(site.instruction.name, at)
    ]


def matches(name: str, pattern: str) -> bool:
    """Say whether an instruction's name begins with ``pattern``, in whole parts, or matches it."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _near(kernel: Function, at: str) -> str | None:
    labels = [s.name for s in statements(kernel) if isinstance(s, Label)]
    names = {site.instruction.name for site in instructions(kernel)}
    known = [*labels, *sorted(names), *sorted({name.split(".")[0] for name in names})]
    return did_you_mean(at, known)


# ---- registers ------------------------------------------------------------------------------


def _place(
    module: PtxModule,
    function: Function,
    site: Scoped,
    wanted: Sequence[str],
    sources: Sequence[Scoped],
) -> DumpPlace:
    names = [] if wanted else _all(site)
    asked = [f"register {number}" for number in range(len(names))]
    for name in wanted:
        is_operand = name in tuple(OPERANDS) and site.type_of(name) is None
        named = _operand_of(module, sources, name) if is_operand else [name]
        names += named
        asked += [f"{name}[{number}]" for number in range(len(named))] if named != [name] else named
    types = tuple(dumped_type(module, site, name) for name in names)
    return DumpPlace(
        function.name, site.instruction, tuple(names), types, tuple(asked), sources[0].instruction
    )


def _all(site: Scoped) -> list[str]:
    """Return the registers that the instruction names, its guard first."""
    guard = site.instruction.guard
    named = [] if guard is None else [guard.name]
    for operand in site.instruction.operands:
        named += site.registers(operand)
    return list(dict.fromkeys(named))


def _operand_of(module: PtxModule, sources: Sequence[Scoped], letter: str) -> list[str]:
    """Return the registers of an operand, which are the same in all of the instructions."""
    name, *others = (_operand(module, source, letter) for source in sources)
    if any(other != name for other in others):
        raise PtxlabError(
            f"operand {letter} of {sources[0].instruction.name} is not the same at each of "
            f"{len(sources)} places",
            hint="name the line of one of them",
        )
    return name


def _operand(module: PtxModule, site: Scoped, letter: str) -> list[str]:
    operands = site.instruction.operands
    position = OPERANDS.index(letter)
    registers = site.registers(operands[position]) if position < len(operands) else []
    if not registers:
        raise PtxlabError(
            f"{site.instruction.name} has no registers as operand {letter}",
            location=locate(module.source, site.instruction.position),
            hint="operands are counted D, A, B, C",
        )
    return registers
