"""Programs as others write them: Triton's output, NVRTC's with line info and for debugging, by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.main import main
from ptxlab.toolchain import compile_cuda
from tests.together import thorough

FOREIGN = Path(__file__).with_name("foreign")


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matmul", "d=a.astype(f32) @ b.astype(f32)"),
        (
            "softmax",
            "y=where(arange(256) < 250, exp(x - max(x[:, :250], axis=1)[:, None]), 0)"
            " / sum(exp(x - max(x[:, :250], axis=1)[:, None])[:, :250], axis=1)[:, None]",
        ),
    ],
)
def test_what_triton_compiles(
    name: str, expected: str, arch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(FOREIGN / f"triton_{name}.ptx")
    words = ["run", file, "--device", "emulator", "--arch", arch, "--expect", expected]
    assert main([*words, "--tolerance", "1e-5,2e-5"]) == 0, capsys.readouterr()
    assert main(["sass", file, "--arch", arch, "--json"]) == 0
    out = capsys.readouterr().out
    kernel = json.loads(out[out.index('{"schema"') :])["programs"][0]["kernels"][0]
    assert {"matmul": "HMMA", "softmax": "SHFL"}[name] in kernel["opcodes"]
    assert kernel["occupancy"][0]["threads"] == 128
    sources = {
        instruction["source"]["path"]
        for instruction in kernel["instructions"]
        if instruction["source"]
    }
    assert "/kernels/kernels.py" in sources


@pytest.mark.parametrize(
    ("name", "at"), [("matmul", "mma.sync"), *thorough([("softmax", "shfl.sync")])]
)
def test_every_verb_looks_into_what_triton_compiles(
    name: str, at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(FOREIGN / f"triton_{name}.ptx")

    def answer(verb: str, *words: str) -> dict[str, Any]:
        assert main([verb, file, "--json", *words]) == 0, capsys.readouterr()
        output: dict[str, Any] = json.loads(capsys.readouterr().out)
        return output

    checked = answer("check")
    assert checked["verdict"] == "clean"
    # Threads that hold the same sum store it to the same place; nothing else is worth a word.
    assert {(finding["kind"], finding["severity"]) for finding in checked["findings"]} <= {
        ("race", "info")
    }
    totals = answer("profile")["totals"]
    # By hand: every element of A and B, or of the 250 columns of x, is read once, and one of D or y
    # written; whole rows are whole sectors, and 250 columns of 1024 bytes a row begin 32 of them.
    read, written, sectors = {
        "matmul": (
            2 * (64 * 96 + 96 * 32),
            4 * 64 * 32,
            (2 * (64 * 96 + 96 * 32) + 4 * 64 * 32) // 32,
        ),
        "softmax": (3 * 4 * 250, 3 * 4 * 250, 2 * 3 * 32),
    }[name]
    assert (totals["global_read"], totals["global_written"]) == (read, written)
    assert totals["sectors"] == totals["sectors_ideal"] == sectors
    if name == "matmul":
        assert totals["flops"] == 2 * 64 * 32 * 96
    assert answer("diff", "--a", "emulator:sm_80", "--b", "emulator:sm_86")["same"]
    registers = "A,B,D" if name == "matmul" else "D"
    dumped = answer("dump", "--device", "emulator", "--at", at, "--regs", registers)
    assert all(lane["reached"] for lane in dumped["lanes"])
    if name == "matmul":
        a, b, d = (np.array(dumped["matrices"][operand]) for operand in "ABD")
        assert (a.shape, b.shape, d.shape) == ((16, 16), (16, 8), (16, 8))
        np.testing.assert_allclose(d, a @ b, rtol=0, atol=1e-4)  # the first product: C is 0
        assert abs(d).max() > 1


CUDA = """\
#include <cuda_fp16.h>
struct Options { float scale; int count; };
__device__ __noinline__ float grown(float x, int k) { return k ? grown(x * 1.5f, k - 1) : x; }
template <typename T> __device__ T twice(T x) { return x + x; }
extern "C" __global__ void mixed(const float* a, half* h, float* out, Options options) {
    __shared__ float tile[64];
    float local[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = a[i];
    __syncthreads();
    for (int j = 0; j < 4; ++j) local[j] = tile[(threadIdx.x + j) % 64] * options.scale;
    float sum = 0;
    for (int j = 0; j < 4; ++j) sum += twice(local[(j + i) & 3]);
    switch (i & 7) {
        case 0: sum += 1; break;
        case 1: sum *= 2; break;
        case 2: sum -= 3; break;
        case 3: sum = -sum; break;
        default: sum += 0.25f;
    }
    if (i < options.count) { out[i] = grown(sum, 2); h[i] = __float2half(sum); }
}
"""


@pytest.mark.parametrize("options", [(), ("-lineinfo",), ("-G",)])
def test_what_nvrtc_compiles(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ptx = compile_cuda(CUDA, path="mixed.cu", arch="sm_80", options=options)
    values = np.random.default_rng(0).integers(-8, 8, 128).astype(np.float32)
    given = np.array((0.5, 100), [("scale", "f4"), ("count", "i4")])
    with open_device("emulator", arch="sm_80") as device:
        kernel = device.load(ptx).kernel("mixed")
        a, h, out = device.upload(values), device.zeros(128, "f16"), device.zeros(128, "f32")
        kernel.launch(2, 64, [a, h, out, given])
        sums, halves = out.numpy(), h.numpy()
    for i in range(128):
        tile = values[i // 64 * 64 : i // 64 * 64 + 64]
        total = sum(float(tile[(i % 64 + j) % 64]) for j in range(4))  # twice a half: exact
        total = {0: total + 1, 1: total * 2, 2: total - 3, 3: -total}.get(i & 7, total + 0.25)
        assert sums[i] == (total * 2.25 if i < 100 else 0)
        assert halves[i] == (total if i < 100 else 0)
    file = tmp_path / "mixed.ptx"
    file.write_text(ptx)
    assert main(["sass", str(file), "--arch", "sm_80", "--json"]) == 0
    (program,) = json.loads(capsys.readouterr().out)["programs"]
    (kernel,) = program["kernels"]
    assert (kernel["kernel"], kernel["shared"], kernel["barriers"]) == ("mixed", 4 * 64, 1)
    assert kernel["opcodes"]["BAR"] == 1
    assert any(function["name"].startswith("_Z5grownfi") for function in program["functions"])
    # Only for debugging is an array kept in memory that the optimizer has in registers.
    assert (kernel["stack"] >= 4 * 4) == (options == ("-G",))


BY_HAND = """\
// Written in the manner of the PTX ISA's own examples: state spaces, vectors, a table of branches.
.version 7.3
.target sm_75
.address_size 64

.const  .align 8 .f32 bias[4] = { -1.0, 1.0, 0f3F000000, 2.0 };
.global .u8  order[4] = { 3, 2, 1, 0 };
.const  .u64 where = generic(order);

.func (.reg .s32 result) clamp (.reg .s32 x, .reg .s32 low, .reg .s32 high)
{
    max.s32     result, x, low;
    min.s32     result, result, high;
    ret;
}

.visible .entry by_hand (.param .u64 input, .param .u64 output)
{
    .reg .pred      p<3>;
    .reg .b32       r<9>;
    .reg .s32       low;
    .reg .f32       f<5>;
    .reg .v4 .f32   quad;
    .reg .b64       rd<6>;
    .shared .align 16 .b8 room[512];
    .local  .align 4  .b32 scratch[2];

    mov.u32         r0, %tid.x;
    ld.param.u64    rd0, [input];
    ld.param.u64    rd1, [output];
    mad.wide.u32    rd0, r0, 16, rd0;
    mad.wide.u32    rd1, r0, 4, rd1;
    ld.global.v4.f32 quad, [rd0];
    shl.b32         r1, r0, 4;
    mov.u32         r2, room;
    add.u32         r1, r1, r2;
    st.shared.v4.f32 [r1], quad;
    bar.sync        0;
    ld.shared.v2.f32 {f0, f1}, [r1+8];
    and.b32         r3, r0, 3;
    ld.const.u64    rd2, [where];
    cvt.u64.u32     rd3, r3;
    add.u64         rd2, rd2, rd3;
    ld.u8           r4, [rd2];
    mul.wide.u32    rd4, r4, 4;
    mov.u64         rd5, bias;
    add.u64         rd4, rd4, rd5;
    ld.const.f32    f2, [rd4];
    fma.rn.f32      f3, f0, f2, f1;
    setp.lt.f32     p0|p1, f3, 0f00000000;
    selp.f32        f3, f2, f3, p0;
    mov.s32         low, -2;
    cvt.rni.s32.f32 r5, f3;
    call            (r6), clamp, (r5, low, 5);
    st.local.b32    [scratch+4], r6;
    ld.local.b32    r7, [scratch+4];
arms: .branchtargets zero, one, one, two;
    brx.idx         r3, arms;
zero:
    neg.s32         r7, r7;
    bra.uni         end;
one:
@p1 add.s32         r7, r7, 100;
    bra             end;
two:
    prmt.b32        r7, r7, 0, 0x0123;
end:
    st.global.b32   [rd1], r7;
    exit;
}
"""


BECOMES = {
    "st.shared.v4.f32": "STS.128",
    "bar.sync": "BAR.SYNC",
    "ld.shared.v2.f32": "LDS",
    "fma.rn.f32": "FFMA",
    "selp.f32": "FSEL",
    "st.local.b32": "STL",
    "prmt.b32": "PRMT",
    "exit": "EXIT",
}
"""The SASS beside it, by the instruction set reference of the CUDA Binary Utilities."""


def test_what_people_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "by_hand.ptx"
    file.write_text(BY_HAND)
    values = np.random.default_rng(2).integers(-6, 6, (32, 4)).astype(np.float32)
    np.save(tmp_path / "in.npy", values)
    np.save(tmp_path / "out.npy", np.array([reference(i, values[i]) for i in range(32)], np.int32))
    words = ["--block", "32", "--arg", f"a=@{tmp_path / 'in.npy'}", "--arg", "o=zeros(32,s32)"]
    words += ["--expect", f"o=@{tmp_path / 'out.npy'}"]
    for arch in ("sm_75", "sm_90a"):
        command = ["run", str(file), "--device", "emulator", "--arch", arch, *words]
        assert main(command) == 0, capsys.readouterr().out
        capsys.readouterr()
        assert main(["sass", str(file), "--arch", arch]) == 0
        lines = capsys.readouterr().out.splitlines()
        for instruction, opcode in BECOMES.items():
            (line,) = (line for line in lines if f"  {instruction}" in line)
            assert opcode in line, (arch, line)


@pytest.mark.parametrize(
    ("verb", "cases"),
    [("run", 100), pytest.param("run", 250, marks=pytest.mark.thorough), ("sass", 25)],
)
def test_damaged_programs_are_an_error_and_nothing_else(
    verb: str, cases: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut, overwrite and delete: a result, or one message, the right status and no output."""
    choose = random.Random(8)
    file = tmp_path / "damaged.ptx"
    words = [verb, str(file), "-o", str(tmp_path / "out")]
    if verb == "run":
        words += ["--device", "emulator", "--timeout", "2", "--block", "32"]
        words += ["--arg", "a=randn(32x4,f32)", "--arg", "o=zeros(32,s32)"]
    for _ in range(cases):
        data = bytearray(BY_HAND.encode())
        if choose.random() < 0.2:
            del data[choose.randrange(len(data)) :]
        for _ in range(choose.randint(0, 3)):
            at, other = choose.randrange(len(data)), choose.randrange(len(data))
            data[at : at + choose.randrange(9)] = data[other : other + choose.randrange(9)]
        data[choose.randrange(len(data))] = choose.choice(b"\0\xff;,.%[]{}()09az \n")
        file.write_bytes(data)
        status = main(words)
        out, err = capsys.readouterr()
        assert (out, status in (0, 2, 4)) == ("", True), (
            status,
            err,
            data.decode(errors="replace"),
        )
        assert (tmp_path / "out").exists() == (status == 0)
        assert ("ptxlab: " in err or f"{file}:" in err) == (status != 0), err
        (tmp_path / "out").unlink(missing_ok=True)


def reference(i: int, quad: np.ndarray[tuple[int], np.dtype[np.float32]]) -> int:
    bias = (-1.0, 1.0, 0.5, 2.0)[3 - i % 4]
    value = float(quad[2]) * bias + float(quad[3])  # halves of small integers: exact
    negative = value < 0
    rounded = int(np.rint(bias if negative else value))
    result = min(max(rounded, -2), 5)
    if i % 4 == 0:
        return -result
    if i % 4 == 3:
        return int.from_bytes(result.to_bytes(4, "little", signed=True), "big", signed=True)
    return result + 100 if not negative else result


def test_eight_bit_floats_reach_a_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fp8.cu"
    file.write_text(
        "#include <cuda_fp8.h>\n"
        'extern "C" __global__ void widen(const __nv_fp8_e4m3* x, float* y) {\n'
        "    y[threadIdx.x] = float(x[threadIdx.x]);\n}\n"
    )
    words = ["--block", "32", "--arg", "x=randn(32,e4m3,seed=1)", "--arg", "y=zeros(32,f32)"]
    command = ["run", str(file), "--device", "emulator", *words, "--expect", "y=x.astype(f32)"]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    x, y = json.loads(capsys.readouterr().out)["arguments"]
    expected = np.random.default_rng(1).standard_normal(32).astype(ml_dtypes.float8_e4m3fn)
    assert x["dtype"] == "e4m3"
    assert x["values"] == y["values"] == expected.astype(np.float64).tolist()
