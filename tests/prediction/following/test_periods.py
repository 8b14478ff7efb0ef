"""Turns that warps which wait for each other lose together: as many are issued and take as long as if all were followed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.values import Array
from ptxlab.prediction.chip import find
from ptxlab.prediction.following import interpreter, trace
from ptxlab.prediction.following.issue_order import IssueOrder, ThreadGroup
from ptxlab.prediction.following.periods import Periods
from ptxlab.prediction.following.standing import Standing, growth_between
from ptxlab.prediction.memory.l2 import kept
from ptxlab.prediction.model import LaunchModel, Prediction
from ptxlab.prediction.predict import as_machine_code, load_for, predict
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice
from tests.together import thorough

TURNS, CTAS = 100, 132
PIPELINE = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 lengths, .param .u32 turns)
{
  .reg .b64 p, q, far, table, place; .reg .b32 t, n, i, stage, parity, at, full, empty, more, step; .reg .pred first, last, done, wraps;
  .reg .f32 sum, x;
  .shared .align 4 .b32 seen; .shared .align 128 .b8 s[6144]; .shared .align 8 .b64 b[6];
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; ld.param.u64 table, [lengths]; ld.param.u32 n, [turns]; mov.u32 t, %tid.x;
  setp.ne.u32 first, t, 0; mov.u32 i, 0; mov.u32 stage, 0; mov.u32 parity, 0; mov.f32 sum, 0f00000000; mov.u32 step, 0;
  @first bra begun;
  st.shared.u32 [seen], 0;
  mbarrier.init.shared::cta.b64 [b], 1; mbarrier.init.shared::cta.b64 [b+8], 1; mbarrier.init.shared::cta.b64 [b+16], 1;
  mbarrier.init.shared::cta.b64 [b+24], 32; mbarrier.init.shared::cta.b64 [b+32], 32; mbarrier.init.shared::cta.b64 [b+40], 32;
begun:
  bar.sync 0;
  setp.ge.u32 last, t, 32;
  @last bra consume;
  @first bra end;
produce:
  mov.u32 at, s; mov.u32 full, b; mad.lo.u32 at, stage, 2048, at; mad.lo.u32 full, stage, 8, full; add.u32 empty, full, 24;
  xor.b32 more, parity, 1;
p1: mbarrier.try_wait.parity.shared::cta.b64 done, [empty], more;
  @!done bra p1;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 2048;
  NEXT
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [far], 2048, [full];
  add.u32 stage, stage, 1; setp.eq.u32 wraps, stage, 3; selp.u32 stage, 0, stage, wraps; @wraps xor.b32 parity, parity, 1;
  add.u32 i, i, 1; setp.lt.u32 last, i, n;
  @last bra produce;
  bra end;
consume:
  mov.u32 at, s; mov.u32 full, b; mad.lo.u32 at, stage, 2048, at; mad.lo.u32 full, stage, 8, full; add.u32 empty, full, 24;
c1: mbarrier.try_wait.parity.shared::cta.b64 done, [full], parity;
  @!done bra c1;
  mad.lo.u32 at, t, 4, at; ld.volatile.shared.f32 x, [at]; fma.rn.f32 sum, sum, sum, x; fma.rn.f32 sum, sum, sum, x;
  BETWEEN
  mbarrier.arrive.shared::cta.b64 _, [empty];
  add.u32 stage, stage, 1; setp.eq.u32 wraps, stage, 3; selp.u32 stage, 0, stage, wraps; @wraps xor.b32 parity, parity, 1;
  add.u32 i, i, 1; setp.lt.u32 last, i, n;
  @last bra consume;
  mad.wide.u32 q, t, 4, q; st.global.f32 [q], sum;
end:
  ret;
}
"""
EVENLY = "mad.wide.u32 far, i, 2048, p;"
RANDOM = "mad.lo.u32 step, step, 5, 1; and.b32 more, step, 255; mad.wide.u32 far, more, 2048, p;"
AGAIN = """
other:
  .pragma "nounroll";
  ld.volatile.shared.f32 x, [at+512]; fma.rn.f32 sum, sum, sum, x; sub.u32 more, more, 1; setp.lt.s32 done, more, 0; @!done bra other;"""
"""One time more than that: no branch that the compiler makes a predicate of."""

LATER = "and.b32 more, i, 64; shr.u32 more, more, 5;" + AGAIN
"""From turn 64 on a turn is longer: no comparison comes nearer to that."""


