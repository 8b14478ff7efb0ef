"""mbarrier: phases against a model that takes one step at a time, and every way to be wrong."""

from __future__ import annotations

import random
from contextlib import nullcontext

import numpy as np
import pytest

from ptxlab.emulator.run.mbarriers import MOST, Arrive, Mbarriers, MbarrierState, UndefinedUse
from ptxlab.errors import LaunchError
from tests.emulator.hopper.conftest import Run
from tests.together import in_one_test


class Model:
    """One object, as the PTX ISA describes it, one operation after the other."""

    def __init__(self, count: int) -> None:
        self.pending = self.expected = count
        self.tx = self.phase = 0

    def arrive(self, count: int, tx: int, drop: bool) -> int:
        """Return the phase before."""
        before = self.phase
        self.tx += tx
        if count > self.pending:
            raise OverflowError
        self.pending -= count
        if drop:
            self.expected -= count
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected
        return before


@in_one_test("seed", range(40))
def test_arrivals_of_many_threads_are_arrivals_one_after_the_other(seed: int) -> None:
    dice = random.Random(seed)
    objects = Mbarriers(np.zeros(6, np.uint64), 32)
    models = {index: Model(dice.randrange(1, 9)) for index in (0, 2, 5)}
    for number, model in models.items():
        objects.init(np.array([number]), np.array([model.pending]))
    for _ in range(20):
        size = dice.randrange(1, 12)
        places = [dice.choice(list(models)) for _ in range(size)]
        index = np.array(places)
        counts = [dice.randrange(0, 3) for _ in index]
        tx = [dice.choice((0, 0, 16, -16)) for _ in index]
        drop = dice.random() < 0.2
        before = []
        try:
            for number, count, more in zip(places, counts, tx, strict=True):
                before.append(models[number].arrive(count, more, drop))
        except OverflowError:
            with pytest.raises(UndefinedUse):
                objects.arrive(index, Arrive(np.array(counts), np.array(tx), drop))
            return
        words = objects.arrive(index, Arrive(np.array(counts), np.array(tx), drop))
        assert MbarrierState.of(words).phase.tolist() == [phase % 8 for phase in before]
        for number in models:
            state = objects.state(np.array([number]))
            model = models[number]
            fields = [int(v[0]) for v in (state.pending, state.expected, state.tx, state.phase)]
            assert fields == [model.pending, model.expected, model.tx, model.phase % 8]


def test_bytes_that_come_at_once_end_one_phase_and_belong_to_the_next() -> None:
    objects, model, index = Mbarriers(np.zeros(1, np.uint64), 32), Model(1), np.zeros(2, np.int64)
    objects.init(index[:1], np.array([1]))
    objects.arrive(index[:1], Arrive(np.array([1]), np.array([16])))
    model.arrive(1, 16, drop=False)
    objects.expect(index, np.array([-16, -16]))
    for _ in index:
        model.arrive(0, -16, drop=False)
    state = objects.state(index[:1])
    fields = state.pending, state.tx, state.phase
    assert [int(value[0]) for value in fields] == [model.pending, model.tx, model.phase]


def test_the_words_of_a_state_are_taken_apart_as_they_were_put_together() -> None:
    rng = np.random.default_rng(3)
    given = MbarrierState(
        rng.integers(0, MOST + 1, 500),
        rng.integers(0, MOST + 1, 500),
        rng.integers(-MOST, MOST + 1, 500),
        rng.integers(0, 8, 500),
    )
    back = MbarrierState.of(given.words())
    for name in ("pending", "expected", "tx", "phase"):
        assert (getattr(back, name) == getattr(given, name)).all(), name


def test_a_fresh_object_has_completed_the_phase_of_parity_1(run: Run) -> None:
    out = run(
        """
        @p0 mbarrier.init.shared.b64 [bar], 3;
        bar.sync 0;
        mbarrier.test_wait.parity.shared.b64 p1, [bar], 1;
        mbarrier.test_wait.parity.shared.b64 p2, [bar], 0;
        selp.u32 r4, 1, 0, p1;
        selp.u32 r5, 2, 0, p2;
        add.u32 r4, r4, r5;
        @p0 st.global.u32 [d0], r4;
        """,
        words=1,
    )
    assert out[0] == 1


