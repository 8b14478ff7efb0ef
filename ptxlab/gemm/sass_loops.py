"""The loops of a SASS function, and the one that does its work: what part of it is the arithmetic.

A kernel is as fast as its main loop, and a scheduler of an SM issues one instruction a cycle: where
fma is what counts, 90 % FFMA in the main loop is at most 90 % of the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.toolchain.sass import SassFunction, SassInstruction


@dataclass(frozen=True, slots=True)
class SassLoop:
    """What lies between a label and the last branch back to it, inner loops included."""

    instructions: tuple[SassInstruction, ...]

    def count(self, opcode: str) -> int:
        """Return how many instructions have this opcode, whatever their modifiers."""
        return sum(instruction.opcode == opcode for instruction in self.instructions)

    def share(self, opcode: str) -> float:
        return self.count(opcode) / len(self.instructions)

    def surrounds(self, other: SassLoop) -> bool:
        first, last = self.instructions[0].address, self.instructions[-1].address
        inside = other.instructions[0].address >= first and other.instructions[-1].address <= last
        return inside and self != other


def loops(function: SassFunction) -> tuple[SassLoop, ...]:
    """Return the loops of a function in the order of their labels.

    A loop is known by a branch to a label before it (BRA). What the assembler puts elsewhere, behind a
    branch out of the loop, is not seen.
    """
    ends: dict[int, int] = {}  # by the address of the label
    for instruction in function.instructions:
        start = function.labels.get(instruction.target or "")
        if instruction.opcode == "BRA" and start is not None and start <= instruction.address:
            ends[start] = instruction.address
    return tuple(
        SassLoop(tuple(one for one in function.instructions if start <= one.address <= end))
        for start, end in sorted(ends.items())
    )


def main_loop(function: SassFunction, opcode: str) -> SassLoop | None:
    """Return the innermost loop with the most instructions of ``opcode``, None where no loop has any.

    Where several have as many, versions of the same loop for different cases, it is the shortest.
    """
    having = [loop for loop in loops(function) if loop.count(opcode)]
    innermost = [loop for loop in having if not any(map(loop.surrounds, having))]
    return max(
        innermost, key=lambda loop: (loop.count(opcode), -len(loop.instructions)), default=None
    )
