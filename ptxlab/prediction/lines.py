"""What the lines of a program take of a predicted launch, each beside its machine code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ptxlab.machine.assembly import Assembly, PtxLine
from ptxlab.machine.decode import called
from ptxlab.machine.sass import SassInstruction
from ptxlab.syntax.functions import SourceLine

Shares = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class PredictedLine:
    """A line of the program: ``share`` of the warps' time and why, by reason; its machine code.

    ``calls`` are those that it was inlined from, the innermost first. Where nothing but machine code is at hand an
    instruction is a line, ``number`` its address.
    """

    number: int
    source: SourceLine | None
    text: str
    sass: tuple[str, ...]
    share: float
    stalls: Mapping[str, float]
    calls: tuple[SourceLine, ...] = ()

    @property
    def is_instruction(self) -> bool:
        return self.sass == (self.text,)


def by_line(shares: Shares, assembly: Assembly, kernel: str) -> tuple[PredictedLine, ...]:
    """Return the lines of a kernel that have machine code, those first that take most of the warps' time.

    ``shares`` are the parts of that time by the number of the instruction, then by reason.
    """
    lines, first = [], 0
    for function in called(assembly.functions, kernel):
        numbers = {
            instruction.address: n for n, instruction in enumerate(function.instructions, first)
        }
        first += len(numbers)
        own = assembly.lines(function.name) or map(_alone, function.instructions)
        lines += [_line(shares, line, numbers) for line in own]
    return tuple(sorted((line for line in lines if line.sass), key=lambda line: -line.share))


def _alone(i: SassInstruction) -> PtxLine:
    return PtxLine(i.address, i.text, None, (i,))


def _line(shares: Shares, line: PtxLine, numbers: Mapping[int, int]) -> PredictedLine:
    stalls: dict[str, float] = defaultdict(float)
    for instruction in line.sass:
        for reason, share in shares.get(numbers[instruction.address], {}).items():
            stalls[reason] += share
    text = tuple(instruction.text for instruction in line.sass)
    share = sum(stalls.values())
    return PredictedLine(line.number, line.source, line.text, text, share, dict(stalls), line.calls)
