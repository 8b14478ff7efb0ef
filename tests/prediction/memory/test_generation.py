"""CTAs that come to what others have loaded when the L2 cache has lost it: against a cache of lines, by pencil, and as measured."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.memory.generation import Generation
from ptxlab.prediction.memory.l2 import APART, Reuse, _late, reuse
from ptxlab.prediction.memory.walk import Access, Walk
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from tests.prediction.running import without_launch

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
    ("ctas", "stripes", "lines"), [(48, 12, 75), (48, 12, 150), (48, 12, 300), (60, 12, 200)]
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
        others = alone * (1 + again) / find("a100").l2_bytes
        again = 3 * (1 - np.exp(-APART / 4 * others))
    assert two_an_sm == pytest.approx(alone * (3 + 2 * again), rel=0.06)
    assert again > 1


STENCIL = """\
.version 8.7
.target sm_86
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
  .reg .b32 t<8>; .reg .f32 f<4>; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [in]; ld.param.u64 q, [out];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mul.wide.u32 w, t1, STEP; add.u64 p, p, w;
  mul.wide.u32 w, t0, 4; add.u64 p, p, w; mov.f32 f0, 0f00000000; mov.u32 t4, 0;
more:
  .pragma "nounroll";
  ld.global.f32 f1, [p]; add.f32 f0, f0, f1; add.u64 p, p, ROW; add.u32 t4, t4, 1;
  setp.lt.u32 u, t4, 18; @u bra more;
  mad.lo.u32 t2, t1, 256, t0; mul.wide.u32 w, t2, 4; add.u64 q, q, w; st.global.f32 [q], f0; ret;
}
"""
"""CTA n adds 18 rows of 1 KiB from STEP times n on."""


def of_rows(apart: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Prediction, list[Reuse]]:
    """Return the prediction of CTAs that begin so many rows apart, of a matrix of 64 MiB, and what the L2 cache has."""
    told: list[Reuse] = []

    def reused(*args: Any) -> Reuse:
        told.append(reuse(*args))
        return told[-1]

    monkeypatch.setattr("ptxlab.prediction.resident.reuse", reused)
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *told: told[-1]())
    ctas = (64 << 10) // apart
    source = STENCIL.replace("STEP", str(apart * 1024)).replace("ROW", "1024")
    arrays = [np.zeros(n, "f4") for n in (((64 << 10) + 18) * 256, ctas * 256)]
    return predict(source, "rtxa4000", ctas, 256, arrays), told


@pytest.mark.parametrize("apart", [4, 6, 18])
def test_what_others_load_in_other_turns_is_loaded_once(
    apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is read by 18 / ``apart`` CTAs, in as many turns of their loops, and comes from DRAM once."""
    prediction, told = of_rows(apart, monkeypatch)
    stored = (64 << 20) // apart
    assert prediction.dram_bytes == pytest.approx((64 << 20) + stored, rel=0.03)
    part = max(told[-1].in_succession.hits.values())  # of the load: a store finds nothing
    assert part == pytest.approx(1 - apart / 18, abs=0.06)


def test_who_begins_late_waits_for_l2_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    prediction, _ = of_rows(4, monkeypatch)
    monkeypatch.setattr(Reuse, "in_succession", property(lambda reuse: reuse))
    in_step, _ = of_rows(4, monkeypatch)
    assert prediction.dram_bytes == in_step.dram_bytes
    assert prediction.cycles < 0.9 * in_step.cycles


def test_of_an_unrolled_stencil_few_loads_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight loads that lie a word apart the last come to nothing that the first have not."""
    asked: list[int] = []

    def generation(walk: Walk, ctas: Sequence[int], steps: Mapping[int, Access]) -> Generation:
        asked.append(sum(not access.stores for access in steps.values()))
        return Generation(walk, ctas, steps)

    monkeypatch.setattr("ptxlab.prediction.memory.l2.Generation", generation)
    more = "".join(f"ld.global.f32 f1, [p+{4 * n}]; add.f32 f0, f0, f1; " for n in range(8))
    monkeypatch.setattr(
        sys.modules[__name__],
        "STENCIL",
        STENCIL.replace("add.u64 p, p, ROW;", f"{more} add.u64 p, p, ROW;"),
    )
    of_rows(18, monkeypatch)
    assert 0 < max(asked) <= 6  # of nine a turn


def test_who_has_less_to_do_shares_as_the_others_do() -> None:
    """Six CTAs walk through the same stripe at a time, and the sixth does two thirds less beside it."""
    stripes = 400
    source = KERNEL.replace("rem.u32 t2, t1, 54", "div.u32 t2, t1, 6").replace(
        "setp.lt.u32 u, t4",
        "rem.u32 t6, t1, 6; setp.eq.u32 u, t6, 5; @u bra next; "
        + "fma.rn.f32 f0, f0, f1, f1; " * 30
        + "\nnext:\n  setp.lt.u32 u, t4",
    )
    arrays = [np.zeros(n, "f4") for n in (stripes * TURNS * 256, 6 * stripes * 256)]
    prediction = predict(source, "a100", 6 * stripes, 256, arrays, shared=160 << 10)
    assert prediction.uneven is not None
    assert prediction.dram_bytes == pytest.approx(stripes * TURNS * 1024, rel=0.15)


@pytest.mark.parametrize(
    ("hint", "row", "together"), [("", 64, 64), (".L2::128B", 64, 128), ("", 32, 64)]
)
def test_what_dram_gives_together_counts_once(hint: str, row: int, together: int) -> None:
    """A piece of a row, of which the next turn takes what lies beside it, has its part of what L2 asks for at a time."""
    threads, turns, pitch, ctas = 256, 2048, 2048 * 64, 216
    rows = threads * 4 // row
    source = STENCIL.replace("sm_86", "sm_80").replace("ld.global.f32", f"ld.global{hint}.f32")
    source = source.replace("STEP", str(rows * pitch)).replace("ROW", str(row))
    source = source.replace("t4, 18", f"t4, {turns * 64 // row}").replace(
        "mul.wide.u32 w, t0, 4; add.u64 p, p, w;",
        f"div.u32 t2, t0, {row // 4}; rem.u32 t3, t0, {row // 4}; mul.wide.u32 w, t2, {pitch}; add.u64 p, p, w;"
        " mul.wide.u32 w, t3, 4; add.u64 p, p, w;", 1,
    )  # fmt: skip
    arrays = [np.zeros(n, "f4") for n in (ctas * rows * pitch // 4, ctas * threads)]
    prediction = predict(source, "a100", ctas, threads, arrays)
    chip = find("a100")
    moved = ctas * rows * pitch
    expected = chip.dram_seconds(moved, ctas * threads * 4, moved / together)
    taken = prediction.used["dram"] * without_launch(prediction)
    assert taken == pytest.approx(expected, rel=0.06)


def test_pieces_take_dram_of_a100_longer_than_rows() -> None:
    """k04 and k07 of xudoong/GEMM, which load 64 and 128 bytes of a row, are bound by DRAM above 9216: 99 and 131 TFLOP/s."""
    chip = find("a100sxm40gb")
    rates = {}
    for piece, of_one in ((64, 99e12), (128, 131e12)):
        nbytes = of_one / (2 * 128 * 128 * 64) * 128 * 64 * 2  # a tile of A for a CTA's products
        rates[piece] = chip.dram_seconds(nbytes, 0, nbytes / piece)
    assert rates[64] == pytest.approx(1, rel=0.05)
    assert rates[128] == pytest.approx(1, rel=0.05)
