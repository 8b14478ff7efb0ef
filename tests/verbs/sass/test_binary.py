"""Machine code that is there already: cubins, fatbins, programs of the host."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main
from ptxlab.toolchain import link_ptx
from tests.toolchain.binaries import CUBIN, PTX, ZSTD, container, executable, member

K = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry _Z5scaleILi2EEvPf(.param .u64 x)
.maxntid 96
{
    .shared .b32 tile[25];
    .reg .f32   v;
    .reg .b64   p;
    ld.param.u64    p, [x];
    ld.global.f32   v, [p];
    st.shared.f32   [tile], v;
    bar.sync        0;
    ld.shared.f32   v, [tile];
    add.f32         v, v, 0f3F800000;
    st.global.f32   [p], v;
    ret;
}
"""


def cubin(arch: str) -> bytes:
    return link_ptx(K, arch=arch).image


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    packed = member(PTX, 90, b"\x28\xb5\x2f\xfd", packed=ZSTD)
    every = container(
        member(CUBIN, 80, cubin("sm_80")), member(CUBIN, 120, cubin("sm_120")), packed
    )
    (tmp_path / "k.ptx").write_text(K)
    (tmp_path / "k.cubin").write_bytes(cubin("sm_90a"))
    (tmp_path / "k.fatbin").write_bytes(every)
    (tmp_path / "open.fatbin").write_bytes(container(member(PTX, 80, K.encode())))
    (tmp_path / "packed.fatbin").write_bytes(container(packed))
    (tmp_path / "program").write_bytes(executable(every))
    (tmp_path / "plain.so").write_bytes(executable(b""))
    (tmp_path / "cut.fatbin").write_bytes(every[:1000])
    (tmp_path / "cut.cubin").write_bytes(cubin("sm_80")[:1000])
    (tmp_path / "empty.cubin").touch()
    return tmp_path


@pytest.mark.usefixtures("files")
def test_a_cubin_is_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", "k.cubin"]) == 0
    out = capsys.readouterr().out
    head, *lines = out.splitlines()
    assert head == "scale<2> on sm_90a, machine code"
    said = dict(line.split(maxsplit=1) for line in lines[:7])
    assert said["spills"] == "unknown: a cubin does not say"
    assert said["shared"].startswith("100 bytes static")
    assert said["barriers"] == "1"
    assert "of 96 threads" in said["occupancy"]
    assert "scale<2>  SASS for sm_90a" in lines
    assert [line.split()[1] for line in lines if "FADD" in line and "  0" in line] == ["FADD"]
    assert "_Z" not in out
    assert main(["sass", "k.cubin", "--json"]) == 0
    ((kernel,),) = (
        program["kernels"] for program in json.loads(capsys.readouterr().out)["programs"]
    )
    ((made,),) = (
        program["kernels"] for program in _json(["k.ptx", "--arch", "sm_90a"], capsys)["programs"]
    )
    assert (kernel["spill_stores"], made["spill_stores"]) == (None, 0)
    for same in ("registers", "shared", "stack", "barriers", "occupancy", "opcodes"):
        assert kernel[same] == made[same]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("file", ["k.fatbin", "program"])
def test_all_members_or_those_for_a_target(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = _json([file], capsys)
    assert [(program["arch"], program["member"]) for program in output["programs"]] == [
        ("sm_80", "machine code for sm_80"),
        ("sm_120", "machine code for sm_120"),
    ]
    assert output["compressed"] == [{"member": "PTX for sm_90", "compression": "zstd"}]
    (of_target,) = _json([file, "--arch", "sm_120"], capsys)["programs"]
    assert of_target["arch"] == "sm_120"
    assert main(["sass", file, "--summary"]) == 0
    assert f"cuobjdump --extract-ptx all {file}" in capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_ptx_of_a_fatbin_is_assembled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", "open.fatbin", "--arch", "sm_90a"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("scale<2> on sm_90a, PTX\n")
    assert "spills        0 bytes stored" in out
    (add,) = (line for line in out.splitlines() if "add.f32" in line)
    assert "FADD" in add


def test_standard_input(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptxlab.device import loading

    for file in ("k.cubin", "k.fatbin", "program"):
        loading._standard_input.cache_clear()
        piped = io.TextIOWrapper(io.BytesIO((files / file).read_bytes()))
        monkeypatch.setattr(sys, "stdin", piped)
        given = _json(["-"], capsys)["programs"]
        named = _json([file], capsys)["programs"]
        assert [program["kernels"] for program in given] == [
            program["kernels"] for program in named
        ]
    loading._standard_input.cache_clear()


@pytest.mark.usefixtures("files")
def test_comparison_takes_machine_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sass", "k.ptx", "--compare", "k.cubin"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("scale<2> of k.cubin and scale<2> of k.ptx on sm_90a\n")
    assert "spill" not in out
    assert not any(line[:1] in "+-" for line in out.splitlines() if line)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["packed.fatbin"], 4, "because compressed: PTX for sm_90 (zstd)\nhint: cuobjdump"),
        (["plain.so"], 2, "plain.so has no machine code for a GPU"),
        (["cut.fatbin"], 4, "cut.fatbin: this fatbin is damaged"),
        (["cut.cubin"], 4, "cut.cubin: "),
        (["empty.cubin"], 2, "empty.cubin has no machine code"),
        (["k.cubin", "--arch", "sm_80"], 2, "hint: it has machine code for sm_90a"),
        (["k.fatbin", "--arch", "sm_75"], 2, "k.fatbin has nothing for sm_75"),
        (["k.fatbin", "--kernel", "scole"], 2, "did you mean scale<2>"),
        (["k.fatbin", "--compare", "k.cubin"], 2, "k.fatbin has 2"),
        (["k.cubin", "-D", "X=1"], 2, "k.cubin is compiled already"),
        (["none.fatbin"], 2, "there is no file none.fatbin"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sass", *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_other_verbs_take_no_machine_code(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("k.fatbin", "program", "k.cubin"):
        assert main(["run", str(files / file), "--device", "emulator"]) == 4
        assert "machine code, and this takes PTX" in capsys.readouterr().err


def _json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["sass", *words, "--json"]) == 0, capsys.readouterr().err
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output