COUNTERS = 28
COUNTED = (
    "mov.u32 more, 0;"
    + "".join(f"add.u32 v{n}, v{n}, 1; add.u32 more, more, v{n};" for n in range(COUNTERS))
    + f"setp.lt.u32 done, more, {70 * COUNTERS}; selp.u32 more, 0, 2, done;"
    + AGAIN
)
"""As LATER, but turns are counted in more words than there are registers."""

LEFT = (
    """ld.volatile.shared.u32 more, [seen]; add.u32 more, more, 1; st.volatile.shared.u32 [seen], more;
  setp.lt.u32 done, more, 70; selp.u32 more, 0, 2, done;"""
    + AGAIN
)
"""As LATER, but turns are counted in shared memory."""

LEFT_LATER = (
    """and.b32 more, i, 64; setp.eq.u32 done, more, 0; @done bra early;
  ld.volatile.shared.u32 more, [seen]; add.u32 more, more, 1; st.volatile.shared.u32 [seen], more;
early: shr.u32 more, more, 2;"""
    + AGAIN
)
"""From turn 64 on they are counted there, and the more the longer: who had tried these turns and goes back has not counted them."""

LOOKED_UP = "mad.wide.u32 place, i, 4, table; ld.global.u32 more, [place];" + AGAIN
"""Some turns in between are longer, as a table says."""

DIFFERENT = "mul.lo.u32 more, i, 2654435761; shr.u32 more, more, 29;" + AGAIN
"""No two turns in a row are alike, in no period."""


def pipeline(next_one: str = EVENLY, between: str = "") -> str:
    """Return a program of which a warp copies what another adds up, through three buffers."""
    return PIPELINE.replace("NEXT", next_one).replace("BETWEEN", between)


def counting(between: str) -> str:
    """Return the same with counters, of which some are spilled."""
    some = "".join(f"sub.u32 v{n}, n, {TURNS};" for n in range(COUNTERS))
    source = pipeline(between=between).replace("mov.u32 step, 0;", f"mov.u32 step, 0; {some}")
    registers = f"turns)\n.maxnreg 16\n{{\n  .reg .b32 v<{COUNTERS}>;"
    return source.replace("turns)\n{", registers)


def tiled(turns: int = 32) -> str:
    """Return the same for tiles of some turns, of which the first two copy from elsewhere than the others."""
    source = pipeline(
        "mad.wide.u32 far, step, 2048, p; mov.u32 step, second; mov.u32 second, third; mov.u32 third, 7;"
    )
    for role in ("produce", "consume"):
        head, turn = (
            f"mov.u32 tile, 0;\n{role}s: mov.u32 i, 0; mov.u32 step, 1; mov.u32 second, 1; mov.u32 third, 1;\n{role}:",
            (
                f"setp.lt.u32 last, i, {turns};\n  @last bra {role};\n"
                f"  add.u32 tile, tile, 1; setp.lt.u32 last, tile, n;\n  @last bra {role}s;"
            ),
        )
        source = source.replace(f"setp.lt.u32 last, i, n;\n  @last bra {role};", turn)
        source = source.replace(f"\n{role}:", f"\n{head}")
    return source.replace(".reg .b32 t,", ".reg .b32 tile, second, third, t,")


def launched(source: str) -> tuple[list[DecodedInstruction], Launch]:
    with closing(UnfilledDevice(find("h100").gpu.target)) as device:
        assembly, module = load_for(device, source)
        buffers = [device.upload(Shaped((size,), "float32")) for size in (1 << 20, 64)]
        lengths = np.zeros(TURNS, np.int32)
        lengths[40:50] = 2
        passed = [*buffers, device.upload(lengths), TURNS]
        return as_machine_code(assembly, module.kernel(), LaunchConfig.of(CTAS, 64), passed)


def executed(steps: IssueOrder, warps: int = 2) -> Array:
    """Return how often each warp issues each instruction."""
    counts = np.zeros((warps, max(steps.end)), int)
    times = np.ones(steps.count, int) if steps.times is None else steps.times
    begun = np.cumsum(steps.lengths) - steps.lengths
    for first, end, some, at in zip(steps.first, steps.end, steps.warps, begun, strict=True):
        counts[slice(None) if some is None else some, first:end] += times[at]
    return counts


