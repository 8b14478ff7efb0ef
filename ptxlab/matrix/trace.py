"""One element of D written out: which registers of which lanes of A, B and C it is made of.

Of a sparse A, whose elements meet the row of B that the metadata names, all rows that can be named
are given. What lies in shared memory has a place there that holds for every layout a descriptor can
describe: which 16 bytes of which line along k, and which bits of them. Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.multiplication import MatrixInstruction

UNIT_BITS = 128
LINES = 8


class SharedPlace(NamedTuple):
    """Where an element of a matrix in shared memory lies, contiguous along k.

    ``line`` is its row of A or column of B, ``unit`` counts the 16 bytes along k, and ``bit`` is the
    lowest of the element's in them.
    """

    line: int
    unit: int
    bit: int

    @property
    def formula(self) -> str:
        """Where it lies without a swizzle, by the start address and the offsets of the descriptor."""
        lines, line = divmod(self.line, LINES)
        byte, bit = divmod(self.bit, 8)
        terms = [(lines, "SBO"), (self.unit, "LBO")]
        parts = [f"{count} {name}" if count > 1 else name for count, name in terms if count]
        rest = UNIT_BITS // 8 * line + byte
        parts += [str(rest)] * bool(rest)
        return " + ".join(["start", *parts]) + (f" bit {bit}" if bit else "")


Whereabouts = Place | SharedPlace


@dataclass(frozen=True, slots=True)
class Term:
    """One product: an element of A, ``a_col`` of its row, and one of B, ``b_rows`` its row or rows.

    Each has its places: one, or where registers hold copies several. ``b`` has those of each row.
    Of an operand in shared memory they are there.
    ``metadata`` are the lane, the lowest bit and the count of the bits that choose among the rows, and
    ``scales`` the (lane, byte) of the scale of A and of B; both with all selectors 0.
    """

    a_col: int
    b_rows: tuple[int, ...]
    a: tuple[Whereabouts, ...]
    b: tuple[tuple[Whereabouts, ...], ...]
    metadata: tuple[int, int, int] | None = None
    scales: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ElementTrace:
    """D[row, col] = C[row, col] + the sum of ``terms``, in one of the matrices of the warp.

    Of an instruction that adds to D, ``c`` are the places of D.
    """

    instruction: MatrixInstruction
    row: int
    col: int
    matrix: int
    d: tuple[Place, ...]
    c: tuple[Place, ...]
    terms: tuple[Term, ...]


def trace(instruction: MatrixInstruction, row: int, col: int) -> tuple[ElementTrace, ...]:
    """Return the trace of D[row, col], one for each matrix the warp holds.

    Raises IndexError for an element that D does not have.
    """
    matrices = instruction.operand("D").matrices
    return tuple(_trace(instruction, row, col, matrix) for matrix in range(matrices))


def _trace(instruction: MatrixInstruction, row: int, col: int, matrix: int) -> ElementTrace:
    d = instruction.operand("D")
    c = d if instruction.shared else instruction.operand("C")
    held_by_d, held_by_c = _places(d, row, col, matrix), _places(c, row, col, matrix)
    a, b = map(instruction.held, "AB")
    terms = []
    for a_col in range(a.cols):
        rows, metadata = _rows_of_b(instruction, row, a_col)
        factors = _held(a, row, a_col, matrix), tuple(_held(b, k, col, matrix) for k in rows)
        scales = tuple(
            scale.place(row if scale.operand == "A" else col, a_col * scale.blocks // a.cols)
            for scale in instruction.scales
        )
        terms.append(Term(a_col, rows, *factors, metadata, scales))
    return ElementTrace(instruction, row, col, matrix, held_by_d, held_by_c, tuple(terms))


def _held(
    where: FragmentLayout | SharedOperand, row: int, col: int, matrix: int
) -> tuple[Whereabouts, ...]:
    if isinstance(where, SharedOperand):
        return (shared_place(where, row, col),)
    return _places(where, row, col, matrix)


def _places(layout: FragmentLayout, row: int, col: int, matrix: int) -> tuple[Place, ...]:
    places = layout.registers(row, col)
    return tuple(place for place in places if layout.matrix(place.lane) == matrix)


def shared_place(where: SharedOperand, row: int, col: int) -> SharedPlace:
    """Return the place of an element in shared memory. Raises IndexError outside the matrix."""
    if not (0 <= row < where.rows and 0 <= col < where.cols):
        raise IndexError(
            f"{where.operand} has no element {row},{col}: it is {where.rows} x {where.cols}"
        )
    line, k = (row, col) if where.operand == "A" else (col, row)
    unit, bit = divmod(k * where.bits, UNIT_BITS)
    return SharedPlace(line, unit, bit)


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
