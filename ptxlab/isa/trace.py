"""One element of D written out: which registers of which lanes of A, B and C it is made of.

Of a sparse A, whose elements meet the row of B that the metadata names, all rows that can be named
are given. Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp".
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.fragment import FragmentLayout, Place
from ptxlab.isa.instruction import MatrixInstruction


@dataclass(frozen=True, slots=True)
class Term:
    """One product: an element of A, ``a_col`` of its row, and one of B, ``b_rows`` its row or rows.

    Each has its places: one, or where registers hold copies several. ``b`` has those of each row.
    ``metadata`` are the lane, the lowest bit and the count of the bits that choose among the rows, and
    ``scales`` the (lane, byte) of the scale of A and of B; both with all selectors 0.
    """

    a_col: int
    b_rows: tuple[int, ...]
    a: tuple[Place, ...]
    b: tuple[tuple[Place, ...], ...]
    metadata: tuple[int, int, int] | None = None
    scales: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """D[row, col] = C[row, col] + the sum of ``terms``, in one of the matrices of the warp."""

    instruction: MatrixInstruction
    row: int
    col: int
    matrix: int
    d: tuple[Place, ...]
    c: tuple[Place, ...]
    terms: tuple[Term, ...]


def trace(instruction: MatrixInstruction, row: int, col: int) -> tuple[Trace, ...]:
    """Return the trace of D[row, col], one for each matrix the warp holds.

    Raises IndexError for an element that D does not have.
    """
    matrices = instruction.operand("D").matrices
    return tuple(_trace(instruction, row, col, matrix) for matrix in range(matrices))


def _trace(instruction: MatrixInstruction, row: int, col: int, matrix: int) -> Trace:
    d, a, b, c = (instruction.operand(name) for name in "DABC")

    def places(layout: FragmentLayout, at_row: int, at_col: int) -> tuple[Place, ...]:
        found = layout.registers(at_row, at_col)
        return tuple(place for place in found if layout.matrix(place.lane) == matrix)

    held_by_d, held_by_c = places(d, row, col), places(c, row, col)
    terms = []
    for a_col in range(a.cols):
        rows, metadata = _rows_of_b(instruction, row, a_col)
        terms.append(
            Term(
                a_col,
                rows,
                places(a, row, a_col),
                tuple(places(b, k, col) for k in rows),
                metadata,
                _scales(instruction, row, col, a_col),
            )
        )
    return Trace(instruction, row, col, matrix, held_by_d, held_by_c, tuple(terms))


def _rows_of_b(
    instruction: MatrixInstruction, row: int, a_col: int
) -> tuple[tuple[int, ...], tuple[int, int, int] | None]:
    """Return the rows of B that column ``a_col`` of A may meet, and the metadata that says which."""
    metadata = instruction.metadata
    if metadata is None:
        return (a_col,), None
    kept, of = metadata.granularity
    chunk, within = divmod(a_col, kept)
    lane, low = metadata.place(row, chunk)
    chunk_rows = range(of * chunk, of * chunk + of)
    if metadata.bits == 4:  # pairs of neighbours stay together: the first or the second of one
        pair = within // 2
        return tuple(chunk_rows[within % 2 :: 2]), (lane, low + 2 * pair, 2)
    if metadata.bits == 32:  # the four bits of the chunk say which of the two stays
        return tuple(chunk_rows), (lane, low, 4)
    return tuple(chunk_rows), (lane, low + 2 * within, 2)


def _scales(
    instruction: MatrixInstruction, row: int, col: int, a_col: int
) -> tuple[tuple[int, int], ...]:
    found = []
    for scale in instruction.scales:
        block = a_col * scale.blocks // instruction.operand("A").cols
        found.append(scale.place(row if scale.operand == "A" else col, block))
    return tuple(found)