@pytest.mark.parametrize(("phases", "grows"), [(1, [1]), (2, [0, 1])])
def test_the_parity_of_a_phase_turns_to_and_fro_and_does_not_grow(
    phases: int, grows: list[int]
) -> None:
    """After an odd number of phases a word of 0 that is 1 is their parity; the other grew by 4."""

    def standing(phase: int, *words: int) -> Standing:
        held = {n: (np.array([word], np.uint32), True) for n, word in enumerate(words)}
        barriers = {(0, 0): (phase, (1, 0, 0, 0, 0))}
        return Standing(0, 0, [], [held], barriers, np.zeros(1, np.int64), {}, [])

    growth = growth_between(standing(0, 0, 8), standing(phases, 1, 12))
    assert growth is not None
    assert growth.turns == (phases == 1)
    assert list(growth.words[0]) == grows
    assert growth.words[0][1].tolist() == [4]


def test_what_is_cut_off_asks_for_nothing() -> None:
    steps = IssueOrder()
    for _ in range(2):
        steps.add(0, 2, None)
    steps.requests = {1: ((),), 2: ((),), 3: ((),)}
    steps.cut(2, 1)
    assert (steps.count, steps.first, [*steps.requests]) == (2, [0], [1])


def predicted(code: list[DecodedInstruction], launch: Launch) -> Prediction:
    return LaunchModel(code, launch, find("h100"), registers=32, shared=8192).predict()


def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all turns be followed."""

    def none(*args: Any) -> None:
        return None

    monkeypatch.setattr(interpreter, "Periods", none)


@pytest.mark.parametrize(
    ("next_one", "between", "measured"),
    [
        (EVENLY, "", False),
        (EVENLY, "", True),
        (EVENLY, LATER, True),
        (RANDOM, "", True),
        (EVENLY, LEFT, False),
        (EVENLY, LEFT_LATER, False),
        (EVENLY, LOOKED_UP, False),
        *thorough([(EVENLY, LATER, False), (RANDOM, "", False)]),
    ],
)
def test_as_much_is_issued_as_if_all_were_followed(
    next_one: str, between: str, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn is like the one before it, or is longer from some turn on, which nothing foretells, or copies from elsewhere."""
    code, launch = launched(pipeline(next_one, between))
    told = range(len(code)) if measured else ()
    some = interpreter.run(code, launch, [0], told, measured)
    whole(monkeypatch)
    every = interpreter.run(code, launch, [0], told, measured)
    assert np.array_equal(executed(some), executed(every))
    assert not every.more
    if (next_one, between) == (EVENLY, ""):
        assert some.count < every.count / 2
    if (
        next_one == RANDOM and measured
    ):  # who waits is as ever, but where copies come from is random
        assert not some.more


def test_what_is_spilled_grows_as_what_is_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    code, launch = launched(counting(COUNTED))
    assert any(i.sass.opcode == "STL" for i in code)
    some = interpreter.run(code, launch, [0])
    whole(monkeypatch)
    every = interpreter.run(code, launch, [0])
    assert np.array_equal(executed(some), executed(every))
    assert some.count < every.count / 2


def test_of_what_turns_overwrite_that_are_not_followed_nothing_is_known() -> None:
    """What is loaded in the end was overwritten by a sum in one of these turns."""
    source = pipeline(between="mad.wide.u32 place, i, 4, table; st.global.f32 [place], sum;")
    end = "st.global.f32 [q], sum;"
    code, launch = launched(source.replace(end, f"{end} ld.global.u32 more, [table+200]; {AGAIN}"))
    with pytest.raises(Unsupported, match="depends on data that is not computed"):
        interpreter.run(code, launch, [0])
    code, launch = launched(source)
    assert interpreter.run(code, launch, [0]).more


def test_tiles_that_are_alike_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    code, launch = launched(tiled())
    some = interpreter.run(code, launch, [0])
    whole(monkeypatch)
    every = interpreter.run(code, launch, [0])
    assert np.array_equal(executed(some), executed(every))
    assert some.count < every.count / 10


