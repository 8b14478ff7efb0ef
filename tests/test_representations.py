"""How objects of the API show themselves: in a few words, with what tells one from another."""

from __future__ import annotations

import numpy as np
import pytest

import ptxlab
from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import check, count, step, trace
from ptxlab.observe.diff import DeviceLaunch, Repeatable, diff
from ptxlab.syntax import parse
from tests.device.fake_driver import FakeDriver

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .const .v2 .f32 c[3];
.visible .entry k(.param .u64 .ptr out, .param .b8 s[12], .param .f32 x)
{
    .reg .b32 r; .reg .b64 d;
    ld.param.u64 d, [out];
    mov.u32 r, %tid.x;
    st.global.u32 [d], r;
    ret;
}
"""


def test_the_emulator_and_what_is_on_it() -> None:
    device = EmulatorDevice(TARGETS["sm_80"])
    module, buffer = device.load(TEXT), device.zeros((3, 5), "bf16")
    variable = module.variable("c")
    for thing, shown in (
        (device, "<emulator, sm_80>"),
        (module, "<emulator module <ptx>: kernels k>"),
        (module.kernels, "<kernels k>"),
        (module.kernel(), "<emulator kernel k(.u64 pointer out, .b8[12] s, .f32 x)>"),
        (buffer, f"<emulator buffer bfloat16[3, 5] at {buffer.address:#x}>"),
        (variable, f"<emulator variable c: .f32[6] at {variable.address:#x}>"),
    ):
        assert repr(thing) == shown
    buffer.close()
    device.close()
    assert repr(buffer) == "<emulator buffer bfloat16[3, 5] closed>"
    assert repr(device) == "<emulator, sm_80, closed>"


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (FakeDriver(count=2), ""))
    device = CudaDevice(1)
    assert repr(device) == "<cuda:1 Fake GPU, sm_90a>"
    assert repr(device.load(TEXT)) == "<cuda module <ptx>: kernels k>"
    device.close()
    assert repr(device) == "<cuda:1 Fake GPU, sm_90a, closed>"


def test_long_lists_are_cut() -> None:
    head, body = TEXT[: TEXT.index(".visible")], " { ret; }\n"
    given = ", ".join(f".param .u32 p{i}" for i in range(40))
    text = head + "".join(f".entry k{i}({given if i == 3 else ''}){body}" for i in range(50))
    module = EmulatorDevice(TARGETS["sm_80"]).load(text)
    assert repr(module) == "<emulator module <ptx>: kernels k0, k1, k2, k3, k4, 45 more>"
    shown = ", ".join(f".u32 p{i}" for i in range(5))
    assert repr(module.kernel("k3")) == f"<emulator kernel k3({shown}, 35 more)>"
    assert repr(module.kernel("k4")) == "<emulator kernel k4()>"
    assert (
        repr(EmulatorDevice(TARGETS["sm_80"]).load(head)) == "<emulator module <ptx>: kernels none>"
    )


def test_a_launch_is_shown_as_it_is_written() -> None:
    of = LaunchConfig.of
    for config, shown in (
        (of(1, 32), "LaunchConfig.of(grid=1, block=32)"),
        (of((2, 1, 3), (4, 5)), "LaunchConfig.of(grid=(2, 1, 3), block=(4, 5))"),
        (of(4, 1, 48, 2, True), "LaunchConfig.of(grid=4, block=1, shared=48, cluster=2, cooperative=True)"),
    ):  # fmt: skip
        assert repr(config) == shown
    rng = np.random.default_rng(8)
    for _ in range(50):
        grid, block = rng.integers(1, 4, 3).tolist(), rng.integers(1, 4, 3).tolist()
        config = of(
            grid,
            block,
            int(rng.integers(2)),
            grid if rng.integers(2) and np.prod(grid) <= 16 else None,
            bool(rng.integers(2)),
        )
        assert eval(repr(config)) == config


def test_results() -> None:
    device = EmulatorDevice(TARGETS["sm_80"])
    kernel, out = device.load(TEXT).kernel(), device.zeros(1, "u32")
    args = [out, bytes(12), 0.5]
    result = kernel.launch(1, 40, args, dump=ptxlab.Dump("mov.u32", ("r",)))
    dumped = "<dump of r after mov.u32: 40 of 40 threads>"
    assert repr(result.dump) == dumped
    assert repr(result) == (
        f"<launch: {result.seconds:.3g} s, 40 threads, 160 thread_instructions, {dumped}>"
    )
    config = LaunchConfig.of(1, 40)
    profile = count(kernel, config, args)
    assert repr(profile) == f"<profile of k on sm_80: 8 instructions of warps, {config!r}>"
    timeline = trace(kernel, config, args)
    assert repr(timeline) == f"<timeline of k on sm_80: 4 steps of CTA (0, 0, 0), {config!r}>"
    recording = step(kernel, config, args)
    assert repr(recording) == (
        f"<recording of k on sm_80: 4 steps, 2 warps, 2 registers, {config!r}>"
    )
    assert repr(check(kernel, LaunchConfig.of(1, 1), args)) == "<check of k: clean>"
    report = check(kernel, config, [0, bytes(12), 0.5])
    assert repr(report) == "<check of k: findings, 1 errors>"
    [finding] = report.findings
    assert repr(finding) == f"<error: bounds in line 10, {finding.message}>"
    other, module = EmulatorDevice(TARGETS["sm_90a"]), parse(TEXT)

    def bound(device: EmulatorDevice) -> DeviceLaunch:
        out = device.zeros(1, "u32")
        return DeviceLaunch(device.load(module).kernel(), [out, bytes(12), 0.5], {}, [("out", out)])

    repeatable = Repeatable(module, "k", config, bound)  # type: ignore[arg-type]
    assert repr(diff(repeatable, device, other)) == (
        "<diff of k on emulator:sm_80 and emulator:sm_90a: the same>"
    )


def test_tables() -> None:
    for thing in (
        ptxlab.find("m16n8k16", dtype="bf16"),
        TARGETS["sm_90a"],
        ptxlab.Swizzle(3, 3, 3),
    ):
        assert len(repr(thing)) < 320
