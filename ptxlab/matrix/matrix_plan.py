"""One ``ldmatrix`` or ``stmatrix`` on a tile in shared memory, planned lane by lane.

Which lane names which address, which banks that is, and which elements of the tile each lane then
holds. Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix" and "Warp-level matrix store
instruction: stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ptxlab.arrays import Integers
from ptxlab.isa.targets import WARP
from ptxlab.layouts.layout import Mapping
from ptxlab.layouts.shared_memory import bank, lines, wavefronts
from ptxlab.matrix.fragment import FragmentLayout, number_bits
from ptxlab.matrix.ldmatrix import LDMATRIX, PACKED_BITS, ROW_BYTES, SIGNED, STMATRIX, RowMove
from ptxlab.matrix.mma import MMA

RowCol = tuple[int, int]

FORMS: dict[str, RowMove] = {
    ".".join(
        [
            form.family,
            *([form.shape] if form.shape != "m8n8" else []),
            f"x{form.matrices}",
            *(["trans"] if form.trans else []),
        ]
    ): form
    for form in (*LDMATRIX, *STMATRIX)
    if form.dtype not in PACKED_BITS
}
"""The instructions a plan is made for, by their names without what is always the same."""


@dataclass(frozen=True, slots=True)
class RowAddress:
    """What one lane names: a row of a matrix, by its first element in the tile and its address.

    The 16 bytes at byte ``address`` lie in the four banks from ``bank`` on.
    """

    lane: int
    matrix: int
    row: int
    first: RowCol
    address: int
    bank: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole instruction. ``addresses`` has one entry for each lane that is asked for an address.

    ``held[lane][register]`` are the elements of the tile, low bits first, that ldmatrix puts there and
    stmatrix takes from there. ``wavefronts`` has one count for every 8 rows, of which 1 is ideal.
    """

    form: RowMove
    addresses: tuple[RowAddress, ...]
    held: tuple[tuple[tuple[RowCol, ...], ...], ...]
    wavefronts: tuple[int, ...]


def plan(
    form: RowMove,
    layout: Mapping,
    bits: int,
    corner: RowCol = (0, 0),
    matrices_across: bool = False,
) -> Plan:
    """Plan ``form`` on a tile of elements of ``bits`` whose first matrix begins at ``corner``.

    The rows of matrices run along the mode of the tile that is contiguous. Of more than one matrix the
    second follows below the first (as A of an mma wants it), or with ``matrices_across`` beside it;
    the third and fourth complete the square. Raises ValueError when rows are not 16 contiguous
    aligned bytes or the matrices reach over the edge of the tile.
    """
    grid, along = lines(layout, bits, ROW_BYTES)
    per_row = 8 * ROW_BYTES // bits
    line0, inner0 = corner[1 - along], corner[along]
    if form.trans and bits > form.bits:
        raise ValueError(f"{form.name} would tear elements of {bits} bits apart")
    if inner0 % per_row:
        raise ValueError(f"rows of 16 bytes start at multiples of {per_row} elements, not {inner0}")
    places = [
        _matrix_place(matrix, form.matrices, matrices_across) for matrix in range(form.matrices)
    ]
    last_line = line0 + form.rows * (1 + max(down for down, _ in places))
    last_vector = inner0 // per_row + 1 + max(across for _, across in places)
    if min(line0, inner0) < 0 or last_line > grid.shape[0] or last_vector > grid.shape[1]:
        raise ValueError(
            f"{form.name} at {corner} reaches over the edge of {grid.shape[0]} lines of "
            f"{grid.shape[1]} times 16 bytes"
        )

    def element(matrix: int, row: int, position: int) -> RowCol:
        down, across = places[matrix]
        line, inner = line0 + form.rows * down + row, inner0 + per_row * across + position
        return (line, inner) if along else (inner, line)

    named = []
    for lane in range(WARP):
        asked = form.addressed_row(lane)
        if asked is not None:
            first = element(*asked, 0)
            address = int(grid[first[1 - along], first[along] // per_row])
            named.append(RowAddress(lane, *asked, first, address, bank(address)))

    def in_register(matrix: int, register: Integers) -> tuple[RowCol, ...]:
        elements = [
            element(matrix, int(row), int(col) * form.bits // bits + i)
            for row, col in register
            for i in range(max(1, form.bits // bits))
        ]
        return tuple(
            dict.fromkeys(elements)
        )  # an element wider than the instruction's comes in parts

    held = tuple(
        tuple(in_register(matrix, register) for matrix in range(form.matrices) for register in lane)
        for lane in form.fragment.table()
    )
    counts = wavefronts(np.array([n.address for n in named]).reshape(-1, 8), ROW_BYTES)
    return Plan(form, tuple(named), held, tuple(map(int, counts)))


def _matrix_place(matrix: int, matrices: int, across: bool) -> tuple[int, int]:
    """Return how many matrices down and across a matrix lies from the first."""
    square = divmod(matrix, 2 if matrices > 1 else 1)
    return square if across else (square[1], square[0])


class Moved(NamedTuple):
    """An operand of products of a ``shape`` that a load fills, or a store takes, with all its registers.

    That is ``times`` one after another.

    ``corners`` of its matrices: the row in memory, and the byte in it. Rows in memory are its columns where ``turned``.
    """

    shape: str
    operand: FragmentLayout
    times: int
    corners: tuple[RowCol, ...]
    turned: bool


def moved(form: RowMove) -> Iterator[Moved]:
    """Yield the operands of ``mma`` that ``form`` moves as they are, of the matrices of whole registers."""
    letters = "AB" if form.family == "ldmatrix" else "D"
    operands = ((product.shape, product.operand(letter)) for product in MMA for letter in letters)
    for shape, operand in dict.fromkeys(operands):
        times, rest = divmod(form.registers, operand.registers_per_lane)
        most = 2 if operand.operand == "B" and form.matrices == 4 else 1
        if not rest and operand.matrices == 1 and times <= most and _carries(form, operand):
            yield from _as_moved(form, shape, operand, times)


def _carries(form: RowMove, operand: FragmentLayout) -> bool:
    """Say whether elements of an operand are whole where they are moved, and as many bits in memory."""
    if form.dtype == SIGNED:
        return operand.dtype == "s8"
    if form.dtype in PACKED_BITS:
        unpacked = number_bits(operand.dtype, operand.bits) == (0, PACKED_BITS[form.dtype])
        return unpacked and form.bits == operand.bits
    return form.bits == operand.bits or (form.bits == 16 and not form.trans)


def _as_moved(form: RowMove, shape: str, operand: FragmentLayout, times: int) -> Iterator[Moved]:
    """Yield the operand if each matrix has a corner from which all its elements are as far as in memory."""
    each = form.registers // form.matrices
    bits = np.arange(operand.elements_per_register) * operand.bits
    row, col = np.moveaxis(form.fragment.table()[:, :, bits // form.bits], -1, 0)
    col = (col * form.bits + bits % form.bits) // operand.bits
    held = operand.table().reshape(WARP, -1, each, len(bits), 2)
    for turned in (False, True):
        distance = held - np.stack((col, row) if turned else (row, col), axis=-1)[:, None]
        first = distance[0, :, 0, 0]
        if (distance == first[:, None, None]).all():
            corners = first[:, ::-1] if turned else first
            row_bits = form.cols * form.bits  # in registers, of form.row_bytes
            places = tuple(
                (int(row), int(col) * operand.bits * form.row_bytes // row_bits)
                for row, col in corners
            )
            yield Moved(shape, operand, times, places, turned)
