"""Why a launch of CUDA C stopped, at the line of its source, with what other lines computed of the address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxlab.main import main

TEXT = """\
extern "C" __global__ void behind(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = i * 3
        + 7;
    y[i] = x[j];
}
"""


@pytest.mark.parametrize("verb", ["run", "profile", "trace", "dump --at ld.global"])
def test_a_fault_says_what_other_lines_computed(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.cu"
    file.write_text(TEXT)
    command, *more = verb.split()
    sizes = [
        "--grid",
        "2",
        "--block",
        "64",
        "--arg",
        "x=zeros(256,f32)",
        "--arg",
        "y=zeros(128,f32)",
    ]
    assert main([command, str(file), *more, *sizes]) in (1, 4)
    out, err = capsys.readouterr()
    first, text, caret, note, hint = (out + err).partition(f"{file}:5:5: ")[2].splitlines()[:5]
    assert first.startswith("global load of 4 bytes at 0x")
    assert "by thread (19, 0, 0) of CTA (1, 0, 0) (and 44 more threads)" in first
    assert (text.strip(), caret.strip()) == ("y[i] = x[j];", "^")
    assert note.startswith("where %r")
    assert note.endswith(" is 249, which line 3 computed: int j = i * 3")
    assert "it is ld.global.f32 " in hint
    if command == "run":
        main([command, str(file), *sizes, "--json"])
        assert json.loads(capsys.readouterr().out)["notes"] == [note]


def test_a_fault_of_which_other_lines_say_nothing_is_told_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.cu"
    file.write_text('extern "C" __global__ void k(float* x) {\n    x[threadIdx.x] = 1;\n}\n')
    assert main(["run", str(file), "--block", "64", "--arg", "x=zeros(32,f32)", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["line"], told["notes"]) == (str(file), 2, [])


PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
    .reg .b64 p, q, far; .reg .b32 i; .reg .f32 v;
    ld.param.u64 p, [x];
    mov.u32 i, %tid.x;
    mul.wide.u32 q, i, 8;
    add.u64 far, p, q;
    ld.global.f32 v, [far];
    st.global.f32 [far], v;
    ret;
}
"""


def test_so_does_that_of_a_program_in_ptx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(PTX)
    sizes = ["--grid", "1", "--block", "64", "--arg", "x=zeros(64,f32)", "--device", "emulator"]
    assert main(["run", str(file), *sizes]) == 4
    first, text, caret, note, hint = capsys.readouterr().err.splitlines()[-5:]
    assert first.startswith(f"{file}:11:5: global load of 4 bytes at 0x")
    assert (text.strip(), caret.strip()) == ("ld.global.f32 v, [far];", "^")
    assert note == "where q is 256, which line 9 computed: mul.wide.u32 q, i, 8;"
    assert hint.startswith("hint: it is 0 bytes past the end")
    assert "on line" not in hint, "it is told where it is"
