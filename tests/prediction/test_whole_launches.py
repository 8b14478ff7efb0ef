"""From a launch to its time: what a prediction is kept by, what is asked of a chip, and how a grid adds up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.machine.values import Array
from ptxlab.prediction.chip import COLD_LAUNCH_SECONDS, find
from ptxlab.prediction.following import interpreter, trace
from ptxlab.prediction.following.slow_paths import passed_by
from ptxlab.prediction.following.turns import Issued, Part, Passed, Tiles
from ptxlab.prediction.kept import kept
from ptxlab.prediction.model import LaunchModel, Prediction
from ptxlab.prediction.predict import (
    as_machine_code,
    load_for,
    made_otherwise,
    of_launch,
    predict,
)
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.timing import multiplying
from ptxlab.prediction.sm.warps import Window
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice
from ptxlab.prediction.what_if import NOTHING, WhatIf
from ptxlab.toolchain import link_ptx
from ptxlab.toolchain.cubin import Cubin
from tests.machine.test_operations import instruction
from tests.prediction.running import without_launch

HEAD = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(PARAMETERS)
{
  .reg .b32 t<8>; .reg .f32 f<4>; .reg .b64 p, q, w; .reg .pred u, v;
"""
STREAM = (
    HEAD.replace("PARAMETERS", ".param .u64 in")
    + """  ld.param.u64 p, [in]; mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, 1024, t0;
  mad.wide.u32 p, t2, 4, p; ld.global.f32 f1, [p]; add.f32 f1, f1, f1; st.global.f32 [p], f1; ret;
}
"""
)
SUMS = (
    HEAD.replace("PARAMETERS", ".param .u64 x, .param .u64 y, .param .u64 out")
    + """  .reg .b64 s, r; .reg .f32 g;
  ld.param.u64 p, [x]; ld.param.u64 s, [y]; ld.param.u64 r, [out];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, 256, t0;
  mad.wide.u32 p, t2, 4, p; mad.wide.u32 s, t2, 4, s; mad.wide.u32 r, t2, 4, r;
  ld.global.f32 f1, [p]; ld.global.f32 g, [s]; fma.rn.f32 f1, f1, f1, g; st.global.f32 [r], f1; ret;
}
"""
)
FILLED = (
    HEAD.replace("PARAMETERS", ".param .u64 out")
    + """  ld.param.u64 p, [out]; mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, 1024, t0;
  mad.wide.u32 p, t2, 16, p;
"""
    + "".join(f"  st.global.v4.b32 [p+{4096 * n}], {{t0, t0, t0, t0}};\n" for n in range(4))
    + "  ret;\n}\n"
)
X = np.zeros(1 << 20, np.float32)


def streamed(
    grid: int,
    gpu: str = "a100",
    block: int = 1024,
    clock: int | None = None,
    cold: bool = False,
) -> Prediction:
    return predict(STREAM, gpu, grid, block, [X], clock=clock, cold=cold)


def test_a_prediction_is_kept_by_all_that_it_follows_from() -> None:
    made: list[int] = []
    predicted = replace(streamed(1), kernel="", lines=())  # which are told where it is asked for

    def make() -> Prediction:
        made.append(1)
        return predicted

    data = np.array([time.time_ns()], np.int64)  # as nobody asked before
    region = MemoryRange(4096, 8, data)
    launch = Launch(TARGETS["sm_80"], LaunchConfig.of(1, 32), b"", [region])
    chip = find("a100")
    for _ in range(2):
        assert kept(b"image", "k", launch, chip, None, NOTHING, make) == predicted
    assert len(made) == 1
    others = [
        (b"image", "k", launch, chip, 1000, NOTHING), (b"image", "k", launch, find("h100"), None, NOTHING),
        (b"image", "other", launch, chip, None, NOTHING), (b"picture", "k", launch, chip, None, NOTHING),
        (b"image", "k", launch, chip, None, WhatIf(occupancy=2)),
        (b"image", "k", replace(launch, floats=True), chip, None, NOTHING),
        (b"image", "k", replace(launch, parameters=b"1234"), chip, None, NOTHING),
        (b"image", "k", replace(launch, regions=[replace(region, data=data + 1)]), chip, None, NOTHING),
        (b"image", "k", replace(launch, regions=[replace(region, base=8192)]), chip, None, NOTHING),
    ]  # fmt: skip
    for count, other in enumerate(others, 2):
        kept(*other, make)
        assert len(made) == count, other


