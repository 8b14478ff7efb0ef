"""``ptxlab dump`` of warpgroups' matrices, mbarriers and tiles in shared memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.dump import launch_rewritten
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Dump
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.main import main
from tests.emulator.hopper.conftest import hopper_text
from tests.verbs.dump.test_dump import answer, run

SS, RS = "ptx/wgmma_m64n8k16_ss.ptx", "ptx/wgmma_m64n8k16_rs.ptx"
SWIZZLED, HANDED = "ptx/tma_load_swizzle.ptx", "ptx/mbarrier.ptx"


def left(capsys: pytest.CaptureFixture[str], file: str) -> dict[str, Any]:
    """The arguments after ``ptxlab run``, by name."""
    assert main(["run", file, "--json", "--device", "emulator"]) == 0
    return {a["name"]: a["values"] for a in json.loads(capsys.readouterr().out)["arguments"]}


@pytest.mark.parametrize("at", [("wgmma.wait_group",), ("st.global.v2.f32", "--of", "wgmma")])
@pytest.mark.parametrize("file", [SS, RS])
def test_the_accumulators_of_a_warpgroup(
    capsys: pytest.CaptureFixture[str], file: str, at: tuple[str, ...]
) -> None:
    """D is what the program stores, whichever warp is shown."""
    if len(at) > 1:
        at = (at[0], at[1], "wgmma.mma_async")
    for warp in ("0", "3"):
        output = answer(capsys, file, "--at", *at, "--regs", "D", "--warp", warp)
        assert output["matrices"]["D"] == left(capsys, file)["d"]
        assert len(output["lanes"]) == 32


def test_a_in_registers(capsys: pytest.CaptureFixture[str]) -> None:
    output = answer(capsys, RS, "--at", "wgmma.mma_async", "--before", "--regs", "A,B")
    assert output["matrices"]["A"] == left(capsys, RS)["a"]
    assert "B" not in output["matrices"]
    in_shared = answer(capsys, SS, "--at", "wgmma.mma_async", "--before", "--regs", "D,A,B")
    assert set(in_shared["matrices"]) == {"D"}  # A is a descriptor
    assert in_shared["types"] == ["f32"] * 4 + ["b64"] * 2


def test_a_tile_through_its_swizzle(capsys: pytest.CaptureFixture[str]) -> None:
    where = "--at", "mul.wide.u32"
    tiles = "--tile", "rows:16x64:u16:128B", "--tile", "rows+128:1x8:b16"
    output = answer(capsys, SWIZZLED, *where, *tiles, "--mbarrier", "arrived")
    matrix = np.arange(40 * 128).reshape(40, 128)[30:40, 32:96]
    swizzled, raw = output["tiles"]
    assert (np.array(swizzled["values"])[:10] == matrix).all()
    assert not np.array(swizzled["values"])[10:].any()
    assert raw["values"] == [matrix[1, 8:16].tolist()]  # row 1 begins with unit 1
    assert raw["address"] == swizzled["address"] + 128
    (barrier,) = output["mbarriers"]
    assert barrier["state"] == {"phase": 1, "pending": 1, "expected": 1, "tx": 0}
    status, out, _ = run(capsys, SWIZZLED, *where, *tiles[:2], "--mbarrier", "arrived")
    assert status == 0
    assert "rows  16 x 64 of u16, swizzle 128B" in out
    lines = out.splitlines()
    (head,) = (i for i, line in enumerate(lines) if line.startswith("mbarrier "))
    assert lines[head + 1].split()[2:] == ["1", "1", "1", "1", "0"]


def test_bytes_that_are_on_their_way(capsys: pytest.CaptureFixture[str]) -> None:
    """Between the copy and the wait one thread has announced 2048 bytes and arrived."""
    output = answer(
        capsys, SWIZZLED, "--at", "cp.async.bulk.tensor", "--mbarrier", "arrived", "--lane", "0"
    )
    assert output["mbarriers"][0]["state"] == {"phase": 0, "pending": 0, "expected": 1, "tx": 2048}
    before = answer(capsys, SWIZZLED, "--at", "mbarrier.init", "--before", "--mbarrier", "arrived")
    assert before["mbarriers"][0]["state"] is None


def test_phases_of_a_hand_over(capsys: pytest.CaptureFixture[str]) -> None:
    where = "--at", "consume", "--before", "--warp", "1"
    for nth in (1, 2, 4):
        what = "--mbarrier", "empty", "--mbarrier", "full", "--tile", "slot:32x1:u32"
        output = answer(capsys, HANDED, *where, "--nth", str(nth), *what)
        empty, full = output["mbarriers"]
        assert empty["state"]["phase"] == nth - 1  # so many tiles have been read
        assert full["state"]["phase"] in (nth - 1, nth)
        assert full["address"] + 8 == empty["address"]
    assert run(capsys, HANDED, *where, "--nth", "99", "--mbarrier", "full")[1].endswith(
        "shared memory: the warp was not there\n"
    )


def test_a_place_without_registers(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, HANDED, "--at", "bar.sync", "--mbarrier", "full")
    assert status == 0
    assert "lane" not in out
    assert run(capsys, HANDED, "--at", "bar.sync")[0] == 2


def test_of_each_cta_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "own.ptx"
    file.write_text(hopper_text("add.u32 r4, r1, 7; st.shared.u32 [buffer+4], r4; bar.sync 0;"))
    launch = "--grid", "5", "--block", "64", "--arg", "out=zeros(1,u32)", "--arg", "in=zeros(1,u32)"
    for cta in range(5):
        output = answer(
            capsys,
            str(file),
            *launch,
            "--at",
            "bar.sync",
            "--tile",
            "buffer+4:1x1:u32",
            "--cta",
            str(cta),
        )
        assert output["tiles"][0]["values"] == [[cta + 7]]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((SS, "--at", "wgmma.mma_async"), 2, "nobody has waited for it"),
        ((SS, "--at", "wgmma.wait_group"), 2, "names no register"),
        ((SS, "--at", "wgmma.fence", "--of", "st.global", "--regs", "A"), 2, "is not the same"),
        ((SS, "--at", "wgmma.fence", "--of", "wgma", "--regs", "D"), 2, "no label or instruction"),
        ((HANDED, "--at", "bar.sync", "--mbarrier", "ful"), 2, "no shared variable ful"),
        ((HANDED, "--at", "bar.sync", "--mbarrier", "full+0x10"), 2, "ends at byte"),
        ((HANDED, "--at", "bar.sync", "--tile", "slot:8x8:u32"), 2, "ends at byte"),
        ((HANDED, "--at", "bar.sync", "--tile", "slot:8x4:e2m1"), 2, "no type 'e2m1'"),
        ((HANDED, "--at", "bar.sync", "--tile", "slot:8x4:u8:48B"), 2, "no swizzle '48B'"),
        ((HANDED, "--at", "bar.sync", "--tile", "slot"), 2, "PLACE:ROWSxCOLS:TYPE"),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, message: str
) -> None:
    returned, out, err = run(capsys, *words)
    assert (returned, out) == (status, ""), err
    assert message in err


def test_on_a_gpu_shared_memory_is_not_looked_at() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    module = device.load(HANDED)
    kernel = module.kernel()
    assert kernel.function is not None
    packed = kernel.packed([device.zeros(32, "b32"), device.zeros(32, "b32"), 1])
    config = LaunchConfig.of((1,), (64,))
    with pytest.raises(Unsupported, match="shared memory cannot be looked at"):
        launch_rewritten(module, kernel.function, Dump("bar.sync", thread=0), config, packed)
