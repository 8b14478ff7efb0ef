from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.cli.main import main
from ptxlab.cli.run import merged
from ptxlab.device.opening import open_device
from ptxlab.errors import DeviceUnavailable

SAXPY = """\
// y = a * x + y.
//
// Run: ptxlab run saxpy.ptx --kernel saxpy --grid 2 --block 32 --arg n=50 --arg a=2.0
//      --arg "x=arange(50,f32)" --arg "y=ones(50,f32)"
// Run: ptxlab run saxpy.ptx --kernel fill --block 32 --arg "out=zeros(32,b32)" --arg value=7

.version 7.0
.target sm_75
.address_size 64

.visible .entry saxpy(
    .param .u32 n,
    .param .f32 a,
    .param .u64 .ptr .global .align 4 x,
    .param .u64 .ptr .global .align 4 y)
{
    .reg .pred p;
    .reg .b32 i, width, cta, limit;
    .reg .f32 factor, left, right;
    .reg .b64 px, py;

    mov.u32         i, %tid.x;
    mov.u32         width, %ntid.x;
    mov.u32         cta, %ctaid.x;
    mad.lo.u32      i, cta, width, i;
    ld.param.u32    limit, [n];
    setp.ge.u32     p, i, limit;
    @p bra          done;
    ld.param.f32    factor, [a];
    ld.param.u64    px, [x];
    ld.param.u64    py, [y];
    mad.wide.u32    px, i, 4, px;
    mad.wide.u32    py, i, 4, py;
    ld.global.f32   left, [px];
    ld.global.f32   right, [py];
    fma.rn.f32      right, factor, left, right;
    st.global.f32   [py], right;
done:
    ret;
}

.visible .entry fill(
    .param .u64 .ptr .global .align 4 out,
    .param .u32 value)
{
    .reg .b32 i, v;
    .reg .b64 p;

    mov.u32         i, %tid.x;
    ld.param.u32    v, [value];
    ld.param.u64    p, [out];
    mad.wide.u32    p, i, 4, p;
    st.global.u32   [p], v;
    ret;
}
"""


