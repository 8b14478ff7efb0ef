"""The record of one matrix instruction: name, shape, types, targets and operand layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxlab.isa.targets import TARGETS, Target
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata
from ptxlab.pictured import Pictured

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


class Fragmented(Requires, Protocol):
    """A form with operands in registers."""

    @property
    def minimum_target(self) -> str:
        """The lowest targets, as a person would say them."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the known targets that run it."""
        ...

    def runs_on(self, target: Target) -> bool:
        """Say whether ``target`` has the instruction."""
        ...

    @property
    def section(self) -> str:
        """The title of the PTX ISA's section on it, or on its fragments."""
        ...

    @property
    def variant(self) -> str:
        """What tells forms of one name apart."""
        ...

    @property
    def key(self) -> str:
        """The name, and the variant where one name has several."""
        ...

    @property
    def shared(self) -> tuple[SharedOperand, ...]:
        """The operands that a matrix descriptor describes."""
        ...

    @property
    def family(self) -> str:
        """The family it is listed in."""
        ...

    @property
    def layout_open(self) -> bool:
        """Whether the layouts are ptxlab's own."""
        ...

    @property
    def operands(self) -> tuple[FragmentLayout, ...]:
        """The layouts of its operands."""
        ...

    def operand(self, name: str) -> FragmentLayout:
        """Return the layout of an operand by its name."""
        ...


class Holding:
    """What follows from the operands a form has in registers, and what most forms have not."""

    __slots__ = ()

    variant = ""
    shared: tuple[SharedOperand, ...] = ()

    @property
    def key(self: Fragmented) -> str:
        """The name, and the variant where one name has several: what tells it from all others."""
        return f"{self.name}.{self.variant}" if self.variant else self.name

    @property
    def layout_open(self: Fragmented) -> bool:
        """Whether PTX leaves the layouts open, as those of ``wmma``: these are ptxlab's own."""
        return self.family == "wmma"

    def operand(self: Fragmented, name: str) -> FragmentLayout:
        """Return the layout of operand A, B, C, D or R. Raises KeyError for one it has not."""
        for layout in self.operands:
            if layout.operand == name.upper():
                return layout
        raise KeyError(f"{self.name} has no operand {name} in registers")


def _runs(form: Requires, target: Target) -> bool:
    return any(target.runs(needed) for needed in form.minimum_targets)


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """An operand that lies in shared memory, where a matrix descriptor says.

    ``rows`` x ``cols`` is the matrix as mathematics writes it, of elements of ``bits``. ``majors``
    are the directions in which its elements may be contiguous, ``k`` or ``mn``.
    """

    operand: str
    rows: int
    cols: int
    dtype: str
    bits: int
    majors: tuple[str, ...] = ("k",)


@dataclass(frozen=True, slots=True)
class MatrixInstruction(Pictured, Needing, Holding):
    """One matrix instruction, D = A * B + C over a warp or, ``wgmma``, the four of a warpgroup.

    ``m``, ``n``, ``k`` is the shape: A is m x k, B is k x n, C and D are m x n. ``a_type``,
    ``b_type``, ``c_type`` and ``d_type`` are PTX types. ``minimum_targets`` are the lowest targets
    that run it, one a family; ``minimum_ptx`` is what ``.version`` must be at least. ``section`` is
    the PTX ISA section that describes the fragments.

    ``operands`` are those in registers, ``shared`` those in shared memory; where there is no C the
    instruction adds to D. Of a sparse instruction ``operands`` has A without its zeros, m x k/2, and
    ``metadata`` says where those were. ``scales`` are those of A and B of a block-scaled one.
    ``rounding`` is the PTX rounding modifier of f64, ``bit_operation`` what one-bit types do in place
    of multiplying. ``variant`` tells instructions of one name apart: of ``wgmma`` ``rs`` has A in
    registers and ``ss`` in shared memory.
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
    variant: str = ""
    shared: tuple[SharedOperand, ...] = ()

    @property
    def threads(self) -> int:
        """How many threads execute it together."""
        return self.operands[-1].threads

    @property
    def shape(self) -> str:
        """The shape as the instruction spells it, ``m16n8k16``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def flops(self) -> int:
        """The multiplications and additions: 2 m n k, zeros that a sparse A leaves out included.

        As often as there are matrices, where the threads hold several.
        """
        return 2 * self.m * self.n * self.k * self.operands[-1].matrices


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