def test_dram_waits_for_no_clock() -> None:
    """Between L2 and DRAM the same nanoseconds pass at any clock: twice the cycles at twice the clock."""
    chip = find("a100")
    clock = chip.memory.clock
    assert chip.at(clock).latency["dram"] == chip.latency["dram"]
    far = chip.latency["dram"] - chip.latency["l2"]
    assert chip.at(2 * clock).latency["dram"] == chip.latency["l2"] + 2 * far
    assert chip.at(2 * clock).latency["l2"] == chip.latency["l2"]


@pytest.mark.parametrize(("gpu", "port"), [("rtx3090", 32), ("a100", 64)])
def test_an_sm_alone_gets_no_more_than_its_port(gpu: str, port: float) -> None:
    chip = find(gpu)
    share, sms = chip.memory.l2_bytes, chip.gpu.sms
    assert chip.used_by(sms).memory.l2_bytes == share
    assert chip.used_by(sms - 20).memory.l2_bytes == share * sms / (sms - 20) < port
    assert chip.used_by(1).memory.l2_bytes == chip.used_by(1).memory.stored_bytes == port


def test_tensor_cores_of_mma_are_part_of_those_of_a_chip() -> None:
    chip = find("h100")
    assert chip.tensor_flop("bf16", "f32") == chip.gpu.tensor["bf16", "f32"] * chip.gpu.mma_sync / 4
    assert chip.gpu.mma_sync < 1
    with pytest.raises(Unsupported, match="how fast"):
        chip.tensor_flop("f64", "f64")


def test_code_is_compiled_for_the_features_of_a_gpu() -> None:
    assert [find(gpu).gpu.target.name for gpu in ("a100", "h100", "b200", "rtx5090")] == [
        "sm_80", "sm_90a", "sm_100a", "sm_120a",
    ]  # fmt: skip


def test_a_grid_comes_in_generations_and_a_tail() -> None:
    """Two CTAs of 1024 threads share an SM of 108."""
    whole, two, three = (streamed(216 * n) for n in (1, 2, 3))
    assert (whole.generations, whole.tail, two.generations) == (1, 0, 2)
    later = two.cycles - whole.cycles
    stored = 2 * 1024 * 4 / find("a100").memory.stored_bytes  # what the first two leave to be done
    assert whole.cycles < later < whole.cycles + find("a100").latency["l2"] + stored
    assert three.cycles - two.cycles == pytest.approx(later)
    alone, few = streamed(108), streamed(5)
    assert (alone.generations, alone.tail, few.tail) == (0, 108, 5)
    assert few.cycles <= alone.cycles < whole.cycles
    both = streamed(216 + 108)
    assert both.cycles == pytest.approx(whole.cycles + alone.cycles, rel=0.02)
    little = streamed(216 + 5)  # one CTA an SM, and the L2 cache for five
    assert whole.cycles + few.cycles == pytest.approx(little.cycles, rel=0.02)


def test_seconds_are_those_of_cycles_or_of_dram_and_a_launch() -> None:
    predicted = streamed(216, cold=True)
    cycles = predicted.cycles / (predicted.clock_mhz * 1e6)
    nbytes = 4 * 216 * 1024  # loaded, and stored where it was
    memory = find("a100").dram_seconds(nbytes, nbytes)
    assert predicted.seconds == pytest.approx(max(cycles, memory) + COLD_LAUNCH_SECONDS)
    assert predicted.low < predicted.seconds < predicted.high
    assert predicted.used["dram"] == pytest.approx(memory / max(cycles, memory))
    fast = streamed(216, clock=100_000, cold=True)  # so that DRAM alone is left
    assert memory < without_launch(fast) < 1.1 * memory, "loads wait for DRAM once"
    assert (fast.bound, fast.bound_by) == ("dram", "dram")
    assert predict(STREAM, "a100", 1, 32, [X[:32]]).bound == "latency"


