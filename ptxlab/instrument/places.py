"""Where a user means: the instructions of a module by line, label or pattern, and their registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.instrument.naming import NamedInstruction, named_instructions
from ptxlab.instrument.sites import Scoped, calls, dumped_type
from ptxlab.instrument.sites import sources as origins
from ptxlab.syntax.functions import SourceLine, SourcePlace
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function, Instruction, PtxModule

_WAIT = "wgmma.wait_group"
_ADDRESS = re.compile(r"0x[0-9a-f]+$", re.IGNORECASE)

_LISTED = re.compile(r"(?P<file>.+\.sass):(?P<line>\d+)$")

OPERANDS = "DABC"
"""What the PTX ISA calls the operands of an instruction that has a result, in order."""


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """An instruction in ``function`` and the registers to look at there, with their PTX types.

    ``asked`` is what each of them was asked for as: ``D[0]``, its name, or its number in the text. D, A,
    B and C are operands of the instruction ``of``, which may be another one. An instruction of machine code
    is those from ``first`` to ``instruction``, which it was lifted into, and ``source`` is what it was made from.
    """

    function: str
    name: str
    first: Instruction
    instruction: Instruction
    registers: tuple[str, ...]
    types: tuple[str, ...]
    asked: tuple[str, ...]
    of: Instruction
    source: SourceLine | None


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
    (``mma.sync`` is every instruction that begins so, ``*.row.col.*`` those that match). Of machine code
    lines are those of its listing, ``FILE.sass:12`` too, and ``0x01a0`` is an address. ``FILE.cu:17`` is, each
    time that instructions of that line follow each other, the last of them that goes on to the next. Lines are looked
    for in the whole module, the rest in ``kernel``, and in the device functions where it has none.
    ``registers`` are names of registers, or D, A, B and C for the registers of an operand; none are
    all that the instruction names, which must name some where it ``needs_registers``. The operands are
    those of the instruction ``of``, named in the same way; at wgmma.wait_group, of wgmma.mma_async.
    Raises PtxlabError for what is not there, with what is near.
    """
    sites = _sites_at(module, kernel, at)
    places = []
    for function, site in sites:
        name = site.name
        other = "wgmma.mma_async" if of is None and name.startswith(_WAIT) and registers else of
        sources = (
            [site.product]
            if other is None
            else [other_site.product for _, other_site in _sites_at(module, kernel, other)]
        )
        places.append(_place(module, function, site, registers, sources))
        if needs_registers and not places[-1].registers:
            raise PtxlabError(
                f"{name} names no register",
                location=locate(module.source, site.sites[0].instruction.position),
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
    if listed := _LISTED.match(str(at)):
        return _on_line(module, [kernel, *others], _line_of_listing(module, listed))
    place = SourcePlace.read(str(at))
    if place is not None and not module.source.path.endswith(place.file):
        return _of_source(module, [kernel, *others], place)
    if place is not None:
        at = place.line
    if str(at).isdecimal():
        sites = _on_line(module, [kernel, *others], int(at))
    else:
        sites = _named(module, kernel, str(at))
        for function in others if not sites else ():
            sites += _named(module, function, str(at))
    if not sites:
        raise PtxlabError(
            f"{called(kernel.name)} has no label or instruction {at}",
            hint=_near(module, kernel, str(at)),
        )
    return sites


Sites = list[tuple[Function, NamedInstruction]]


def _line_of_listing(module: PtxModule, listed: re.Match[str]) -> int:
    """Return the line that FILE.sass:LINE names, of the machine code of a program whose file is called so."""
    own = Path(module.source.path.partition(" (")[0]).stem
    if not module.lifted or Path(listed["file"]).stem != own:
        raise PtxlabError(
            f"{listed[0]} is no line of {module.source.path}",
            hint=f"lines of its machine code are {own}.sass:LINE, with --engine sass",
        )
    return int(listed["line"])


def _on_line(module: PtxModule, functions: Sequence[Function], line: int) -> Sites:
    everywhere = [(f, site) for f in functions for site in named_instructions(module, f)]
    sites = [(f, site) for f, site in everywhere if site.line == line]
    if not sites:
        near = min((site.line for _, site in everywhere), key=lambda n: abs(n - line), default=None)
        raise PtxlabError(
            f"there is no instruction on line {line} of {module.source.path}",
            hint=None if near is None else f"the nearest is on line {near}",
        )
    return sites


def _of_source(module: PtxModule, functions: Sequence[Function], place: SourcePlace) -> Sites:
    """Return the end of each run of instructions that come from a line of the source, in it or inlined there."""
    from_line, called_from = origins(module, functions), calls(module, functions)
    ends: Sites = []
    for function in functions:
        run = False
        for site in named_instructions(module, function):
            lines = (from_line.get(site.line), *called_from.get(site.line, ()))
            here = any(map(place.is_line, lines))
            if here and not _leaves(site):
                ends[len(ends) - run :] = [(function, site)]
            run = here and (run or not _leaves(site))
    if not ends:
        known = {
            line.line
            for line in from_line.values()
            if SourcePlace(place.file, line.line).is_line(line)
        }
        near = min(known, key=lambda line: abs(line - place.line), default=None)
        raise PtxlabError(
            f"no instruction comes from line {place.line} of {place.file}",
            hint=None if near is None else f"the nearest is line {near}",
        )
    return ends


def _leaves(site: NamedInstruction) -> bool:
    return site.name.split(".")[0] in ("bra", "brx", "ret", "exit", "trap")


def _named(module: PtxModule, function: Function, at: str) -> Sites:
    if match := _ADDRESS.match(at):
        at = f"{int(match[0], 16):#x}"
    return [
        (function, site)
        for site in named_instructions(module, function)
        if at in site.labels or matches(site.name, at)
    ]


def matches(name: str, pattern: str) -> bool:
    """Say whether an instruction's name begins with ``pattern``, in whole parts, or matches it."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _near(module: PtxModule, kernel: Function, at: str) -> str | None:
    every = list(named_instructions(module, kernel))
    labels = [label for site in every for label in site.labels]
    names = {site.name for site in every}
    known = [*labels, *sorted(names), *sorted({name.split(".")[0] for name in names})]
    return did_you_mean(at, known)


# ---- registers ------------------------------------------------------------------------------


def _place(
    module: PtxModule,
    function: Function,
    named: NamedInstruction,
    wanted: Sequence[str],
    sources: Sequence[Scoped],
) -> DumpPlace:
    first, site = named.sites[0], named.sites[-1]
    made_from = origins(module, [function]).get(named.line) if module.lifted else None
    names = [] if wanted else named.registers
    operands: dict[str, str] = {}
    for letter, operand in zip(OPERANDS, sources[0].instruction.operands, strict=False):
        for number, name in enumerate(sources[0].registers(operand)):
            operands.setdefault(name, f"{letter}[{number}]")
    asked = [operands.get(name, f"register {number}") for number, name in enumerate(names)]
    for name in wanted:
        is_operand = name in tuple(OPERANDS) and site.type_of(name) is None
        of_name = _operand_of(module, sources, name) if is_operand else [name]
        names += of_name
        several = of_name != [name]
        asked += [f"{name}[{n}]" for n in range(len(of_name))] if several else of_name
    types = tuple(dumped_type(module, site, name) for name in names)
    return DumpPlace(
        function.name,
        named.name,
        first.instruction,
        site.instruction,
        tuple(names),
        types,
        tuple(asked),
        sources[0].instruction,
        made_from,
    )


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
