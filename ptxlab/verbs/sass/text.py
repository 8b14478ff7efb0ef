"""What ``ptxlab sass`` tells, as text and as JSON: what kernels take, their code, and two programs compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import unified_diff
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.isa.occupancy import Occupancy
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.control import Control
from ptxlab.machine.decode import control_bits
from ptxlab.machine.sass import SassFunction, SassInstruction
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import brief
from ptxlab.toolchain.cubin import Resources, Used
from ptxlab.toolchain.fatbin import Member
from ptxlab.verbs.sass.binary import told, way_to
from ptxlab.verbs.sass.listing import Listing, ptx_of
from ptxlab.verbs.sass.programs import AssembledKernel, AssembledProgram
from ptxlab.view.json import members
from ptxlab.view.sources import at_line
from ptxlab.view.text import aligned, counted, fields
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.sass/1"

_FOR_TARGET = re.compile(r"^\s*\.(?:version|target)\b.*$", re.MULTILINE)
_MOST_OPCODES = 12
_LEAST = ("barriers", "stack", "static", "spilled")
"""The columns of the summary that a narrow terminal can spare, the first first."""


def text(
    programs: Sequence[AssembledProgram],
    listing: Listing | None,
    closed: Sequence[Member] = (),
    *,
    compared: bool,
    width: int | None = None,
) -> str:
    """Return one file for one or more targets or, ``compared``, two files for one, the one of before first.

    Without a ``listing`` it ends with what the kernels take, which of several is a row each. ``closed`` is what
    could not be opened. Raises PtxlabError where nothing is at the place that the listing is to show.
    """
    if compared:
        return "\n".join(_difference(*programs))
    lines: list[str] = []
    kernels = sum(len(program.kernels) for program in programs)
    summarized = listing.at is None if listing else kernels == 1
    if listing is None and kernels > 1:
        lines += [*fitted(list(_rows(programs)), width, _LEAST), ""]
    for program in programs:
        for kernel in program.kernels if summarized else ():
            lines += [*_summary(program, kernel), ""]
        lines += _remarks(program, program.arch)
    if closed:
        lines += [told(closed), f"  {way_to(closed, programs[0].file)}", ""]
    if listing is None:
        return "\n".join(lines).rstrip()
    if lines and lines[-1]:
        lines.append("")
    before = len(lines)
    together = [programs] if _same_ptx(programs) else [[program] for program in programs]
    for beside in together:
        for name in _functions(beside):
            shown = listing.of(beside, name)
            lines += [*shown, ""] if shown else []
    if len(lines) == before:
        file, at = programs[0].file, str(listing.at)
        own = at.isdecimal() and not file.endswith(".ptx")
        meant = f"line {at} of the source is {at_line(file, int(at))}; " if own else ""
        raise PtxlabError(
            f"--at {at}: no machine code of {file} is there",
            hint=f"{meant}a place is FILE:LINE, a line of the PTX, an opcode, or an address such as 0x01a0",
        )
    return "\n".join(lines).rstrip()


def as_json(
    programs: Sequence[AssembledProgram], closed: Sequence[Member], file: str, before: str | None
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "compare": before,
        "programs": [_program(program) for program in programs],
        "compressed": [
            {"member": str(member), "compression": member.compression} for member in closed
        ],
    }


# ---- what a kernel takes --------------------------------------------------------------------


def _summary(program: AssembledProgram, kernel: AssembledKernel) -> list[str]:
    used, opcodes = kernel.used, kernel.function.opcodes()
    shown = ", ".join(f"{name} {count}" for name, count in opcodes.most_common(_MOST_OPCODES))
    more = len(opcodes) - _MOST_OPCODES
    pairs = [
        ("registers", str(used.registers)),
        ("spills", _spills(used)),
        ("stack", f"{used.stack} bytes"),
        ("shared", f"{used.shared} bytes static, {kernel.dynamic} bytes dynamic"),
        ("barriers", str(used.barriers)),
        *(("occupancy", _occupancy(occupancy)) for occupancy in kernel.occupancies),
        *(
            []
            if kernel.occupancies
            else [("occupancy", f"unknown: ptxlab has no facts of {program.arch}")]
        ),
        (
            "instructions",
            f"{len(kernel.function.instructions)}: {shown}" + f", {more} more" * (more > 0),
        ),
    ]
    of = f", {program.member.kind}" if program.member else ""
    return [f"{brief(kernel.name)} on {program.arch}{of}", *fields(pairs)]


def _rows(programs: Sequence[AssembledProgram]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kernel of each program, the heads first; of CTAs the first size that is known."""
    yield (
        "kernel",
        "target",
        "registers",
        "spilled",
        "stack",
        "static",
        "barriers",
        "warps",
        "CTA",
        "instructions",
    )
    for program in programs:
        for kernel in program.kernels:
            used, fits = kernel.used, next(iter(kernel.occupancies), None)
            yield (
                brief(kernel.name),
                program.arch,
                str(used.registers),
                str(used.spill_stores) if isinstance(used, Resources) else "unknown",
                str(used.stack),
                str(used.shared),
                str(used.barriers),
                f"{fits.warps} of {fits.most_warps}" if fits else "unknown",
                str(fits.threads) if fits else "",
                str(len(kernel.function.instructions)),
            )


def _spills(used: Used) -> str:
    if not isinstance(used, Resources):
        return "unknown: a cubin does not say"
    return f"{used.spill_stores} bytes stored, {used.spill_loads} bytes loaded"


