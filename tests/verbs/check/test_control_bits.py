"""``ptxlab check`` of machine code: what it says of control bits that are right, and of the same with one changed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxlab.machine.table import ROWS
from ptxlab.main import main
from ptxlab.toolchain import link_ptx
from ptxlab.toolchain.cubin import Cubin
from ptxlab.verbs.check import control_bits
from ptxlab.verbs.sass import verb as sass
from tests.machine.changed_bits import patched
from tests.toolchain.binaries import CUBIN, container, member

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x)
{
    .reg .b64 p; .reg .f32 v; .reg .b32 i;
    ld.param.u64 p, [x];
    mov.u32 i, %tid.x; mad.wide.u32 p, i, 4, p;
    ld.global.f32 v, [p];
    add.f32 v, v, v;
    st.global.f32 [p], v;
    ret;
}
"""
CUDA = """\
extern "C" __global__ void twice(float* x) {
    float v = x[threadIdx.x];
    x[threadIdx.x] = v + v;
}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.ptx").write_text(PTX)
    (tmp_path / "twice.cu").write_text(CUDA)
    (tmp_path / "right.cubin").write_bytes(link_ptx(PTX, arch="sm_86").image)
    (tmp_path / "wrong.cubin").write_bytes(broken(link_ptx(PTX, arch="sm_86")).image)
    return tmp_path


def broken(cubin: Cubin) -> Cubin:
    """Have the sum wait for nothing: the load is not waited for."""
    from ptxlab.machine.assembly import Assembly

    code = Assembly(None, cubin).functions["twice"].instructions
    (address,) = (i.address for i in code if i.opcode == "FADD")
    return replace(cubin, image=patched(cubin.image, "twice", address, waits=0))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words", [["right.cubin"], ["twice.ptx", "--sass", "--arch", "sm_100a"], ["twice.cu", "--sass"]]
)
def test_what_ptxas_makes_is_clean(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 0
    out = capsys.readouterr().out
    assert ": no hazard in " in out
    assert "\nnot compared with its PTX: " in out
    assert out.endswith(f"\n\nclean: 1 kernel of {words[0]}\n")


@pytest.mark.usefixtures("here")
def test_what_does_not_wait_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--engine", "sass", "--block", "32", "--arg", "param_0=randn(32,f32)"]
    assert main(["run", "right.cubin", *words]) == 0
    assert main(["run", "wrong.cubin", *words]) == 4
    error = capsys.readouterr().err
    assert re.search(r"^wrong.cubin \(SASS\):\d+:1: 'FADD .* does not wait for 'LDG", error, re.M)


@pytest.mark.usefixtures("here")
def test_a_wait_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "wrong.cubin"]) == 1
    out = capsys.readouterr().out
    first, hazards, *_, last = out.split("\n\n")
    kind, load, addition, hint = first.splitlines()
    assert kind.startswith("error: RAW, R")
    assert kind.endswith(" read before written")
    assert load.split()[1] == "LDG.E"
    assert addition.split()[1] == "FADD"
    assert "nothing waits for SB" in hint
    assert hazards.startswith("twice on sm_86, machine code: 1 hazard in ")
    assert last == "findings: 1 hazard in 1 kernel of wrong.cubin\n"


@pytest.mark.usefixtures("here")
def test_a_stall_that_is_too_short_is_counted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cubin = link_ptx(PTX, arch="sm_86")
    from ptxlab.machine.assembly import Assembly

    code = Assembly(None, cubin).functions["twice"].instructions
    (address,) = (i.address for i in code if i.opcode == "FADD")
    (here / "short.cubin").write_bytes(patched(cubin.image, "twice", address, stall=2))
    report = _json(["short.cubin"], capsys)
    (hazard,) = report["programs"][0]["kernels"][0]["hazards"]
    assert (hazard["kind"], hazard["missing_cycles"], hazard["scoreboards"]) == ("RAW", 3, [])
    assert hazard["earlier"]["text"].startswith("FADD")
    assert hazard["later"]["text"].startswith("STG")
    assert report["schema"] == "ptxlab.check.sass/2"
    assert report["verdict"] == "findings"


@pytest.mark.usefixtures("here")
def test_lines_of_ptx_and_cuda_stand_below_the_instructions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_file(*words: Any) -> Any:
        (program,), closed = sass.in_file(*words)
        assembly = replace(program.assembly, cubin=broken(program.assembly.cubin))
        return [replace(program, assembly=assembly)], closed

    monkeypatch.setattr(control_bits, "in_file", in_file)
    assert main(["check", "twice.cu", "--sass", "--arch", "sm_86"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[2].startswith("twice.cu (PTX):")
    assert "ld.global.f32" in lines[2]
    assert lines[3].endswith("twice.cu:2  float v = x[threadIdx.x];")
    assert "add.f32" in lines[5]
    assert lines[6].endswith("twice.cu:3  x[threadIdx.x] = v + v;")


def test_all_members_or_those_for_a_target_are_checked(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = container(
        member(CUBIN, 80, link_ptx(PTX, arch="sm_80").image),
        member(CUBIN, 86, (here / "wrong.cubin").read_bytes()),
    )
    (here / "two.fatbin").write_bytes(every)
    assert main(["check", "two.fatbin", "--arch", "sm_80"]) == 0
    assert main(["check", "two.fatbin"]) == 1
    assert capsys.readouterr().out.endswith("findings: 1 hazard in 2 kernels of two.fatbin\n")


def test_what_is_not_known_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ROWS, "VABSDIFF4")
    text = PTX.replace(
        "add.f32 v, v, v;", "vabsdiff4.u32.u32.u32.add i, i, i, i; cvt.rn.f32.u32 v, i;"
    )
    (here / "apart.cubin").write_bytes(link_ptx(text, arch="sm_80").image)
    assert main(["check", "apart.cubin"]) == 1
    out = capsys.readouterr().out
    assert "\nnot checked: 1 of VABSDIFF4\n" in out
    assert out.endswith("incomplete: 1 kernel of apart.cubin\n")


def _json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["check", *words, "--json"])
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output
