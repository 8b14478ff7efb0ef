"""Finding an instruction by what a person would call it."""

from __future__ import annotations

import difflib

from ptxlab.isa.mma import MMA, MatrixInstruction

INSTRUCTIONS: tuple[MatrixInstruction, ...] = MMA


class UnknownInstruction(LookupError):
    """No instruction answers the description; ``suggestions`` are the nearest that exist."""

    def __init__(self, message: str, suggestions: tuple[str, ...]) -> None:
        super().__init__(message)
        self.suggestions = suggestions


def find(op: str, dtype: str | None = None, acc: str | None = None) -> MatrixInstruction:
    """Return the instruction ``op`` (a shape, or a full name) with inputs ``dtype`` and result ``acc``.

    What is left open takes the first form of the table: bf16 before f16, and for f16 an f16
    accumulator. Raises UnknownInstruction when nothing fits.
    """
    for instruction in INSTRUCTIONS:
        if (
            op in (instruction.shape, instruction.name)
            and dtype in (None, instruction.a_type)
            and acc in (None, instruction.d_type)
        ):
            return instruction
    asked = " ".join(
        [op] + [f"{word} {value}" for word, value in (("dtype", dtype), ("acc", acc)) if value]
    )
    raise UnknownInstruction(f"no instruction is {asked}", _suggestions(op))


def _suggestions(op: str) -> tuple[str, ...]:
    """Return the forms of the shape that was asked for, or of names that look like ``op``."""
    forms = [instruction for instruction in INSTRUCTIONS if instruction.shape in op]
    if not forms:
        names = {spelling for i in INSTRUCTIONS for spelling in (i.shape, i.name)}
        near = difflib.get_close_matches(op, sorted(names), n=3)
        forms = [i for i in INSTRUCTIONS if i.name in near or i.shape in near]
    return tuple(instruction.name for instruction in forms or INSTRUCTIONS)