@pytest.mark.parametrize("layout", ["v0", "v1"])
def test_without_reports_both_phases_of_an_object_end_together(run: Run, layout: str) -> None:
    out = run(
        f"""
        @p0 mbarrier.init.layout::{layout}.shared.b64 [bar], 32;
        bar.sync 0;
        mbarrier.test_wait.parity.phase_type::conditional.shared.b64 p1, [bar], 0;
        mbarrier.arrive.shared.b64 d2, [bar];
    W:  mbarrier.try_wait.phase_type::primary.shared.b64 p2|p3, c0, [bar], d2;
        @!p2 bra W;
        mbarrier.try_wait.parity.phase_type::conditional.shared.b64 p4, [bar], 0, 100;
        mbarrier.check_layout.layout::v1.shared.b64 p5, [bar];
        cvt.u32.u8 r4, c0;
        selp.u32 r5, 1, 0, p1;
        selp.u32 r6, 2, 0, p3;
        selp.u32 r7, 4, 0, p4;
        selp.u32 r8, 8, 0, p5;
        add.u32 r4, r4, r5;
        add.u32 r4, r4, r6;
        add.u32 r4, r4, r7;
        add.u32 r4, r4, r8;
        mad.wide.u32 d3, r0, 4, d0;
        st.global.u32 [d3], r4;
        """,
        words=32,
    )
    assert (out == (4 if layout == "v0" else 12)).all()


def test_an_object_of_the_second_layout_counts_less_far(run: Run) -> None:
    init = "mov.u32 r4, 511; @p0 mbarrier.init.layout::v1.shared.b64 [bar], r4;"
    run(init, words=1)
    with pytest.raises(LaunchError, match="a count of 512, not 1 to 511"):
        run(init.replace("511", "512"), words=1)
    run(init.replace("511", "512").replace("v1", "v0"), words=1)


PING_PONG = """
    @p0 mbarrier.init.shared.b64 [bar], COUNT;
    bar.sync 0;
    mov.u32 r5, 0;
L:
    mbarrier.arrive.shared.b64 d2, [bar];
W:
    mbarrier.try_wait.shared.b64 p1, [bar], d2;
    @!p1 bra W;
    add.u32 r5, r5, 1;
    setp.lt.u32 p2, r5, 20;
    @p2 bra L;
    mad.wide.u32 d3, r0, 4, d0;
    st.global.u32 [d3], r5;
"""


def test_threads_meet_as_often_as_they_like(run: Run) -> None:
    assert (run(PING_PONG.replace("COUNT", "96"), words=96, block=96) == 20).all()


def test_who_waits_for_an_arrival_that_never_comes_is_told_what_is_missing(run: Run) -> None:
    with pytest.raises(LaunchError) as caught:
        run(PING_PONG.replace("COUNT", "97"), words=96, block=96)
    assert "deadlock" in caught.value.message
    assert "1 of 97 arrivals" in caught.value.message


def test_the_next_wait_of_the_same_threads_is_for_the_object_that_its_register_names_now(
    run: Run,
) -> None:
    body = """
        @p0 mbarrier.init.shared.b64 [bar], 1; @p0 mbarrier.init.shared.b64 [bar+8], 1;
        bar.sync 0;
        @p0 mbarrier.arrive.shared.b64 d2, [bar]; @p0 mbarrier.arrive.shared.b64 d2, [bar+8];
        mov.u32 r4, r2; add.u32 r5, r2, 8;
    W:  mbarrier.try_wait.parity.shared.b64 p1, [r4], 0;
        @!p1 bra W;
        add.u32 r4, r4, 8; setp.le.u32 p2, r4, r5;
        @p2 bra W;
        """
    run(body, words=1, block=96)
    with pytest.raises(LaunchError, match=r"one at 0x1408 .* 1 of 1 arrivals"):
        run(
            body.replace("@p0 mbarrier.arrive.shared.b64 d2, [bar+8];", ""),
            words=1,
            block=96,
        )


def test_bytes_that_never_come_are_missing(run: Run) -> None:
    with pytest.raises(LaunchError, match="in phase 0 0 of 1 arrivals and 64 bytes are missing"):
        run(
            """
            @!p0 bra E;
            mbarrier.init.shared.b64 [bar], 1;
            mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
        W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
            @!p1 bra W;
        E:
            """,
            words=1,
        )


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("mbarrier.arrive.shared.b64 d2, [bar+8];", "memory that holds no mbarrier, at 0x1408"),
        ("mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 d2, [bar];", "no mbarrier"),
        ("mbarrier.arrive.noComplete.shared.b64 d2, [bar], 2;", "2 arrivals that complete"),
        ("mbarrier.arrive.shared.b64 d2, [bar], 3;", "-1 arrivals pending after it"),
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 1048576;", "count of 1048576"),
        ("mbarrier.init.shared.b64 [bar+8], r0;", "a count of 0, not 1 to 1048575"),
        ("mbarrier.arrive.b64 d2, [d0];", "memory that is not shared"),
    ],
)
def test_what_is_undefined_is_an_error(run: Run, body: str, what: str) -> None:
    first = "@!p0 bra E; mbarrier.init.shared.b64 [bar], 2;"
    with pytest.raises(LaunchError) as caught:
        run(f"{first}{body} E:", words=2)
    assert what in caught.value.message
    assert "thread (0, 0, 0) of CTA (0, 0, 0)" in caught.value.message


