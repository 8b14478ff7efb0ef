"""The warp-level ``mma.sync`` instructions: names, types, targets and operand layouts.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and the fragment section each row names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.isa.fragment import FragmentKind, FragmentLayout
from ptxlab.isa.targets import TARGETS
from ptxlab.isa.types import TYPES


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """One matrix instruction, D = A * B + C over a warp.

    ``m``, ``n``, ``k`` is the shape: A is m x k, B is k x n, C and D are m x n. ``a_type``,
    ``b_type``, ``c_type`` and ``d_type`` are PTX types. ``minimum_target`` and ``minimum_ptx`` are
    what ``.target`` and ``.version`` must be at least; ``section`` is the PTX ISA section that
    describes the fragments.
    """

    family: str
    name: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    minimum_target: str
    minimum_ptx: tuple[int, int]
    section: str
    operands: tuple[FragmentLayout, ...]

    @property
    def shape(self) -> str:
        """The shape as the instruction spells it, ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the known targets that run the instruction."""
        return tuple(name for name, target in TARGETS.items() if target.runs(self.minimum_target))

    def operand(self, name: str) -> FragmentLayout:
        """Return the layout of operand A, B, C or D. Raises KeyError for any other name."""
        for layout in self.operands:
            if layout.operand == name.upper():
                return layout
        raise KeyError(f"{self.name} has no operand {name}")


@dataclass(frozen=True, slots=True)
class _Form:
    """A line of the table: one shape and input type, and the accumulators it takes."""

    m: int
    n: int
    k: int
    dtype: str
    accumulators: tuple[str, ...]
    minimum_target: str
    minimum_ptx: tuple[int, int]
    section: str


_M16N8K16_FLOAT = "Matrix Fragments for mma.m16n8k16 with floating point type"

# Where a type allows several accumulators, the first is the one meant when none is named.
_FORMS = (
    _Form(16, 8, 16, "bf16", ("f32",), "sm_80", (7, 0), _M16N8K16_FLOAT),
    _Form(16, 8, 16, "f16", ("f16", "f32"), "sm_80", (7, 0), _M16N8K16_FLOAT),
)


def _instruction(form: _Form, accumulator: str) -> MatrixInstruction:
    operands: tuple[tuple[str, FragmentKind, int, int, str], ...] = (
        ("A", "a", form.m, form.k, form.dtype),
        ("B", "b", form.k, form.n, form.dtype),
        ("C", "accumulator", form.m, form.n, accumulator),
        ("D", "accumulator", form.m, form.n, accumulator),
    )
    types = f"{accumulator}.{form.dtype}.{form.dtype}.{accumulator}"
    return MatrixInstruction(
        family="mma",
        name=f"mma.sync.aligned.m{form.m}n{form.n}k{form.k}.row.col.{types}",
        m=form.m,
        n=form.n,
        k=form.k,
        a_type=form.dtype,
        b_type=form.dtype,
        c_type=accumulator,
        d_type=accumulator,
        minimum_target=form.minimum_target,
        minimum_ptx=form.minimum_ptx,
        section=form.section,
        operands=tuple(
            FragmentLayout(name, kind, rows, cols, dtype, TYPES[dtype].bits)
            for name, kind, rows, cols, dtype in operands
        ),
    )


def _table() -> Iterator[MatrixInstruction]:
    for form in _FORMS:
        for accumulator in form.accumulators:
            yield _instruction(form, accumulator)


MMA: tuple[MatrixInstruction, ...] = tuple(_table())
