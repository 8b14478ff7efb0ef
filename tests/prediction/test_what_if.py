"""What a launch would take otherwise, against launches that are otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Changed
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.what_if import CHANGES, EVERY, NOTHING, WhatIf

TURNS = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u32 stride, .param .u32 turns)
{
  .reg .b32 t<8>; .reg .f32 f<4>; .reg .b64 p, w; .reg .pred u; .shared .b32 s[1024];
  ld.param.u64 p, [in]; ld.param.u32 t0, [stride]; ld.param.u32 t1, [turns]; mov.u32 t2, %tid.x; and.b32 t3, t2, 31;
  mul.lo.u32 t3, t3, t0; mov.u32 t4, s; mad.lo.u32 t4, t3, 4, t4; mov.f32 f0, 0f00000000;
more:
  ld.volatile.shared.f32 f1, [t4]; add.f32 f0, f0, f1; sub.u32 t1, t1, 1; setp.ne.u32 u, t1, 0;
  @u bra more;
  mul.wide.u32 w, t2, 4; add.u64 p, p, w; st.global.f32 [p], f0; ret;
}
"""
OUT = np.zeros(256, np.float32)


def predicted(stride: int, *what_if: str, shared: int = 0) -> tuple[float, dict[str, float]]:
    """Return the cycles of two CTAs of 256 threads on each SM of an A100, and the seconds with each change."""
    told = predict(TURNS, "a100", 216, 256, [OUT, stride, 16], shared=shared, what_if=what_if)
    assert [each.seconds for each in told.what_if] == sorted(each.seconds for each in told.what_if)
    return told.seconds, {each.change: each.seconds for each in told.what_if}


def test_without_conflicts_a_kernel_is_as_fast_as_one_that_has_none() -> None:
    without, _ = predicted(1)
    seconds, changed = predicted(32, "smem=conflict-free")
    assert seconds > 2 * without
    assert changed == {"smem=conflict-free": pytest.approx(without)}


def test_with_fewer_ctas_it_is_as_fast_as_one_of_which_no_more_fit() -> None:
    """A CTA that has 100 KiB of shared memory is alone on its SM."""
    alone, _ = predicted(1, shared=100 << 10)
    _, changed = predicted(1, "occupancy=1")
    assert changed == {"occupancy=1": pytest.approx(alone)}


def test_changes_are_made_together() -> None:
    seconds, changed = predicted(32, "launch=0,lsu=inf", "launch=0", "lsu=inf")
    assert set(changed) == {"lsu=inf,launch=0", "launch=0", "lsu=inf"}
    launch = find("a100").launch_seconds
    assert changed["launch=0"] == pytest.approx(seconds - launch)
    assert changed["lsu=inf,launch=0"] == pytest.approx(changed["lsu=inf"] - launch)
    assert changed["lsu=inf"] < seconds


def test_all_is_each_alone_and_what_cannot_help_does_not() -> None:
    told = predict(TURNS, "a100", 216, 256, [OUT, 32, 16], what_if=[EVERY])
    changes = {each.change: each.seconds for each in told.what_if}
    assert changes.keys() == {*CHANGES, f"occupancy={told.occupancy.ctas + 1}"}
    assert changes["tensor=inf"] == pytest.approx(told.seconds)
    assert changes["dram=inf"] == pytest.approx(told.seconds, rel=0.02)
    helping = {name: each for name, each in changes.items() if each < 0.95 * told.seconds}
    assert helping.keys() >= {"lsu=inf", "smem=conflict-free", "launch=0"}
    assert all(isinstance(each, Changed) for each in told.what_if)


def test_what_changes_nothing_that_is_used_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are conflicts and stalls, and no special function or tensor core; one CTA is all there is."""
    ran, run = list[Sm](), Sm.run

    def counted(sm: Sm) -> Run:
        ran.append(sm)
        return run(sm)

    monkeypatch.setattr(Sm, "run", counted)
    monkeypatch.setattr("ptxlab.prediction.predict.kept", lambda *given: given[-1]())
    told = predict(TURNS, "a100", 1, 32, [OUT, 32, 2], what_if=[EVERY])
    changed = {each.change: each.seconds for each in told.what_if}
    assert 6 <= len(ran) <= 8 < len(changed)
    same = {name for name, seconds in changed.items() if seconds == told.seconds}
    assert same >= {"tensor=inf", "xu=inf"}
    assert not same & {"stalls=0", "lsu=inf", "smem=conflict-free", "launch=0"}


def test_a_change_of_a_chip_is_of_that_alone() -> None:
    chip = find("rtx3090")
    assert NOTHING.chip(chip) == chip
    tensor = WhatIf.read("tensor=inf").chip(chip)
    assert tensor.tensor_flop("f16", "f32") > 1e15
    assert tensor.holds == chip.holds
    fma = WhatIf.read("fma=inf").chip(chip)
    assert {name for name in chip.holds if fma.holds[name] != chip.holds[name]} == {
        "fmaheavy", "fmalite", "fma2",
    }  # fmt: skip
    assert WhatIf.read("l2=inf").chip(chip).used_by(3).memory.l2_bytes == float("inf")


def test_what_is_no_change_is_refused() -> None:
    with pytest.raises(PtxlabError, match="'drma=inf' changes nothing") as raised:
        WhatIf.read("stalls=0,drma=inf")
    assert "dram=inf" in (raised.value.hint or "")
    with pytest.raises(PtxlabError, match="'occupancy=0' changes nothing"):
        WhatIf.read("occupancy=0")
