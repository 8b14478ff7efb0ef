"""Finding an instruction by what a person would call it."""

from __future__ import annotations

from ptxlab.errors import nearest
from ptxlab.matrix.instruction import MatrixInstruction
from ptxlab.matrix.mma import MMA, MMA_BLOCK_SCALED
from ptxlab.matrix.mma_sp import MMA_SPARSE, MMA_SPARSE_BLOCK_SCALED
from ptxlab.matrix.wmma import WMMA

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
    """Return the instruction ``op`` (a shape, or a name) with inputs ``dtype`` and result ``acc``.

    A name may be in full or any parts of one in their order, ``wgmma.m64n256k16``; the parts ``rs`` and
    ``ss`` choose where A of ``wgmma`` lies. ``dtype`` is the type of A and B, or both as the instruction
    spells them, ``e4m3.e5m2``. What is left open takes the first form of the table: dense before
    sparse, bf16 before f16, for f16 an f16 accumulator, and A in registers. Raises UnknownInstruction
    when nothing fits.
    """
    found = _first(INSTRUCTIONS, op, dtype, acc) or _first(_warpgroup(), op, dtype, acc)
    if found:
        return found
    asked = " ".join(
        [op] + [f"{word} {value}" for word, value in (("dtype", dtype), ("acc", acc)) if value]
    )
    raise UnknownInstruction(f"no instruction is {asked}", _suggestions(op, dtype, acc))


def _warpgroup() -> tuple[MatrixInstruction, ...]:
    from ptxlab.matrix.wgmma import WGMMA  # here, because there are thousands

    return WGMMA


def _first(
    instructions: tuple[MatrixInstruction, ...], op: str, dtype: str | None, acc: str | None
) -> MatrixInstruction | None:
    """Return the first that fits, one that ``op`` names as a whole before one of which it has parts."""
    fitting = [i for i in instructions if _takes(i, dtype) and acc in (None, i.d_type)]
    whole = (i for i in fitting if op in (i.shape, i.name, i.key))
    partly = (i for i in fitting if "." in op and in_order(i.key, op))
    return next(whole, None) or next(partly, None)


def in_order(name: str, parts: str) -> bool:
    """Say whether the parts of a name are among those of ``name``, in that order.

    Of a part with a prefix (``kind::mxf4``) the end is enough.
    """
    rest = iter(name.split("."))
    wanted = [part for part in parts.split(".") if part]
    return all(any(want in (part, part.split("::")[-1]) for part in rest) for want in wanted)


def _takes(instruction: MatrixInstruction, dtype: str | None) -> bool:
    both = f"{instruction.a_type}.{instruction.b_type}"
    return dtype in (None, both) or f"{dtype}.{dtype}" == both


def _suggestions(op: str, dtype: str | None, acc: str | None) -> tuple[str, ...]:
    """Return a few forms of the shape that was asked for, or of names that look like ``op``.

    Forms with the types that were asked for come first.
    """
    known = (*INSTRUCTIONS, *_warpgroup())
    parts = op.split(".")
    forms = [instruction for instruction in known if instruction.shape in parts]
    if not forms:
        names = {spelling for i in known for spelling in (i.shape, i.name)}
        near = nearest(op, sorted(names), most=3)
        forms = [i for i in known if i.name in near or i.shape in near]
    ranked = sorted(
        forms or INSTRUCTIONS,
        key=lambda i: (not _takes(i, dtype), acc not in (None, i.d_type)),
    )
    return tuple(dict.fromkeys(instruction.name for instruction in ranked))[:_SUGGESTED]