def test_an_answer_comes_though_the_phase_is_not_complete(run: Run) -> None:
    """Who looks at an mbarrier before doing what completes it must not wait for ever."""
    out = run(
        """
        @p0 mbarrier.init.shared.b64 [bar], 32;
        bar.sync 0;
        mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
        mbarrier.arrive.shared.b64 d2, [bar];
    W:  mbarrier.try_wait.parity.shared.b64 p2, [bar], 0;
        @!p2 bra W;
        selp.u32 r4, 1, 2, p1;
        mad.wide.u32 d3, r0, 4, d0;
        st.global.u32 [d3], r4;
        """,
        words=32,
    )
    assert (out == 2).all()


def test_copies_arrive_when_they_have_landed(run: Run) -> None:
    data = np.arange(128, dtype=np.uint32)
    body = """
        @p0 mbarrier.init.shared.b64 [bar], 32;
        bar.sync 0;
        mad.lo.u32 r4, r0, 16, r3;
        mad.wide.u32 d2, r0, 16, d1;
        cp.async.cg.shared.global [r4], [d2], 16;
        cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
        @!p1 bra W;
        xor.b32 r5, r0, 31;
        mad.lo.u32 r5, r5, 16, r3;
        ld.shared.u32 r6, [r5];
        mad.wide.u32 d3, r0, 4, d0;
        st.global.u32 [d3], r6;
    """
    assert (run(body, words=32, data=data) == data[::4][::-1]).all()
    few = "[bar], 8; @p0 mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 64;"
    with pytest.raises(
        LaunchError, match=r"completes at -1 arrivals .* copy by thread \(8, 0, 0\)"
    ):
        run(body.replace("[bar], 32;", few), words=32, data=data)
    twin = body.replace(".noinc", "")
    with pytest.raises(LaunchError, match="32 of 32 arrivals"):  # each adds an arrival of its own
        run(twin, words=32, data=data)


def test_copies_arrive_without_those_that_are_begun_later(run: Run) -> None:
    """What comes after the arrival has landed only when it is waited for itself."""
    body = """
        @p0 mbarrier.init.shared.b64 [bar], 32; mov.u64 d5, 0; mad.lo.u32 r4, r0, 16, r3;
        st.shared.u64 [r4], d5; st.shared.u64 [r4+1024], d5; bar.sync 0;
        mad.wide.u32 d2, r0, 16, d1;
        cp.async.cg.shared.global [r4], [d2], 16;
        cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
        cp.async.cg.shared.global [r4+1024], [d2], 16;
    W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
        @!p1 bra W;
        ld.shared.u32 r6, [r4]; ld.shared.u32 r7, [r4+1024]; cp.async.wait_all; ld.shared.u32 r8, [r4+1024];
        mad.wide.u32 d3, r0, 12, d0; st.global.u32 [d3], r6; st.global.u32 [d3+4], r7;
        st.global.u32 [d3+8], r8;
    """
    data = np.arange(1, 129, dtype=np.uint32)
    own = data[::4]
    words = run(body, words=96, data=data).reshape(32, 3)
    assert (words == np.stack([own, 0 * own, own], axis=1)).all()


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (
            "1048575",
            "cp.async.mbarrier.arrive.shared.b64 [bar];",
            "1048576 arrivals pending after it",
        ),
        ("1048574", "cp.async.mbarrier.arrive.shared.b64 [bar];", ""),
        (
            "9",
            "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 1048576;",
            "a transaction count of 1048576",
        ),
        (
            "9",
            "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 1048576;",
            "a transaction count of -1048576",
        ),
        ("9", "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 1048575;", ""),
    ],
)
def test_an_object_counts_no_further_than_it_has_bits(
    run: Run, first: str, second: str, what: str
) -> None:
    body = f"mbarrier.init.shared.b64 [bar], {first}; {second}"
    with pytest.raises(LaunchError, match=what) if what else nullcontext():
        run(body, words=1, block=1)


@pytest.mark.parametrize(("first", "passed"), [("arrive_drop", 1), ("arrive", 0)])
def test_who_drops_out_is_expected_no_more(run: Run, first: str, passed: int) -> None:
    """Of two arrivals one is enough in the phase after."""
    body = f"""
        mbarrier.init.shared.b64 [bar], 2;
        mbarrier.{first}.shared.b64 d2, [bar]; mbarrier.arrive.shared.b64 d2, [bar];
        mbarrier.arrive.shared.b64 d2, [bar];
        mbarrier.test_wait.parity.shared.b64 p1, [bar], 0; mbarrier.test_wait.parity.shared.b64 p2, [bar], 1;
        selp.u32 r4, 1, 0, p1; selp.u32 r5, 1, 0, p2; st.global.v2.u32 [d0], {{r4, r5}};"""
    assert run(body, words=2, block=1).tolist() == [1 - passed, passed]
