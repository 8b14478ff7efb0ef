"""What is known of registers, beside a table with a value or None for each thread."""

from __future__ import annotations

import numpy as np

from ptxlab.machine.values import ALL, Array, Bank, Where

ROWS, THREADS, STEPS = 3, 8, 2_000
WHOLE = np.arange(THREADS)


def test_what_is_written_and_forgotten_in_any_order() -> None:
    rng = np.random.default_rng(5)
    bank = Bank(ROWS, THREADS, np.uint32, {2: 7})
    table: list[list[int | None]] = [[0] * THREADS, [0] * THREADS, [7] * THREADS]
    some: list[Where] = [ALL, *(np.flatnonzero(rng.integers(2, size=THREADS)) for _ in range(3))]
    for _ in range(STEPS):
        row, where = int(rng.integers(ROWS)), some[rng.integers(len(some))]
        threads = WHOLE[where].tolist()
        match rng.integers(5):
            case 0:
                bank.write(row, where, None)
                _tell(table, row, threads, [None] * len(threads))
            case 1:
                words = rng.integers(1 << 32, size=len(threads), dtype=np.uint32)
                bank.write(row, where, words)
                _tell(table, row, threads, words.tolist())
            case 2 if row != 2:
                other, held = int(rng.integers(2)), [table[row][n] for n in threads]
                bank.put(other, where, bank.held(row, where))
                _tell(table, other, threads, held)
            case 3:
                bank.forget(range(ROWS), where)
                for each in range(ROWS):
                    _tell(table, each, threads, [None] * len(threads))
            case _:
                _compare(bank.read(row, where), [table[row][n] for n in threads])
    for row in range(ROWS):
        _compare(bank.read(row, ALL), table[row])


def test_what_is_forgotten_again_after_it_was_written() -> None:
    bank = Bank(1, THREADS, np.uint32, {})
    half = WHOLE[::2]
    for _ in range(2):
        bank.write(0, half, None)
        bank.write(0, half, None)
        assert bank.read(0, half) is None
        bank.write(0, half, np.uint32(3) + half.astype(np.uint32))
        assert bank.read(0, half) is not None


def _tell(
    table: list[list[int | None]], row: int, threads: list[int], held: list[int | None]
) -> None:
    for thread, word in zip(threads, held, strict=True):
        if row != 2:
            table[row][thread] = word


def _compare(read: Array | None, expected: list[int | None]) -> None:
    if None in expected:
        assert read is None
    else:
        assert read is not None
        assert read.tolist() == expected