def test_dram_moves_what_is_touched_whatever_buffers_are_passed() -> None:
    """A buffer 64 times as large changes nothing; y = 2 x + y costs the same in place and out of place."""

    def seconds(source: str, *arrays: Array) -> float:
        return in_dram(predict(source, "a100", 4096, 256, [*arrays], cold=True))

    moved = find("a100").dram_seconds(2 * X.nbytes, X.nbytes)
    assert seconds(SUMS, X, X.copy(), X.copy()) == pytest.approx(moved)
    large = np.zeros(64 << 20, np.float32)
    assert seconds(SUMS, large, X, X.copy()) == pytest.approx(moved)
    in_place = SUMS.replace("ld.param.u64 r, [out]", "ld.param.u64 r, [y]")
    assert seconds(in_place, X, X.copy(), X.copy()) == pytest.approx(moved)


def in_dram(prediction: Prediction) -> float:
    """Return how many seconds of a launch DRAM is used."""
    return prediction.used["dram"] * without_launch(prediction)


def test_dram_reaches_what_was_measured() -> None:
    """RRZE-HPC/gpu-benches, gpu-stream in GB/s: stores alone, as many loads as stores, and three loads to a store."""
    for gpu, peak, measured in (
        ("a100", 2039, (1900, 1737, 1794)),
        ("a6000", 696, (680, 655, 670)),
    ):
        chip = find(gpu)
        for (loads, stores), rate in zip(((0, 4), (2, 2), (3, 1)), measured, strict=True):
            reached = 4 / chip.dram_seconds(loads, stores) / (chip.gpu.bandwidth * 1e9)
            assert reached == pytest.approx(rate / peak, rel=0.015), (gpu, loads, stores)


def walked(body: str) -> str:
    """Return a kernel of which each CTA runs a body that walks through its part of an array, ``turns`` times 16 KiB."""
    walk = """
  ld.global.v4.f32 {a, b, c, d}, [q]; add.f32 f0, f0, a; add.f32 f0, f0, d;
  add.u64 q, q, 16384; add.u32 t0, t0, 1; setp.lt.u32 u, t0, n;"""
    head = HEAD.replace("PARAMETERS", ".param .u64 in, .param .u32 turns")
    return f"""{head} .reg .u32 n; .reg .f32 a, b, c, d;
  ld.param.u64 p, [in]; ld.param.u32 n, [turns]; mov.f32 f0, 0f00000000; mov.u32 t1, 0;
  mov.u32 t2, %tid.x; mul.wide.u32 w, t2, 16; add.u64 p, p, w;
  mov.u32 t2, %ctaid.x; mul.lo.u32 t2, t2, n; mul.wide.u32 w, t2, 16384; add.u64 p, p, w;
  {body.replace("WALK", walk)}
  setp.eq.f32 v, f0, 0f3F800000; @v st.global.f32 [p], f0; ret;
}}
"""


ONE_LOOP = """
again: mov.u64 q, p; mov.u32 t0, 0;
more: WALK @u bra more;
  add.u32 t1, t1, 1; setp.lt.u32 v, t1, 2; @v bra again;"""
TWO_LOOPS = """
  mov.u64 q, p; mov.u32 t0, 0;
more: WALK @u bra more;
  mov.u64 q, p; mov.u32 t0, 0;
others: WALK @u bra others;"""


@pytest.mark.parametrize(
    ("body", "turns", "times"),
    [
        (TWO_LOOPS, 64, 2),
        pytest.param(ONE_LOOP, 64, 2, marks=pytest.mark.thorough),
        pytest.param(ONE_LOOP, 4, 1, marks=pytest.mark.thorough),
    ],
)
def test_what_l2_has_lost_when_a_cta_comes_to_it_again_is_loaded_again(
    body: str, turns: int, times: int
) -> None:
    """108 CTAs walk twice through 108 MiB, of which an A100's L2 cache keeps 20; 6.75 MiB come from DRAM once."""
    array = np.zeros(108 * turns << 12, np.float32)
    moved = in_dram(predict(walked(body), "a100", 108, 1024, [array, turns], cold=True))
    assert moved == pytest.approx(find("a100").dram_seconds(times * array.nbytes, 0), rel=0.03)


