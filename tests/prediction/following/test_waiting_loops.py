"""Loops that ask memory again until others have done something there ask once, and nothing else is taken to be over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.following.slow_paths import passed_by
from ptxlab.prediction.predict import predict
from tests.machine.test_operations import instruction

POLL = [
    "LDG.E.STRONG.GPU R0, [R2.64]",
    "YIELD",
    "ISETP.NE.AND P0, PT, R0, 0x7, PT",
    "@P0 BRA `(.L)",
]
SWAP = [
    "MOV R9, R8",
    "ATOMS.CAST.SPIN R6, [R9], R4, R5",
    "ISETP.EQ.AND P0, PT, R6, 0x1, PT",
    "@!P0 BRA `(.L)",
]
LOCK = [
    "ATOMG.E.CAS.STRONG.GPU PT, R0, [R2.64], R4, R5", "ISETP.NE.AND P1, PT, R0, RZ, PT", "@!P1 BRA `(.END)",
    "NANOSLEEP 0x64", "ATOMG.E.CAS.STRONG.GPU PT, R0, [R2.64], R4, R5", "ISETP.NE.AND P1, PT, R0, RZ, PT", "@P1 BRA `(.L)",
]  # fmt: skip


def passed(texts: list[str], **labels: int) -> dict[int, bool]:
    named = {f".{name}": number for name, number in labels.items()}
    code = [instruction(text, n, named) for n, text in enumerate([*texts, "EXIT"])]
    return passed_by(code)


def test_what_is_asked_again_is_asked_once() -> None:
    assert passed(POLL, L=0) == {3: False}
    assert passed(SWAP, L=0) == {3: False}


def test_a_loop_that_is_left_from_inside_asks_once() -> None:
    """As it is compiled for sm_75."""
    texts = [
        "LDG.E.STRONG.SYS R4, [R2]", "ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 BRA `(.END)", "VOTE.ANY R4, PT, PT", "YIELD",
        "VOTEU.ANY UR4, UPT, PT", "LOP3.LUT P0, RZ, R4, UR4, RZ, 0xc, !PT", "@!P0 BRA.U `(.L)", "BRA `(.L)",
    ]  # fmt: skip
    assert passed(texts, L=0, END=9) == {2: True}
    assert passed([*texts[:3], "STG.E [R6], R4", *texts[3:]], L=0, END=10) == {}
    assert passed([*texts[:2], texts[2].replace("END", "IN"), *texts[3:]], L=0, IN=4) == {}


def test_a_loop_that_was_asked_for_before_is_passed_by() -> None:
    assert passed(LOCK, L=3, END=7) == {2: True, 6: False}


def test_who_does_not_wait_is_not_taken_not_to_come() -> None:
    """A test of the thread's number stands before the same loop."""
    texts = ["ISETP.NE.AND P1, PT, R3, RZ, PT", "@P1 BRA `(.END)", *POLL]
    assert passed(texts, L=2, END=6) == {5: False}


@pytest.mark.parametrize(
    "texts",
    [
        ["IADD3 R2, R2, 0x4, RZ", *POLL],  # looks for a place
        [*POLL[:-1], "MOV R2, R0", POLL[-1]],  # goes along a list
        [*POLL[:-1], "STG.E [R6.64], R0", POLL[-1]],  # does something else
        [*POLL[:-1], "BAR.SYNC 0x0", POLL[-1]],
        [*POLL[:2], "IADD3 R5, R5, 0x1, RZ", "ISETP.NE.AND P0, PT, R5, 0x7, PT", POLL[-1]],  # counts
        [POLL[0].replace(".STRONG.GPU", ""), *POLL[1:]],  # sees nothing of others
        [SWAP[0], SWAP[1].replace("CAST.SPIN", "ADD"), *SWAP[2:]],
        ["IADD3 R8, R8, 0x4, RZ", *SWAP],  # looks for a place in a table
        [*SWAP[:2], "MOV R6, R7", *SWAP[2:]],
    ],
)  # fmt: skip
def test_other_loops_are_followed(texts: list[str]) -> None:
    assert passed(texts, L=0) == {}


def test_what_leads_to_a_trap_is_not_run() -> None:
    assert passed(["@P0 BRA `(.L)", "BPT.TRAP 0x1"], L=2) == {0: True}
    assert passed(["@P0 BRA `(.L)", "@P1 BPT.TRAP 0x1"], L=2) == {}


