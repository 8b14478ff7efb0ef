"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: which lane addresses which row and holds what.

A matrix in shared memory is 8 or 16 rows of 16 bytes. One lane supplies the address of each row,
aligned to 16; rows need not follow each other. A row holds 8 elements of 16 bits or 16 of 8 bits.
``ldmatrix`` also reads rows of 16 elements of 6 or 4 bits, packed at the start of the 16 bytes, and
puts each into the low bits of a byte.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store
instruction: stmatrix", "Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ptxlab.isa.targets import Target
from ptxlab.matrix.fragment import FragmentKind, FragmentLayout
from ptxlab.matrix.instruction import SM_10X_TO_12X, Holding, Needing, Version
from ptxlab.pictured import Pictured

ROWS = 8
ROW_BYTES = 16

PACKED_BITS = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
"""Bits of an element in memory where they are fewer than in a register, by the type's spelling."""


@dataclass(frozen=True, slots=True)
class _Move(Pictured, Needing, Holding):
    """What loads and stores share: ``matrices`` (1, 2 or 4) of ``shape`` (``m8n8``) and ``dtype``."""

    matrices: int
    trans: bool
    shape: str = "m8n8"
    dtype: str = "b16"

    @property
    def name(self) -> str:
        """The full instruction, for shared memory."""
        trans = ".trans" if self.trans else ""
        return (
            f"{self.family}.sync.aligned.{self.shape}.x{self.matrices}{trans}.shared.{self.dtype}"
        )

    @property
    def family(self) -> str:
        """``ldmatrix`` or ``stmatrix``."""
        return type(self).__name__.lower()

    @property
    def section(self) -> str:
        """The title of the PTX ISA's section on it."""
        verb = "load" if self.family == "ldmatrix" else "store"
        return f"Warp-level matrix {verb} instruction: {self.family}"

    @property
    def bits(self) -> int:
        """The width of an element in a register."""
        return 16 if self.dtype == "b16" else 8

    @property
    def rows(self) -> int:
        """How many rows one matrix has in memory."""
        return 16 if self.shape == "m16n16" else ROWS

    @property
    def cols(self) -> int:
        """How many elements a row has in memory."""
        return 8 * ROW_BYTES // self.bits

    @property
    def fragment(self) -> FragmentLayout:
        """The layout, over the warp, of any one of the matrices as it lies in shared memory."""
        return self._layout("matrix", 1)

    @property
    def operands(self) -> tuple[FragmentLayout, ...]:
        """The one operand, R: all matrices below each other, so that lane r addresses row r."""
        return (self._layout("R", self.matrices),)

    def _layout(self, operand: str, matrices: int) -> FragmentLayout:
        """Return the layout of so many matrices below each other; the same formula has them all."""
        return FragmentLayout(
            operand, self._kind, matrices * self.rows, self.cols, f"b{self.bits}", self.bits
        )

    @property
    def _kind(self) -> FragmentKind:
        return "b" if self.trans else "a"

    @property
    def registers(self) -> int:
        """How many registers of each lane all matrices take."""
        return self.operands[0].registers_per_lane

    @property
    def minimum_targets(self) -> tuple[str, ...]:
        """The lowest targets that run it, one a family."""
        return SM_10X_TO_12X if self.bits == 8 else self._since[0]

    @property
    def minimum_ptx(self) -> Version:
        """What ``.version`` must be at least."""
        return (8, 6) if self.bits == 8 else self._since[1]

    @property
    def _since(self) -> tuple[tuple[str, ...], Version]:
        """The target and PTX version that brought the 16-bit forms."""
        return ("sm_75",), (6, 5)

    def address_lane(self, matrix: int, row: int) -> int:
        """Return the lane whose address operand is the address of ``row`` of ``matrix``."""
        if not (0 <= matrix < self.matrices and 0 <= row < self.rows):
            raise IndexError(f"{self.name} has no row {row} of matrix {matrix}")
        return self.rows * matrix + row

    def addressed_row(self, lane: int) -> tuple[int, int] | None:
        """Return the (matrix, row) ``lane`` supplies the address of; None if it is not asked."""
        matrix, row = divmod(lane, self.rows)
        return (matrix, row) if matrix < self.matrices else None


@dataclass(frozen=True, slots=True)
class LdMatrix(_Move):
    """One ``ldmatrix`` instruction.

    The first registers receive the first matrix, where ``fragment`` says. With ``.trans`` a lane
    receives what it would have received of the transposed matrix.
    """

    @property
    def packed_bits(self) -> int:
        """The width of an element in memory."""
        return PACKED_BITS.get(self.dtype, self.bits)

    def needs_all_addresses(self, target: Target) -> bool:
        """Say whether the address of every lane must be valid on ``target``, not only those asked."""
        return target.capability <= 75


@dataclass(frozen=True, slots=True)
class StMatrix(_Move):
    """One ``stmatrix`` instruction: ``ldmatrix`` the other way, but for bytes.

    A matrix of bytes is stored transposed, and a lane holds of it what it holds of the accumulator of
    a 16 x 8 ``mma`` (CUTLASS's layout for the instruction, which it uses on such accumulators).
    """

    @property
    def _kind(self) -> FragmentKind:
        return "accumulator.trans" if self.bits == 8 else "b" if self.trans else "a"

    @property
    def _since(self) -> tuple[tuple[str, ...], Version]:
        return ("sm_90",), (7, 8)


@dataclass(frozen=True, slots=True)
class MovMatrix(Pictured, Needing, Holding):
    """``movmatrix``: a lane gives two elements of a row and gets two of a column."""

    family = "movmatrix"
    section = "Warp-level matrix transpose instruction: movmatrix"
    name: str = "movmatrix.sync.aligned.m8n8.trans.b16"
    minimum_targets: tuple[str, ...] = ("sm_75",)
    minimum_ptx: Version = (7, 8)

    @property
    def source(self) -> FragmentLayout:
        """The layout of the matrix in the source register."""
        return FragmentLayout("A", "a", ROWS, ROWS, "b16", 16)

    @property
    def destination(self) -> FragmentLayout:
        """The layout of the same matrix, not transposed, in the destination register."""
        return FragmentLayout("D", "b", ROWS, ROWS, "b16", 16)

    @property
    def operands(self) -> tuple[FragmentLayout, ...]:
        """Source A and destination D."""
        return self.source, self.destination


LDMATRIX: tuple[LdMatrix, ...] = (
    *(LdMatrix(count, trans) for trans in (False, True) for count in (1, 2, 4)),
    *(
        LdMatrix(count, True, "m16n16", dtype)
        for count, dtype in product((1, 2), ("b8", *PACKED_BITS))
    ),
    *(LdMatrix(count, False, "m8n16", dtype) for count, dtype in product((1, 2, 4), PACKED_BITS)),
)
STMATRIX: tuple[StMatrix, ...] = (
    *(StMatrix(count, trans) for trans in (False, True) for count in (1, 2, 4)),
    *(StMatrix(count, True, "m16n8", "b8") for count in (1, 2, 4)),
)
MOVMATRIX = MovMatrix()
