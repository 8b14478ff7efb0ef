"""The way of memory instructions and copies through an SM, request by request, by pencil."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from ptxlab.prediction.chip import MemorySystem, find
from ptxlab.prediction.sm.lsu import LoadStoreUnit
from ptxlab.prediction.sm.requests import SECTOR
from ptxlab.prediction.sm.timing import MEMORY, READ_ONLY_LOOKUP, InstructionTiming
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Warp

L2, DRAM, TMA, L1, SHARED = 200, 500, 100, 30, 24
SYSTEM = MemorySystem(
    request=2,
    wavefront=1,
    l2_bytes=16.0,
    stored_bytes=8.0,
    port=64,
    part=64,
    l1_kib=1,
    l2_part=1,
    clock=1000,
    dram=0.9,
    turnaround=0.1,
)
LATENCY = {"l2": L2, "dram": DRAM, "tma": TMA}


def unit(shared: int = 0, busy: dict[str, float] | None = None, **memory: float) -> LoadStoreUnit:
    plain = find("rtx3090")
    system = replace(SYSTEM, **memory)  # type: ignore[arg-type]
    chip = replace(plain, latency=plain.latency | LATENCY, memory=system)
    return LoadStoreUnit(chip, shared, defaultdict(float) if busy is None else busy)


LOAD = InstructionTiming(
    MEMORY, (), 0, L1, 1, (), writes=0, frees=1, reads=(), loads=True, cached=True
)
STORE = replace(LOAD, loads=False, cached=False, merges=True, hits=0.0)
READ_ONLY = replace(LOAD, lookup=READ_ONLY_LOOKUP)
ATOMIC = replace(STORE, merges=False)
FOUR = (0, 1, [0, 1, 2, 3])


def asking(
    lsu: LoadStoreUnit,
    t: InstructionTiming,
    asks: tuple[int, int, list[int]],
    now: float,
    stored: int = SECTOR,
    number: int = 0,
) -> Warp:
    """Return a warp that has asked, of another sub-partition each time; of each sector it stores so many bytes."""
    warp = Warp(0, [0], number=number, part=int(now) % 4)
    lsu.request(warp, t, (*asks, [stored] * len(asks[2])), now)
    return warp


def there(
    lsu: LoadStoreUnit, t: InstructionTiming, asks: tuple[int, int, list[int]], now: float
) -> float:
    """Return when what a warp asks for is there."""
    return asking(lsu, t, asks, now).board[0]


def test_a_load_waits_for_the_port_of_the_sm() -> None:
    """4 sectors take 8 cycles of 16 bytes; the second load's begin when the first's are through."""
    lsu = unit()
    assert there(lsu, LOAD, FOUR, 0) == 2 + L2
    assert there(lsu, LOAD, (0, 1, [4, 5, 6, 7]), 1) == 2 + 8 + L2
    assert there(lsu, LOAD, (0, 1, [8, 9, 10, 11]), 2) == 2 + 8 + 8 + L2


@pytest.mark.parametrize(("least", "sectors", "cycles"), [(32, 3, 6), (64, 3, 12), (64, 4, 16)])
def test_a_sector_alone_may_take_as_long_as_two(least: int, sectors: int, cycles: int) -> None:
    """Sectors of lines of their own, of 16 bytes a cycle; where two lie together they take what they do anyway."""
    alone = [4 * n for n in range(sectors)]
    assert there(unit(l2_least=least), LOAD, (0, 1, alone), 0) == 2 + L2
    lsu = unit(l2_least=least)
    there(lsu, LOAD, (0, 1, alone), 0)
    assert there(lsu, LOAD, (0, 1, [100, 101]), 0) == pytest.approx(2 + cycles + L2, abs=2)


def test_a_store_leaves_beside_what_is_loaded_and_nobody_waits_for_it() -> None:
    """4 sectors take 16 cycles of 8 bytes, and those that are loaded 8 of 16 bytes."""
    busy: dict[str, float] = defaultdict(float)
    lsu = unit(busy=busy)
    assert there(lsu, STORE, FOUR, 0) == L1
    assert there(lsu, LOAD, (0, 1, [4, 5, 6, 7]), 1) == 2 + 2 + L2
    assert (busy["stores"], busy["l2"]) == (16, 8)


HALF = SECTOR // 2


@pytest.mark.parametrize(
    ("second", "stored", "at", "number", "cycles"),
    [
        (STORE, HALF, 8, 0, 8 + 3 * 4),
        (STORE, HALF // 2, 8, 0, 4 * 8),
        (STORE, HALF, 8, 1, 7 * 8),
        (STORE, HALF, 500, 0, 7 * 8),
        (STORE, SECTOR, 500, 0, 4 * 8 + 3 * 4),
        (ATOMIC, HALF, 8, 0, 4 * 8 + 3 * 4),
        (replace(STORE, hits=1.0), HALF, 500, 0, 4 * 8 + 3 * 4),
    ],
)
def test_what_a_warp_stores_goes_with_what_it_stored_to_a_sector_that_waits_to_leave(
    second: InstructionTiming, stored: int, at: float, number: int, cycles: float
) -> None:
    """4 cycles for a whole sector, 8 for a part of one: the other halves come in time, but of one sector, or late, or are
    no halves, or of another warp, or atomics, which are not told apart. A part of what L2 has takes no longer than all.
    """
    busy: dict[str, float] = defaultdict(float)
    lsu = unit(busy=busy)
    asking(lsu, STORE, (0, 1, [3, 2, 1, 0]), 0, HALF)
    asking(lsu, second, (0, 1, [2, 1, 0]), at, stored, number)
    assert busy["stores"] == cycles


def test_who_stores_knows_when_the_last_has_left() -> None:
    lsu = unit()
    assert asking(lsu, STORE, FOUR, 0).stored == 2 + 4 * 4
    assert asking(lsu, STORE, (0, 1, [4]), 1, HALF).stored == 2 + 4 * 4 + 8
    assert asking(lsu, STORE, (0, 1, [4]), 2, HALF).stored == 2 + 4 * 4 + 4
    assert asking(lsu, STORE, (0, 1, [8]), 1000).stored == 1000 + 2 + 4
    each = [
        asking(lsu, t, (0, 1, [9]), 2000 + n).stored for n, t in enumerate((STORE, *[ATOMIC] * 3))
    ]
    assert each == [2000 + 2 + 4 * n for n in (1, 2, 3, 4)]  # atomics go each alone


def test_what_l1_has_or_is_on_its_way_there_is_not_asked_again() -> None:
    lsu = unit()
    first = there(lsu, LOAD, FOUR, 0)
    assert there(lsu, LOAD, FOUR, 1) == first
    assert there(lsu, LOAD, FOUR, 1000) == 1000 + L1
    assert there(lsu, replace(LOAD, cached=False), FOUR, 2000) == 2000 + 2 + L2


def test_what_is_stored_to_local_memory_stays_in_l1_and_leaves_too() -> None:
    """A store that L1 keeps: who loads it again waits for L1 alone, and it has left the SM all the same."""
    busy: dict[str, float] = defaultdict(float)
    lsu = unit(busy=busy)
    there(lsu, replace(STORE, cached=True), FOUR, 0)
    there(lsu, STORE, (0, 1, [4, 5, 6, 7]), 1)
    assert there(lsu, LOAD, FOUR, 1000) == 1000 + L1
    assert there(lsu, LOAD, (0, 1, [4, 5, 6, 7]), 2000) == 2000 + 2 + L2
    assert busy["stores"] == 32


def test_the_oldest_lines_leave_l1() -> None:
    """32 sectors fit: of 33 the first is gone, but not one that was asked for in between."""
    lsu = unit()
    there(lsu, LOAD, (0, 8, list(range(32))), 0)
    there(lsu, LOAD, (0, 1, [0]), 1000)
    there(lsu, LOAD, (0, 1, [99]), 2000)
    assert there(lsu, LOAD, (0, 1, [0]), 3000) == 3000 + L1
    assert there(lsu, LOAD, (0, 1, [1]), 4000) > 4000 + L2


def test_shared_memory_is_taken_from_l1() -> None:
    lsu = unit(shared=1024)
    there(lsu, LOAD, FOUR, 0)
    assert there(lsu, LOAD, FOUR, 1000) == 1000 + 2 + L2


def test_what_l2_lacks_comes_from_dram() -> None:
    assert there(unit(), replace(LOAD, hits=0.0), FOUR, 0) == 2 + DRAM
    assert there(unit(), replace(LOAD, hits=1.0), FOUR, 0) == 2 + L2
    ready = [there(unit(), replace(LOAD, hits=0.25), (0, 1, [4 * line]), 0) for line in range(2000)]
    assert ready.count(2 + L2) / 2000 == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("lines", "passes", "measured"),
    [
        (1, 1, 1.02),
        (3, 1, 1.63),
        (5, 1, 2.20),
        (17, 1, 5.1),
        (32, 1, 9.2),
        (4, 4, 4.0),
        (16, 16, 16.0),
    ],
)
def test_a_load_of_many_lines_holds_the_pipe(lines: int, passes: int, measured: float) -> None:
    """RRZE-HPC/gpu-benches, gpu-strides on A100: loads of f32 with pitches, and with strides that meet in banks."""
    lsu = unit(l1_kib=64, request=1)
    sectors = [4 * n for n in range(lines)]
    there(lsu, LOAD, (passes, lines, sectors), 0)
    there(lsu, LOAD, (passes, lines, sectors), 1000)
    behind = there(lsu, LOAD, (1, 1, [0]), 1001) - L1
    assert behind - 1000 == pytest.approx(max(measured, 1), rel=0.06)


def test_what_is_only_read_is_looked_up_more_slowly() -> None:
    """Words in two lines, and in three: 2.5 and 3.1 cycles of a convolution's loads on an RTX A4000, and with ld.global 2.05."""
    for t, lines, measured in ((READ_ONLY, 2, 2.5), (READ_ONLY, 2.94, 3.1), (LOAD, 2, 2.05)):
        busy: dict[str, float] = defaultdict(float)
        there(unit(busy=busy), t, (1, lines, [0, 4]), 0)  # type: ignore[arg-type]
        assert busy["lsu"] == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("passes", "nbytes", "cycles"),
    [(1, 128, 2), (2, 128, 2), (32, 128, 32), (8, 32, 8), (4, 512, 8), (2, None, 4)],
)
def test_a_pass_that_brings_few_lanes_their_words_takes_one_cycle_on_turing(
    passes: int, nbytes: int | None, cycles: int
) -> None:
    """64 bytes a cycle go to registers: a line takes two, and a word of each of 32 lines 32, which is what loads of a
    line a lane take an RTX 2060 and a GTX 1650 (R100001/Programming-Massively-Parallel-Processors). How many bytes is
    not told of shared memory.
    """
    busy: dict[str, float] = defaultdict(float)
    lsu, warp = unit(busy=busy, wavefront=2, request=1), Warp(0, [0])
    carried = [] if nbytes is None else [nbytes]
    lsu.request(warp, LOAD, (passes, 1, [], carried), 0)
    assert busy["lsu"] == cycles
    lsu.request(warp, STORE, (passes, 1, [], carried), 0)
    assert busy["lsu"] == cycles + 2 * passes


