"""--set and --cooperative, with each verb that launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.main import main

TEXT = """\
// out[i] = table[i] * factor + what is at p, and counts what it did.
//
// Run: ptxlab run FILE --block 8 --arg "out=zeros(8,u32)" --set factor=3 --set "p=arange(4,u32)"

.version 8.0
.target sm_80
.address_size 64
.visible .const .align 4 .b8 table[32];
.visible .const .u32 factor = 1;
.visible .global .u64 p;
.visible .global .u32 done;
.visible .entry k(.param .u64 out)
{
    .reg .b32 i, x, f, y;
    .reg .b64 o, t, q;
    ld.param.u64    o, [out];
    mov.u32         i, %tid.x;
    mov.u64         t, table;
    mad.wide.u32    t, i, 4, t;
    ld.const.u32    x, [t];
    ld.const.u32    f, [factor];
    ld.global.u64   q, [p];
    ld.global.u32   y, [q+12];
    mad.lo.u32      x, x, f, y;
    mad.wide.u32    o, i, 4, o;
    st.global.u32   [o], x;
    red.global.add.u32 [done], 1;
    ret;
}
"""
TABLE = "table=arange(8,u32)"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "table.ptx"
    path.write_text(TEXT)
    return str(path)


def read_json(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> Any:
    assert main([*command, "--json"]) == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def left(capsys: pytest.CaptureFixture[str], *command: str) -> list[int]:
    values: list[int] = read_json(capsys, "run", *command)["arguments"][0]["values"]
    return values


def test_each_variable_is_set(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert left(capsys, file) == [3] * 8
    assert left(capsys, file, "--set", TABLE) == [3 * i + 3 for i in range(8)]
    assert left(capsys, file, "--set", TABLE, "--set", "factor=0x10") == [
        16 * i + 3 for i in range(8)
    ]


def test_files_are_taken(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = np.random.default_rng(1).integers(0, 2**32, 8, dtype=np.uint32)
    np.save(tmp_path / "t.npy", table)
    expected = (table.astype(np.uint64) * 3 + 3) % 2**32
    assert left(capsys, file, "--set", f"table=@{tmp_path}/t.npy") == expected.tolist()


def test_random_values_are_none_of_the_arguments(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        file,
        "--arg",
        "out=randn(8,f32)",
        "--set",
        "table=randn(8,f32)",
        "--set",
        "factor=1",
    )
    written = np.array(left(capsys, *command, "--set", "p=zeros(4,u32)"), np.float32)
    expected = np.random.default_rng((0, 3)).standard_normal(8)  # out, factor and p come before
    assert written.tolist() == expected.astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("given", "words", "hint"),
    [
        ("tabel=1", "has no variable tabel", "did you mean table?"),
        ("table=1", "variable table is .b8[32], which does not take the int 1", "give 32 bytes"),
        ("table=zeros(4,u32)", "that is 16 bytes, not 32", ""),
        ("factor=0x100000000", "variable factor is .u32, which does not take 4294967296", ""),
        ("factor=zeros(2,u32)", "an array of uint32 with shape (2,)", ""),
        ("factor", "argument 'factor' is not NAME=VALUE", "arguments look like"),
    ],
)
def test_what_is_refused(
    file: str, given: str, words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", file, "--set", given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert hint in said


def test_the_other_verbs_set_them(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = (file, "--set", TABLE)
    dumped = read_json(capsys, "dump", *given, "--at", "ld.const.u32", "--regs", "x", "--nth", "1")
    assert [int(lane["words"][0], 16) for lane in dumped["lanes"][:8]] == list(range(8))
    assert read_json(capsys, "check", *given)["verdict"] == "clean"
    assert read_json(capsys, "profile", *given)["totals"]["executed"] == 13


def test_diff_sets_them_in_what_it_rewrites(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    sides = ("--a", "emulator:sm_80", "--b", "emulator:sm_90a")
    same = read_json(capsys, "diff", file, "--set", TABLE, *sides)
    assert same["same"]
    assert same["steps"] > 0


COOPERATIVE = """\
// Every CTA counts itself, and waits until all of them have.
// Run: ptxlab run FILE --grid 24 --block 1024 --arg "n=zeros(1,u32)" --cooperative
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 n)
{
    .reg .pred q;
    .reg .b32 i, x, all;
    .reg .b64 p;
    ld.param.u64    p, [n];
    mov.u32         i, %tid.x;
    setp.ne.u32     q, i, 0;
    @q bra          out;
    mov.u32         all, %nctaid.x;
    red.release.gpu.global.add.u32 [p], 1;
again:
    ld.acquire.gpu.global.u32 x, [p];
    setp.lt.u32     q, x, all;
    @q bra          again;
out:
    ret;
}
"""


def test_a_cooperative_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grid.ptx"
    file.write_text(COOPERATIVE)
    output = read_json(capsys, "run", str(file))
    assert output["cooperative"] is True
    assert output["arguments"][0]["values"] == [24]
    assert main(["run", str(file)]) == 0
    assert "k<<<24, 1024>>>, cooperative on emulator" in capsys.readouterr().out
    file.write_text(COOPERATIVE.replace(" --cooperative", ""))
    assert main(["run", str(file), "--timeout", "0.2"]) == 4, (
        "24 CTAs are more than one wave of another launch"
    )
    capsys.readouterr()
    assert main(["run", str(file), "--cooperative"]) == 0
