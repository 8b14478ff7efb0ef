"""``ptxlab fragments`` of what has no handwritten program, and of everything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.cli import progress
from ptxlab.errors import ToolchainError
from ptxlab.fragments import receipts, sweep
from ptxlab.main import main
from ptxlab.matrix import catalog
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX
from ptxlab.verbs.fragments import questions


@pytest.fixture(autouse=True)
def no_receipts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU has proven anything yet."""
    monkeypatch.setattr(receipts, "FOLDER", tmp_path)


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["fragments", "--device", "emulator", *words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = cli(capsys, *words, "--json")
    assert status == 0, err
    data: dict[str, Any] = json.loads(out)
    assert data["schema"] == "ptxlab.fragments/1"
    assert data["verified"] == {"layout": True, "result": True, "hardware": None}
    assert data["mismatches"] == []
    return data


def test_integers_are_dumped_where_the_isa_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k32": lane 6 is group 1, thread 2."""
    data = report(capsys, "--op", "m16n8k32", "--dtype", "s8")
    assert (data["instruction"], data["arch"], data["fill"]) == (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90a", "numbered",
    )  # fmt: skip
    a = data["operands"]["A"]
    assert (a["registers"], a["map"][6][2]) == (4, [[1, 24], [1, 25], [1, 26], [1, 27]])
    assert a["dump"][6][2] == "0x3b3a3938"  # 32 + 24 and what follows it
    numbered = np.arange(512).reshape(16, 32) % 128, np.arange(256).reshape(32, 8) % 128
    d = (numbered[0] @ numbered[1])[1 + 8, 5]
    assert data["operands"]["D"]["dump"][6][3] == f"0x{d:08x}"
    ones = report(capsys, "--op", "m16n8k32", "--dtype", "s8", "--fill", "ones")
    assert ones["operands"]["D"]["dump"] == [["0x00000020"] * 4] * 32


@pytest.mark.parametrize("dtype", ["s8", "bf16"])  # generated, and handwritten
def test_operands_hold_numbers_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str
) -> None:
    k = 32 if dtype == "s8" else 16
    a = np.random.default_rng(3).integers(-128, 128, (16, k))
    np.save(tmp_path / "a.npy", a)
    fills = [f"A={tmp_path / 'a.npy'}", "B=where(row > col, 1, -2)", "C=row - col"]
    data = report(
        capsys, "--op", f"m16n8k{k}", "--dtype", dtype, *(word for fill in fills for word in ("--fill", fill))
    )  # fmt: skip
    assert data["fill"] == ", ".join(fills)
    row, col = np.indices((k, 8))
    m, n = np.indices((16, 8))
    d = a @ np.where(row > col, 1, -2) + m - n
    for lane in range(32):
        for i in range(
            4
        ):  # PTX ISA: row groupID, from c2 on groupID + 8; column threadID_in_group * 2 + (i & 1)
            value = d[lane // 4 + 8 * (i > 1), lane % 4 * 2 + (i & 1)]
            held = int(data["operands"]["D"]["dump"][lane][i], 16)
            word = np.array(value, np.int32 if dtype == "s8" else np.float32).view(np.uint32)
            assert held == word


def test_numbered_sums_of_f16_are_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    data = report(capsys, "--op", "m16n8k16", "--dtype", "f16")
    a, b = np.arange(256.0).reshape(16, 16), np.arange(128).reshape(16, 8) / 8
    assert data["fill"] == "numbered with B / 8"
    d = (a @ b).astype(np.float16).view(np.uint16)
    assert np.isfinite(d.view(np.float16)).all()
    halves = d.reshape(2, 8, 4, 2).astype(
        np.uint32
    )  # PTX ISA: row lane / 4 and 8 on, column pair lane % 4
    words = (halves[..., 0] + (halves[..., 1] << 16)).reshape(2, 32).T
    held = [[int(word, 16) for word in lane] for lane in data["operands"]["D"]["dump"]]
    assert held == words.tolist()
    plain = report(capsys, "--op", "m16n8k16", "--dtype", "f16", "--fill", "numbered")
    assert plain["operands"]["D"]["dump"][31][1] == "0x7c007c00"


@pytest.mark.parametrize(
    ("fill", "told"),
    [
        ("A=row*100", "s8 has no 200"),
        ("A=arange(3)", "an array of 3\nhint: A is 16 x 32"),
        ("D=row", "no fill 'D=row' of mma"),
        ("twos", "it is numbered, ones, or such as A=row+col"),
    ],
)
def test_what_an_operand_cannot_hold(
    capsys: pytest.CaptureFixture[str], fill: str, told: str
) -> None:
    status, _, err = cli(capsys, "--op", "m16n8k32", "--dtype", "s8", "--fill", fill)
    assert status == 2
    assert told in err


@pytest.mark.parametrize(
    ("words", "arch"),
    [
        (["m16n8k32", "--dtype", "e4m3.e5m2"], "sm_90a"),
        (["m16n8k64", "--dtype", "e2m1"], "sm_120a"),
        (["m16n8k8", "--dtype", "tf32", "--arch", "sm_80"], "sm_80"),
        (["mma.sp.m16n8k64.u4"], "sm_90a"),
        (["m8n8k4", "--dtype", "f16", "--acc", "f32"], "sm_90a"),
        (["wmma.load.b.col.m8n32k16.s8"], "sm_90a"),
        (["wmma.store.d.m16n16k16.f32"], "sm_90a"),
        (["stmatrix.m16n8.x4"], "sm_100a"),
        (["movmatrix"], "sm_90a"),
    ],
)
def test_any_instruction_runs_on_a_target_that_has_it(
    capsys: pytest.CaptureFixture[str], words: list[str], arch: str
) -> None:
    data = report(capsys, "--op", *words)
    assert data["arch"] == arch
    for operand in data["operands"].values():
        assert np.shape(operand["dump"]) == np.shape(operand["map"])[:2]
    status, out, _ = cli(capsys, "--op", *words)
    assert status == 0
    assert "layout    verified: every register of every lane is as predicted (" in out


def test_rows_of_shared_memory_arrive_transposed(capsys: pytest.CaptureFixture[str]) -> None:
    data = report(capsys, "--op", "ldmatrix.x4.trans")
    r = data["operands"]["R"]
    assert (r["rows"], r["cols"], r["registers"]) == (32, 8, 4)
    # Lane 5 is group 1, thread 1: of matrix 2, rows 2 and 3 of column 1; numbered 8 * row + col.
    assert r["map"][5][2] == [[18, 1], [19, 1]]
    assert r["dump"][5][2] == "0x00990091"
    status, out, _ = cli(capsys, "--op", "ldmatrix.x4.trans", "--element", "19,1")
    assert status == 0
    assert out.splitlines()[-1] == (
        "R[19,1] is in lane 5, register r2, element 1, bits 31:16 and holds 153 (0x0099)"
    )


def test_questions_about_what_multiplies_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = cli(capsys, "--op", "ldmatrix.x4.trans", "--formula")
    assert "  row = element + 2 * (lane & 3) + 8 * register\n  col = lane >> 2\n" in out
    _, out, _ = cli(capsys, "--op", "stmatrix.x2", "--register", "r1", "--lane", "9")
    assert out.splitlines()[-1].split() == ["9", "10,2", "10,3"]
    _, out, _ = cli(capsys, "--op", "movmatrix", "--code", "python")
    names: dict[str, Any] = {}
    exec(out, names)
    assert names["a_element"](9, 0, 1) == (2, 3)
    assert names["d_element"](9, 0, 1) == (3, 2)
    for drawn in ("csv", "markdown", "latex", "svg"):
        status, out, _ = cli(capsys, "--op", "ldmatrix.m16n16.x2.b8", "--format", drawn)
        assert status == 0
        assert "r3" in out or drawn == "csv"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--op", "ldmatrix.x5"], 2, "the nearest are ldmatrix"),
        (["--op", "ldmatrix.x4", "--dtype", "b16"], 2, "no instruction is ldmatrix.x4 dtype b16"),
        (["--op", "ldmatrix.x4", "--trace", "0,0"], 2, "multiplies nothing"),
        (["--op", "ldmatrix.x4", "--moves"], 2, "multiplies nothing"),
        (["--op", "ldmatrix.x4", "--register", "a0"], 2, "it has r0 to r3"),
        (["--op", "ldmatrix.x4", "--ptx", "ptx/ldmatrix.ptx"], 2, "--op is about one"),
        (["--op", "stmatrix.x4", "--arch", "sm_80"], 4, "needs sm_90, the device is sm_80"),
        (["--op", "wgmma.fence"], 2, "has no fragments"),
        (["--all", "--op", "m16n8k16"], 2, "shows none"),
        (["--all", "--formula"], 2, "shows none"),
        (["--all", "--format", "svg"], 2, "shows none"),
        (["--family", "mma"], 2, "goes with --all"),
        (["--all", "--family", "mmm"], 2, "did you mean mma?"),
    ],
)
def test_wrong_words(
    capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    returned, out, err = cli(capsys, *words)
    assert (returned, out) == (status, "")
    assert message in err


def test_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(capsys, "--all", "--family", "ldmatrix")
    assert status == 0
    lines = out.splitlines()
    assert "verified on the emulator" in lines[0]
    assert lines[1].split() == ["ldmatrix", "0", "21", "0", "0", "0"]
    assert lines[3] == "44 probes ran, a warp or warpgroup each."


def test_a_family_in_json_on_one_target(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(capsys, "--all", "--family", "ldmatrix", "--arch", "sm_80", "--json")
    data = json.loads(out)
    assert (status, data["schema"], data["passed"]) == (0, "ptxlab.fragments.all/1", True)
    assert data["families"]["ldmatrix"] == {
        "hardware": 0, "emulator": 6, "assembled": 0, "failed": 0, "absent": 15,
    }  # fmt: skip
    assert [instruction["instruction"] for instruction in data["instructions"]] == [
        f.name for f in LDMATRIX
    ]
    assert {tuple(instruction["targets"]) for instruction in data["instructions"]} == {
        ("sm_80",),
        (),
    }
    _, out, _ = cli(capsys, "--all", "--family", "stmatrix", "--arch", "sm_80")
    assert out.splitlines()[0].endswith("not on sm_80")
    assert out.splitlines()[1].split() == ["stmatrix", "0", "0", "0", "0", "9"]


def test_what_nothing_here_runs_is_assembled(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(capsys, "--all", "--family", "wgmma.fence", "--json")
    data = json.loads(out)
    assert status == 0
    assert {instruction["status"] for instruction in data["instructions"]} == {"assembled"}
    assert {tuple(instruction["targets"]) for instruction in data["instructions"]} == {("sm_90a",)}


def test_a_wrong_layout_fails_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A movmatrix that would only copy."""
    assert questions  # imported before the catalog is another, so that it takes no name of that one
    source = MOVMATRIX.source
    copying = replace(MOVMATRIX, operands=(source, replace(source, operand="D")))
    monkeypatch.setattr(catalog, "forms", lambda: (copying,))
    monkeypatch.setattr(catalog, "matching", lambda name: (copying,))
    status, out, _ = cli(capsys, "--all", "--family", "movmatrix")
    assert status == 1
    lines = out.splitlines()
    assert lines[1].split() == ["movmatrix", "0", "0", "0", "1", "0"]
    failed = lines.index("FAILED movmatrix.sync.aligned.m8n8.trans.b16 on sm_75")
    # Lane 0 has elements 0,0 and 0,1; the emulator brings 0,0 and 1,0, which is in lane 4.
    assert lines[failed + 1] == (
        "  D[0,1] in lane 0 register d0 bits 31:16: it has 0x0008, not 0x0001"
    )
    assert lines[-1] == "  32 words of 1 probe differ"
    status, out, _ = cli(capsys, "--all", "--family", "movmatrix", "--json")
    (instruction,) = json.loads(out)["instructions"]
    assert (status, instruction["status"], instruction["wrong"]) == (1, "failed", 32)
    assert (
        instruction["mismatches"][0] | {"expected": "0x0001", "found": "0x0008"}
        == instruction["mismatches"][0]
    )
    status, out, _ = cli(capsys, "--op", "movmatrix")
    assert status == 1
    assert "layout    WRONG: " in out


def test_what_ptxas_rejects_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one instruction it rejects, of those in a module with it."""

    def link(text: str, *, arch: str) -> None:
        if "m8n8.x2.shared" in text:
            raise ToolchainError(f"not for {arch}")

    monkeypatch.setattr(sweep, "link_ptx", link)
    status, out, _ = cli(capsys, "--all", "--family", "stmatrix", "--arch", "sm_90a")
    assert status == 1
    lines = out.splitlines()
    assert lines[1].split() == ["stmatrix", "0", "5", "0", "1", "3"]
    assert lines[-2:] == [
        "FAILED stmatrix.sync.aligned.m8n8.x2.shared.b16 on sm_90a",
        "  on sm_90a: not for sm_90a",
    ]


def test_progress_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "IN_LOG", 0.0)
    _, out, err = cli(capsys, "--all", "--family", "ldmatrix")
    assert "ptxlab: 6 of 21 instructions" in err
    assert "ptxlab:" not in out