def test_wavefronts_hold_the_pipe() -> None:
    shared = replace(LOAD, latency=SHARED, cached=False)
    assert there(unit(), shared, (5, 0, []), 0) == 5 - 2 + SHARED
    assert there(unit(wavefront=2), shared, (5, 0, []), 0) == 10 - 2 + SHARED
    lsu = unit()
    there(lsu, shared, (1, 0, []), 0)
    assert there(lsu, shared, (1, 0, []), 1) == 2 + SHARED  # two cycles at least


def test_no_more_loads_wait_than_have_room() -> None:
    """The third of three begins when the first is there, and so does one behind it for which L1 has all."""
    lsu, plain = unit(waiting=2, l2_bytes=1e9), unit(l2_bytes=1e9)
    for now, begins in enumerate((0, 2, 2 + L2)):
        asks = (1, 1, [now])
        assert there(lsu, LOAD, asks, now) == pytest.approx(begins + 2 + L2, abs=1e-6)
        assert there(plain, LOAD, asks, now) == pytest.approx(2 * now + 2 + L2, abs=1e-6)
    assert there(lsu, LOAD, (1, 1, [0]), 3) == pytest.approx(4 + L2 + L1, abs=1e-6)


def test_who_waits_has_its_place_until_those_before_it_have_theirs() -> None:
    lsu = unit(waiting=2, l2_bytes=1e9)
    assert there(lsu, replace(LOAD, hits=0.0), (1, 1, [0]), 0) == pytest.approx(2 + DRAM, abs=1e-6)
    assert there(lsu, LOAD, (1, 1, [1]), 1) == pytest.approx(4 + L2, abs=1e-6)
    assert there(lsu, LOAD, (1, 1, [2]), 2) == pytest.approx(2 + DRAM + 2 + L2, abs=1e-6)


