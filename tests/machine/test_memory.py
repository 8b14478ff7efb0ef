"""Memory of which not all is known, and what a launch has in constant memory."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import STACK, Launch, constant_bank
from ptxlab.machine.memory import GlobalWords, MemoryRange, Words


def test_words_are_known_once_they_are_stored() -> None:
    words, places = Words(None, 8), np.array([1, 2])
    assert words.load(places) is None
    words.store(places, np.array([7, 9], np.uint32))
    assert words.load(places).tolist() == [7, 9]  # type: ignore[union-attr]
    assert words.load(np.array([2, 3])) is None
    words.store(np.array([2]), None)
    assert words.load(places) is None
    assert words.load(np.array([1])).tolist() == [7]  # type: ignore[union-attr]


def test_what_was_given_is_there_until_it_is_written_over() -> None:
    given = np.arange(8, dtype=np.uint32)
    words = Words(given, 8)
    words.store(np.array([3]), np.array([99], np.uint32))
    assert words.load(np.arange(5)).tolist() == [0, 1, 2, 99, 4]  # type: ignore[union-attr]
    words.store(np.array([4]), None)
    assert words.load(np.arange(4, 6)) is None
    assert words.load(np.arange(5, 8)).tolist() == [5, 6, 7]  # type: ignore[union-attr]
    assert given.tolist() == list(range(8))


def test_a_region_ends_with_its_last_byte() -> None:
    memory = GlobalWords(
        [MemoryRange(0x2000, 12, np.arange(3, dtype=np.uint32)), MemoryRange(0x1000, 16)]
    )
    at = np.array([0x2000, 0x2008], np.uint64)
    assert memory.load(at).tolist() == [0, 2]  # type: ignore[union-attr]
    memory.store(np.array([0x100C, 0x2004], np.uint64), np.array([5, 6], np.uint32))
    both = memory.load(np.array([0x2004, 0x100C, 0x2000], np.uint64))
    assert both is not None
    assert both.tolist() == [6, 5, 0]
    for wrong in (0xFFF, 0x1010, 0x1800, 0x200C):
        with pytest.raises(Unsupported, match=f"{wrong:#x}, which is in no buffer"):
            memory.require(np.array([0x2000, wrong], np.uint64))


def test_constant_memory_has_the_launch() -> None:
    config = LaunchConfig.of((6, 4, 1), (32, 2, 1), 0, (3, 2, 1))
    target = TARGETS["sm_90a"]
    words = Launch(target, config, bytes(range(8)), (), {3: b"\1\0\0\0"}).constants()
    bank = constant_bank(target)
    assert [words[0, bank.block + 4 * n] for n in range(3)] == [32, 2, 1]
    assert [words[0, bank.grid + 4 * n] for n in range(3)] == [6, 4, 1]
    assert bank.cluster is not None
    assert bank.cluster_sizes is not None
    assert words[0, bank.cluster] == 1
    assert [words[0, bank.cluster_sizes + 4 * n] for n in range(3)] == [3, 2, 1]
    assert (words[0, bank.parameters], words[0, bank.parameters + 4]) == (0x03020100, 0x07060504)
    assert (words[3, 0], words[0, bank.stack]) == (1, STACK)


def test_the_last_warp_of_a_cta_may_not_be_full() -> None:
    launch = Launch(TARGETS["sm_90a"], LaunchConfig.of((4, 2), 40), b"", ())
    assert launch.alive([5]).tolist() == [True] * 40 + [False] * 24
