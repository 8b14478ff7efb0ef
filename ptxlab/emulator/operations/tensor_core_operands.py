"""The operands of tcgen05.mma, read from shared memory and Tensor Memory when it is executed.

Matrices are [rows, cols, products] of raw words, of each CTA one: of a pair they stand side by side.

Source: PTX ISA, "tcgen05.mma".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.tensor_core_issue import Cells
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.run.wave import Wave
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.shared_matrix import elements, unpadded
from ptxlab.matrix.sparse import Metadata
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.matrix.tensor_memory_operand import held_bit, metadata
from ptxlab.numbers.formats import CONTAINED, Format

_WORD_BITS = 32


def from_shared(problem: TensorCoreProblem, name: str, lines: UnitLines) -> Array:
    """Return A or B out of lines in shared memory."""
    operand, major = _operand(problem, name)
    padded = _narrow(operand)
    return elements(operand, major, lines.read() if padded is None else _unpadded(lines, padded))


def in_bytes(problem: TensorCoreProblem, name: str, lines: UnitLines) -> UnitLines:
    """Return lines of A or B as they are, but of narrow numbers others, in which they are one a byte."""
    padded = _narrow(_operand(problem, name)[0])
    return lines if padded is None else UnitLines.dense(_unpadded(lines, padded))


def _narrow(operand: SharedOperand) -> Format | None:
    """Return the format of numbers of less than 8 bits that lie in bytes, with padding."""
    form = CONTAINED.get(operand.dtype)
    return form if operand.bits == 8 and form is not None and form.bits < operand.bits else None


def _unpadded(lines: UnitLines, form: Format) -> Array:
    return unpadded(lines.read().view(np.uint8), form.bits) << np.uint8(form.low_bit)


def _operand(problem: TensorCoreProblem, name: str) -> tuple[SharedOperand, str]:
    """Return A or B, and its major direction."""
    at = "AB".index(name)
    return (problem.a, problem.b)[at], problem.majors[at]


def both_halves(b: Array, group: int) -> Array:
    """Return B [k, n / group, products] of each CTA with the columns of both, the same for each."""
    if group == 1:
        return b
    k, n, products = b.shape
    pairs = b.reshape(k, n, products // group, group).transpose(0, 3, 1, 2)
    return pairs.reshape(k, group * n, products // group).repeat(group, axis=2)


def from_tensor_memory(wave: Wave, problem: TensorCoreProblem, cells: Cells) -> list[Array]:
    """Return A as it lies in the lanes of each part of D."""
    rows, k = problem.a.rows, problem.a.cols
    words = words_of_tensor_memory(wave, problem, cells)
    parts = _elements(words, problem.bits).reshape(len(words), -1, rows, k)
    return [part.transpose(1, 2, 0) for part in parts.swapaxes(0, 1)]


def words_of_tensor_memory(wave: Wave, problem: TensorCoreProblem, cells: Cells) -> Array:
    """Return the words of A in the lanes of each part of D, [products, parts, rows, words], as registers have them."""
    words: Array = wave.tensor_memory.cells.take(cells_of_a(problem, cells))
    narrow = _narrow(problem.a)
    if narrow is None or held_bit(narrow.bits) == narrow.low_bit:
        return words
    octets = words.view(np.uint8) >> np.uint8(held_bit(narrow.bits) - narrow.low_bit)
    return (octets & np.uint8((1 << narrow.bits) - 1)).view(np.uint32)


def cells_of_a(problem: TensorCoreProblem, cells: Cells) -> Array:
    """Return where A lies in Tensor Memory, cells [products, parts, rows, words]."""
    column = np.arange(problem.a.cols * problem.bits // _WORD_BITS)
    return cells.at(problem.path.lanes()[..., np.newaxis], column)


def _elements(words: Array, bits: int) -> Array:
    """Split words [..., columns] into elements, low bits first."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    if bits < 8:
        return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)
    return octets.view(np.dtype(f"u{bits // 8}"))


class Differing(ValueError):
    """Scales that are not the same in all lanes that must hold them, in the product ``at``."""

    def __init__(self, name: str, at: int) -> None:
        super().__init__(
            f"the scales of {name} differ between the quarters of Tensor Memory's lanes"
        )
        self.at = at


def scales(wave: Wave, problem: TensorCoreProblem, name: str, cells: Cells) -> Array:
    """Return the scales of A, [rows, blocks, products], or B, [blocks, n, products].

    Raises Differing where copies differ.
    """
    words = wave.tensor_memory.cells.take(cells.at(*problem.scale_cells(name)))
    first = problem.scale_ids["AB".index(name)]
    octets = np.ascontiguousarray(words).view(np.uint8)[..., first : first + problem.blocks]
    differ = (octets != octets[:, :1]).any(axis=(1, 2, 3))
    if differ.any():
        raise Differing(name, int(differ.argmax()))
    codes = octets[:, 0]
    return codes.transpose(1, 2, 0) if name == "A" else codes.transpose(2, 1, 0)


def _meaning(problem: TensorCoreProblem) -> Metadata:
    return Metadata(problem.k, problem.bits, ordered=True, rows=problem.a.rows)


def metadata_cells(problem: TensorCoreProblem, cells: Cells) -> tuple[Array, Array]:
    """Return where the metadata of a sparse A lies: cells [products, parts of D, rows, chunks], and lowest bits."""
    rows = problem.a.rows
    lane, column, bit = metadata(rows, _meaning(problem).chunks, problem.bits)
    lanes = lane + rows * np.arange(problem.path.parts)[:, np.newaxis, np.newaxis]
    return cells.at(lanes, column + problem.selector), bit.astype(np.uint32)


def places(wave: Wave, problem: TensorCoreProblem, held: Cells, part: int) -> Array:
    """Return the k of every element of a sparse A, [rows, k / 2, products], for a part of D.

    Raises InvalidMetadata, whose ``matrix`` is the product.
    """
    meaning = _meaning(problem)
    cells, bit = metadata_cells(problem, held)
    values = wave.tensor_memory.cells.take(cells[:, part]) >> bit & np.uint32(15)
    meaning.validate(values)
    return np.moveaxis(meaning.columns(values), 0, -1)