def _occupancy(occupancy: Occupancy) -> str:
    by = " and ".join(occupancy.limited_by)
    if not occupancy.ctas:
        return f"{occupancy.threads} threads do not fit into an SM, for {by}"
    ctas = counted(occupancy.ctas, "CTA")
    share = f"{occupancy.warps} of {occupancy.most_warps} warps ({occupancy.warps / occupancy.most_warps:.0%})"
    return f"{ctas} of {occupancy.threads} threads in an SM, {share}; {by} allow no more"


def _remarks(program: AssembledProgram, of: str) -> Iterator[str]:
    lines = ptx_of(program).splitlines()
    for remark in program.assembly.cubin.remarks:
        code = f"{remark.code}: " if remark.code else ""
        yield f"ptxas on {of}: {code}{remark.text}"
        if remark.line is not None and 0 < remark.line <= len(lines):
            yield f"{remark.line:>5}  {lines[remark.line - 1].strip()}"


# ---- which programs and functions -----------------------------------------------------------


def _same_ptx(programs: Sequence[AssembledProgram]) -> bool:
    """Say whether there is PTX, and differs at most in the target it is for."""
    texts = {_FOR_TARGET.sub("", ptx_of(program)) for program in programs}
    return len(texts) == 1 and all(map(ptx_of, programs))


def _functions(programs: Sequence[AssembledProgram]) -> list[str]:
    """Return the kernels shown, and after them the functions that were not inlined."""
    kernels = [kernel.name for kernel in programs[0].kernels]
    others = [
        name
        for program in programs
        for name, function in program.assembly.functions.items()
        if not function.kernel
    ]
    return [*kernels, *dict.fromkeys(others)]


# ---- two files ------------------------------------------------------------------------------


def _difference(before: AssembledProgram, after: AssembledProgram) -> Iterator[str]:
    for old, new in zip(before.kernels, after.kernels, strict=False):
        yield f"{brief(old.name)} of {before.file} and {brief(new.name)} of {after.file} on {before.arch}"
        rows = [("", "before", "after", "change"), *_numbers(old, new)]
        yield from aligned(rows, "<")
        first, second = (
            [instruction.text for instruction in kernel.function.instructions]
            for kernel in (old, new)
        )
        yield from unified_diff(first, second, before.file, after.file, n=2, lineterm="")
        yield ""
    for program in (before, after):
        yield from _remarks(program, program.file)


def _numbers(old: AssembledKernel, new: AssembledKernel) -> Iterator[tuple[str, str, str, str]]:
    """Yield what differs of the resources and of the counts of opcodes, the largest change first."""
    for name in ("registers", "shared", "stack", "spill_stores", "spill_loads", "barriers"):
        # Of spills a cubin says nothing.
        if hasattr(old.used, name) and hasattr(new.used, name):
            yield _row(name.replace("_", " "), getattr(old.used, name), getattr(new.used, name))
    for first, two in zip(old.occupancies[:1], new.occupancies, strict=False):
        yield _row("warps in an SM", first.warps, two.warps)
    functions = old.function, new.function
    yield _row("instructions", *(len(function.instructions) for function in functions))
    opcodes = [function.opcodes() for function in functions]
    changed = [name for name in opcodes[0] | opcodes[1] if opcodes[0][name] != opcodes[1][name]]
    for name in sorted(changed, key=lambda name: -abs(opcodes[0][name] - opcodes[1][name])):
        yield _row(f"  {name}", opcodes[0][name], opcodes[1][name])


def _row(name: str, before: int, after: int) -> tuple[str, str, str, str]:
    return name, str(before), str(after), f"{after - before:+d}" if after != before else ""


# ---- JSON -----------------------------------------------------------------------------------


def _program(program: AssembledProgram) -> dict[str, Any]:
    return {
        **members(program, "file", "arch"),
        "member": program.member and str(program.member),
        "remarks": [asdict(remark) for remark in program.assembly.cubin.remarks],
        "ptx": ptx_of(program),
        "sources": {
            line: [each._asdict() for each in (source, *program.assembly.calls.get(line, ()))]
            for line, source in program.assembly.sources.items()
        },
        "kernels": [
            {
                "spill_stores": None,
                "spill_loads": None,
                **asdict(kernel.used),
                "dynamic_shared": kernel.dynamic,
                "occupancy": [
                    {**asdict(occupancy), "limited_by": list(occupancy.limited_by)}
                    for occupancy in kernel.occupancies
                ],
                **_function(program.assembly, kernel.function),
            }
            for kernel in program.kernels
        ],
        "functions": [
            {"name": name, **_function(program.assembly, function)}
            for name, function in program.assembly.functions.items()
            if not function.kernel
        ],
    }


def _function(assembly: Assembly, function: SassFunction) -> dict[str, Any]:
    return {
        "opcodes": dict(function.opcodes().most_common()),
        "instructions": [
            _instruction(instruction, assembly.sources, bits)
            for instruction, bits in zip(
                function.instructions, control_bits(assembly.cubin, function).values(), strict=True
            )
        ],
    }


def _instruction(
    instruction: SassInstruction, sources: Mapping[int, SourceLine], bits: Control
) -> dict[str, Any]:
    source = sources.get(instruction.line or 0)
    return {
        **members(instruction, "address", "text", "opcode", "line"),
        "source": None if source is None else source._asdict(),
        "control": asdict(bits),
    }