@pytest.mark.parametrize("lines", [1, 4, 8])
def test_what_is_copied_is_looked_up_while_it_passes(lines: int) -> None:
    """16 sectors take 32 cycles of 16 bytes; the next copy's begin when these are through, and 4 cycles of shared memory."""
    past = replace(LOAD, copies=True, cached=False)
    lsu, warp = unit(), Warp(0, [0])
    lsu.request(warp, past, (4, lines, list(range(16)), []), 0)
    assert warp.copies == 4 + L2
    lsu.request(warp, past, (4, lines, list(range(16, 32)), []), 0)
    assert warp.copies == 4 + 32 + L2


def test_six_instructions_of_a_sub_partition_are_one_too_many() -> None:
    """The address unit takes one in four cycles: the sixth waits until the first of five has gone on."""
    lsu, warp = unit(), Warp(0, [0])
    shared = replace(LOAD, latency=SHARED, cached=False)
    for _ in range(5):
        assert lsu.full_until(0, 0) == 0
        lsu.request(warp, shared, (1, 0, [], []), 0)
    assert lsu.full_until(0, 0) == 0  # one of them is in the unit
    lsu.request(warp, shared, (1, 0, [], []), 0)
    assert lsu.full_until(0, 0) == 4
    assert lsu.full_until(1, 0) == 0
    assert lsu.full_until(0, 4) == 0


