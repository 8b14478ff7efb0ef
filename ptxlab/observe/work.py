"""What an instruction is and how much it computes, read off its name.

FLOPs are counted as Nsight Compute counts them: an addition or multiplication is one, an fma two, of
each element of a packed type. What a GPU computes by several instructions (division, square
roots, ...) is none. Nor is what memory computes for an atomic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.isa.targets import WARP
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.types import is_type, packing
from ptxlab.syntax.tree import Instruction


@dataclass(frozen=True, slots=True)
class InstructionWork:
    """The class of an instruction in the instruction mix, and what it computes.

    ``flops`` and ``integer_ops`` are those of a thread, or of the whole warp where it is ``by_warp``.
    """

    kind: str
    flops: int = 0
    integer_ops: int = 0
    by_warp: bool = False


def work(instruction: Instruction) -> InstructionWork:
    form = form_of(instruction)
    row, kind = form.row, form.row.mix
    if isinstance(form.matrix, MatrixInstruction):
        operations = form.matrix.flops * WARP // form.matrix.threads
        if form.matrix.d_type == "s32":
            return InstructionWork(kind, integer_ops=operations, by_warp=True)
        return InstructionWork(kind, flops=operations, by_warp=True)
    if kind in ("load", "store"):
        return InstructionWork(f"{state_space(form.modifiers)} {kind}")
    name = next((name for name in form.modifiers if is_type(name)), "")
    operations = row.work * packing(name)[1]
    if kind == "integer":
        return InstructionWork(kind, integer_ops=operations)
    return InstructionWork(kind, flops=operations)
