"""Linear layouts against the XOR of their bases, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.layouts.linear import Bases, bases, distributed, shared


def test_bases_lead_everywhere_by_xor() -> None:
    generator = np.random.default_rng(5)
    rows = generator.integers(0, 64, (7, 2))
    coordinates = np.zeros((128, 2), np.int64)
    for number in range(128):
        for bit in range(7):
            if number >> bit & 1:
                coordinates[number] ^= rows[bit]
    assert bases(coordinates) == list(map(tuple, rows.tolist()))
    coordinates[100, 1] ^= 4  # one of 128 is elsewhere
    with pytest.raises(ValueError, match=r"bit 6 does not always lead .* further"):
        bases(coordinates)


@pytest.mark.parametrize("numbers", [[[1], [0]], [[0], [1], [2]]])
def test_what_has_no_bases(numbers: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="make no linear layout"):
        bases(np.array(numbers))


def test_as_tritons_tests_write_them() -> None:
    """test/TritonGPU of Triton: a warp of 32 threads with two elements each, and shared memory."""
    threads: Bases = [(2,), (4,), (8,), (16,), (32,), (64,), (128,)]
    written = "#ttg.linear<{register = [[1]], lane = [[2], [4], [8], [16], [32]], warp = [[64], [128]], block = []}>"
    assert distributed(threads, [(1,)]) == written
    written = "#ttg.shared_linear<{offset = [[0, 1], [0, 2], [1, 0], [2, 2]]}, alignment = 16>"
    assert shared([(0, 1), (0, 2), (1, 0), (2, 2)], 16) == written
