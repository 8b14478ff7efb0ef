"""A trusted kernel that is launched as it is: values in float64, and bounds that what it computes itself is inside of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import LaunchConfig, open_device
from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.carrying_kernel import CarryingKernel
from ptxlab.judge.comparison import wrong
from ptxlab.judge.limits import Limits
from ptxlab.judge.reference_kernel import ReferenceKernel
from ptxlab.judge.references import ReferenceFunction
from ptxlab.judge.task import KernelTask
from ptxlab.toolchain.nvrtc import assemble_cuda

SM_80 = TARGETS["sm_80"]
HEAD = """\
.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
  .reg .b16 h<8>; .reg .b32 r<8>; .reg .f32 f<8>; .reg .f64 d; .reg .b64 p, q, w; .reg .pred u; .shared .align 16 .b8 s[512];
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; mov.u32 r0, %tid.x; mul.wide.u32 w, r0, 8;
  add.u64 p, p, w; add.u64 q, q, w; ld.global.v2.f32 {f0, f1}, [p];
"""
GEMM = """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int n, int k) {
    __shared__ float row[64];
    for (int i = threadIdx.x; i < k; i += blockDim.x) row[i] = A[blockIdx.x * k + i];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += row[i] * B[i * n + threadIdx.x];
    if (threadIdx.x < n) C[blockIdx.x * n + threadIdx.x] = __expf(-fabsf(sum)) * (1.5f + sum * sum);
}"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "k.ptx"
    file.write_text(text)
    return file


def expected(file: Path, arguments: dict[str, Any], grid: Any = 1, block: Any = 32) -> Any:
    kernel = CarryingKernel(
        file, list(arguments), lambda sizes: {"grid": grid, "block": block}, SM_80
    )
    return kernel, kernel.expected(arguments, SM_80, {})


def body(tmp_path: Path, text: str, x: Array, block: int = 32) -> Any:
    """Return what a kernel leaves in y that has two numbers of x for each thread, f0 and f1."""
    given = {"x": x, "y": np.full_like(x, 7)}
    _, left = expected(written(tmp_path, f"{HEAD}{text}\n ret; }}"), given, block=block)
    return left["y"]


def pairs(count: int = 32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 2)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".ptx", pytest.param(".cubin", marks=pytest.mark.thorough)])
def test_a_kernel_has_the_bounds_of_the_same_in_cuda_c(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "gemm.cu"
    file.write_text(GEMM)
    ptx, cubin = assemble_cuda(GEMM, path="gemm.cu", arch="sm_80")
    file.with_suffix(suffix).write_bytes(ptx.encode() if suffix == ".ptx" else cubin.image)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 50), (50, 32)))
    given = {"A": a, "B": b, "C": rng.random((3, 32), np.float32), "n": 32, "k": 50}
    config = {"grid": 3, "block": 32}
    by_source = ReferenceKernel(file, list(given), lambda sizes: config, SM_80)
    want = by_source.expected(given, SM_80, {})["C"]
    kernel, left = expected(file.with_suffix(suffix), given, 3, 32)
    assert kernel.takes == ["A", "B", "n", "k"]
    np.testing.assert_allclose(left["C"].value, want.value, rtol=1e-6)
    ratio = left["C"].error / want.error
    assert 0.8 < ratio.min() < ratio.max() < 1.25