def test_two_loops_that_come_to_the_same_do_not_load_it_twice_at_first() -> None:
    """216 CTAs, two an SM, walk through 540 MiB, each through its 2.5 MiB and then again, where it takes the longer."""
    longer = TWO_LOOPS.replace("others: WALK", "others: fma.rn.f32 f0, f0, f0, f0; WALK")
    array = np.zeros(216 * 160 << 12, np.float32)
    moved = in_dram(predict(walked(longer), "a100", 216, 1024, [array, 160], cold=True))
    assert moved == pytest.approx(find("a100").dram_seconds(2 * array.nbytes, 0), rel=0.01)


def test_parameters_lie_where_their_types_have_them() -> None:
    """A branch on the last of an int, a pointer and an int goes where it says."""
    source = (
        HEAD.replace("PARAMETERS", ".param .u32 a, .param .u64 in, .param .u32 b")
        + """  ld.param.u32 t0, [a]; ld.param.u64 p, [in]; ld.param.u32 t1, [b]; mov.f32 f0, 0f00000000;
more:
  ld.volatile.global.f32 f1, [p]; add.f32 f0, f0, f1; sub.u32 t1, t1, 1; setp.ne.u32 u, t1, 0;
  @u bra more;
  st.global.f32 [p], f0; ret;
}
"""
    )
    few, many = (predict(source, "a100", 1, 32, [7, X, turns]).cycles for turns in (10, 20))
    l1 = find("a100").latency["global"]
    assert many - few >= 10 * l1


def test_a_return_begins_no_turn_of_a_loop() -> None:
    """A loop from 1 to 3 calls a function, 10 and 11, that returns to 2."""
    numbers = np.array([0, *[1, 10, 11, 2, 3] * 3, 4])
    assert [loop.head for loop in trace.loops(numbers, np.array([11]))] == [1]
    assert {loop.head for loop in trace.loops(numbers, np.zeros(0, int))} == {1, 2}


def test_tiles_are_those_of_all_warps_or_of_none() -> None:
    """A persistent kernel of five tiles, three turns each; another warp has four tiles, or no loop."""
    none = np.zeros(0, int)
    tile = [1, 2, 2, 2, 3]
    five, four, idle = (np.array([0, *tile * n, 9]) for n in (5, 4, 0))
    every = np.concatenate([five, four, idle])
    first, second = np.arange(len(five)), len(five) + np.arange(len(four))
    third = len(five) + len(four) + np.arange(len(idle))
    groups = trace.tiles([first, third], every, none)
    assert groups is not None
    assert list(groups) == [0]
    assert len(groups[0]) == 5
    shown = trace.stretch([first, third], [0, 1], every, none)
    assert shown == trace.Stretch(kind=0, begin=7, end=17, kept={0: 22}, rest=2 / 2)
    assert trace.tiles([first, second], every, none) is None
    assert trace.tiles([second], every, none) is None  # too few


