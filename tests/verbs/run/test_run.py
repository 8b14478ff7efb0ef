from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import DeviceUnavailable
from ptxlab.main import main
from ptxlab.verbs.launching.launch import merged
from ptxlab.verbs.run.verb import EXAMPLE

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
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def test_the_header_is_enough(saxpy: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, saxpy)
    assert result["schema"] == "ptxlab.run/2"
    assert (result["kernel"], result["grid"], result["block"]) == ("saxpy", [2, 1, 1], [32, 1, 1])
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
    assert result["grid"] == [1, 1, 1]
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
        (["--arg", "nn=3"], 2, "did you mean n?"),
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
    assert json.loads(captured.out)["schema"] == "ptxlab.run/2"
    assert captured.err == "lane 0\nlane 1\n"


# ---- what becomes of the result -------------------------------------------------------------


def test_a_right_expectation(saxpy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", saxpy, "--expect", "y = a * x + y", "--expect", "x=arange(50,f32)"]) == 0
    out = capsys.readouterr().out
    assert "\n\ny is right: a * x + y exactly, largest error 0\n" in out
    assert out.endswith("\n\nx is right: arange(50,f32) exactly, largest error 0\n")


def test_sums_have_the_tolerance_of_their_type(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    off = "y = a * x + y + {} * abs(y) + 0 * sum(y)"
    for error, status in (("1e-7", 0), ("1e-3", 1)):
        assert (
            main(["run", saxpy, "--arg", "y=randn(50,f32)", "--expect", off.format(error)])
            == status
        )
    assert "within rtol 1e-06" in capsys.readouterr().out
    assert main(["run", saxpy, "--expect", "y = a * x + y + 1e-3"]) == 1, "others are exact"


def test_a_wrong_expectation_shows_its_first_differences(
    saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", saxpy, "--arg", "x=arange(5x10,f32)", "--arg", "y=ones(5x10,f32)"]
    expectation = "y=a*x + y + where(x.astype(s32) % 7 == 3, 0.5, 0)"
    assert main([*words, "--expect", expectation]) == 1
    verdict = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert verdict[0].startswith("y is wrong: 7 of 50 elements are not a*x + y")
    assert verdict[0].endswith("exactly, largest error 0.5")
    assert verdict[1:3] == ["  y[0,3] is 7, not 7.5", "  y[1,0] is 21, not 21.5"]
    assert len(verdict) == 6
    assert main([*words, "--expect", expectation, "--tolerance", "0,0.5"]) == 0
    assert "within rtol 0, atol 0.5" in capsys.readouterr().out


def test_of_a_wrong_product_it_is_said_who_looks_at_its_operands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = "ptx/mma_m16n8k16_bf16_f32.ptx"
    asked = f"ptxlab fragments --ptx {program}"
    assert main(["run", program, "--expect", "d=d"]) == 1
    assert capsys.readouterr().out.rstrip().endswith(asked)
    assert main(["run", program, "--expect", "a=a"]) == 0
    assert asked not in capsys.readouterr().out
    assert main(["check", program]) == 0
    assert asked in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "status"),
    [
        ("ones(2,f32)", "out=where(arange(2) == 0, 7 * 1.401298464324817e-45, 1)", "0", 0),
        ("ones(2,f32)", "out=@{folder}/nan.npy", "0", 1),
        ("@{folder}/nan.npy", "out=where(arange(2) == 0, 7 * 1.401298464324817e-45, out)", "0", 0),
        ("@{folder}/nan.npy", "out=where(arange(2) == 0, 7 * 1.401298464324817e-45, 1)", "9,9", 1),
        ("zeros(2,u32)", "out=where(arange(2) == 0, 8, 0)", "0,0.5", 1),
        ("zeros(2,u32)", "out=where(arange(2) == 0, 8, 0)", "0,1", 0),
        ("zeros(2,u32)", "out=where(arange(2) == 0, 6.5, 0)", "0.1", 0),
        ("zeros(2,u32)", "out=where(arange(2) == 0, 6.5, 0)", "0.05", 1),
        # 7 is 3 from 4: more than 0.5 of what is expected, though less than 0.5 of what is found.
        ("zeros(2,u32)", "out=where(arange(2) == 0, 4, 0)", "0.5", 1),
        ("zeros(2,u32)", "out=where(arange(2) == 0, 4, 0)", "0.75", 0),
    ],
)
def test_what_counts_as_right(
    value: str,
    expected: str,
    tolerance: str,
    status: int,
    saxpy: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "nan.npy", np.array([0, np.nan], np.float32))
    value, expected = value.format(folder=tmp_path), expected.format(folder=tmp_path)
    words = ["--kernel", "fill", "--block", "1", "--arg", f"out={value}", "--expect", expected]
    assert main(["run", saxpy, *words, "--tolerance", tolerance, "--json"]) == status
    (expectation,) = json.loads(capsys.readouterr().out)["expectations"]
    assert (expectation["wrong"] == 0) == (status == 0)


def test_json_of_a_wrong_expectation(saxpy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", saxpy, "--expect", "y=x", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] is False
    (expectation,) = result["expectations"]
    assert (expectation["wrong"], expectation["largest_error"]) == (50, 50.0)
    assert expectation["differences"][1] == {"index": [1], "value": 3.0, "expected": 1.0}
    assert main(["run", saxpy, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is None


def test_an_archive_holds_all_arrays_or_those_named(
    saxpy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = tmp_path / "whole.npz", tmp_path / "part=1.npz"
    run_json(capsys, saxpy, "--save", str(whole).replace("=", "-"), "--save", f"y={part}")
    with np.load(whole) as archive:
        assert sorted(archive) == ["x", "y"]
        assert archive["y"].tolist() == [2.0 * i + 1 for i in range(50)]
    with np.load(part) as archive:
        assert list(archive) == ["y"]
    before = whole.read_bytes()
    run_json(capsys, saxpy, "--save", str(whole))
    assert whole.read_bytes() == before, "the same arrays are the same bytes"


def test_nothing_is_saved_of_a_launch_that_failed(
    saxpy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "emulator", "--arg", "y=ones(8,f32)", "--save", f"y={tmp_path / 'y.npy'}"]
    assert main(["run", saxpy, *words]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saxpy.ptx"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--expect", "z=1"], 2, "--expect z: no array argument"),
        (["--expect", "n=1"], 2, "--expect n: no array argument"),
        (["--expect", "y"], 2, "'y' is not NAME=VALUE"),
        (["--expect", "y=x[:3]"], 2, "its shape is 3, y is 50"),
        (["--expect", "y=a*z"], 2, "there is no 'z'"),
        (["--expect", "y=open(x)"], 2, "there is no open()"),
        (["--expect", "y=@none.npy"], 2, "cannot read none.npy"),
        (["--expect", "y=9**99"], 2, "it is object"),
        (["--tolerance", "much"], 2, "'much' is not RTOL or RTOL,ATOL"),
        (["--tolerance", "1,2,3"], 2, "'1,2,3' is not RTOL"),
        (["--tolerance", "nan"], 2, "'nan' is not RTOL"),
        (["--save", "y.npy"], 2, "'y.npy' is not NAME=FILE.npy"),
        (["--timeout", "soon"], 2, "'soon' is not a time in seconds"),
        (["--cluster", "2", "--grid", "3"], 2, "is not a multiple of cluster (2, 1, 1)"),
        (["--time", "--device", "emulator"], 2, "--time measures a GPU"),
    ],
)
def test_what_is_wrong_with_the_rest_is_said(
    words: list[str], status: int, message: str, saxpy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", saxpy, *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


# ---- CUDA C ---------------------------------------------------------------------------------

HEADERS = """\
#include "mine.cuh"
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cuda/barrier>
#include <cuda/pipeline>
extern "C" __global__ void tile(const half* a, const half* b, float* d, float* late) {
    using namespace nvcuda;
    __shared__ float stage[32];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&stage[threadIdx.x], late + threadIdx.x, sizeof(float), pipe);
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    __syncthreads();
    late[threadIdx.x] = stage[31 - threadIdx.x] * FACTOR * MINE;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, 16, wmma::mem_row_major);
}
"""


def test_headers_of_cuda_need_no_toolkit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "tile.cu", tmp_path / "include"
    file.write_text(HEADERS)
    folder.mkdir()
    (folder / "mine.cuh").write_text("#define MINE 2\n")
    words = ["run", str(file), "--arch", "sm_80", "--block", "32", "--arg", "a=randn(16x16,f16)"]
    words += ["--arg", "b=randn(16x16,f16)", "--arg", "d=zeros(16x16,f32)"]
    words += ["--arg", "late=arange(32,f32)", "--expect", "late=late[::-1] * 6"]
    words += [
        "--expect",
        "d=a.astype(f32) @ b.astype(f32)",
        "--tolerance",
        "0,1e-4",
        "-D",
        "FACTOR=3",
    ]
    assert main(words) == 4
    assert "mine.cuh" in capsys.readouterr().err
    words += ["-I", str(folder)]
    assert main(words) == 0, capsys.readouterr().err


def test_the_standard_of_cuda_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "auto.cu"
    file.write_text('template <auto N> struct X {};\nextern "C" __global__ void k() { X<3> x; }\n')
    words = ["run", str(file), "--device", "emulator", "--block", "1"]
    assert main([*words, "--std", "c++17"]) == 0
    assert main([*words, "--std", "c++14"]) == 4
    assert "auto.cu:1:" in capsys.readouterr().err
    assert main([*words, "--std", "c++97"]) == 4
    assert "NVRTC rejected" in capsys.readouterr().err


# ---- time -----------------------------------------------------------------------------------

SPINS = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry spins(.param .u64 flag)
.reqntid 32
{
    .reg .pred  waiting;
    .reg .b32   value;
    .reg .b64   p;

    ld.param.u64            p, [flag];
again:
    ld.volatile.global.u32  value, [p];
    setp.eq.u32             waiting, value, 0;
    @waiting bra            again;
    ret;
}
"""


def test_an_endless_loop_ends_and_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spins.ptx"
    file.write_text(SPINS)
    words = ["run", str(file), "--device", "emulator", "--timeout", "0.2", "--arg"]
    assert main([*words, "flag=zeros(1,u32)"]) == 4
    out, err = capsys.readouterr()
    line = SPINS.splitlines().index("again:") + 2
    assert out == ""
    assert err.startswith(f"{file}:{line}:")
    assert "not at its end after 0.2 s: 32 threads run here" in err
    assert "--timeout" in err
    assert main([*words, "flag=ones(1,u32)"]) == 0, "the block is the kernel's own .reqntid"


def test_the_example_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = EXAMPLE.partition("example:\n")[2].replace("\\\n", "").splitlines()
    assert main(shlex.split(first)[1:]) == 0
    assert main(shlex.split(second)[1:]) == 0
    assert "d is right: d + a.astype(f32) @ b.astype(f32)" in capsys.readouterr().out