OPERATIONS = (
    "add.f32 {d}, {a}, {b};", "sub.f32 {d}, {a}, {b};", "mul.f32 {d}, {a}, {b};", "fma.rn.f32 {d}, {a}, {b}, {c};",
    "div.rn.f32 {d}, {a}, 0f40490FDB;", "max.f32 {d}, {a}, {b};", "min.f32 {d}, {a}, {b};", "neg.f32 {d}, {a};",
    "abs.f32 {d}, {a};", "min.f32 {d}, {a}, 0f40400000; ex2.approx.ftz.f32 {d}, {d};",
    "abs.f32 {d}, {a}; sqrt.rn.f32 {d}, {d};", "abs.f32 {d}, {a}; add.f32 {d}, {d}, 0f3F000000; rcp.rn.f32 {d}, {d};",
    "cvt.rn.f16.f32 h0, {a}; cvt.f32.f16 {d}, h0;", "cvt.rn.f16x2.f32 r1, {a}, {b}; mov.b32 {{h1, h2}}, r1; cvt.f32.f16 {d}, h2;",
    "shfl.sync.bfly.b32 {d}, {a}, 5, 31, -1;", "cvt.rn.f32.u32 {d}, r0;", "setp.gt.u32 u, r0, 9; selp.f32 {d}, {a}, {b}, u;",
    "setp.gt.u32 u, r0, 20; @u mov.f32 {d}, {a};", "mov.b64 w, {{{a}, {b}}}; mov.b64 {{{b}, {d}}}, w;",
)  # fmt: skip


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.thorough) for s in range(1, 60))]
)
def test_what_the_kernel_computes_is_inside_of_its_bound(tmp_path: Path, seed: int) -> None:
    """Of operations drawn at random, one after another, in four registers."""
    rng = np.random.default_rng(seed)
    lines = ["mov.f32 f2, f1; mov.f32 f3, 0f3F99999A;"]
    for _ in range(30):
        names = [f"f{n}" for n in rng.integers(0, 4, 4)]
        lines.append(str(rng.choice(OPERATIONS)).format(**dict(zip("abcd", names, strict=True))))
    lines.append("add.f32 f0, f0, f2; st.global.v2.f32 [q], {f0, f3};")
    x = pairs(seed=seed)
    want = body(tmp_path, "\n".join(lines), x)
    device = open_device("emulator", arch="sm_80")
    kernel = device.load(tmp_path / "k.ptx").kernel("k")
    y = device.zeros((32, 2), "f32")
    kernel.run(LaunchConfig.of(1, 32), [device.upload(x), y])
    bad, _ = wrong(y.numpy(), want)
    assert not bad.any()
    if not seed:
        assert (want.error < 1e-3 * np.abs(want.value) + 1e-3).mean() > 0.8


