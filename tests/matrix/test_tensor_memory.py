"""``tcgen05.ld`` and ``.st``: lanes and columns of Tensor Memory, shape by shape."""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES, TensorMemoryMove
from tests.together import in_one_test

Case = Callable[[int, int], tuple[int, int]]


def narrow(t: int, r: int) -> tuple[int, int]:
    """16x64b: two registers of a row's 64 bits lie in neighbouring pairs of threads."""
    return t // 4 + (8 if t % 2 else 0), (1 if t % 4 > 1 else 0) + 2 * r


def medium(t: int, r: int) -> tuple[int, int]:
    """16x128b: rows 0 to 7, then 8 to 15, of four columns."""
    return (t // 4 + 8, t % 4 + 4 * (r // 2)) if r % 2 else (t // 4, t % 4 + 4 * (r // 2))


def wide(t: int, r: int) -> tuple[int, int]:
    """16x256b: the accumulator of a 16-row multiplication."""
    upper = [(t // 4, 2 * (t % 4)), (t // 4, 2 * (t % 4) + 1)]
    lower = [(row + 8, col) for row, col in upper]
    row, col = (upper + lower)[r % 4]
    return row, col + 8 * (r // 4)


def own(t: int, r: int) -> tuple[int, int]:
    """32x32b: a thread has its own lane."""
    return t, r


def halves(t: int, r: int) -> tuple[int, int]:
    """16x32bx2: so it has, in one of two matrices."""
    return t if t < 16 else t - 16, r


CASES: dict[str, Case] = {
    "16x64b": narrow,
    "16x128b": medium,
    "16x256b": wide,
    "32x32b": own,
    "16x32bx2": halves,
}


@in_one_test("move", TENSOR_MEMORY_MOVES[::3])
def test_a_register_holds_a_column_or_two(move: TensorMemoryMove) -> None:
    layout = move.layout
    table = layout.table()
    registers = move.signature[-1 if move.verb == "st" else 0].count
    assert table.shape == (32, registers, 2 if move.packed else 1, 2)
    for t in range(32):
        assert layout.matrix(t) == (t // 16 if move.shape == "16x32bx2" else 0)
        for r in range(registers):
            lane, column = CASES[move.shape](t, r)
            if move.packed:
                assert table[t, r].tolist() == [[lane, 2 * column], [lane, 2 * column + 1]]
            else:
                assert table[t, r].tolist() == [[lane, column]]


def test_the_largest_fill_a_register_file_or_all_columns() -> None:
    """No more than 128 registers a thread, PTX ISA: "tcgen05.ld"."""
    largest = max(move.layout.registers_per_lane for move in TENSOR_MEMORY_MOVES)
    assert largest == 128
    assert max(move.layout.cols for move in TENSOR_MEMORY_MOVES) <= 512
    packed = next(m for m in TENSOR_MEMORY_MOVES if ".x128.pack" in m.name and m.shape == "32x32b")
    assert (packed.layout.cols, packed.layout.bits) == (256, 16)
