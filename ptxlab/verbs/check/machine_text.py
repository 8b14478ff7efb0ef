"""What was found in machine code, as text and as plain data (schema ``ptxlab.check.sass/2``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.machine import uses
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.hazards import Hazard
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.syntax.names import brief
from ptxlab.verbs.check.control_bits import CheckedKernel, CheckedProgram
from ptxlab.verbs.check.machine_code import CheckedMachineCode
from ptxlab.verbs.diff import engines_text
from ptxlab.view.annotations import Annotation
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, source_text
from ptxlab.view.text import counted

SCHEMA = "ptxlab.check.sass/2"
_MEANING = {
    "RAW": "{bits} read before written",
    "WAR": "{bits} written before read",
    "WAW": "{bits} written out of order",
    "REUSE": "{bits} kept from before written",
}


def text(told: CheckedMachineCode, sources: Sources) -> str:
    blocks = []
    for program in told.programs:
        assembly = program.program.assembly
        for kernel in program.kernels:
            blocks += ["\n".join(_hazard(hazard, assembly, sources)) for hazard in kernel.hazards]
            blocks.append("\n".join(_kernel(program, kernel)))
    if told.compared is not None:
        blocks.append(engines_text.text(told.file, told.compared).rstrip())
    if told.not_compared is not None:
        blocks.append(f"not compared with its PTX: {told.not_compared}")
    return "\n\n".join([*blocks, _total(told)]) + "\n"


def _hazard(hazard: Hazard, assembly: Assembly, sources: Sources) -> Iterator[str]:
    meaning = _MEANING[hazard.kind].format(bits=", ".join(uses.names(hazard.bits)))
    yield f"error: {hazard.kind}, {meaning}"
    for i in (hazard.earlier, hazard.later):
        yield f"    {i.sass.address:04x}  {i.sass.text}"
        yield from _origin(i, assembly, sources)
    yield f"hint: {_hint(hazard)}"


def _origin(i: DecodedInstruction, assembly: Assembly, sources: Sources) -> Iterator[str]:
    """Yield the line of PTX that an instruction was made from, and that of CUDA C."""
    line, module = i.sass.line, assembly.module
    if line is None or module is None:
        return
    ptx = module.source.text.splitlines()
    if 0 < line <= len(ptx):
        yield f"          {module.source.path}:{line}  {' '.join(ptx[line - 1].split())}"
    source = assembly.sources.get(line)
    if source is not None:
        shown = source_text(sources, source.path, source.line)
        yield f"          {source.path}:{source.line}  {shown}".rstrip()


def _hint(hazard: Hazard) -> str:
    if hazard.missing:
        cycles = counted(hazard.missing, "cycle")
        return f"{cycles} of stall are missing on a path from the first to the second"
    if hazard.kind == "REUSE":
        return "the first keeps it for that slot of the next (.reuse), and what it keeps is not written with it"
    if not hazard.scoreboards:
        return "nothing tells when the first is done: it holds no scoreboard"
    boards = " or ".join(f"SB{board}" for board in hazard.scoreboards)
    return f"on a path to the second nothing waits for {boards}, which the first holds until it is done"


def _kernel(program: CheckedProgram, kernel: CheckedKernel) -> Iterator[str]:
    hazards = counted(len(kernel.hazards), "hazard") if kernel.hazards else "no hazard"
    member = program.program.member
    of = f", {member.kind}" if member else ""
    count = counted(kernel.instructions, "instruction")
    yield f"{brief(kernel.name)} on {program.program.arch}{of}: {hazards} in {count}"
    yield from (f"not checked: {what}" for what in kernel.unchecked)


def _total(told: CheckedMachineCode) -> str:
    kernels = [kernel for program in told.programs for kernel in program.kernels]
    hazards = sum(len(kernel.hazards) for kernel in kernels)
    counts = f"{counted(hazards, 'hazard')} in " if hazards else ""
    return f"{told.verdict}: {counts}{counted(len(kernels), 'kernel')} of {told.file}"


def remarks(told: CheckedMachineCode) -> list[Annotation]:
    """Return hazards by line, of the source or the PTX where the machine code says it."""
    made = []
    for program in told.programs:
        assembly = program.program.assembly
        for hazard in (hazard for kernel in program.kernels for hazard in kernel.hazards):
            line, module = hazard.later.sass.line, assembly.module
            path = told.file if module is None else module.source.path
            source = assembly.sources.get(line or 0)
            message = f"{hazard.earlier.sass.text}, {hazard.later.sass.text}\nhint: {_hint(hazard)}"
            where = source or (path, None if module is None else line)
            made.append(Annotation("error", f"hazard.{hazard.kind}", message, *where))
    return made


def as_json(told: CheckedMachineCode) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **members(told, "file", "verdict", "not_compared"),
        "compared": told.compared and engines_text.as_json(told.file, told.compared),
        "programs": [
            {
                "arch": program.program.arch,
                "member": program.program.member and str(program.program.member),
                "kernels": [
                    {
                        **members(kernel, "name", "instructions", "unchecked"),
                        "hazards": [
                            _plain(hazard, program.program.assembly) for hazard in kernel.hazards
                        ],
                    }
                    for kernel in program.kernels
                ],
            }
            for program in told.programs
        ],
    }


def _plain(hazard: Hazard, assembly: Assembly) -> dict[str, Any]:
    return {
        "kind": hazard.kind,
        "registers": uses.names(hazard.bits),
        "missing_cycles": hazard.missing,
        "scoreboards": list(hazard.scoreboards),
        "earlier": _instruction(hazard.earlier, assembly),
        "later": _instruction(hazard.later, assembly),
    }


def _instruction(i: DecodedInstruction, assembly: Assembly) -> dict[str, Any]:
    source = assembly.sources.get(i.sass.line or 0)
    return {
        **members(i.sass, "address", "text", "line"),
        "source": None if source is None else {"file": source.path, "line": source.line},
    }
