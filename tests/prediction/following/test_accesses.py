"""What one memory instruction asks for, and the words it moves, of registers that are set by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import NOWHERE, Launch
from ptxlab.machine.memory import GlobalWords, MemoryRange
from ptxlab.machine.registers import Registers
from ptxlab.machine.values import ALL, Where
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.execute import Executor
from ptxlab.prediction.following.lifted import Computation, Demand, computations
from ptxlab.prediction.sm.requests import Request
from tests.machine.test_operations import instruction, word_of

BASE = 0x100000
LANE = np.arange(64, dtype=np.uint32)


class Bench:
    """Two CTAs of a warp, with a region of 64 KiB that holds its words' numbers."""

    def __init__(self) -> None:
        words = np.arange(1 << 14, dtype=np.uint32)
        launch = Launch(
            TARGETS["sm_80"], LaunchConfig.of(2, 32), b"", [MemoryRange(BASE, 1 << 16, words)]
        )
        self.registers = Registers(launch, [0, 1])
        self.memory = GlobalWords(launch.regions)
        self.accesses = Accesses(launch, self.registers, self.memory, 2)
        self.numbers: dict[str, int] = {}

    def set(self, number: int, value: Any) -> None:
        self.registers.words.write(number, ALL, np.broadcast_to(np.asarray(value, np.uint32), 64))

    def point(self, number: int, addresses: Any) -> None:
        """Have a pair of registers hold addresses of 64 bits."""
        whole = np.broadcast_to(np.asarray(addresses, np.uint64), 64)
        self.set(number, whole & np.uint64(0xFFFFFFFF))
        self.set(number + 1, whole >> np.uint64(32))

    def request(self, text: str) -> Request:
        i = instruction(text, self.numbers.setdefault(text, len(self.numbers)))
        return self.accesses.request(i, self.demand(text))

    def demand(self, text: str) -> Demand:
        [demand] = self.computation(text).demands(self.registers, ALL)
        return demand

    def computation(self, text: str) -> Computation:
        [computation] = computations([instruction(text)], TARGETS["sm_90a"])
        assert computation is not None
        return computation

    def move(self, text: str, where: Where = ALL) -> None:
        answer = partial(self.accesses.answer, instruction(text))
        self.computation(text).run(self.registers, where, answer)


