"""vote, match, redux and activemask, and who waits for whom, against models of one warp at a time.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, Unsupported
from tests.together import in_one_test

PARAMETERS = ", .param .u64 values, .param .u64 masks"
LOAD = """
    ld.param.u64 d2, [values];
    ld.param.u64 d3, [masks];
    mad.wide.u32 d4, r1, 8, d2;
    mad.wide.u32 d5, r1, 4, d3;
    ld.global.u64 d6, [d4];
    ld.global.u32 r4, [d4];
    ld.global.u32 r5, [d5];
    setp.ne.u32 p1, r4, 0;
"""
WARPS = 12


def teams(random: Any) -> Any:
    """Return a membermask per lane: every warp is cut into one to four sets of lanes."""
    masks = np.zeros((WARPS, 32), np.uint32)
    for warp in range(WARPS):
        team = random.integers(0, 1 + warp % 4, 32)
        for number in range(4):
            lanes = np.flatnonzero(team == number)
            masks[warp, lanes] = np.bitwise_or.reduce(1 << lanes, initial=0)
    return masks


def patterns(random: Any) -> Any:
    """Return 64-bit values, few distinct ones per warp, and warps where all agree."""
    values = random.integers(0, 1 << 63, (WARPS, 3)).astype(np.uint64)
    values[:, 0] = 0
    chosen = np.take_along_axis(values, random.integers(0, 3, (WARPS, 32)), axis=1)
    chosen[5] = chosen[5, 0]
    chosen[6] = values[6, 1]
    return chosen


def others(masks: Any, warp: int, lane: int) -> list[int]:
    return [other for other in range(32) if masks[warp, lane] >> other & 1]


def signed(value: int) -> int:
    return value - (value >> 31 << 32)


def ballot(lanes: list[int]) -> int:
    return sum(1 << lane for lane in lanes)


def vote(mode: str, values: list[int], lanes: list[int], lane: int) -> tuple[int, int]:
    holding = [v & 0xFFFFFFFF != 0 for v in values]
    if mode == "ballot":
        return ballot([k for k, holds in zip(lanes, holding, strict=True) if holds]), 0
    answer = {"all": all(holding), "any": any(holding), "uni": len(set(holding)) == 1}[mode]
    return int(answer), 0


def match(mode: str, values: list[int], lanes: list[int], lane: int) -> tuple[int, int]:
    mine = values[lanes.index(lane)]
    if mode == "any":
        return ballot([k for k, v in zip(lanes, values, strict=True) if v == mine]), 0
    agree = len(set(values)) == 1
    return ballot(lanes) if agree else 0, int(agree)


def redux(mode: str, values: list[int], lanes: list[int], lane: int) -> tuple[int, int]:
    operation, kind = mode.split(".")
    words = [v & 0xFFFFFFFF for v in values]
    if kind == "s32":
        words = [signed(v) for v in words]
    known: dict[str, Any] = {
        "add": sum, "min": min, "max": max, "and": lambda w: reduce(int.__and__, w),
        "or": lambda w: reduce(int.__or__, w), "xor": lambda w: reduce(int.__xor__, w),
    }  # fmt: skip
    return known[operation](words) % (1 << 32), 0


FORMS = [
    *((vote, m, f"vote.sync.{m}.pred p2, p1, r5; selp.u32 r6, 1, 0, p2;") for m in ("all", "any")),
    (vote, "uni", "vote.sync.uni.pred p2, p1, r5; selp.u32 r6, 1, 0, p2;"),
    (vote, "ballot", "vote.sync.ballot.b32 r6, p1, r5;"),
    (match, "any", "match.any.sync.b64 r6, d6, r5;"),
    (match, "all", "match.all.sync.b64 r6|p2, d6, r5; selp.u32 r7, 1, 0, p2;"),
    *(
        (redux, f"{m}.{t}", f"redux.sync.{m}.{t} r6, r4, r5;")
        for m, t in [
            *((m, t) for m in ("add", "min", "max") for t in ("u32", "s32")),
            *((m, "b32") for m in ("and", "or", "xor")),
        ]
    ),
]


@in_one_test("arrival", ["together", "apart"])
@in_one_test(("model", "mode", "text"), FORMS)
def test_among_lanes(
    run: Any, device: Device, model: Any, mode: str, text: str, arrival: str
) -> None:
    # Every set of lanes is among itself, though all meet at one instruction; or lanes come in
    # their own time, each after as many rounds as the low bits of its number.
    random = np.random.default_rng(11)
    masks, values = teams(random), patterns(random)
    late = """
    and.b32 r8, r0, 5;
rounds:
    setp.eq.u32 p4, r8, 0;
    @p4 bra meet;
    sub.u32 r8, r8, 1;
    bra rounds;
