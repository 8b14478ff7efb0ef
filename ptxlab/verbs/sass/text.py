"""PTX beside its SASS, as text and as JSON: one program for one target, for several, or two programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from ptxlab.isa.occupancy import Occupancy
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.control import Control
from ptxlab.machine.decode import control_bits
from ptxlab.machine.sass import SassFunction, SassInstruction
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called
from ptxlab.toolchain.cubin import Resources, Used
from ptxlab.toolchain.fatbin import Member
from ptxlab.verbs.sass.binary import told, way_to
from ptxlab.verbs.sass.programs import AssembledKernel, AssembledProgram
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, source_text
from ptxlab.view.text import aligned, counted, fields

SCHEMA = "ptxlab.sass/1"

_FOR_TARGET = re.compile(r"^\s*\.(?:version|target)\b.*$", re.MULTILINE)
_MOST_OPCODES = 12
_WIDEST = 72  # what is longer stands in a line of its own, so that SASS is not far from the rest


def text(
    programs: Sequence[AssembledProgram],
    sources: Sources | None,
    closed: Sequence[Member] = (),
    *,
    compared: bool,
    width: int | None = None,
) -> str:
    """Return one file for one or more targets or, ``compared``, two files for one.

    Without ``sources`` it ends with what the kernels take. ``closed`` is what could not be opened.
    Where ``width`` is too small for PTX and SASS side by side, SASS stands below its line.
    """
    if compared:
        return "\n".join(_difference(*programs))
    lines: list[str] = []
    for program in programs:
        for kernel in program.kernels:
            lines += [*_summary(program, kernel), ""]
        lines += _remarks(program, program.arch)
    if closed:
        lines += [told(closed), f"  {way_to(closed, programs[0].file)}", ""]
    if sources is None:
        return "\n".join(lines).rstrip()
    if lines[-1]:
        lines.append("")
    together = [programs] if _same_ptx(programs) else [[program] for program in programs]
    for beside in together:
        for name in _functions(beside):
            shown = _beside(beside, name, sources, width)
            lines += [*shown, ""]
    return "\n".join(lines).rstrip()


def as_json(
    programs: Sequence[AssembledProgram], closed: Sequence[Member], file: str, other: str | None
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "diff": other,
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
    return [f"{called(kernel.name)} on {program.arch}{of}", *fields(pairs)]


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
    lines = _ptx(program).splitlines()
    for remark in program.assembly.cubin.remarks:
        code = f"{remark.code}: " if remark.code else ""
        yield f"ptxas on {of}: {code}{remark.text}"
        if remark.line is not None and 0 < remark.line <= len(lines):
            yield f"{remark.line:>5}  {lines[remark.line - 1].strip()}"


# ---- side by side ---------------------------------------------------------------------------


def _same_ptx(programs: Sequence[AssembledProgram]) -> bool:
    """Say whether there is PTX, and differs at most in the target it is for."""
    texts = {_FOR_TARGET.sub("", _ptx(program)) for program in programs}
    return len(texts) == 1 and all(map(_ptx, programs))


def _ptx(program: AssembledProgram) -> str:
    """Return the PTX of a program, "" where only its machine code is at hand."""
    module = program.assembly.module
    return "" if module is None else module.source.text


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


def _beside(
    programs: Sequence[AssembledProgram], name: str, sources: Sources, width: int | None
) -> list[str]:
    """Return the lines of PTX of one function, each beside the SASS it became on every target."""
    if not _ptx(programs[0]):
        return _alone(programs[0], name)
    by_line = [
        {line.number: line for line in program.assembly.lines(name)}
        if name in program.assembly.functions
        else {}
        for program in programs
    ]
    rows: list[tuple[str, ...]] = [
        (called(name), *(f"SASS for {program.arch}" for program in programs))
    ]
    here: SourceLine | None = None
    headings: list[tuple[int, str]] = []  # lines across all columns, each above a row
    for number in sorted(set().union(*by_line)):
        lines = [lines_of.get(number) for lines_of in by_line]
        line = next(line for line in lines if line is not None)
        if line.source is not None and line.source != here:
            here = line.source
            shown = source_text(sources, here.path, here.line)
            headings.append((len(rows), f"{here.path}:{here.line}  {shown}".rstrip()))
        columns = [
            [f"{instruction.address:04x}  {instruction.text}" for instruction in line.sass]
            if line
            else []
            for line in lines
        ]
        left = f"{number:>5}  {line.text}" if number else "       (no line)"
        if len(left) > _WIDEST:
            headings.append((len(rows), left))
            left = ""
        for index, row in enumerate(zip_longest(*columns, fillvalue="") if any(columns) else [()]):
            cells = row or ("",) * len(programs)
            rows.append((left if index == 0 else "", *cells))
    table = aligned(rows, "<")
    if width is not None and max(map(len, table)) > width:
        table = [_below(row, programs) for row in rows]
    for index, heading in reversed(headings):
        table.insert(index, heading)
    return table


def _alone(program: AssembledProgram, name: str) -> list[str]:
    """Return the SASS of one function without PTX."""
    code = program.assembly.functions[name].instructions
    head = f"{called(name)}  SASS for {program.arch}"
    return [head, *(f"  {instruction.address:04x}  {instruction.text}" for instruction in code)]


def _below(row: Sequence[str], programs: Sequence[AssembledProgram]) -> str:
    """Return a line of PTX with its SASS below it, for each of several targets with its name."""
    left, *cells = row
    several = len(programs) > 1
    rows = [
        f"{'':11}{program.arch + '  ' if several else ''}{cell}"
        for program, cell in zip(programs, cells, strict=True)
        if cell
    ]
    return "\n".join([*([left] if left else []), *rows])


# ---- two files ------------------------------------------------------------------------------


def _difference(before: AssembledProgram, after: AssembledProgram) -> Iterator[str]:
    for old, new in zip(before.kernels, after.kernels, strict=False):
        yield f"{called(old.name)} of {before.file} and {called(new.name)} of {after.file} on {before.arch}"
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
        "ptx": _ptx(program),
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