def test_sources_are_read_when_the_request_is_served() -> None:
    lsu, warp, shared = unit(), Warp(0, [0]), replace(LOAD, latency=SHARED, cached=False)
    lsu.request(warp, shared, (1, 0, [], []), 0)
    assert warp.board[1] == 10
    lsu.request(warp, shared, (40, 0, [], []), 0)
    lsu.request(warp, shared, (1, 0, [], []), 1)
    assert warp.board[1] == 44  # served behind the forty


def test_a_copy_to_several_ctas_takes_its_part_of_the_port() -> None:
    """4096 bytes at 16 a clock; each of two CTAs is brought half."""
    sectors = tuple(range(128))
    alone, shared = (unit().copy(Copy((0, 0), 4096, sectors, n), 1.0, 0) for n in (1, 2))
    assert alone == TMA + 256 + L2
    assert shared == TMA + 128 + L2
    assert unit().copy(Copy((0, 0), 4096, sectors), 0.0, 0) == TMA + 256 + DRAM
    assert unit().copy(Copy(None, 4096, sectors), 1.0, 0) == TMA + 512  # a store is not waited for
    lsu = unit()
    lsu.copy(Copy((0, 0), 4096, sectors), 1.0, 0)
    assert lsu.copy(Copy((0, 0), 4096, sectors), 1.0, 50) == TMA + 512 + L2
