"""Elements in the wrong place are found by name: registers are filled by the manual's formulas, wrongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.fragments.misplaced import Held
from ptxlab.fragments.misplaced_chunks import Surroundings
from ptxlab.matrix.catalog import find

A = find("m16n8k16", "bf16").operand("A")
MATRIX = np.arange(1, 257, dtype=np.uint64).reshape(16, 16) + np.uint64(0x3F80)
"""The bits of A: all different."""

Wrong = Callable[[int, int], tuple[int, int]]


def manual(lane: int, i: int) -> tuple[int, int]:
    """PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type: row and column of a_i."""
    row = lane >> 2 if 0 <= i < 2 or 4 <= i < 6 else (lane >> 2) + 8
    return row, (lane % 4) * 2 + (i & 1) + (8 if i >= 4 else 0)


def held(source: Wrong) -> Held:
    """The registers of which a_i of a lane was loaded from ``source``."""
    words = np.zeros((32, 4), np.uint64)
    for lane in range(32):
        for i in range(8):
            words[lane, i // 2] |= MATRIX[source(lane, i)] << np.uint64(16 * (i % 2))
    return Held(A, words, MATRIX)


def exchanged(lane: int, i: int) -> tuple[int, int]:
    return manual(lane, {2: 4, 3: 5, 4: 2, 5: 3}.get(i, i))


def test_what_is_right_needs_no_words() -> None:
    assert not len(held(manual).wrong)
    assert held(manual).explained() == []


def test_two_registers_exchanged() -> None:
    registers = held(exchanged)
    assert len(registers.wrong) == 128
    swapped, example = registers.explained()
    assert swapped == "a1 and a2 are swapped"
    start = "lane 0: a1, element 0, holds A[0,8] and should hold A[8,0], "
    assert example.startswith(start)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (lambda lane, i: manual(lane, i ^ 1 if i < 2 else i), "the elements of a0 are in reverse"),
        (lambda lane, i: manual(lane, 6 + i % 2 if i < 2 else i), "a0 holds what belongs in a3"),
        (lambda lane, i: manual(lane, i)[::-1], "the registers hold A transposed"),
        (lambda lane, i: manual(lane ^ 4, i), "32 lanes hold what belongs in others: 0 that of 4"),
    ],
)
def test_what_one_sentence_explains(source: Wrong, sentence: str) -> None:
    first, *_ = held(source).explained()
    assert first.startswith(sentence)


def test_one_element_that_is_nowhere_else() -> None:
    words: Array = held(manual).words.copy()
    words[7, 2] ^= np.uint64(1 << 31)
    registers = Held(A, words, MATRIX)
    assert registers.wrong.tolist() == [[7, 2, 1]]
    (only,) = registers.explained()
    assert only.startswith("lane 7: a2, element 1, holds -")
    assert "and should hold A[1,15], " in only


def by_ldmatrix(row: Wrong, trans: bool = False) -> Held:
    """The registers that ldmatrix leaves of A if lane l of it reads the row and chunk that ``row`` says of its own.

    PTX ISA, ldmatrix: of tile t, lane l gets elements 2 (l % 4) and one more of row l / 4; with .trans of a column.
    """
    words = np.zeros((32, 4), np.uint64)
    for tile in range(4):
        for lane in range(32):
            for half in range(2):
                down, across = lane >> 2, 2 * (lane & 3) + half
                if trans:
                    down, across = across, down
                line, chunk = row(down + 8 * (tile & 1), tile >> 1)
                words[lane, tile] |= WIDE[line, 8 * chunk + across] << np.uint64(16 * half)
    return Held(A, words, WIDE[:, :16], Surroundings(WIDE, (0, 0)))


WIDE = np.arange(1, 16 * 64 + 1, dtype=np.uint64).reshape(16, 64) + np.uint64(0x3C00)
"""A is the beginning of these rows of 128 bytes."""


def test_what_ldmatrix_reads_rightly_needs_no_words() -> None:
    assert by_ldmatrix(lambda row, chunk: (row, chunk)).explained() == []


@pytest.mark.parametrize(
    ("row", "trans", "sentences"),
    [
        (
            lambda row, chunk: (row & 7, chunk),
            False,
            ["wrong are rows 8-15 in chunks 0-1 of 16 bytes, which hold what belongs in rows 0-7",
             "bit 3 of the row is lost in the address"],
        ),
        (
            lambda row, chunk: (row, chunk ^ (row & 4)),
            False,
            ["wrong are rows 4-7, 12-15 in chunks 0-1 of 16 bytes, which hold chunk ^ 4 of the same row",
             "bit 2 of the row is XORed into bit 2 of the chunk on one side alone"],
        ),
        (
            lambda row, chunk: (row, chunk ^ (row & 7)),
            False,
            ["wrong are rows 1-7, 9-15 in chunks 0-1 of 16 bytes: (row, chunk) (1, 0) holds (1, 1), "],
        ),
        (lambda row, chunk: (row, chunk), True, ["each 8 x 8 tile of A is transposed: ldmatrix lacks"]),
    ],
)  # fmt: skip
def test_what_an_address_of_ldmatrix_explains(
    row: Wrong, trans: bool, sentences: list[str]
) -> None:
    told = by_ldmatrix(row, trans).explained()
    assert len(told) == len(sentences) + 1
    for line, sentence in zip(told, sentences, strict=False):
        assert line.startswith(sentence)
