"""Finding an instruction by what a person would call it."""

from __future__ import annotations

import difflib

from ptxlab.isa.instruction import MatrixInstruction
from ptxlab.isa.mma import MMA, MMA_BLOCK_SCALED
from ptxlab.isa.mma_sp import MMA_SPARSE, MMA_SPARSE_BLOCK_SCALED
from ptxlab.isa.wmma import WMMA

INSTRUCTIONS: tuple[MatrixInstruction, ...] = (
    *MMA,
    *MMA_BLOCK_SCALED,
    *MMA_SPARSE,
    *MMA_SPARSE_BLOCK_SCALED,
    *WMMA,
)
"""Every warp-level instruction that multiplies matrices."""

_SUGGESTED = 4


class UnknownInstruction(LookupError):
    """No instruction answers the description; ``suggestions`` are the nearest that exist."""

    def __init__(self, message: str, suggestions: tuple[str, ...]) -> None:
        super().__init__(message)
        self.suggestions = suggestions


def find(op: str, dtype: str | None = None, acc: str | None = None) -> MatrixInstruction:
    """Return the instruction ``op`` (a shape, or a full name) with inputs ``dtype`` and result ``acc``.

    ``dtype`` is the type of A and B, or both as the instruction spells them, ``e4m3.e5m2``. What is
    left open takes the first form of the table: dense before sparse, bf16 before f16, and for f16 an
    f16 accumulator. Raises UnknownInstruction when nothing fits.
    """
    for instruction in INSTRUCTIONS:
        if (
            op in (instruction.shape, instruction.name)
            and _takes(instruction, dtype)
            and acc in (None, instruction.d_type)
        ):
            return instruction
    asked = " ".join(
        [op] + [f"{word} {value}" for word, value in (("dtype", dtype), ("acc", acc)) if value]
    )
    raise UnknownInstruction(f"no instruction is {asked}", _suggestions(op, dtype, acc))


def _takes(instruction: MatrixInstruction, dtype: str | None) -> bool:
    both = f"{instruction.a_type}.{instruction.b_type}"
    return dtype in (None, both) or f"{dtype}.{dtype}" == both


def _suggestions(op: str, dtype: str | None, acc: str | None) -> tuple[str, ...]:
    """Return a few forms of the shape that was asked for, or of names that look like ``op``.

    Forms with the types that were asked for come first.
    """
    forms = [instruction for instruction in INSTRUCTIONS if instruction.shape in op]
    if not forms:
        names = {spelling for i in INSTRUCTIONS for spelling in (i.shape, i.name)}
        near = difflib.get_close_matches(op, sorted(names), n=3)
        forms = [i for i in INSTRUCTIONS if i.name in near or i.shape in near]
    nearest = sorted(
        forms or INSTRUCTIONS,
        key=lambda i: (not _takes(i, dtype), acc not in (None, i.d_type)),
    )
    return tuple(instruction.name for instruction in nearest[:_SUGGESTED])