def test_what_changed_once_is_not_taken_to_grow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where copies come from changes behind the first turn of a tile: it is foretold wrongly of the first tile, and no other."""
    undone, own = list[int](), Periods.undone

    def noting(periods: Periods) -> list[ThreadGroup]:
        undone.append(1)
        return own(periods)

    monkeypatch.setattr(Periods, "undone", noting)
    code, launch = launched(tiled(64))
    some = interpreter.run(code, launch, [0], range(len(code)), measured=True)
    assert len(undone) == 1
    assert len(some.more) == TURNS
    whole(monkeypatch)
    every = interpreter.run(code, launch, [0], range(len(code)), measured=True)
    assert np.array_equal(executed(some), executed(every))


@pytest.mark.parametrize(("next_one", "between"), [(EVENLY, ""), (EVENLY, LATER), (RANDOM, "")])
def test_what_is_asked_for_is_told_as_if_it_was_asked_later(next_one: str, between: str) -> None:
    """Where what was foretold does not come, what was asked for until then is forgotten."""
    code, launch = launched(pipeline(next_one, between))
    steps = interpreter.run(code, launch, [0], range(len(code)), measured=True)
    later: dict[int, Request | Asked] = {}
    interpreter.requests(code, launch, [0], np.arange(steps.count), later.__setitem__, steps.more)
    assert set(steps.requests) == set(later)
    assert all(map(_same, steps.requests.values(), (later[step] for step in steps.requests)))


def _same(asked: Request | Asked, other: Request | Asked) -> bool:
    if isinstance(asked, Request) and isinstance(other, Request):
        warps = range(len(asked.passes))
        return [*map(asked.served, warps)] == [*map(other.served, warps)]
    return asked == other


def test_of_tiles_that_differ_the_first_say_what_the_others_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, launch = launched(pipeline(between=DIFFERENT))
    every = predicted(code, launch)
    assert every.sampled.ran == every.sampled.issued
    monkeypatch.setattr(trace, "MANY", every.sampled.issued // 3)
    some = predicted(code, launch)
    assert some.sampled.ran < every.sampled.ran / 2
    assert some.cycles == pytest.approx(every.cycles, rel=0.03)
    assert some.stalls == pytest.approx(every.stalls, abs=0.01)


def test_what_comes_behind_tiles_that_differ_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a warp's tiles, 5, 3, 4, 4, 2, 3, 5 and 3 instructions, the first three, with two of two others before each, are 28."""
    monkeypatch.setattr(trace, "MANY", 24)
    turns, none = (4, 2, 3, 3, 1, 2, 4, 2), np.zeros(0, int)
    own, others, numbers = list[int](), list[int](), list[int]()
    for count in turns:
        others += range(len(numbers), len(numbers) + 2)
        numbers += [20, 21]
        own += range(len(numbers), len(numbers) + 1 + count)
        numbers += [1, *[2] * count]
    kinds = [np.array(own), np.array(others)]
    told = trace.stretch(kinds, [0, 1, 1], np.array(numbers), none)
    assert told is not None
    assert (told.kind, told.begin, told.end) == (0, 5, 12)
    assert told.kept == {0: 16, 1: 10}
    assert told.rest == (29 - 12) / (12 - 5)
    monkeypatch.setattr(trace, "MANY", 1000)
    assert trace.stretch(kinds, [0, 1, 1], np.array(numbers), none) is None


def test_it_takes_as_long_as_if_all_were_run(monkeypatch: pytest.MonkeyPatch) -> None:
    code, launch = launched(pipeline())
    some = predicted(code, launch)
    whole(monkeypatch)
    every = predicted(code, launch)
    assert some.cycles == pytest.approx(every.cycles, rel=0.002)
    assert some.stalls == pytest.approx(every.stalls, abs=0.003)
    assert some.used == pytest.approx(every.used, rel=0.002)
    assert some.dram_bytes == every.dram_bytes
    assert some.hits == pytest.approx(every.hits)


def test_who_copies_for_others_says_what_a_cta_walks_through() -> None:
    """Two generations copy 60 MiB, more than an H100's L2 cache keeps, whichever of two warps it is that copies."""
    turns, ctas = 30 << 10, 264
    operand, result = np.zeros(turns << 9, np.float32), np.zeros(64, np.float32)
    lengths = np.zeros(turns, np.int32)

    def copying(source: str) -> Prediction:
        return predict(
            source, "h100", ctas, 64, [operand, result, lengths, turns], shared=160 << 10
        )

    own = copying(pipeline())
    other = copying(
        pipeline().replace("mov.u32 t, %tid.x;", "mov.u32 t, %tid.x; xor.b32 t, t, 32;")
    )
    assert own.generations == other.generations == 2
    lost = 1 - kept(operand.nbytes, find("h100").l2_bytes)
    assert own.dram_bytes == pytest.approx(2 * lost * operand.nbytes, rel=0.01)
    assert other.dram_bytes == pytest.approx(own.dram_bytes, rel=0.01)
    assert other.cycles == pytest.approx(own.cycles, rel=0.01)
