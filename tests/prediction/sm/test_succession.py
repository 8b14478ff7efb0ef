"""CTAs that follow each other on an SM, by pencil: what overlaps, what does not, and what they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.requests import SECTOR, Request, Sectors
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.succession import ROUNDS, SuccessionSm
from ptxlab.prediction.sm.timing import EXIT, FIXED, InstructionTiming
from ptxlab.prediction.sm.warps import Warp
from tests.prediction.running import without_launch

A100 = find("a100")
HOLDS, DEPENDS, ENDS = range(3)
HELD, LATENCY = 1000, 3000


def timing(
    kind: int, pipes: tuple[str, ...] = (), hold: int = 0, latency: int = 0, **boards: object
) -> InstructionTiming:
    waits = (5,) if boards.get("waits") else ()
    writes = 5 if boards.get("writes") else None
    return InstructionTiming(kind, pipes, hold, latency, 1, waits, writes, None, ())


TIMINGS = {
    HOLDS: timing(FIXED, ("alu",), HELD, LATENCY, writes=True),
    DEPENDS: timing(FIXED, waits=True),
    ENDS: timing(EXIT),
}


def warps(traces: Sequence[list[int]]) -> list[Warp]:
    """Return CTAs of a warp each, all in one sub-partition."""
    return [
        Warp(cta, trace if number == 0 else [ENDS])
        for cta, trace in enumerate(traces)
        for number in range(4)
    ]


def steady(trace: list[int], together: int) -> float:
    every = warps([trace] * together * ROUNDS)
    return SuccessionSm(A100, TIMINGS, every, 0, together).steady().cycles


def test_alone_a_cta_takes_its_time_and_that_until_the_next_is_there() -> None:
    trace = [HOLDS, DEPENDS, ENDS]
    alone = Sm(A100, TIMINGS, warps([trace]), 0).run().cycles
    assert alone == pytest.approx(LATENCY, abs=5)
    assert steady(trace, 1) == pytest.approx(alone + A100.latency["l2"], abs=5)


def test_beside_others_that_is_hidden_until_a_pipe_is_held_all_the_time() -> None:
    """Of three CTAs each holds the pipe for a third of the time that it waits, of four a quarter of all is too much."""
    trace = [HOLDS, DEPENDS, ENDS]
    with_next = LATENCY + A100.latency["l2"]
    assert steady(trace, 2) == pytest.approx(with_next, abs=10)
    assert steady(trace, 4) == pytest.approx(4 * HELD, abs=10)


def test_what_is_waited_for_and_held_is_what_each_does() -> None:
    trace = [HOLDS, DEPENDS, ENDS]
    run = SuccessionSm(A100, TIMINGS, warps([trace] * 4 * ROUNDS), 0, 4).steady()
    assert run.busy["alu"] == pytest.approx(4 * HELD, rel=0.01)
    assert run.issued == pytest.approx(4 * (3 + 3), rel=0.2)


def test_what_all_ctas_ask_for_is_told_from_what_each_has_for_itself() -> None:
    """Two CTAs of two warps: rows of their own, and one that all read."""
    bounds = np.array([0, 2, 3, 5, 6])
    passes = np.ones(4, np.int64)
    own, shared = (
        Request(passes, Sectors(np.array(sectors), bounds, np.full(6, SECTOR)), passes)
        for sectors in ([0, 1, 8, 16, 17, 24], [0, 1, 8, 0, 1, 8])
    )
    assert own.as_common(2).served(1, 100)[2] == [108]
    assert shared.as_common(2).served(3, 100)[2] == [8]
    assert shared.as_common(1).served(3, 100)[2] == [108], "of one CTA nobody knows"


ROWS = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
  .reg .b32 t<4>; .reg .f32 f<2>; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x;
  mad.lo.u32 t2, t1, 256, t0; mul.wide.u32 w, t2, 4; add.u64 p, p, w; add.u64 q, q, w;
  ld.global.f32 f0, [p]; mov.u32 t3, 0;
more:
  .pragma "nounroll";
  fma.rn.f32 f0, f0, f0, f0; add.u32 t3, t3, 1; setp.lt.u32 u, t3, 6; @u bra more;
  st.global.f32 [q], f0; ret;
}
"""
"""Loads a number, computes for as long as that takes, and stores it."""


def test_a_grid_takes_what_its_first_ctas_do_and_each_generation_behind_them_less() -> None:
    def cycles(generations: int) -> float:
        ctas = 108 * 8 * generations
        array = np.zeros(ctas * 256, np.float32)
        predicted = predict(ROWS, "a100", ctas, 256, [array, array.copy()])
        assert predicted.occupancy.ctas == 8
        assert without_launch(predicted) > 0
        return predicted.cycles

    first, six, eleven = map(cycles, (1, 6, 11))
    assert eleven - six == pytest.approx(six - first, rel=0.02)
    assert 0.3 * first < (eleven - six) / 5 < first + find("a100").latency["l2"]