def test_a_sum_in_any_order_is_inside_and_a_narrower_one_is_not(tmp_path: Path) -> None:
    """Of 64 numbers: a tree of shuffles, through shared memory, and with atomics, at the same address."""
    x = pairs()
    tree = "add.f32 f0, f0, f1;" + "".join(
        f"shfl.sync.bfly.b32 f2, f0, {step}, 31, -1; add.f32 f0, f0, f2;"
        for step in (16, 8, 4, 2, 1)
    )
    out = "st.global.v2.f32 [q], {f0, f0};"
    shared = """mov.u32 r1, s; mad.lo.u32 r2, r0, 8, r1; st.shared.v2.f32 [r2], {f0, f1}; bar.sync 0; mov.f32 f0, 0f00000000;
mov.u32 r3, 0; more: ld.shared.f32 f2, [r1]; add.f32 f0, f0, f2; add.u32 r1, r1, 4; add.u32 r3, r3, 1; setp.lt.u32 u, r3, 64; @u bra more;"""
    atomic = """mov.u32 r1, s; mov.f32 f2, 0f00000000; st.shared.f32 [r1], f2; bar.sync 0; red.shared.add.f32 [r1], f0;
atom.shared.add.f32 f3, [r1], f1; bar.sync 0; ld.shared.f32 f0, [r1];"""
    terms = np.random.default_rng(1).permutation(x.reshape(-1))
    narrow = np.float32(np.add.reduce(terms.astype(np.float16), dtype=np.float16))
    bounds = []
    for way in (tree, shared, atomic):
        want = body(tmp_path, way + out, x)
        np.testing.assert_allclose(want.value, x.astype(float).sum(), rtol=1e-12)
        bounds.append(want.error[0, 0])
        assert not wrong(np.full_like(x, np.add.accumulate(terms)[-1]), want)[0].any()
        assert wrong(np.full_like(x, narrow), want)[0].all()
    in_numpy = ReferenceFunction(lambda x: {"y": x.sum() + 0 * x}, ["x", "y"])
    by_function = in_numpy.expected({"x": x, "y": x}, SM_80, {})["y"].error[0, 0]
    assert 0.9 < min(bounds) / by_function < max(bounds) / by_function < 1.1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mul.f32 f0, f0, f1; mov.b32 r1, f0; shr.u32 r1, r1, 3;", "shr.u32.*looks into the bits"),
        ("mul.f32 f0, f0, f1; cvt.rzi.s32.f32 r1, f0;", "cvt.rzi.s32.f32.*looks into the bits"),
        ("sub.f32 f0, f0, f0; setp.lt.f32 u, f0, 0f00000000;", "setp.lt.f32.*rounding decides"),
        ("mul.f32 f0, f0, f1; cvt.rna.tf32.f32 r1, f0;", "cvt.rna.tf32.f32.*(bits|rule)"),
        ("add.sat.f32 f0, f0, f1;", "add.sat.f32.*no rule"),
        ("mul.f32 f0, f0, f1; st.global.f32 [q], f0; ld.global.b16 h0, [q];", "ld.global.b16.*bits"),
        ("mul.f32 f0, f0, f1; st.global.f32 [q], f0; st.global.b8 [q], r0;", "st.global.b8.*bits"),
        ("atom.global.add.f32 f2, [q], f0; st.global.f32 [q+4], f2;", "st.global.f32.*bits"),
        ("mul.f32 f0, f0, f1; mov.b32 {h0, h1}, f0;", "mov.b32.*looks into the bits"),
    ],
)  # fmt: skip
def test_what_no_bound_follows_from_is_refused_by_name_and_line(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(Unsupported, match=f"k.ptx:9.*{told}"):
        body(tmp_path, text, pairs())


def test_exact_numbers_may_be_looked_into(tmp_path: Path) -> None:
    text = "mov.b32 r1, f0; and.b32 r1, r1, 0x7fffff00; mov.b32 f0, r1; cvt.rzi.s32.f32 r2, f1; cvt.rn.f32.s32 f1, r2;"
    x = pairs()
    want = body(tmp_path, f"{text} st.global.v2.f32 [q], {{f0, f1}};", x)
    cut = (x[:, 0].view(np.uint32) & np.uint32(0x7FFFFF00)).view(np.float32)
    np.testing.assert_array_equal(want.value, np.stack([cut, np.trunc(x[:, 1])], axis=1))
    assert not want.error.any()


def test_signs_are_taken_and_turned_by_their_bits(tmp_path: Path) -> None:
    text = "mul.f32 f0, f0, f1; mov.b32 r1, f0; and.b32 r1, r1, 2147483647; xor.b32 r2, r1, 2147483648; st.global.v2.b32 [q], {r1, r2};"
    x = pairs()
    want = body(tmp_path, text, x)
    product = np.abs(np.prod(x.astype(float), axis=1))
    np.testing.assert_allclose(want.value, np.stack([product, -product], axis=1), rtol=1e-15)
    assert (want.error > 2.0**-25 * np.abs(want.value)).all()


def test_what_some_threads_write_is_theirs_alone(tmp_path: Path) -> None:
    text = "mul.f32 f2, f0, f1; setp.lt.u32 u, r0, 5; @u mov.f32 f0, f2; @u st.global.f32 [q], f2; st.global.f32 [q+4], f0;"
    x = pairs()
    want = body(tmp_path, text, x)
    assert (want.error[:5] > 0).all()
    assert not want.error[5:].any()
    np.testing.assert_array_equal(want.value[5:], np.stack([np.full(27, 7), x[5:, 0]], axis=1))
    text = "mul.f32 f2, f0, f1; setp.lt.u32 u, r0, 5; @u add.f32 f2, f2, f1; st.global.v2.f32 [q], {f2, f0};"
    product = np.prod(x.astype(float), axis=1)
    product[:5] += x[:5, 1]
    want = body(tmp_path, text, x)
    np.testing.assert_allclose(want.value[:, 0], product, rtol=1e-15)
    assert (want.error[:, 0] > 0).all()


def test_copies_carry_what_is_written_before(tmp_path: Path) -> None:
    text = """mul.f32 f0, f0, f1; st.global.v2.f32 [q], {f0, f1}; mov.u32 r1, s; mad.lo.u32 r2, r0, 8, r1;
cp.async.ca.shared.global [r2], [q], 8; cp.async.wait_all; ld.shared.v2.f32 {f2, f3}, [r2]; st.global.v2.f32 [q], {f3, f2};"""
    x = pairs()
    want = body(tmp_path, text, x)
    np.testing.assert_array_equal(want.value[:, 0], x[:, 1])
    np.testing.assert_allclose(want.value[:, 1], np.prod(x.astype(float), axis=1), rtol=1e-15)
    assert not want.error[:, 0].any()
    assert want.error[:, 1].all()


def test_a_reference_of_packed_types_is_launched_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "four.cu"
    file.write_text('extern "C" __global__ void four(float4* y) { y[threadIdx.x].x *= 3.0f; }')
    task = KernelTask(
        file, arguments={"y": np.ones(8, np.float32)}, sizes=None, arch="sm_80", limits=Limits(), seed=0, grid=1, block=2,
        shared=0, cluster=None,
    )  # fmt: skip
    given = task.cases()[0]
    assert given.expected["y"].value.tolist() == [3, 1, 1, 1, 3, 1, 1, 1]
    assert (given.expected["y"].error > 0).tolist() == [True, False, False, False] * 2