def test_a_warp_asks_for_the_sectors_of_its_lanes() -> None:
    b = Bench()
    b.point(2, BASE + 4 * LANE.astype(np.uint64))
    request = b.request("LDG.E R0, [R2.64]")
    assert request.sectors(0) == [BASE // 32 + n for n in range(4)]
    assert request.sectors(1) == [BASE // 32 + n for n in range(4, 8)]
    assert request.lines is not None
    assert request.lines.tolist() == [1, 1]
    b.point(2, BASE + 256 + 4 * LANE.astype(np.uint64))
    again = b.request("LDG.E R0, [R2.64]")
    assert again.pattern is request.pattern  # which is kept
    assert again.sectors(1) == [BASE // 32 + 8 + n for n in range(4, 8)]
    b.point(2, BASE + 272 + 4 * LANE.astype(np.uint64))
    assert b.request("LDG.E R0, [R2.64]").sectors(0) == [BASE // 32 + 8 + n for n in range(5)]


def test_a_lane_whose_predicate_fails_asks_for_nothing() -> None:
    b = Bench()
    b.point(2, BASE + 32 * LANE.astype(np.uint64))
    b.registers.predicates.write(1, ALL, LANE % 32 < 3)
    assert len(b.request("LDGSTS.E [R4], [R2.64], P1").sectors(0)) == 3
    assert len(b.request("LDGSTS.E [R4], [R2.64], !P1").sectors(0)) == 29
    b.registers.predicates.write(1, ALL, None)
    with pytest.raises(Unsupported, match="depends on data"):
        b.request("LDGSTS.E [R4], [R2.64], P1")


def test_an_offset_of_32_bits_is_added_to_a_uniform_address() -> None:
    """What lies in the register behind it is no part of it."""
    b = Bench()
    b.set(2, 4 * LANE)
    b.set(3, 0xDEAD)
    b.point(256 + 4, BASE)
    assert b.request("LDG.E R0, [R2+UR4]").sectors(0) == [BASE // 32 + n for n in range(4)]
    b.set(5, LANE)
    b.set(256 + 4, 64)
    assert b.demand("LDS R0, [R5.X4+UR4+-0x8]").known(0).tolist() == [
        4 * lane + 64 - 8 for lane in range(64)
    ]


def test_local_memory_lies_lane_by_lane() -> None:
    """The same word of all lanes is a line; another word of each, so many sectors."""
    b = Bench()
    b.set(1, 16)
    assert [len(b.request("LDL R0, [R1]").sectors(warp)) for warp in (0, 1)] == [4, 4]
    assert not set(b.request("LDL R0, [R1]").sectors(0)) & set(b.request("LDL R0, [R1]").sectors(1))
    four = b.request("STL.128 [R1], R4")
    passes, lines, sectors, carried = four.served(1)
    assert (passes, lines, len(sectors)) == (4, 4, 16)
    assert carried == [32] * len(sectors), "all of each sector is stored"
    assert set(b.request("LDL R0, [R1+0xc]").sectors(1)) < set(sectors)
    b.set(1, 4 * LANE)
    assert len(b.request("LDL R0, [R1]").sectors(0)) == 32


def test_how_much_is_stored_or_comes_into_registers_is_told() -> None:
    b = Bench()
    b.point(2, BASE + 32 * LANE.astype(np.uint64))
    assert b.request("STG.E [R2], R4").served(0)[3] == [4] * 32
    assert b.request("STG.E.U8 [R2], R4").served(0)[3] == [1] * 32
    assert b.request("LDG.E.U8 R4, [R2]").served(0)[3] == [4] * 32, "a word of each register"
    assert b.request("STG.E.128 [R2], R4").served(0)[3] == [16] * 32
    b.point(2, BASE + 4 * LANE.astype(np.uint64))
    assert b.request("STG.E [R2], R4").served(1)[3] == [32] * 4
    assert b.request("LDG.E R4, [R2]").served(0)[3] == [32] * 4


def test_generic_addresses_may_be_of_shared_memory_but_not_of_both() -> None:
    b = Bench()
    window = np.uint64(NOWHERE) << np.uint64(32)
    b.point(2, window + 4 * LANE.astype(np.uint64))
    request = b.request("LD.E R0, [R2]")
    assert (request.passes.tolist(), request.sectors(0)) == ([1, 1], [])
    b.point(2, BASE + 4 * LANE.astype(np.uint64))
    assert (
        b.request("LD.E R0, [R2]").passes.tolist(),
        len(b.request("LD.E R0, [R2]").sectors(0)),
    ) == ([1, 1], 4)
    b.point(2, np.where(LANE % 2 == 0, np.uint64(BASE), window))
    with pytest.raises(Unsupported, match="shared and global memory at once"):
        b.request("LD.E R0, [R2]")


def test_words_go_through_shared_memory_of_each_cta() -> None:
    b = Bench()
    b.set(4, 4 * (LANE % 32))
    b.set(5, 1000 + LANE)
    b.move("STS [R4], R5")
    b.set(6, 4 * (31 - LANE % 32))
    b.move("LDS R7, [R6]")
    assert word_of(b.registers, 7) == [1000 + 32 * (n // 32) + 31 - n % 32 for n in range(64)]
    b.move("ATOMS.ADD R8, [R4], R5")
    b.move("LDS R7, [R6]")
    assert b.registers.words.read(7, ALL) is None


def test_several_words_are_loaded_and_stored_in_a_row() -> None:
    b = Bench()
    b.point(2, BASE + 16 * LANE.astype(np.uint64))
    b.move("LDG.E.128 R8, [R2.64]")
    assert [word_of(b.registers, 8 + n) for n in range(4)] == [
        [4 * lane + n for lane in range(64)] for n in range(4)
    ]
    b.point(4, BASE + 0x8000 + 8 * LANE.astype(np.uint64))
    b.move("STG.E.64 [R4.64], R10")
    got = b.memory.load(BASE + 0x8000 + 4 * np.arange(128, dtype=np.uint64))
    assert got is not None
    assert got.tolist() == [4 * (n // 2) + 2 + n % 2 for n in range(128)]


def test_less_than_a_word_is_loaded_from_where_it_lies() -> None:
    """Of words that are their numbers, 4096 and more here: bytes and halves, by their sign."""
    b = Bench()
    b.point(2, BASE + 0x4000 + 4 * 0x7F + LANE.astype(np.uint64))
    words = np.arange(1 << 14, dtype=np.uint32).view(np.uint8)[0x4000 + 4 * 0x7F :][:64]
    for text, dtype in (("U8", np.uint8), ("S8", np.int8)):
        b.move(f"LDG.E.{text} R8, [R2.64]")
        assert word_of(b.registers, 8) == words.view(dtype).astype(np.uint32).tolist()
    b.point(2, BASE + 0x4000 + 4 * 0x7F + 2 * (LANE // 2).astype(np.uint64))
    b.move("LDG.E.S16 R8, [R2.64]")
    halves = words.view(np.int16).astype(np.uint32)
    assert word_of(b.registers, 8) == halves[LANE // 2].tolist()


def test_a_copy_asks_for_sectors_and_passes() -> None:
    b = Bench()
    b.set(4, 16 * (LANE % 32))
    b.point(2, BASE + 16 * LANE.astype(np.uint64))
    request = b.request("LDGSTS.E.BYPASS.128 [R4], [R2.64]")
    assert (request.passes.tolist(), len(request.sectors(0))) == ([4, 4], 16)


def test_rows_of_matrices_are_those_of_as_many_lanes_as_there_are() -> None:
    b = Bench()
    b.set(4, np.where(LANE % 32 < 8, 16 * (LANE % 32), 0x1000))
    assert b.request("LDSM.16.M88 R0, [R4]").passes.tolist() == [1, 1]
    b.set(4, 128 * (LANE % 32))
    assert b.request("LDSM.16.M88.2 R0, [R4]").passes.tolist() == [16, 16]
    assert b.request("LDSM.16.M88.4 R0, [R4]").passes.tolist() == [32, 32]
    assert b.request("STSM.16.M88.4 [R4], R0").passes.tolist() == [32, 32]


def test_matrices_that_are_stored_are_forgotten_where_lanes_name_rows() -> None:
    """Of 8 or 32 lanes: what the others hold is no address."""
    b = Bench()
    b.set(0, 7)
    b.set(4, 16 * (LANE % 32))
    for word in range(4):
        b.move(f"STS [R4+{4 * word:#x}], R0")
    b.set(5, np.where(LANE % 32 < 8, 16 * (LANE % 32), 1 << 30))
    b.move("STSM.16.M88 [R5], R8")
    known = []
    for lane in (7, 8, 31, 40):
        b.move("LDS R1, [R4+0xc]", np.array([lane]))
        known.append(b.registers.words.read(1, np.array([lane])) is not None)
    assert known == [False, True, True, True]


def test_nobody_asks_for_nothing() -> None:
    b = Bench()
    request = Executor(b.registers.launch, [0, 1]).request(
        instruction("LDG.E R0, [R2.64]"), np.zeros(0, int)
    )
    assert (request.passes.tolist(), request.sectors(0), request.served(1)) == (
        [0, 0],
        [],
        (0, 0, [], []),
    )