@pytest.fixture
def saxpy(tmp_path: Path) -> str:
    file = tmp_path / "saxpy.ptx"
    file.write_text(SAXPY)
    return str(file)


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all commands that do not name a device on the one under test."""
    name = request.config.getoption("--device")
    monkeypatch.setattr(
        "ptxlab.device.opening.open_device",
        lambda spec, **more: open_device(name if spec == "auto" else spec, **more),
    )


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["run", *arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_header_is_enough(saxpy: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, saxpy)
    assert result["schema"] == "ptxlab.run/1"
    assert (result["kernel"], result["grid"], result["block"]) == ("saxpy", [2], [32])
    n, a, x, y = result["arguments"]
    assert n == {"name": "n", "dtype": "u32", "value": 50}
    assert a == {"name": "a", "dtype": "f32", "value": 2.0}
    assert (x["changed"], y["changed"]) == (False, True)
    assert x["values"] == list(range(50))
    assert y == {
        "name": "y",
        "dtype": "f32",
        "shape": [50],
        "changed": True,
        "values": [2.0 * i + 1 for i in range(50)],
    }


def test_each_thing_given_replaces_what_the_header_says(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_json(capsys, saxpy, "--arg", "n=3", "--arg", "y=zeros(50,f32)", "--grid", "1,1")
    assert result["grid"] == [1, 1]
    assert result["arguments"][3]["values"] == [0.0, 2.0, 4.0] + [0.0] * 47


def test_the_kernel_decides_which_line_of_the_header_counts(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_json(capsys, saxpy, "--kernel", "fill", "--arg", "value=0x80000001")
    assert [argument["name"] for argument in result["arguments"]] == ["out", "value"]
    assert result["arguments"][0]["values"] == [0x80000001] * 32


def test_names_that_are_no_parameters_bind_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.ptx"
    file.write_text(SAXPY.replace("// Run", "// Not"))
    words = ["--kernel", "fill", "--block", "2", "--arg", "A=ones(3,u32)", "--arg", "B=9"]
    result = run_json(capsys, str(file), *words)
    assert [argument["name"] for argument in result["arguments"]] == ["A", "B"]
    assert result["arguments"][0]["values"] == [9, 9, 1]


def test_text_shows_every_array_and_marks_the_changed(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", saxpy, "--arg", "x=arange(100x10,f32)"]) == 0
    head, x, y = capsys.readouterr().out.split("\n\n")
    assert head.startswith("saxpy<<<2, 32>>> on ")
    assert x.splitlines()[0] == "x  f32 100x10  unchanged"
    assert "..." in x
    assert y.splitlines()[0] == "y  f32 50  changed"
    assert "99." in y
    assert main(["run", saxpy, "--kernel", "fill", "--arg", "value=10"]) == 0
    assert "[0x0000000a 0x0000000a " in capsys.readouterr().out


def test_saved_arrays_come_back_as_arguments(
    saxpy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "y.npy"
    run_json(capsys, saxpy, "--save", f"y={file}")
    expected = 2 * np.arange(50, dtype=np.float32) + 1
    assert np.load(file).tobytes() == expected.tobytes()
    again = run_json(capsys, saxpy, "--arg", f"y=@{file}", "--arg", "a=-2")
    assert again["arguments"][3]["values"] == [1.0] * 50


def test_bf16_survives_saving(
    tmp_path: Path, saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.npy"
    run_json(capsys, saxpy, "--arg", "x=randn(100,bf16,seed=3)", "--save", f"x={file}")
    expected = np.random.default_rng(3).standard_normal(100).astype(ml_dtypes.bfloat16)
    assert np.load(file).tobytes() == expected.tobytes()


def test_the_seed_decides_arrays_without_one(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--arg", "x=randn(50,f32)", "--arg", "y=randn(50,f32)"]
    x, y = run_json(capsys, saxpy, *words)["arguments"][2:]
    assert x["values"] != y["values"]
    assert run_json(capsys, saxpy, *words)["arguments"][2:] == [x, y]
    assert run_json(capsys, saxpy, *words, "--seed", "1")["arguments"][2] != x


def test_what_json_has_no_number_for_is_a_string(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_json(capsys, saxpy, "--arg", "a=inf")
    assert result["arguments"][1]["value"] == "inf"
    values = result["arguments"][3]["values"]
    assert (values[0], values[1]) == ("nan", "inf")


def test_a_shipped_file_runs_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_json(capsys, "ptx/mma_m16n8k16_bf16_f32.ptx", "--arg", "a=eye(16x32,bf16)")
    b, d = (argument["values"] for argument in result["arguments"][1:3])
    assert np.array_equal(np.array(d), np.array(b)[:16] + 1)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--kernel", "sax"], 2, "saxpy"),
        (["--arg", "z=3"], 2, "no parameter 'z'"),
        (["--arg", "nn=3"], 2, "did you mean 'n'"),
        (["--arg", "n=many"], 2, "argument n=many: 'many' is not a number"),
        (["--arg", "n=2.5"], 2, "(n) is .u32"),
        (["--arg", "n=4294967296"], 2, "(n) is .u32"),
        (["--arg", "n=zeros(3,f32)"], 2, "(n) is .u32"),
        (["--arg", "x=3.5"], 2, "(x) is .u64"),
        (["--grid", "0"], 2, "'0' is not one to three sizes"),
        (["--grid", "1,2,3,4"], 2, "'1,2,3,4' is not one to three sizes"),
        (["--shared", "-1"], 2, "-1"),
        (["--save", "q=q.npy"], 2, "--save q: no array argument"),
        (["--save", "y"], 2, "'y' is not NAME=FILE"),
        (["-D", "X=1"], 2, "PTX already"),
        (["--arg", "y=ones(8,f32)"], 4, "saxpy.ptx:"),
    ],
)
def test_what_is_wrong_is_said(
    saxpy: str,
    words: list[str],
    status: int,
    message: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if status == 4 and request.config.getoption("--device") != "emulator":
        return  # a GPU may let the access pass
    assert main(["run", saxpy, *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_a_file_without_header_says_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.ptx"
    file.write_text(SAXPY.replace("// Run", "// Not"))
    assert main(["run", str(file)]) == 2
    assert "saxpy, fill" in capsys.readouterr().err
    assert main(["run", str(file), "--kernel", "fill", "--arg", "value=1"]) == 2
    err = capsys.readouterr().err
    assert "no value for out" in err
    assert "--arg out=" in err
    words = ["--kernel", "fill", "--arg", "value=1", "--arg", "out=ones(1,u32)"]
    assert main(["run", str(file), *words]) == 2
    assert "give --block" in capsys.readouterr().err


def test_no_such_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "ptx/mma_m16n8k16_bf16_f23.ptx"]) == 2
    assert "did you mean ptx/mma_m16n8k16_bf16_f32.ptx" in capsys.readouterr().err


def test_broken_ptx_is_shown_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.ptx"
    file.write_text(SAXPY.replace("%tid.x;", "%tid.x", 1))
    line = next(i for i, text in enumerate(SAXPY.splitlines(), 1) if "%tid.x" in text)
    text = "    mov.u32         i, %tid.x"
    assert main(["run", str(file)]) == 4
    _, where, source, caret, _ = capsys.readouterr().err.splitlines()
    assert where.startswith(f"{file}:{line}:{len(text) + 1}: ")
    assert (source, caret) == (f"    {text}", " " * (4 + len(text)) + "^")


def test_no_gpu_is_an_error_and_never_the_emulator(
    saxpy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu(ordinal: int, target: object) -> None:
        raise DeviceUnavailable("there is no CUDA driver")

    monkeypatch.setattr("ptxlab.device.opening._open_cuda", no_gpu)
    assert main(["run", saxpy, "--device", "cuda"]) == 3
    assert capsys.readouterr() == ("", "ptxlab: there is no CUDA driver\n")


def test_auto_says_which_device_ran_and_why(
    saxpy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu(ordinal: int, target: object) -> None:
        raise DeviceUnavailable("there is no CUDA driver")

    monkeypatch.setattr("ptxlab.device.opening._open_cuda", no_gpu)
    monkeypatch.setattr("ptxlab.device.opening.open_device", open_device)
    assert main(["run", saxpy, "--json", "--arch", "sm_86"]) == 0
    out, err = capsys.readouterr()
    assert err == "ptxlab: on ptxlab emulator, sm_86, because there is no CUDA driver\n"
    assert (json.loads(out)["device"], json.loads(out)["arch"]) == ("emulator", "sm_86")


def test_merging_keeps_the_order_and_takes_the_last() -> None:
    assert merged(["a=1", "b=2"], ["b=3", "c=4"]) == ["a=1", "b=3", "c=4"]


PRINTS = """\
extern "C" __device__ int printf(const char*, ...);
extern "C" __global__ void greet(int* out) { out[threadIdx.x] = printf("lane %d\\n", threadIdx.x); }
"""


def test_what_a_program_prints_reaches_the_user(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "greet.cu"
    file.write_text(PRINTS)
    words = ["run", str(file), "--device", "emulator", "--block", "2", "--arg", "o=zeros(2,s32)"]
    assert main(words) == 0
    assert capfd.readouterr().out.startswith("lane 0\nlane 1\n")
    # With --json, stdout is JSON and nothing else.
    assert main([*words, "--json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["schema"] == "ptxlab.run/1"
    assert captured.err == "lane 0\nlane 1\n"
