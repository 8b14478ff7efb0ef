"""``ldmatrix``: which lane supplies which row address, and what each lane receives.

The instruction loads 1, 2 or 4 matrices of 8 x 8 16-bit elements from shared memory. Every row is
16 contiguous bytes whose address one lane supplies, aligned to 16; rows need not follow each other.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.fragment import FragmentLayout

ROWS = 8
ROW_BYTES = 16


@dataclass(frozen=True, slots=True)
class LdMatrix:
    """One ``ldmatrix`` instruction of shape ``.m8n8`` and type ``.b16``.

    ``matrices`` is 1, 2 or 4, and the number of destination registers of each lane: register j
    receives two elements of matrix j, where ``fragment`` says. With ``.trans`` a lane receives what
    it would have received of the transposed matrix.
    """

    matrices: int
    trans: bool
    minimum_target: str = "sm_75"
    minimum_ptx: tuple[int, int] = (6, 5)

    @property
    def name(self) -> str:
        """The full instruction."""
        trans = ".trans" if self.trans else ""
        return f"ldmatrix.sync.aligned.m8n8.x{self.matrices}{trans}.shared.b16"

    @property
    def fragment(self) -> FragmentLayout:
        """The layout, over the warp, of any one of the matrices as it lies in shared memory."""
        # Rows over groups of lanes is A's pattern; columns over groups of lanes is B's.
        return FragmentLayout("matrix", "b" if self.trans else "a", ROWS, ROWS, "b16", 16)

    def address_lane(self, matrix: int, row: int) -> int:
        """Return the lane whose address operand is the address of ``row`` of ``matrix``."""
        if not (0 <= matrix < self.matrices and 0 <= row < ROWS):
            raise IndexError(f"{self.name} has no row {row} of matrix {matrix}")
        return ROWS * matrix + row

    def addressed_row(self, lane: int) -> tuple[int, int] | None:
        """Return the (matrix, row) ``lane`` supplies the address of; None if it is not asked."""
        matrix, row = divmod(lane, ROWS)
        return (matrix, row) if matrix < self.matrices else None


LDMATRIX: tuple[LdMatrix, ...] = tuple(
    LdMatrix(matrices, trans) for trans in (False, True) for matrices in (1, 2, 4)
)
