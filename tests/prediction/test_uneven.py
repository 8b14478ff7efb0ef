"""CTAs that differ: which are told apart, where they are placed, and that what a grid takes follows from what they do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.prediction.arguments import put_on
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.placement import makespan
from ptxlab.prediction.predict import as_machine_code, load_for, predict
from ptxlab.prediction.survey import survey
from ptxlab.prediction.uneven import Uneven
from ptxlab.prediction.unfilled import UnfilledDevice

LOOP = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 turns, .param .u32 slope, .param .u32 odd)
{
  .reg .b32 t<9>; .reg .f32 f; .reg .b64 p, w; .reg .pred u;
  ld.param.u64 p, [out]; ld.param.u32 t3, [turns]; ld.param.u32 t4, [slope]; ld.param.u32 t5, [odd];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, 256, t0;
  mul.wide.u32 w, t2, 4; add.u64 p, p, w; mov.f32 f, 0f3F800000;
  mul.lo.s32 t6, t1, t4; shr.s32 t6, t6, 8; add.s32 t6, t6, t3;
  and.b32 t7, t1, 1; mad.lo.s32 t6, t7, t5, t6; mov.u32 t5, 0;
  setp.le.s32 u, t6, 0; @u bra end;
more:
  .pragma "nounroll";
  fma.rn.f32 f, f, f, f; add.u32 t5, t5, 1; setp.lt.u32 u, t5, t6; @u bra more;
  st.global.f32 [p], f;
end:
  ret;
}
"""
"""Each CTA goes through a loop so many turns: ``turns``, so many 256ths more a CTA, and more if it is an odd one."""

CTAS, TURNS = 108 * 8 * 7, 96
"""Seven generations on an A100."""

SLOPE = 2 * TURNS * 256 // CTAS
LAUNCHES = {
    "every": (TURNS, 0, 0),
    "odd": (0, 0, TURNS),
    "even": (TURNS, 0, -TURNS),
    "rising": (1, SLOPE, 0),
    "falling": (1 + (SLOPE * CTAS >> 8), -SLOPE, 0),
}


@pytest.fixture(scope="module")
def predicted() -> Callable[[str], Prediction]:
    out = np.zeros(CTAS * 256, np.float32)
    made = {
        name: predict(LOOP, "a100", CTAS, 256, [out, *passed]) for name, passed in LAUNCHES.items()
    }
    return made.__getitem__


def test_where_all_do_the_same_nothing_is_said(predicted: Callable[[str], Prediction]) -> None:
    assert predicted("every").uneven is None


@pytest.mark.parametrize(("name", "enough"), [("every", 16), ("odd", 21)])
def test_of_long_ctas_few_are_followed(
    monkeypatch: pytest.MonkeyPatch, name: str, enough: int
) -> None:
    """How long the kernel is decides what is enough: 16 that are alike, or as many as issue a third more where those differ."""
    with closing(UnfilledDevice(TARGETS["sm_80"])) as device:
        assembly, module = load_for(device, LOOP)
        passed = put_on(device, (np.zeros(CTAS * 256, np.float32), *LAUNCHES[name]), {})
        kernel, config = module.kernel("k"), LaunchConfig.of(CTAS, 256)
        told = as_machine_code(assembly, kernel, config, passed)
        monkeypatch.setattr("ptxlab.prediction.survey._LONG", 100)
        fewest = survey(*told)
        assert len(fewest.ctas) == 16
        monkeypatch.setattr("ptxlab.prediction.survey._LONG", int(fewest.issued.sum() / 1.5))
        surveyed = survey(*told)
        monkeypatch.setattr("ptxlab.prediction.survey._LONG", 1 << 40)
        assert len(survey(*told).ctas) == 128
    assert len(surveyed.ctas) == enough
    assert surveyed.alike == (name == "every")


def test_who_of_two_neighbours_works_does_not_matter(
    predicted: Callable[[str], Prediction],
) -> None:
    """Whichever CTAs begin on the SM that is looked at; seven generations become three, and half of one."""
    odd, even = predicted("odd"), predicted("even")
    assert odd.cycles == pytest.approx(even.cycles, rel=0.02)
    assert odd.cycles == pytest.approx(predicted("every").cycles * 4 / 7, rel=0.05)
    assert odd.uneven is not None
    assert odd.uneven.most > 30 * odd.uneven.least


@pytest.mark.parametrize(("turns", "run"), [(190, 8 + 1), (30, 8 + 8)])
def test_where_none_does_much_less_one_in_the_middle_stands_for_all(turns: int, run: int) -> None:
    """From so many turns they rise by 23. Eight share an SM, and who does most is run alone, for the tail."""
    out = np.zeros(CTAS * 256, np.float32)
    rising, every = (
        predict(LOOP, "a100", CTAS, 256, [out, *passed])
        for passed in ((turns, 1, 0), (turns + 12, 0, 0))
    )
    assert rising.uneven is not None
    assert rising.sampled.run == run
    assert rising.cycles == pytest.approx(every.cycles, rel=0.05)


def test_few_that_do_less_than_others_that_are_alike_cost_no_more() -> None:
    """The first CTAs go through a turn, and all that follow through as many: these are alike, but for so few."""
    capped = LOOP.replace("setp.le.s32", f"min.s32 t6, t6, {TURNS}; setp.le.s32", 1)
    out = np.zeros(CTAS * 256, np.float32)
    few, every = (
        predict(capped, "a100", CTAS, 256, [out, *passed])
        for passed in ((1, 256 * TURNS, 0), (TURNS, 0, 0))
    )
    assert few.uneven is None
    assert few.cycles == pytest.approx(every.cycles, rel=0.03)


def test_turns_that_rise_from_cta_to_cta_take_what_the_mean_does_and_a_tail(
    predicted: Callable[[str], Prediction],
) -> None:
    """From one to twice as many as all have; whoever begins with the longest ends with a shorter tail."""
    every, rising, falling = (predicted(name).cycles for name in ("every", "rising", "falling"))
    assert falling == pytest.approx(every, rel=0.05)
    assert falling < rising < 1.1 * every
    uneven = predicted("rising").uneven
    assert isinstance(uneven, Uneven)
    assert uneven.busy * rising == pytest.approx(every, rel=0.05)


def test_ctas_share_an_sm_and_the_next_goes_where_one_ended() -> None:
    """By pencil: two SMs of two CTAs, which take 10 of a full SM each, or 12 alone."""
    alike, alone = np.full(4, 10.0), np.full(4, 12.0)
    assert makespan(alike, alone, sms=2, together=2) == 20
    assert makespan(alike[:2], alone[:2], sms=2, together=2) == 12
    # One of 40 beside three of 10: the SM has it with a second, then with the fourth, then alone.
    costs, single = np.array([40.0, 10, 10, 10]), np.array([40.0, 10, 10, 10])
    assert makespan(costs, single, sms=1, together=2) == 70
    assert makespan(costs[::-1], single[::-1], sms=1, together=2) == 70
    # With as many SMs as CTAs nobody waits; an empty grid takes nothing.
    assert makespan(costs, single, sms=4, together=2) == 40
    assert makespan(costs[:0], single[:0], sms=4, together=2) == 0


def test_what_is_not_placed_keeps_all_sms_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = np.full(400, 3.0)
    whole = makespan(costs, costs, sms=4, together=2)
    monkeypatch.setattr("ptxlab.prediction.placement._PLACED", 100)
    assert makespan(costs, costs, sms=4, together=2) == pytest.approx(whole, rel=0.02)
    assert whole == 300
