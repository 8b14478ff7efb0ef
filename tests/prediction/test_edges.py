"""CTAs at the edges of what they share have less to do: that says nothing of the others."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict

SIDE = 4096
COPY = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from, .param .u32 halo)
{
  .reg .b32 t<6>; .reg .f32 x; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [to]; ld.param.u64 q, [from]; ld.param.u32 t5, [halo];
  mov.u32 t0, %tid.y; mov.u32 t1, %ctaid.y; mad.lo.u32 t1, t1, 8, t0;
  mov.u32 t0, %tid.x; mov.u32 t2, %ctaid.x; mad.lo.u32 t2, t2, 32, t0;
  setp.lt.u32 u, t1, t5; @u ret; mad.lo.u32 t1, t1, SIDE, t2;
  mul.wide.u32 w, t1, 4; add.u64 p, p, w; add.u64 q, q, w;
  ld.global.f32 x, [q]; st.global.f32 [p], x; ret;
}
""".replace("SIDE", str(SIDE))
"""A matrix is copied but for ``halo`` rows: of CTAs of 32 x 8 threads these are the first warps of the first row."""


def copied(gpu: str, halo: int) -> Prediction:
    arrays = [np.zeros((SIDE, SIDE), "f4") for _ in range(2)]
    return predict(COPY, gpu, (SIDE // 32, SIDE // 8), (32, 8), [*arrays, halo])


@pytest.mark.parametrize("gpu", ["a100", "h100pcie", "rtx3090"])
@pytest.mark.parametrize("halo", [1, 8])
def test_a_halo_makes_a_grid_neither_uneven_nor_faster(gpu: str, halo: int) -> None:
    """Who begins first may load nothing: what the others load waits for DRAM, and each begins where another has ended."""
    told, whole = copied(gpu, halo), copied(gpu, 0)
    assert told.uneven is None
    assert told.seconds == pytest.approx(whole.seconds, rel=0.02)
    assert told.dram_bytes == pytest.approx(whole.dram_bytes, rel=0.02)


def test_where_many_have_less_to_do_a_grid_is_uneven() -> None:
    told, whole = copied("a100", SIDE // 4), copied("a100", 0)
    assert told.uneven is not None
    assert told.dram_bytes == pytest.approx(0.75 * whole.dram_bytes, rel=0.02)
    assert 0.7 < told.seconds / whole.seconds < 0.95


def test_whichever_warp_has_nothing_to_do_the_others_cost_what_they_do() -> None:
    """The first, after which nothing is to be told of the others, or the last; they load once, or in a loop."""
    looped = COPY.replace("  ld.global", "  mov.u32 t4, 0;\nmore:\n  ld.global", 1).replace(
        " ret;\n}", f" add.u64 p, p, {4 * SIDE * 128}; add.u64 q, q, {4 * SIDE * 128};"
        " add.u32 t4, t4, 1; setp.lt.u32 u, t4, 32; @u bra more; ret;\n}"
    )  # fmt: skip
    for source, rows in ((COPY, SIDE), (looped, 128)):
        first, last = (
            predict(
                source.replace("setp.lt.u32 u, t1, t5", f"and.b32 t1, t1, 7; setp.eq.u32 u, t1, {idle}; mov.u32 t1, %ctaid.y; mov.u32 t4, %tid.y; mad.lo.u32 t1, t1, 8, t4"),
                "a100", (SIDE // 32, rows // 8), (32, 8), [np.zeros((SIDE, SIDE), "f4"), np.zeros((SIDE, SIDE), "f4"), 0],
            )
            for idle in (0, 7)
        )  # fmt: skip
        assert first.seconds == pytest.approx(last.seconds, rel=0.05)
        assert first.dram_bytes == pytest.approx(7 / 8 * 8 * SIDE**2, rel=0.02)
        assert last.dram_bytes == pytest.approx(first.dram_bytes, rel=0.01)


TURNS = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u32 turns, .param .u32 longer)
{
  .reg .b32 t<4>; .reg .f32 x; .reg .b64 p; .reg .pred u;
  ld.param.u64 p, [to]; ld.param.u32 t1, [turns]; ld.param.u32 t2, [longer];
  mov.u32 t0, %ctaid.x; setp.lt.u32 u, t0, t2; @u add.u32 t1, t1, 64; mov.f32 x, 0f3F800000;
more:
  FFMAS
  sub.u32 t1, t1, 1; setp.ne.u32 u, t1, 0; @u bra more;
  st.global.f32 [p], x; ret;
}
""".replace("FFMAS", "fma.rn.f32 x, x, x, x; " * 16)
"""So many turns, and 64 more of the CTAs that come first."""


def test_a_launch_ends_with_those_that_have_most_to_do() -> None:
    """As of 4096 tiles on 132 SMs, of which four have 32 and the others 31."""
    took = [
        predict(TURNS, "h100", 132, 128, [np.zeros(1, "f4"), turns, longer]).cycles
        for turns, longer in ((2048, 4), (2048, 0), (2112, 0))
    ]
    assert took[2] / took[1] == pytest.approx(2112 / 2048, rel=0.005)
    assert took[0] == pytest.approx(took[2], rel=0.001)
