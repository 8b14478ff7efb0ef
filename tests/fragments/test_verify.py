"""The instruction on a device: registers, results, broken programs, and the verb."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import ptxlab
from ptxlab import resources
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import PtxlabError, PtxSyntaxError, Unsupported
from ptxlab.fragments import receipts
from ptxlab.fragments.handwritten import verifiable
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probes import ProbeKernel
from ptxlab.fragments.probes.kernel import launch
from ptxlab.fragments.verify import verify
from ptxlab.main import main
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WMMA

NUMBERED: Fill = "numbered"
ONES: Fill = "ones"
BF16, F16 = multiplication("m16n8k16", "bf16"), multiplication("m16n8k16", "f16")

Ptxlab = Callable[..., tuple[int, str, str]]


def program(instruction: MatrixInstruction) -> str:
    name = f"mma_{instruction.shape}_{instruction.a_type}_{instruction.d_type}"
    return resources.path(f"ptx/{name}.ptx").read_text()


def edited(instruction: MatrixInstruction, *edits: tuple[str, str]) -> str:
    text = program(instruction)
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("instruction", verifiable(), ids=lambda i: i.name)
def test_the_emulator_runs_the_handwritten_programs(
    instruction: MatrixInstruction, arch: str
) -> None:
    report = verify(ptxlab.open_device("emulator", arch=arch), instruction)
    assert report.mismatches == ()
    assert (report.device_kind, report.target.name) == ("emulator", arch)


@pytest.mark.parametrize("instruction", verifiable(), ids=lambda i: i.name)
def test_the_handwritten_programs_are_right(device: Device, instruction: MatrixInstruction) -> None:
    report = verify(device, instruction)
    assert report.mismatches == ()
    assert report.passed
    assert report.layout_verified
    assert report.result_verified
    assert (report.hardware == device.name) is (device.kind == "cuda")
    assert [run.fill for run in report.runs] == ["numbered", "addressing"]


def test_numbered_a_in_lane_0(device: Device) -> None:
    report = verify(device, BF16)
    words = report.shown.registers["A"][0]
    held = np.array([[word & 0xFFFF, word >> 16] for word in words], np.uint32).ravel() << 16
    assert list(held.view(np.float32)) == [0, 1, 128, 129, 8, 9, 136, 137]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_ones_give_16_in_all_four_f32_registers(device: Device, dtype: str) -> None:
    report = verify(device, multiplication("m16n8k16", dtype, "f32"), ONES)
    assert (report.shown.registers["D"].view(np.float32) == np.full((32, 4), 16)).all()
    assert [run.fill for run in report.runs] == ["ones", "numbered", "addressing"]


def test_ones_give_16_in_both_halves_of_both_f16_registers(device: Device) -> None:
    report = verify(device, F16, ONES)
    assert (report.shown.registers["D"].view(np.float16) == np.full((32, 4), 16)).all()


SWAPS = {
    "A": (
        ("ld.global.b32   a1, [lower];", "ld.global.b32   a1, [upper + 16];"),
        ("ld.global.b32   a2, [upper + 16];", "ld.global.b32   a2, [lower];"),
    ),
    "B": (("mov.b32         b1, {low, high};", "mov.b32         b1, {high, low};"),),
    "C": (
        ("ld.global.v2.f32 {c0, c1}, [upper];", "ld.global.v2.f32 {c0, c1}, [lower];"),
        ("ld.global.v2.f32 {c2, c3}, [lower];", "ld.global.v2.f32 {c2, c3}, [upper];"),
    ),
}


@pytest.mark.parametrize("fill", [NUMBERED, ONES])
@pytest.mark.parametrize("operand", list(SWAPS))
def test_a_broken_mapper_is_caught_whatever_the_fill(
    device: Device, operand: str, fill: Fill
) -> None:
    report = verify(device, BF16, fill, edited(BF16, *SWAPS[operand]))
    assert not report.layout_verified
    assert operand in {m.operand for m in report.mismatches}
    wrong = {m.operand for m in report.mismatches if m.where == "register"}
    assert wrong <= {operand, "D"}
    told = {
        "A": "line 218: A is WRONG: a1 and a2 are swapped",
        "B": "line 218: B is WRONG: the elements of b1 are in reverse order, high bits first",
        "C": "line 218: C is WRONG: c0 and c2 are swapped",
    }
    assert report.explained[0] == told[operand]
    assert all(sentence.startswith(f"line 218: {operand}") for sentence in report.explained)


def test_a_broken_store_leaves_the_layouts_verified(device: Device) -> None:
    text = edited(
        BF16, ("st.global.v2.f32 [lower], {d2, d3};", "st.global.v2.f32 [lower], {d3, d2};")
    )
    report = verify(device, BF16, ptx=text)
    assert report.layout_verified
    assert not report.result_verified
    assert {m.where for m in report.mismatches} == {"memory"}
    assert {m.row >= 8 for m in report.mismatches} == {True}


def test_programs_that_cannot_be_looked_at_are_refused(device: Device) -> None:
    with pytest.raises(PtxlabError, match=r"not mma\.sync.*f16\.f16\.f16\.f16"):
        verify(device, F16, ptx=program(BF16))
    with pytest.raises(PtxSyntaxError, match=r"ptxas takes no mma\.sync.*col\.col"):
        verify(
            device,
            BF16,
            ptx=edited(
                BF16,
                ("    mma.sync.aligned.m16n8k16.row.col", "    mma.sync.aligned.m16n8k16.col.col"),
            ),
        )
    with pytest.raises(PtxlabError, match="no mma instruction"):
        verify(device, BF16, ptx=resources.path("ptx/ldmatrix.ptx"))
    constant = edited(BF16, ("{b0, b1}, {d0, d1, d2, d3};", "{b0, b1}, {0f00000000, d1, d2, d3};"))
    with pytest.raises(Unsupported, match=r"operand C is not a list of 4 registers"):
        verify(device, BF16, ptx=constant)
    short = edited(BF16, (".param .u64 d,\n    .param .u32 k)", ".param .u64 d)"), ("[k]", "[d]"))
    with pytest.raises(PtxlabError, match="parameters"):
        verify(device, BF16, ptx=short)


def test_a_target_without_the_instruction_is_refused() -> None:
    with pytest.raises(Unsupported, match="needs sm_80"):
        verify(ptxlab.open_device("emulator", arch="sm_75"), BF16)


class Gpu:
    """A GPU that computes what the emulator does."""

    kind, name = "cuda", "NVIDIA of the tests"

    def __init__(self) -> None:
        self._emulator = ptxlab.open_device("emulator", arch="sm_90a")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emulator, name)


def gpu() -> Device:
    return cast(Device, Gpu())


def test_a_gpu_proves_layouts_it_has_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(receipts, "FOLDER", tmp_path)  # nothing is proven so far
    assert verify(gpu(), BF16).hardware == Gpu.name
    assert verify(ptxlab.open_device("emulator"), BF16).hardware is None
    for operand in SWAPS:
        assert verify(gpu(), BF16, ptx=edited(BF16, *SWAPS[operand])).hardware is None
    store = ("st.global.v2.f32 [lower], {d2, d3};", "st.global.v2.f32 [lower], {d3, d2};")
    wrong_store = verify(gpu(), BF16, ptx=edited(BF16, store))
    assert not wrong_store.passed
    assert wrong_store.hardware == Gpu.name, "the registers were right before they were stored"


def test_registers_of_wmma_are_a_gpus_own_and_the_emulators_are_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PTX leaves it to the target which lane holds what. One bit is other here, in lane 3."""
    wmma = next(form for form in WMMA if form.shape == "m8n8k4")

    def other(
        device: Device, kernel: Kernel, probe_kernel: ProbeKernel, *more: object
    ) -> NDArray[np.uint64]:
        words = launch(device, kernel, probe_kernel, *more)
        words[0, 3, 0] ^= np.uint64(1)
        return words

    emulator = ptxlab.open_device("emulator", arch="sm_90a")
    for device in (emulator, gpu()):
        report = verify(device, wmma)
        assert (report.passed, report.own_layout, report.layout_verified) == (True, False, True)
    monkeypatch.setattr(sys.modules["ptxlab.fragments.verify"], "launch", other)
    report = verify(emulator, wmma)
    assert [(m.where, m.operand, m.lane, m.register) for m in report.mismatches] == [
        ("register", "A", 3, 0)
    ]
    assert (report.passed, report.layout_verified) == (False, False)
    report = verify(gpu(), wmma)
    assert (report.passed, report.own_layout, report.layout_verified) == (True, True, False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Ptxlab:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(["fragments", "--device", "emulator", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_the_verb(cli: Ptxlab) -> None:
    status, out, _ = cli("--op", "m16n8k16", "--dtype", "bf16", "--full")
    assert status == 0
    row = "0 0,0..1 0 1 8,0..1 128 129 0,8..9 8 9 8,8..9 136 137"
    assert row.split() in [line.split() for line in out.splitlines()]


def test_the_verb_in_json(cli: Ptxlab) -> None:
    status, out, _ = cli("--dtype", "f16", "--fill", "ones", "--json", "--arch", "sm_80")
    data = json.loads(out)
    assert status == 0
    assert data["schema"] == "ptxlab.fragments/1"
    assert data["arch"] == "sm_80"
    assert data["operands"]["D"]["dump"] == [["0x4c004c00", "0x4c004c00"]] * 32
    assert data["verified"]["layout"] is data["verified"]["result"] is True


def test_the_verb_catches_a_broken_program(cli: Ptxlab, tmp_path: Path) -> None:
    file = tmp_path / "broken.ptx"
    file.write_text(edited(BF16, *SWAPS["A"]))
    status, out, _ = cli("--ptx", str(file))
    assert status == 1
    assert "WRONG" in out
    rows = [line.split() for line in out.splitlines() if line.lstrip().startswith("numbered")]
    # Lane 0, a1, low half: row 8, column 0 is element 128; the broken load brings row 0, column 8.
    assert rows[0] == ["numbered", "A", "register", "0", "1", "0", "15:0", "8", "0", "128", "8"]
    status, out, _ = cli("--ptx", str(file), "--json")
    first = json.loads(out)["mismatches"][0]
    assert status == 1
    assert (first["lane"], first["register"], first["expected"], first["found"]) == (
        *(0, 1),
        *("0x4300", "0x4100"),
    )


def test_the_verb_narrows(cli: Ptxlab) -> None:
    status, out, _ = cli("--element", "3,9")
    assert status == 0
    assert out.splitlines()[-1].startswith("A[3,9] is in lane 12, register a2, element 1")
    status, out, _ = cli("--lane", "31", "--json")
    assert {held["lane"] for held in json.loads(out)["selection"]} == {31}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--op", "m16n8k17"], 2, "m16n8k16"),
        (["--dtype", "fp17"], 2, "f16"),
        (["--dtype", "bf16", "--acc", "f16"], 2, "bf16.bf16.f32"),
        (["--lane", "32"], 2, "lanes 0 to 31"),
        (["--element", "16,0"], 2, "A 16 x 16"),
        (["--element", "3"], 2, "ROW,COL"),
        (["--lane", "1", "--element", "3,3"], 2, "not allowed with"),
        (["--fill", "random"], 2, "numbered"),
        (["--ptx", "nowhere.ptx"], 2, "nowhere.ptx"),
        (["--arch", "sm_75"], 4, "sm_80"),
    ],
)
def test_errors_of_the_verb(cli: Ptxlab, arguments: list[str], status: int, message: str) -> None:
    actual_status, out, err = cli(*arguments)
    assert (actual_status, out) == (status, "")
    assert message in err
    assert "Traceback" not in err
