"""What an instruction is and how much it computes, read off its name.

FLOPs are counted as Nsight Compute counts them: an addition or multiplication is one, an fma two, of
each element of a packed type. What a GPU computes by several instructions (division, square
roots, ...) is none. Nor is what memory computes for an atomic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.emulator.operations.matrix import canonical
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.row import is_type
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.syntax.tree import Instruction

_FORMS = {form.name: form for form in MULTIPLICATIONS}


@dataclass(frozen=True, slots=True)
class Work:
    """The class of an instruction in the instruction mix, and what it computes.

    ``flops`` and ``integer_ops`` are those of a thread, or of the whole warp where it is ``by_warp``.
    """

    kind: str
    flops: int = 0
    integer_ops: int = 0
    by_warp: bool = False


def work(instruction: Instruction) -> Work:
    form = form_of(instruction)
    row, kind = form.row, form.row.mix
    if row.opcode in ("mma", "wmma"):
        return _matrix(instruction)
    if kind in ("load", "store"):
        return Work(f"{state_space(form.modifiers)} {kind}")
    name = next((name for name in form.modifiers if is_type(name)), "")
    operations = row.work * (2 if name.endswith("x2") else 1)
    if kind == "integer":
        return Work(kind, integer_ops=operations)
    return Work(kind, flops=operations)


def _matrix(instruction: Instruction) -> Work:
    form = _FORMS.get(canonical(instruction))
    if form is None:
        return Work("matrix move")
    if form.d_type == "s32":
        return Work("matrix multiply", integer_ops=form.flops, by_warp=True)
    return Work("matrix multiply", flops=form.flops, by_warp=True)
