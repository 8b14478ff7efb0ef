"""The record of one matrix instruction: name, shape, types, targets and operand layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxlab.isa.fragment import FragmentLayout
from ptxlab.isa.notebook import Pictured
from ptxlab.isa.scale import Scale
from ptxlab.isa.sparse import Metadata
from ptxlab.isa.targets import TARGETS, Target

Version = tuple[int, int]

SM_10X_TO_12X = ("sm_100f", "sm_110f", "sm_120f")
SM_12X = ("sm_120f",)
SM_12X_ONLY = ("sm_120a", "sm_121a")


class Requires(Protocol):
    """What every form of a matrix instruction says of itself: its name and what it needs."""

    @property
    def name(self) -> str:
        """The full instruction."""
        ...

    @property
    def minimum_targets(self) -> tuple[str, ...]:
        """The lowest targets that run it, one a family."""
        ...

    @property
    def minimum_ptx(self) -> Version:
        """What ``.version`` must be at least."""
        ...


class Needing:
    """What follows from the targets a form needs."""

    __slots__ = ()

    @property
    def minimum_target(self: Requires) -> str:
        """The lowest targets, as a person would say them: ``sm_80``, or ``sm_100f or sm_120f``."""
        return alternatives(self.minimum_targets)

    @property
    def targets(self: Requires) -> tuple[str, ...]:
        """The names of the known targets that run it."""
        return tuple(name for name, target in TARGETS.items() if _runs(self, target))

    def runs_on(self: Requires, target: Target) -> bool:
        """Say whether ``target`` has the instruction."""
        return _runs(self, target)


def _runs(form: Requires, target: Target) -> bool:
    return any(target.runs(needed) for needed in form.minimum_targets)


@dataclass(frozen=True, slots=True)
class MatrixInstruction(Pictured, Needing):
    """One matrix instruction, D = A * B + C over a warp.

    ``m``, ``n``, ``k`` is the shape: A is m x k, B is k x n, C and D are m x n. ``a_type``,
    ``b_type``, ``c_type`` and ``d_type`` are PTX types. ``minimum_targets`` are the lowest targets
    that run it, one a family; ``minimum_ptx`` is what ``.version`` must be at least. ``section`` is
    the PTX ISA section that describes the fragments.

    Of a sparse instruction ``operands`` has A without its zeros, m x k/2, and ``metadata`` says
    where those were. ``scales`` are those of A and B of a block-scaled one. ``rounding`` is the PTX
    rounding modifier of f64, ``bit_operation`` what one-bit types do in place of multiplying.
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
    minimum_targets: tuple[str, ...]
    minimum_ptx: Version
    section: str
    operands: tuple[FragmentLayout, ...]
    metadata: Metadata | None = None
    scales: tuple[Scale, ...] = ()
    satfinite: bool = False
    rounding: str = "rn"
    bit_operation: str = ""

    @property
    def shape(self) -> str:
        """The shape as the instruction spells it, ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    def operand(self, name: str) -> FragmentLayout:
        """Return the layout of operand A, B, C or D. Raises KeyError for any other name."""
        for layout in self.operands:
            if layout.operand == name.upper():
                return layout
        raise KeyError(f"{self.name} has no operand {name}")


def alternatives(targets: tuple[str, ...]) -> str:
    """Write ``sm_80``, or ``sm_100f, sm_110f or sm_120f``."""
    *first, last = targets
    return f"{', '.join(first)} or {last}" if first else last


def container_bits(dtype: str, *, packed: bool = False) -> int:
    """Return how many bits an element of ``dtype`` takes in a register.

    Types of four and six bits lie in bytes, unless ``packed`` (e2m1 of the ``mxf4`` kinds).
    """
    widths = {"b1": 1, "s4": 4, "u4": 4, "f16": 16, "bf16": 16, "tf32": 32, "f64": 64}
    widths |= {"f32": 32, "s32": 32}
    return widths.get(dtype, 4 if packed else 8)
