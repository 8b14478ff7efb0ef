"""What is assumed of conditions that are not computed, told by the line of the program, or by the instruction's address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxlab.errors import Location, PtxlabError
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.sass import SassInstruction

NO_ASSUMPTIONS: Mapping[str, bool] = {}
Assumptions = Mapping[str, bool]
"""Whether what is not computed holds, by place: ``"64"``, ``"reduce.cuh:64"``, or ``"0x1a0"`` where no line is known."""

_HINT = (
    "a line where the program decides something, as 64 or reduce.cuh:64, or an address, as 0x1a0"
)


def place(assembly: Assembly, sass: SassInstruction) -> Location | None:
    """Return the line that an instruction was made from: of the source where it is known, else of the PTX."""
    if assembly.module is None or not sass.line:
        return None
    if source := assembly.sources.get(sass.line):
        return Location(source.path, source.line, 1)
    ptx = assembly.module.source
    text = ptx.text.splitlines()[sass.line - 1]
    return Location(ptx.path, sass.line, len(text) - len(text.lstrip()) + 1, text)


def told(assembly: Assembly, sass: SassInstruction) -> str:
    """Return how an instruction's place is told: its line, or its address."""
    at = place(assembly, sass)
    return f"{sass.address:#x}" if at is None else str(at.line)


def numbered(
    assembly: Assembly, code: Sequence[DecodedInstruction], assumptions: Assumptions
) -> dict[int, bool]:
    """Return what is assumed of instructions, by number. Raises PtxlabError for a place where none depends on anything."""
    guarded = [i for i in code if i.guard is not None or i.ins]
    names = {i.number: _names(assembly, i.sass) for i in guarded}
    numbers = {}
    for text, holds in assumptions.items():
        there = {number: known[0] for number, known in names.items() if text in known}
        if not there:
            raise PtxlabError(f"nothing is decided at {text}", hint=_HINT)
        files = sorted(set(there.values()))
        if len(files) > 1:
            raise PtxlabError(
                f"line {text} is one of {' and of '.join(files)}",
                hint=f"say which is meant: {files[0]}:{text}",
            )
        numbers.update(dict.fromkeys(there, holds))
    return numbers


def _names(assembly: Assembly, sass: SassInstruction) -> tuple[str, ...]:
    """Return the file that an instruction is of, and all that its place may be called."""
    at, address = place(assembly, sass), f"{sass.address:#x}"
    if at is None:
        return "", address
    file = Path(at.path).name
    return file, f"{file}:{at.line}", f"{at.path}:{at.line}", str(at.line), address