meet:
"""
    body = LOAD + (late if arrival == "apart" else "") + "mov.u32 r7, 0;\n" + text
    body += "\nst.global.v2.u32 [d1], {r6, r7};"
    with device.upload(values) as v, device.upload(masks) as m:
        words = run(body, v, m, grid=3, block=32 * WARPS // 3, words=2, parameters=PARAMETERS)
    for thread, result in enumerate(words.tolist()):
        warp, lane = divmod(thread, 32)
        lanes = others(masks, warp, lane)
        given = [int(values[warp, other]) for other in lanes]
        assert tuple(result) == model(mode, given, lanes, lane), (warp, lane)


def test_negated_and_constant_votes(run: Any) -> None:
    body = """
    setp.lt.u32 p1, r0, 12;
    vote.sync.ballot.b32 r4, !p1, 0xffffffff;
    vote.sync.all.pred p2, 1, 0xffffffff;
    selp.u32 r5, 1, 0, p2;
    st.global.v2.u32 [d1], {r4, r5};
"""
    assert (run(body, words=2) == [0xFFFFF000, 1]).all()


def test_lanes_held_back_by_their_guard_do_not_vote(run: Any) -> None:
    body = """
    mov.u32 r4, 9;
    and.b32 r3, r0, 3;
    setp.eq.u32 p1, r3, 1;
    and.b32 r3, r0, 31;
    setp.ge.u32 p2, r3, 16;
    @p1 vote.sync.ballot.b32 r4, p2, 0x22222222;
    st.global.u32 [d1], r4;
"""
    expected = [0x22220000 if lane % 4 == 1 else 9 for lane in range(32)] * 2
    assert run(body, block=64)[:, 0].tolist() == expected


def test_activemask_is_who_runs_together(emulate: Any) -> None:
    body = """
    mov.u32 r4, 0;
    setp.lt.u32 p1, r0, 11;
    @!p1 bra join;
    activemask.b32 r4;
join:
    st.global.u32 [d1], r4;
"""
    assert emulate(body)[:, 0].tolist() == [0x7FF] * 11 + [0] * 21


def test_a_membermask_without_its_lane(emulate: Any) -> None:
    for text in (
        "vote.sync.ballot.b32 r4, 1, 0xfffffeff;",
        "shfl.sync.idx.b32 r4, r0, 0, 31, 0xfffffeff;",
        "bar.warp.sync 0xfffffeff;",
    ):
        with pytest.raises(LaunchError, match=r"does not name the lane.*thread \(8, 0, 0\)"):
            emulate(text)


def test_different_membermasks_of_one_team_are_a_deadlock(emulate: Any) -> None:
    # Threads 0 to 15 name all lanes, the others only themselves and half of the rest.
    body = """
    setp.eq.u32 p1, r0, 32;
    @p1 bra spin;
    setp.lt.u32 p1, r0, 16;
    selp.u32 r4, 0xffffffff, 0xffffff00, p1;
    vote.sync.ballot.b32 r5, 1, r4;
spin:
    bar.sync 0;
"""
    with pytest.raises(LaunchError, match="32 threads wait for the rest of their warp"):
        emulate(body, block=33)


def test_half_a_warp_goes_on_before_the_other_half_comes(emulate: Any) -> None:
    # The upper half comes only after the lower half has voted and set the flag.
    before = ".shared .b32 flag;"
    body = """
    st.shared.u32 [flag], 0;
    bar.sync 0;
    setp.lt.u32 p1, r0, 16;
    selp.u32 r4, 0xffff, 0xffff0000, p1;
    @p1 bra meet;
wait:
    ld.volatile.shared.u32 r5, [flag];
    setp.eq.u32 p2, r5, 0;
    @p2 bra wait;
meet:
    vote.sync.ballot.b32 r6, 1, r4;
    st.volatile.shared.u32 [flag], 1;
    st.global.u32 [d1], r6;
"""
    assert emulate(body, before=before)[:, 0].tolist() == [0xFFFF] * 16 + [0xFFFF0000] * 16


HEAD = """.version 8.6
.target sm_75
.address_size 64
.visible .entry k() {
    .reg .pred p<4>; .reg .b32 r<5>; .reg .f32 f<2>;
"""


def test_older_and_newer_forms_are_refused_by_name() -> None:
    for target, text in (
        ("sm_90", "vote.all.pred p1, p2;"),
        ("sm_90", "redux.sync.min.f32 f0, f1, 0xffffffff;"),
        ("sm_75", "redux.sync.add.u32 r4, r0, 0xffffffff;"),
    ):
        device = open_device("emulator", arch=target)
        program = f"{HEAD}{text}\n}}"
        with pytest.raises(Unsupported) as caught:
            device.load(program).kernel()
        assert caught.value.location is not None
        assert caught.value.location.text == text
