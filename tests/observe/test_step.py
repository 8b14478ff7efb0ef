"""Recordings against dumps of the emulator, which look at registers and memory in a way of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Dump
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS, WARP
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.recording import COPY, READ, WRITE, Recording
from ptxlab.observe.step import step
from tests.observe.pipelines import A_BYTES, RING, STEPS

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"

CALLS = """\
.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 twice) double(.reg .b32 of)
{
    .reg .b32 sum;
    add.u32 sum, of, of;
    mov.b32 twice, sum;
    ret;
}
.visible .entry calls(.param .u64 out)
{
    .reg .pred odd, any;
    .reg .b16 half;
    .reg .b32 t, n, r;
    .reg .b64 to, at;
    mov.u32 t, %tid.x;
    and.b32 n, t, 33;
    setp.eq.u32 odd, n, 33;
    cvt.u16.u32 half, t;
    mov.u32 r, 7;
    @odd bra skip;
    call (r), double, (t);
skip:
    bar.red.or.pred any, 0, odd;
    @any add.u32 r, r, 1;
    ld.param.u64 to, [out];
    mad.wide.u32 at, t, 4, to;
    st.global.u32 [at], r;
    ret;
}
"""


def device(schedule: str = "late") -> EmulatorDevice:
    return EmulatorDevice(TARGETS["sm_90a"], schedule=schedule)


def launched(text: str, threads: int, *sizes: int, schedule: str = "late") -> tuple[Any, Any, Any]:
    """Return a kernel, its launch and its arguments, which are arrays of that many random bytes."""
    emulator, random = device(schedule), np.random.default_rng(1)
    args = [emulator.upload(random.integers(0, 99, size, np.uint8)) for size in sizes]
    return emulator.load(text).kernel(), LaunchConfig.of(1, threads), args


def line_of(text: str, part: str) -> int:
    return next(
        n for n, line in enumerate(text.split("\n"), 1) if part in line and "//" not in line
    )


def passed(recording: Recording, warp: int, line: int, nth: int) -> int:
    """Return the step in which a warp executes a line the nth time."""
    places, turns = recording.timeline.places, recording.turns
    steps = turns.step[turns.warp == warp].tolist()
    at = [number for number in steps if places[recording.timeline.executed[number]].line == line]
    return int(at[nth - 1])


def held(recording: Recording, function: str, name: str, warp: int, step: int) -> Any:
    """Return what the lanes of a warp hold in a register after a step, as 64-bit words."""
    value = np.zeros((WARP, 1), np.uint32)
    for at, who, number, words in recording.became():
        known = recording.registers[number]
        if at <= step and who == warp and (known.function, known.name) == (function, name):
            value = words
    low, high = value[:, 0].astype(np.uint64), value[:, -1].astype(np.uint64)
    return low | high << np.uint64(32) if value.shape[1] == 2 else low


def check(recording: Recording, kernel: Any, config: LaunchConfig, args: Any, dump: Dump) -> None:
    """Compare what every warp holds after a line, the nth time, with a dump."""
    dumped = kernel.run(config, args, dump).dump
    for warp in recording.warps:
        lanes = slice(WARP * warp, min(WARP * (warp + 1), config.cta_threads))
        if not dumped.reached[lanes].any():
            continue
        here = passed(recording, warp, int(dump.at), dump.nth)
        for column, name in enumerate(dumped.registers):
            value = held(recording, dumped.places[0].function, name, warp, here)
            expected = np.where(dumped.reached[lanes], dumped.words[lanes, column], 0)
            mine = np.where(dumped.reached[lanes], value[: len(expected)], 0)
            assert np.array_equal(mine, expected), (name, warp)


@pytest.mark.parametrize("schedule", ["late", "random:3"])
def test_registers_of_a_pipeline_are_those_of_a_dump(schedule: str) -> None:
    kernel, config, args = launched(
        RING, 160, STEPS * A_BYTES, STEPS * 256, 2048, schedule=schedule
    )
    recording = step(kernel, config, args)
    for part, nth, names in (
        ("and.b32 stage, k", 3, ("stage", "k", "into", "from_a")),
        ("mbarrier.try_wait.parity.shared::cta.b64 p, [is_full]", 2, ("p", "parity", "is_full")),
        ("wgmma.wait_group", 5, ("f0", "f1", "f2", "f3", "da")),
        ("st.global", 1, ("f0", "off")),
    ):
        check(recording, kernel, config, args, Dump(str(line_of(RING, part)), names, nth=nth))


def test_registers_through_calls_barriers_and_guards_are_those_of_a_dump() -> None:
    kernel, config, args = launched(CALLS, 70, 4 * 70)
    recording = step(kernel, config, args)
    names = ("t", "n", "r", "odd", "any", "half", "at")
    for part in ("mov.u32 r, 7", "@any add", "mad.wide"):
        check(recording, kernel, config, args, Dump(str(line_of(CALLS, part)), names))
    holds = {register.name: register.holds for register in recording.registers}
    assert [holds[name] for name in ("odd", "half", "t", "r", "at")] == [
        "pred",
        "u16",
        "u32",
        "u32",
        "u64",
    ]
    inside = Dump(str(line_of(CALLS, "mov.b32 twice")), ("sum", "of"))
    check(recording, kernel, config, args, inside)


def test_registers_of_tensor_cores_are_those_of_a_dump() -> None:
    emulator = device()
    kernel = emulator.load(Path("ptx/mma_m16n8k16_bf16_f32.ptx")).kernel()

    def matrices() -> list[Any]:
        random = np.random.default_rng(2)
        bits = (random.integers(0, 0x4200, n).astype(np.uint16) for n in (16 * 32, 32 * 8))
        return [*map(emulator.upload, bits), emulator.zeros(16 * 8, "f32"), 32]

    config = LaunchConfig.of(1, 32)
    text = Path("ptx/mma_m16n8k16_bf16_f32.ptx").read_text()
    line = 1 + [row.strip() for row in text.split("\n")].index(MMA)
    recording = step(kernel, config, matrices())
    for nth in (1, 2):
        dump = Dump(str(line), ("d0", "d3", "a2", "b1"), nth=nth)
        check(recording, kernel, config, matrices(), dump)
    (operands,) = (
        operands
        for instruction, operands in zip(recording.timeline.places, recording.operands, strict=True)
        if instruction.line == line
    )
    names = [
        recording.registers[n].name
        for fragment in operands.fragments
        for n in fragment.registers
        if n is not None
    ]
    assert names == [
        "d0",
        "d1",
        "d2",
        "d3",
        "a0",
        "a1",
        "a2",
        "a3",
        "b0",
        "b1",
        "d0",
        "d1",
        "d2",
        "d3",
    ]
    assert [(fragment.layout.operand, fragment.result) for fragment in operands.fragments] == [
        ("D", True), ("A", False), ("B", False), ("C", False)
    ]  # fmt: skip
    holds = {register.name: register.holds for register in recording.registers}
    assert (holds["d0"], holds["a0"], holds["b1"]) == ("f32", "bf16x2", "bf16x2")


def test_shared_memory_is_that_of_a_dump() -> None:
    kernel, config, args = launched(RING, 160, STEPS * A_BYTES, STEPS * 256, 2048)
    recording = step(kernel, config, args)
    for part, nth, thread in (("wgmma.fence", 1, 0), ("wgmma.fence", 9, 96), ("st.global", 1, 0)):
        line = line_of(RING, part)
        dumped = kernel.run(config, args, Dump(str(line), nth=nth, thread=thread)).dump
        here = passed(recording, thread // WARP, line, nth)
        memory = np.zeros(recording.shared_bytes, np.uint8)
        for at, first, words in recording.stored():
            if at <= here:
                memory[4 * first : 4 * (first + len(words))] = words.view(np.uint8)
        assert dumped.shared is not None
        assert np.array_equal(memory, dumped.shared.data)


def test_accesses_are_those_that_the_addresses_in_registers_say() -> None:
    emulator = device()
    kernel = emulator.load(Path("ptx/ldmatrix.ptx")).kernel("ldmatrix_x4")
    args = [emulator.zeros(256, "b16"), emulator.zeros(128, "b32")]
    recording = step(kernel, LaunchConfig.of(1, 32), args)
    accesses = recording.accesses
    names = [
        recording.timeline.places[recording.timeline.executed[at]].text
        for at in accesses.step.tolist()
    ]
    assert [name.split(".")[0] for name in names] == ["st", "ldmatrix"]
    assert accesses.kind.tolist() == [WRITE, READ]
    assert accesses.nbytes.tolist() == [16, 16]
    assert accesses.lanes.tolist() == [(1 << 32) - 1] * 2
    assert len(accesses.addresses) == 64
    base = recording.variables.get("rows", 0)
    assert sorted(accesses.addresses[32:].tolist()) == list(range(base, base + 512, 16))


def test_what_is_copied_is_told_from_what_threads_store() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copies(.param .u64 from)
{
    .shared .align 16 .b8 tile[1024];
    .reg .b32 t, to;
    .reg .b64 at;
    mov.u32 t, %tid.x;
    ld.param.u64 at, [from];
    mad.wide.u32 at, t, 16, at;
    mov.u32 to, tile;
    mad.lo.u32 to, t, 16, to;
    add.u32 t, t, 1;
    cp.async.cg.shared.global [to], [at], 16;
    st.shared.b32 [to+512], t;
    cp.async.wait_all;
    ret;
}"""
    recording = step(*launched(text, 32, 512))
    accesses = recording.accesses
    assert accesses.kind.tolist() == [COPY, WRITE]
    assert accesses.addresses.tolist() == [*range(0, 512, 16), *range(512, 1024, 16)]
    stored, waited = (
        passed(recording, 0, line_of(text, part), 1) for part in ("st.shared", "wait_all")
    )
    changed = {(at, first): len(words) for at, first, words in recording.stored()}
    assert changed == {(waited, 0): 128, **{(stored, 128 + 4 * lane): 1 for lane in range(32)}}


