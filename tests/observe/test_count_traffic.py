"""Sectors, wavefronts and collisions: by hand, and against a count in plain Python over threads."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import pytest

from ptxlab.observe.counters import Counts
from tests.observe.programs import here, marked, probe
from tests.together import in_one_test

LANES = np.arange(32)


def load(space: str, address: str, size: int) -> str:
    """Return a load of ``size`` bytes."""
    form = {1: "b8 h", 2: "b16 h", 4: "b32 x1", 8: "b64 y1", 16: "v2.b64 {y1, y2}"}[size]
    kind, registers = form.split(" ", 1)
    return f"@on ld.{space}{'.' if space else ''}{kind} {registers}, [{address}]; // here"


# ---- the definition, one thread after the other ----


def sectors(spans: Iterable[range]) -> tuple[int, int]:
    """Return the sectors of a warp's bytes, and the sectors that the same bytes packed would fill."""
    wanted = {byte for span in spans for byte in span}
    return len({byte // 32 for byte in wanted}), -(-len(wanted) // 32)


def wavefronts(spans: dict[int, range], size: int) -> tuple[int, int]:
    """Return the wavefronts of a warp's lanes, and how many passes they take at least."""
    wavefronts = least = 0
    per_pass = min(32, 128 // size)
    for first in range(0, 32, per_pass):
        words: dict[int, set[int]] = defaultdict(set)
        for lane in range(first, first + per_pass):
            for byte in spans.get(lane, ()):
                words[byte // 4 % 32].add(byte // 4)
        wavefronts += max(map(len, words.values()), default=0)
        least += bool(words)
    return wavefronts, least


def local(spans: dict[int, range]) -> tuple[int, int]:
    """Return the same of local memory, whose word w of lane l is word 32 w + l of the warp's."""
    words = {(byte // 4, lane) for lane, span in spans.items() for byte in span}
    return len({(32 * word + lane) * 4 // 32 for word, lane in words}), -(-4 * len(words) // 32)


def expected(space: str, offsets: list[int], on: list[bool], size: int, grid: int) -> Counts:
    """Count what threads of ``grid`` CTAs ask for, warp by warp."""
    counts = Counts()
    threads = len(offsets) // grid
    for cta in range(grid):
        for first in range(0, threads, 32):
            here = range(cta * threads + first, cta * threads + min(first + 32, threads))
            spans = {i - here.start: range(offsets[i], offsets[i] + size) for i in here if on[i]}
            counts.executed += 1
            counts.threads += len(here)
            counts.threads_on += len(spans)
            if not spans:
                continue
            nbytes = size * len(spans)
            if space == "global":
                actual, least = sectors(spans.values())
                counts.requests += 1
                counts.sectors += actual
                counts.sectors_ideal += least
                counts.global_read += nbytes
            elif space == "shared":
                actual, least = wavefronts(spans, size)
                counts.shared_requests += 1
                counts.shared_wavefronts += actual
                counts.shared_ideal += least
                counts.shared_read += nbytes
            else:
                actual, least = local(spans)
                counts.local_requests += 1
                counts.local_sectors += actual
                counts.local_ideal += least
                counts.local_read += nbytes
    return counts


def patterns(draw: random.Random, size: int, threads: int, grid: int) -> list[list[int]]:
    """Return offsets for all threads: random ones, strided, alike in every CTA, moved from CTA to CTA."""
    room = 256 // size
    stride = size * draw.choice([1, 2, 3, 8])
    alike = [size * draw.randrange(room) for _ in range(threads)]
    return [
        [size * draw.randrange(room) for _ in range(threads * grid)],
        [stride * i % 256 for i in range(threads * grid)],
        alike * grid,
        [offset + 32 * cta for cta in range(grid) for offset in alike],
        [offset + size * cta for cta in range(grid) for offset in alike],
    ]


ADDRESSES = {"global": "q", "shared": "offset", "local": "offset", "": "generic"}


@in_one_test("size", [1, 2, 4, 8, 16])
@in_one_test("space", ["global", "shared", "local", ""])
def test_random_patterns(space: str, size: int) -> None:
    draw = random.Random(f"{space}{size}")
    threads, grid = 80, 3  # the last warp of a CTA is half
    for offsets in patterns(draw, size, threads, grid):
        for share in (0.0, 0.5, 1.0):
            on = [draw.random() < share for _ in offsets]
            counts = here(probe(load(space, ADDRESSES[space], size), offsets, on, grid=grid))
            wanted = expected(space or "shared", offsets, on, size, grid)
            assert counts == wanted, (offsets, on)


def test_unrolled_code_at_one_register() -> None:
    """An analysis is kept for other offsets; each of these is another one."""
    draw = random.Random(1)
    offsets = [4 * draw.randrange(64) for _ in range(96)]
    moves = (0, 4, 28, 32, 36, 128, 60)
    body = "\n".join(f"ld.shared.b32 x1, [offset+{move}]; // here" for move in moves)
    for line, move in zip(marked(probe(body, offsets)), moves, strict=True):
        wanted = expected("shared", [o + move for o in offsets], [True] * 96, 4, 1)
        assert line.counts == wanted
        assert line.conflict is not None
        assert {
            offsets[32 * line.conflict.warp + lane] + move for lane in line.conflict.lanes
        } == set(line.conflict.addresses)
    body = "\n".join(f"ld.global.b32 x1, [q+{move}]; // here" for move in moves)
    for line, move in zip(marked(probe(body, offsets)), moves, strict=True):
        wanted = expected("global", [o + move for o in offsets], [True] * 96, 4, 1)
        assert line.counts == wanted


# ---- by hand ----


def counted(body: str, offsets: object, *, target: str = "sm_80") -> Counts:
    return here(probe(body, np.asarray(offsets), target=target))


@pytest.mark.parametrize(
    ("offsets", "actual", "ideal"),
    [
        (4 * LANES, 4, 4),
        (4 * LANES[::-1], 4, 4),
        (4 * LANES + 4, 5, 4),
        (8 * LANES, 8, 4),
        (128 * LANES, 32, 4),
        (0 * LANES, 1, 1),
        (4 * (LANES // 2), 2, 2),
    ],
    ids=["coalesced", "backwards", "shifted", "every second", "strided", "broadcast", "pairs"],
)
def test_sectors(offsets: np.ndarray, actual: int, ideal: int) -> None:
    counts = counted("ld.global.b32 x1, [q]; // here", offsets)
    assert (counts.requests, counts.sectors, counts.sectors_ideal) == (1, actual, ideal)
    assert (counts.global_read, counts.global_written) == (128, 0)


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_conflict_ways(ways: int) -> None:
    profile = probe("st.shared.b32 [offset], i; // here", 4 * ways * LANES)
    counts = here(profile)
    assert (counts.shared_requests, counts.shared_wavefronts, counts.shared_ideal) == (1, ways, 1)
    assert (counts.shared_read, counts.shared_written, counts.excess) == (0, 128, ways - 1)
    conflict = marked(profile)[0].conflict
    if ways == 1:
        assert conflict is None
        return
    assert conflict is not None
    assert (conflict.ways, conflict.bank, conflict.cta, conflict.warp) == (ways, 0, 0, 0)
    assert conflict.lanes == tuple(range(0, 32, 32 // ways))
    assert conflict.addresses == tuple(range(0, 128 * ways, 128))


@in_one_test(
    ("body", "offsets", "actual", "ideal"),
    [
        ("st.shared.v4.b32 [offset], {i, i, i, i}; // here", 16 * LANES, 4, 4),
        ("ld.shared.v4.b32 {x1, x2, x3, x4}, [offset]; // here", 32 * LANES, 8, 4),
        ("ld.shared.v4.b32 {x1, x2, x3, x4}, [offset]; // here", 0 * LANES, 4, 4),
        ("ld.shared.v2.b32 {x1, x2}, [offset]; // here", 8 * LANES, 2, 2),
        ("ld.shared.b64 y1, [offset]; // here", 16 * LANES, 4, 2),
        ("ld.shared.b8 h, [offset]; // here", LANES, 1, 1),
        ("ld.shared.b32 x1, [offset]; // here", 128 * (LANES % 2), 2, 1),
        ("ld.shared.b32 x1, [offset]; // here", 132 * LANES, 1, 1),
    ],
)
def test_wavefronts(body: str, offsets: np.ndarray, actual: int, ideal: int) -> None:
    counts = counted(body, offsets)
    assert (counts.shared_wavefronts, counts.shared_ideal) == (actual, ideal)


PLAIN = 64 * (LANES % 16) + 16 * (LANES // 16)
SWIZZLED = 64 * (LANES % 16) + 16 * ((LANES // 16) ^ (LANES % 8 // 2))


@pytest.mark.parametrize(("offsets", "actual"), [(PLAIN, 16), (SWIZZLED, 4)])
def test_ldmatrix(offsets: np.ndarray, actual: int) -> None:
    """Eight rows 64 bytes apart begin in two banks; the swizzle of 64-byte rows spreads them."""
    row = "[offset]; // here"
    four = counted(f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{x1, x2, x3, x4}}, {row}", offsets)
    assert (four.shared_requests, four.shared_wavefronts, four.shared_ideal) == (1, actual, 4)
    assert four.shared_read == 512
    stored = counted(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [offset+1024], {x1, x2, x3, x4}; // here",
        offsets,
        target="sm_90a",
    )
    assert (stored.shared_wavefronts, stored.shared_ideal, stored.shared_written) == (
        actual,
        4,
        512,
    )
    for target in ("sm_75", "sm_80"):
        counts = counted(
            f"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{x1}}, {row}", offsets, target=target
        )
        assert (counts.shared_wavefronts, counts.shared_ideal, counts.shared_read) == (
            actual // 4,
            1,
            128,
        )


def test_async_copies_of_part_of_their_bytes() -> None:
    draw = random.Random(3)
    sizes = [draw.choice([0, 1, 7, 15, 16]) for _ in range(64)]
    offsets = [16 * draw.randrange(12) for _ in range(64)]
    counts = here(
        probe("cp.async.cg.shared.global [offset], [q], 16, size; // here", offsets, sizes)
    )
    wanted = Counts(executed=2, threads=64, threads_on=64, shared_requests=2)
    wanted.shared_written, wanted.global_read = 16 * 64, sum(sizes)
    for warp in (range(32), range(32, 64)):
        actual, least = sectors(range(offsets[i], offsets[i] + sizes[i]) for i in warp)
        wanted.requests += 1
        wanted.sectors += actual
        wanted.sectors_ideal += least
        spans = {i % 32: range(offsets[i], offsets[i] + 16) for i in warp}
        actual, least = wavefronts(spans, 16)
        wanted.shared_wavefronts += actual
        wanted.shared_ideal += least
    assert counts == wanted


def test_atomics_at_one_address() -> None:
    draw = random.Random(4)
    offsets = [4 * draw.randrange(20) for _ in range(64)]
    again = sum(
        count - 1 for warp in (offsets[:32], offsets[32:]) for count in Counter(warp).values()
    )
    counts = here(probe("red.global.add.u32 [q], 1; // here", offsets))
    assert (counts.collisions, counts.global_written) == (again, 256)
    counts = here(probe("atom.shared.add.u32 x1, [offset], 1; // here", offsets))
    assert (counts.collisions, counts.shared_written) == (again, 256)
    assert here(probe("ld.global.u32 x1, [q]; // here", offsets)).collisions == 0
    assert here(probe("red.global.add.u32 [q], 1; // here", 4 * LANES)).collisions == 0


FRAGMENT = "{x0, x1, x2, x3, x4, x5, x6, x7}"
WMMA = f"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {FRAGMENT}, [offset], "


@pytest.mark.parametrize(
    ("stride", "passes", "sectors"),
    [(16, 4, 16), (32, 8, 16), (64, 16, 16), (72, 4, 24)],
    ids=["packed", "32", "64", "padded"],
)
def test_wmma_is_one_request(stride: int, passes: int, sectors: int) -> None:
    """16 rows of 32 bytes: the fewest wavefronts that any lanes could read them in."""
    load = f"{WMMA}{stride}; // here"
    counts = counted(load, 0 * LANES)
    assert (counts.shared_requests, counts.shared_wavefronts, counts.shared_ideal) == (1, passes, 4)
    counts = counted(load.replace("shared", "global").replace("offset", "q"), 0 * LANES)
    assert (counts.requests, counts.sectors, counts.sectors_ideal) == (1, sectors, 16)
    assert counts.global_read == 512


def test_generic_addresses_count_where_they_lead() -> None:
    """The odd lanes go to shared memory, the even ones to global."""
    body = "setp.ne.u32 on, size, 2;\nselp.b64 q, q, generic, on;\nst.b32 [q], i; // here"
    counts = here(probe(body, 4 * LANES, 1 + LANES % 2))
    assert (counts.requests, counts.sectors, counts.sectors_ideal, counts.global_written) == (
        1,
        4,
        2,
        64,
    )
    assert (counts.shared_requests, counts.shared_wavefronts, counts.shared_written) == (1, 1, 64)


def test_what_no_lane_asks_for_is_no_request() -> None:
    counts = here(probe("@on ld.global.b32 x1, [q]; // here", 4 * LANES, 0 * LANES))
    assert (counts.executed, counts.threads, counts.threads_on) == (1, 32, 0)
    assert (counts.requests, counts.sectors, counts.sectors_ideal) == (0, 0, 0)


def test_the_twin_sees_a_warp_that_is_cut_elsewhere() -> None:
    """A count over 16 lanes instead of 32 is another one: the comparisons above can fail."""
    offsets = [4 * lane for lane in range(32)]
    assert expected("global", offsets, [True] * 32, 4, 2) != here(
        probe(load("global", "q", 4), offsets)
    )


def test_a_parameter_by_a_generic_address_is_no_traffic() -> None:
    body = "mov.b64 y1, offsets; cvta.param.u64 y1, y1;\nld.b32 x1, [y1]; // here"
    counts = here(probe(body, [0] * 32))
    assert counts.executed == 1
    assert (counts.requests, counts.sectors, counts.global_read) == (0, 0, 0)


def test_32_bytes_a_lane_are_a_sector_each() -> None:
    body = "ld.global.v4.b64 {y0, y1, y2, y3}, [q]; // here"
    counts = here(probe(body, 32 * LANES, target="sm_100a"))
    assert (counts.requests, counts.sectors, counts.sectors_ideal) == (1, 32, 32)
    assert counts.global_read == 1024