PROGRAM = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry waits(.param .u64 flags, .param .u64 out) {
  .reg .b32 t<4>; .reg .b64 p, q; .reg .pred u;
  ld.param.u64 p, [flags]; ld.param.u64 q, [out]; mov.u32 t0, %ctaid.x; mul.wide.u32 q, t0, 4; add.s64 p, p, q;
  ld.param.u64 q, [out];
again:
  ld.acquire.gpu.global.u32 t1, [p]; setp.ne.u32 u, t1, 7; @u bra again;
  mov.u32 t2, %tid.x; mad.lo.u32 t2, t0, 32, t2; mul.wide.u32 p, t2, 4; add.s64 q, q, p; st.global.u32 [q], t2; ret;
}
.visible .entry asks(.param .u64 flags, .param .u64 out) {
  .reg .b32 t<4>; .reg .b64 p, q; .reg .pred u;
  ld.param.u64 p, [flags]; ld.param.u64 q, [out]; mov.u32 t0, %ctaid.x; mul.wide.u32 q, t0, 4; add.s64 p, p, q;
  ld.param.u64 q, [out];
  ld.acquire.gpu.global.u32 t1, [p]; setp.ne.u32 u, t1, 7; @u trap;
  mov.u32 t2, %tid.x; mad.lo.u32 t2, t0, 32, t2; mul.wide.u32 p, t2, 4; add.s64 q, q, p; st.global.u32 [q], t2; ret;
}
.visible .entry meets(.param .u64 flags, .param .u64 out) {
  .reg .b32 t<4>; .reg .b64 p; .reg .pred u;
  mov.u32 t0, %envreg1; mov.u32 t1, %envreg2; mov.b64 p, {t1, t0}; atom.add.release.gpu.global.u32 t2, [p+4], 1;
again:
  ld.acquire.gpu.global.u32 t3, [p+4]; setp.eq.u32 u, t2, t3; @u bra again; ret;
}
.visible .entry adds(.param .u64 flags, .param .u64 out) {
  .reg .b32 t<4>; .reg .f64 f, g; .reg .b64 p; .shared .f64 sum;
  ld.param.u64 p, [flags]; mov.u32 t0, %tid.x; mul.wide.u32 p, t0, 8; ld.param.u64 p, [flags]; ld.global.f64 f, [p];
  st.shared.f64 [sum], f; bar.sync 0; atom.shared.add.f64 g, [sum], f; bar.sync 0;
  ld.param.u64 p, [out]; ld.shared.f64 f, [sum]; add.f64 f, f, g; st.global.f64 [p], f; ret;
}
"""


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx5090"])
def test_who_waits_for_a_flag_takes_as_long_as_who_finds_it(gpu: str) -> None:
    passed = [np.zeros(64, "u4"), np.zeros(64 * 32, "u4")]
    waits, asks = (
        predict(PROGRAM, gpu, 64, 32, passed, kernel=kernel) for kernel in ("waits", "asks")
    )
    assert waits.cycles == pytest.approx(asks.cycles, rel=0.1)
    told = "how long loops wait for other threads: each asks once"
    assert [told in each.not_modelled for each in (waits, asks)] == [True, False]


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx5090"])
def test_where_a_grid_meets_is_known(gpu: str) -> None:
    predicted = predict(PROGRAM, gpu, 64, 32, [np.zeros(64), np.zeros(8)], kernel="meets")
    assert predicted.cycles > find(gpu).latency["l2"]


def test_a_sum_in_shared_memory_is_swapped_in_once() -> None:
    predicted = predict(PROGRAM, "h100", 8, 64, [np.zeros(64), np.zeros(8)], kernel="adds")
    assert "how long loops wait for other threads: each asks once" in predicted.not_modelled


GRID = """
#include <cooperative_groups.h>
extern "C" __global__ void meets(float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    cooperative_groups::this_grid().sync();
    x[i ^ 32] = v;
}
"""


@pytest.mark.thorough  # the headers take 3 s to compile; where a grid meets is known always
def test_a_grid_that_meets_is_predicted(tmp_path: Path) -> None:
    source = tmp_path / "meets.cu"
    source.write_text(GRID)
    predicted = predict(source, "h100", 64, 128, [np.zeros(8192, "f4")])
    assert "how long loops wait for other threads: each asks once" in predicted.not_modelled
