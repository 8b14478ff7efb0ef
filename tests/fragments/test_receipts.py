"""Receipts, written on a GPU that plays back what the emulator gave, and read again."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device import cuda_driver
from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError
from ptxlab.fragments import receipts
from ptxlab.fragments.probes import ProbeKernel
from ptxlab.fragments.sweep import FormOutcome, sweep
from ptxlab.fragments.verify import verify
from ptxlab.main import main
from ptxlab.matrix.catalog import MULTIPLICATIONS, forms, matching, multiplication
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.position import FragmentKind
from ptxlab.verbs.fragments import atlas
from ptxlab.verbs.fragments.sweep import text
from scripts.fragment_receipts import Recorder, dumps
from tests.device.fake_driver import FakeDriver

NAMES = (
    "mma.m16n8k8.row.col.f32.tf32",
    "mma.m8n8k4.f64",
    "mma.sp.m16n8k16.f32.f16",
    "ldmatrix.m8n8.x4.trans.b16",
    "stmatrix.m8n8.x2.b16",
    "movmatrix",
    "wmma.mma.row.col.m8n32k16.f32.f32",
    "wmma.store.d.row.m16n16k16.s32",
)
SOME = tuple(matching(name)[0] for name in NAMES)
ELSEWHERE = matching("mma.m16n8k64.mxf4")[0]


class Playback:
    """A kernel that writes what the emulator did, launch by launch; ``edit`` may change it first."""

    def __init__(self) -> None:
        self.records: list[tuple[ProbeKernel, Array]] = []
        self.next: Iterator[tuple[ProbeKernel, Array]] = iter(())
        self.launched = 0

    def __call__(self, pointers: int) -> None:
        _, record = next(self.next)
        out = ctypes.c_void_p.from_address(pointers + ctypes.sizeof(ctypes.c_void_p)).value
        assert out is not None
        address = ctypes.c_uint64.from_address(out).value
        data = np.ascontiguousarray(record).tobytes()
        ctypes.memmove(address, data, len(data))
        self.launched += 1


@pytest.fixture(scope="module")
def emulated() -> list[tuple[ProbeKernel, Array]]:
    """What the probe kernels give where they are right."""
    records: list[tuple[ProbeKernel, Array]] = []
    device = open_device("emulator")

    def keep(probe_kernel: ProbeKernel, words: Array) -> None:
        records.append((probe_kernel, words))

    outcomes = sweep(device, SOME, everywhere=False, keep=keep)
    assert not any(outcome.status == "failed" for outcome in outcomes)
    return records


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, emulated: list[tuple[ProbeKernel, Array]]) -> Playback:
    """Make ``cuda`` a GPU that plays back."""
    playback = Playback()
    playback.records = [(probe_kernel, words.copy()) for probe_kernel, words in emulated]
    playback.next = iter(playback.records)
    driver = FakeDriver()
    driver.on_launch = playback
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    return playback


def record(folder: Path) -> tuple[tuple[FormOutcome, ...], list[Path]]:
    recorder = Recorder()
    with open_device("cuda") as device:
        outcomes = sweep(device, (*SOME, ELSEWHERE), everywhere=False, keep=recorder)
        return outcomes, recorder.write(device, {"driver": "1.2"}, folder)


def test_what_a_gpu_gives_proves_the_layouts(gpu: Playback, tmp_path: Path) -> None:
    outcomes, paths = record(tmp_path)
    assert [o.status for o in outcomes] == ["hardware"] * len(SOME) + ["absent"]
    assert gpu.launched == len(gpu.records) == len(SOME) + 1  # mma.sp has metadata to be tried too
    assert [path.name for path in paths] == [
        f"fragments_{family}_fake_gpu.json"
        for family in ("mma", "mma_sp", "ldmatrix", "stmatrix", "movmatrix", "wmma")
    ]
    data = json.loads(paths[0].read_text())
    assert (data["schema"], data["gpu"], data["arch"]) == (receipts.SCHEMA, "Fake GPU", "sm_90a")
    assert data["versions"]["driver"] == "1.2"
    assert "nvidia-nvjitlink" in data["versions"]
    assert receipts.proven(tmp_path) == {entry.name: "Fake GPU" for entry in SOME}
    assert receipts.hardware(SOME[0], tmp_path) == "Fake GPU"
    assert receipts.hardware(ELSEWHERE, tmp_path) is None
    assert receipts.hardware(SOME[0], tmp_path / "none") is None
    shown = text(outcomes, "sm_90a").splitlines()
    assert shown[0].split("  ")[-1] == "not on sm_90a"
    assert shown[1].split() == ["mma", "2", "0", "0", "0", "0"]
    assert shown[-3].split() == ["all", str(len(SOME)), "0", "0", "0", "1"]


def test_the_dumps_are_all_there(gpu: Playback, tmp_path: Path) -> None:
    record(tmp_path)
    every: dict[str, Array] = {}
    for receipt in receipts.read_all(tmp_path):
        every |= dumps(receipt)
    for probe_kernel, words in gpu.records:
        assert (every[receipts.digest(words[..., probe_kernel.unspecified :])] == words[..., probe_kernel.unspecified :]).all()  # fmt: skip
        assert (
            receipts.digest(words[..., : probe_kernel.unspecified]) in every
            or not probe_kernel.unspecified
        )


def change(gpu: Playback, name: str, words: slice) -> None:
    for probe_kernel, records in gpu.records:
        if probe_kernel.form.name.startswith(name):
            records[:, 3, words] ^= np.uint64(0x10)


def test_a_gpu_that_differs_fails_and_proves_nothing(gpu: Playback, tmp_path: Path) -> None:
    change(gpu, "mma.sync.aligned.m16n8k8", slice(0, 1))
    outcomes, _ = record(tmp_path)
    assert [o.status for o in outcomes[:2]] == ["failed", "hardware"]
    assert outcomes[0].mismatches[0].lane == 3 - 3  # D of lane 3: row 0, whose A is in lane 0
    assert SOME[0].name not in receipts.proven(tmp_path)
    assert receipts.hardware(SOME[0], tmp_path) is None
    assert receipts.hardware(SOME[1], tmp_path) == "Fake GPU"


def test_a_gpu_may_have_other_registers_for_wmma(gpu: Playback, tmp_path: Path) -> None:
    """PTX promises memory alone; what the registers were is kept."""
    wmma = matching(NAMES[6])[0]
    change(gpu, wmma.name, slice(0, 4))
    outcomes, _ = record(tmp_path)
    assert all(o.status == "hardware" for o in outcomes[:-1])
    assert receipts.hardware(wmma, tmp_path) == "Fake GPU"
    ((probe_kernel, words),) = ((t, w) for t, w in gpu.records if t.form == wmma)
    gpu.next = iter([(probe_kernel, words[:1]), (probe_kernel, words)])
    with open_device("cuda") as device:
        report = verify(device, wmma)
    assert (report.passed, report.layout_verified, report.result_verified) == (True, False, True)
    (receipt,) = (r for r in receipts.read_all(tmp_path) if r.family == "wmma")
    (digest,) = receipt.left_open[wmma.name]
    kept, ours = dumps(receipt)[digest], probe_kernel.expected[..., : probe_kernel.unspecified]
    assert set(np.argwhere(kept != ours)[:, 1].tolist()) == {3}


def test_a_changed_table_makes_a_receipt_worthless(gpu: Playback, tmp_path: Path) -> None:
    record(tmp_path)
    receipt = next(r for r in receipts.read_all(tmp_path) if r.family == "mma")
    entry = SOME[0]
    assert receipt.proves(entry)
    assert isinstance(entry, MatrixInstruction)
    for number, layout in enumerate(entry.operands):
        operands = list(entry.operands)
        kind: FragmentKind = "accumulator" if layout.operand == "A" else "a"
        operands[number] = replace(layout, kind=kind)
        assert (operands[number].table() != layout.table()).any()
        tampered = replace(entry, operands=tuple(operands))
        assert not receipt.proves(tampered), layout.operand


def test_a_changed_dump_is_noticed(gpu: Playback, tmp_path: Path) -> None:
    _, paths = record(tmp_path)
    data = json.loads(paths[0].read_text())
    names = list(data["shapes"])
    first, second = names[0], names[1]
    data["shapes"] = {second: data["shapes"][second], first: data["shapes"][first]}
    with pytest.raises(PtxlabError, match="was changed"):
        dumps(receipts.from_json(data))
    with pytest.raises(PtxlabError, match="not a fragment receipt"):
        receipts.from_json({**data, "schema": "other"})


def test_the_emulator_cannot_write_a_receipt(tmp_path: Path) -> None:
    with pytest.raises(PtxlabError, match="needs a GPU"):
        Recorder().write(open_device("emulator"), {}, tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_receipt_marks_the_instruction_everywhere(
    gpu: Playback,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record(tmp_path)
    monkeypatch.setattr(receipts, "FOLDER", tmp_path)
    entry = SOME[0]
    listed = shown(capsys, "ops", "--family", "mma")["instructions"]
    assert {listing["instruction"] for listing in listed if listing["hardware"]} == {
        e.name for e in SOME[:2]
    }
    assert shown(capsys, "explain", entry.name)["hardware"] == "Fake GPU"
    report = shown(capsys, "fragments", "--op", entry.name, "--device", "emulator")
    assert report["verified"] == {"layout": True, "result": True, "hardware": "Fake GPU"}
    every = shown(capsys, "fragments", "--all", "--family", "movmatrix", "--device", "emulator")
    assert every["instructions"][0]["status"] == "hardware"
    assert every["instructions"][0]["hardware"] == "Fake GPU"
    data = atlas.data(MULTIPLICATIONS, multiplication("m16n8k16"))
    marked = [each["name"] for each in (*data["instructions"], *data["moves"]) if each["hardware"]]
    assert sorted(marked) == sorted(e.name for e in SOME)


def by_name(name: str) -> Form:
    return next(entry for entry in forms() if entry.key == name)


def test_every_receipt_in_the_repository_proves_its_instructions() -> None:
    for receipt in receipts.read_all(receipts.FOLDER):
        dumps(receipt)
        for name in receipt.promised:
            assert receipt.proves(by_name(name)), f"{name} on {receipt.gpu}"