@pytest.mark.parametrize(("cluster", "chosen"), [(None, [131, 263]), ((8, 1, 1), [128, 256])])
def test_the_ctas_of_an_sm_lie_as_far_apart_as_there_are_sms(
    cluster: tuple[int, int, int] | None, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the middle of a grid that fills an H100 twice, if so many follow; of clusters the first CTA of one is followed."""
    followed: list[list[int]] = []
    run = interpreter.run

    def watched(code: Any, launch: Any, ctas: Any, *more: Any, **named: Any) -> Any:
        followed.append(list(ctas))
        return run(code, launch, ctas, *more, **named)

    monkeypatch.setattr(interpreter, "run", watched)
    chip, grid = find("h100"), 264
    with closing(UnfilledDevice(chip.gpu.target)) as device:
        assembly, module = load_for(device, STREAM)
        kernel = module.kernel()
        config = LaunchConfig.of(grid, 1024, cluster=cluster)
        code, launch = as_machine_code(assembly, kernel, config, [device.upload(X[: grid << 10])])
        LaunchModel(code, launch, chip, registers=16, shared=0).predict()
    *surveys, of_one = followed
    assert of_one == chosen
    assert all(cta % (8 if cluster else 1) == 0 for surveyed in surveys for cta in surveyed)


def test_machine_code_takes_as_long_as_what_it_was_made_of(tmp_path: Path) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(link_ptx(STREAM, arch="sm_80").image)
    of_code, of_text = predict(file, "a100", 4, 1024, [X]), streamed(4)
    assert of_code.seconds == of_text.seconds
    assert of_code.occupancy == of_text.occupancy
    with pytest.raises(PtxlabError, match="no machine code for sm_90a"):
        predict(file, "h100", 4, 1024, [X])


def test_of_numbers_that_nobody_knows_none_are_computed() -> None:
    """A branch that depends on one is refused with its line, and not followed by what stands for it."""
    source = STREAM.replace(
        "add.f32 f1, f1, f1;", "setp.gt.f32 u, f1, 0f00000000; @u bra OUT;"
    ).replace("ret;", "OUT: ret;")
    with closing(UnfilledDevice(find("a100").gpu.target)) as device:
        assembly, module = load_for(device, source)
        passed = [device.upload(Shaped((1 << 20,), "float32"))]
        with pytest.raises(Unsupported, match="depends on data") as refused:
            of_launch(assembly, module.kernel(), LaunchConfig.of(4, 1024), passed, find("a100"))
    assert refused.value.location is not None


def test_machine_code_that_a_compiler_would_have_made_otherwise_is_told() -> None:
    said = "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility.\n"
    assert made_otherwise(Cubin("sm_90a", b"", "")) == ()
    [told] = made_otherwise(Cubin("sm_90a", b"", said))
    assert told.startswith("setmaxnreg")


def test_a_buffer_that_is_passed_twice_is_there_once() -> None:
    source = STREAM.replace(
        ".param .u64 in", ".param .u64 in, .param .u64 other, .param .u64 third"
    )
    with closing(UnfilledDevice(find("a100").gpu.target)) as device:
        assembly, module = load_for(device, source)
        first, two = device.upload(X), device.upload(X)
        passed, config = [first, two, first], LaunchConfig.of(1, 32)
        _, launch = as_machine_code(assembly, module.kernel(), config, passed)
    assert sorted(region.nbytes for region in launch.regions) == [X.nbytes] * 2


def test_tiles_that_are_not_run_cost_what_those_did_that_were() -> None:
    """Of six the first and two more: they begin at 100 and the last of them is over at 400."""
    kinds = [np.arange(20)]

    def ran(parts: Sequence[Part], window: Window | None = None) -> tuple[Passed, Run]:
        assert [(len(part.steps), part.marks, part.ends) for part in parts] == [(12, [3, 9], 9)]
        before = Run(100, 6, {(2, "wait"): 10}, {}), Run(400, 18, {(2, "wait"): 50}, {})
        return {(0, 3): before[0], (0, 9): before[1]}, Run(500, 24, {}, {})

    six = trace.Stretch(kind=0, begin=3, end=9, kept={0: 12}, rest=3 / 2)
    tiles = Tiles(Issued(np.arange(20), kinds, [0, 0]), six, {})
    predicted = tiles.run(ran, {})
    assert predicted.cycles == 400 + 3 * (400 - 100) / 2
    assert predicted.issued == 18 + 3 * (18 - 6) / 2
    assert predicted.stalls == {(2, "wait"): 50 + 3 * (50 - 10) / 2}


def test_the_slow_path_of_a_division_is_passed_by() -> None:
    """Behind a test of the operands, whichever way the branch goes; a call of another function is not."""
    slow, other = "CALL.REL.NOINC `(__cuda_sm3x_div_rn_noftz_f32_slowpath)", "CALL.REL.NOINC `(f)"
    labels = {".L": 3, "f": 5, "__cuda_sm3x_div_rn_noftz_f32_slowpath": 6}

    def passed(*texts: str) -> dict[int, bool]:
        return passed_by([instruction(text, n, labels) for n, text in enumerate(texts)])

    branch, plain, end = "@!P0 BRA `(.L)", "FADD R0, R1, R2", "EXIT"
    assert passed(branch, plain, slow, plain, end) == {0: True}
    assert passed(branch, plain, end, slow, end) == {0: False}
    assert passed(branch, plain, other, plain, end) == {}
    assert passed(branch, plain, slow, slow, end) == {}
    assert passed(f"@P0 {slow}", plain, end, plain, end) == {0: False}


def test_stores_take_as_long_as_what_is_beyond_the_sm_takes_for_them() -> None:
    """Warps end before; a full A100 of 864 CTAs stores 16 KB in each, as fast as stores leave an SM, or at DRAM's rate."""
    out, nbytes = np.zeros(864 * 4096, np.float32), 16384 * 864
    warm, told = (predict(FILLED, "a100", 864, 256, [out], cold=cold) for cold in (False, True))
    stored = nbytes / (find("a100").memory.stored_bytes * 108 * 1.41e9)
    assert without_launch(warm) == pytest.approx(stored, rel=0.01)
    assert (warm.bound, warm.bound_by, warm.dram_bytes) == ("stores", "stores", 0)
    assert told.dram_bytes == nbytes
    assert told.seconds > warm.seconds
    assert max(told.used.values()) == told.used["dram"] == 1
    assert told.used["stores"] == pytest.approx(stored / without_launch(told), rel=0.01)
    assert "l2" not in told.used


def test_who_multiplies_all_the_time_runs_at_the_clock_that_power_leaves() -> None:
    product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    sums = [", ".join(f"%f{4 * n + i}" for i in range(4)) for n in range(4)]
    source = (
        ".version 8.0 .target sm_90 .address_size 64 .visible .entry k(.param .u32 n, .param .u64 out) {"
        ".reg .f32 %f<16>; .reg .b32 %r<6>, %i; .reg .b64 %o; .reg .pred %p; ld.param.u32 %i, [n]; ld.param.u64 %o, [out];"
        + "".join(f"mov.f32 %f{n}, 0f00000000;" for n in range(16))
        + "".join(f"mov.b32 %r{n}, %tid.x;" for n in range(6))
        + "L:"
        + "".join(
            f"{product} {{{d}}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{d}}};" for d in sums
        )
        + "sub.u32 %i, %i, 1; setp.ne.u32 %p, %i, 0; @%p bra L;"
        + "".join(f"st.global.f32 [%o + {4 * n}], %f{n};" for n in range(16))
        + "ret; }"
    )
    launch = (source, "h100", 132, 512, [100, X])
    own, boosted = predict(*launch), predict(*launch, clock=1980)
    use = boosted.used["tensor"]
    assert use > 0.85
    assert own.clock_mhz == find("h100").gpu.clock_at(0.65 * use) < 1980
    assert own == predict(*launch, clock=own.clock_mhz)
    longer = without_launch(own) / without_launch(boosted)
    assert longer == pytest.approx(1980 / own.clock_mhz, 0.01)


def test_who_adds_and_multiplies_all_the_time_runs_at_the_clock_that_power_leaves() -> None:
    sums = [f"%f{n}" for n in range(16)]
    source = (
        ".version 8.0 .target sm_86 .address_size 64 .visible .entry k(.param .u32 n, .param .u64 out) {"
        ".reg .f32 %f<16>, %x; .reg .b32 %i; .reg .b64 %o; .reg .pred %p; ld.param.u32 %i, [n]; ld.param.u64 %o, [out];"
        "ld.global.f32 %x, [%o];"
        + "".join(f"mov.f32 {each}, %x;" for each in sums)
        + "L:"
        + "".join(f"fma.rn.f32 {each}, {each}, %x, %x;" for each in sums * 4)
        + "sub.u32 %i, %i, 1; setp.ne.u32 %p, %i, 0; @%p bra L;"
        + "".join(f"st.global.f32 [%o + {4 * n}], {each};" for n, each in enumerate(sums))
        + "ret; }"
    )
    launch = (source, "rtxa6000", 84, 512, [100, X])
    own, boosted = predict(*launch), predict(*launch, clock=1800)
    use = boosted.used["fma"]
    assert use > 0.85
    assert own.clock_mhz == find("rtxa6000").gpu.clock_at(0.0, use) < 1500
    assert own == predict(*launch, clock=own.clock_mhz)
    assert predict(source, "rtx4090", 84, 512, [100, X]).clock_mhz == 2520, "nobody measured that"


@pytest.mark.parametrize(
    ("text", "gpu", "part"),
    [
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "rtx5090", 1 / 2),
        ("HMMA.16816.F16 R4, R8, R12, R4", "rtx5090", 1),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", "rtx5090", 1),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "rtxpro6000maxq", 1),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", "a100", 1),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "h100", 0.65),
        ("HGMMA.64x128x16.F32 R8, gdesc[UR4], R8", "h100", 1),
    ],
)
def test_what_a_product_has_multiply_of_a_tensor_core(text: str, gpu: str, part: float) -> None:
    assert multiplying(instruction(text), find(gpu)) == pytest.approx(part)
