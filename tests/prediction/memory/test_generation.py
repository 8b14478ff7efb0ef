"""CTAs that come to what others have loaded when the L2 cache has lost it: against a cache of lines, by pencil, and as measured."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.memory.l2 import APART, _late
from ptxlab.prediction.predict import predict

STRIPES, TURNS = 54, 1600
KERNEL = f"""\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
  .reg .b32 t<8>; .reg .f32 f<4>; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [in]; ld.param.u64 q, [out];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; rem.u32 t2, t1, {STRIPES};
  mul.wide.u32 w, t2, {TURNS * 1024}; add.u64 p, p, w; mul.wide.u32 w, t0, 4; add.u64 p, p, w;
  mov.f32 f0, 0f00000000; mov.u32 t4, 0;
more:
  ld.global.cg.f32 f1, [p]; add.f32 f0, f0, f1; add.u64 p, p, 1024; add.u32 t4, t4, 1;
  setp.lt.u32 u, t4, {TURNS}; @u bra more;
  mad.lo.u32 t2, t1, 256, t0; mul.wide.u32 w, t2, 4; add.u64 q, q, w; st.global.f32 [q], f0; ret;
}}
"""
"""CTA n walks through stripe n % 54, 1 KiB at a time."""
SMS = 108


def loads(ctas: int, stripes: int, turns: int, lines: int) -> float:
    """Return how many lines a generation of CTAs loads of a cache that replaces at random, each stripe by several.

    They follow each other, begin ``APART`` of evenly, and end when those of the next generation begin.
    """
    chance, generations = random.Random(0), 5
    walks = sorted(
        (of + APART * cta / ctas + (turn + 0.5) / turns, of, cta % stripes * turns + turn)
        for of in range(generations)
        for cta in range(ctas)
        for turn in range(turns)
    )
    entries, where = dict[int, int](), dict[int, int]()
    loaded, free = [0] * generations, count()
    for _, of, line in walks:
        if line in where:
            continue
        loaded[of] += 1
        entry = next(free) if len(entries) < lines else chance.randrange(lines)
        where.pop(entries.get(entry, -1), None)
        entries[entry], where[line] = line, entry
    return sum(loaded[1:-1]) / (generations - 2)


@pytest.mark.parametrize(
    ("ctas", "stripes", "lines"), [(48, 12, 150), (48, 12, 300), (48, 12, 600), (60, 12, 400)]
)
def test_who_comes_late_finds_what_a_cache_that_replaces_at_random_keeps(
    ctas: int, stripes: int, lines: int
) -> None:
    turns = 100
    alone, followers = stripes * turns, np.zeros(ctas)
    followers[stripes] = (ctas // stripes - 1) * alone
    of_a_generation = alone + _late(followers, alone, lines)
    assert of_a_generation == pytest.approx(loads(ctas, stripes, turns, lines), rel=0.06)
    assert of_a_generation > 1.2 * alone  # in step it were as much as one of a stripe loads alone


def walked(generations: int, of_an_sm: int) -> float:
    """Return the bytes that are predicted to come from DRAM for so many generations."""
    ctas, shared = generations * of_an_sm * SMS, (160 << 10) // of_an_sm
    operand, result = np.zeros(STRIPES * TURNS * 256, "f4"), np.zeros(ctas * 256, "f4")
    prediction = predict(KERNEL, "a100", ctas, 256, [operand, result], shared=shared)
    assert (prediction.generations, prediction.tail) == (generations, 0)
    return prediction.dram_bytes


def test_ctas_of_an_sm_that_follow_others_come_apart() -> None:
    """Four of a stripe run at a time, a fourth of all behind each other; the first generation is in step, and so is one CTA an SM."""
    stripes = STRIPES * TURNS * 1024
    once, one_an_sm, two_an_sm = walked(1, 2), walked(3, 1), walked(3, 2)
    assert once == pytest.approx(stripes, rel=0.01)
    assert one_an_sm == pytest.approx(3 * stripes, rel=0.1)  # of turns before and behind the loop
    alone, again = one_an_sm / 3, 0.0
    for _ in range(100):
        others = alone * (1 + again) / (find("a100").gpu.l2_mib << 20)
        again = 3 * (1 - np.exp(-APART / 4 * others))
    assert two_an_sm == pytest.approx(alone * (3 + 2 * again), rel=0.06)
    assert again > 1


def test_pieces_take_dram_of_a100_longer_than_rows() -> None:
    """k04 and k07 of xudoong/GEMM, which load 64 and 128 bytes of a row, are bound by DRAM above 9216: 99 and 131 TFLOP/s."""
    chip = find("a100sxm40gb")
    rates = {}
    for piece, of_one in ((64, 99e12), (128, 131e12)):
        nbytes = of_one / (2 * 128 * 128 * 64) * 128 * 64 * 2  # a tile of A for a CTA's products
        rates[piece] = chip.dram_seconds(nbytes, 0, nbytes / piece)
    assert rates[64] == pytest.approx(1, rel=0.05)
    assert rates[128] == pytest.approx(1, rel=0.05)