def test_other_warps_and_steps_are_left_out() -> None:
    kernel, config, args = launched(RING, 160, STEPS * A_BYTES, STEPS * 256, 2048)
    part, whole = step(kernel, config, args, warps=(4, 1), most=90), step(kernel, config, args)
    assert part.warps == (4, 1)
    assert set(part.turns.warp.tolist()) == {1, 4}
    assert len(part.timeline.executed) == 90
    assert part.timeline.cut
    mine = np.isin(whole.turns.warp, (1, 4)) & (whole.turns.step < 90)
    assert np.array_equal(np.sort(part.turns.step), np.sort(whole.turns.step[mine]))
    with pytest.raises(PtxlabError, match="no warp 5, a CTA of 160 threads has 5"):
        step(kernel, config, args, warps=(5,))


def test_turns_have_the_lanes_that_the_guard_lets_pass() -> None:
    kernel, config, args = launched(CALLS, 70, 4 * 70)
    recording = step(kernel, config, args)
    branch = passed(recording, 1, line_of(CALLS, "@odd bra"), 1)
    [at] = np.flatnonzero((recording.turns.step == branch) & (recording.turns.warp == 1))
    assert int(recording.turns.lanes[at]) == 0xAAAAAAAA  # threads 33, 35, ...
    assert not recording.turns.lanes[recording.turns.warp == 2].max() >> 6  # threads 64 to 69
