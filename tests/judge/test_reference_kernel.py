"""A trusted kernel as the reference: what it leaves, and a bound that is that of the same function in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.comparison import wrong
from ptxlab.judge.reference_kernel import ReferenceKernel
from ptxlab.judge.references import ReferenceFunction
from ptxlab.numbers.formats import BF16, F16

SM_80 = TARGETS["sm_80"]
KERNELS = """
#include <cuda_runtime.h>
#include <stdio.h>
extern "C" __global__ void gemm(int k, int n, const float* B, float* C, const float* A, float alpha) {
    __shared__ float row[256];
    for (int i = threadIdx.x; i < k; i += blockDim.x) row[i] = A[blockIdx.x * k + i];
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += row[i] * B[i * n + threadIdx.x];
    C[blockIdx.x * n + threadIdx.x] = alpha * sum;
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
    x += blockIdx.x * n;
    float most = -INFINITY;
    for (int i = 0; i < n; i++) most = fmaxf(most, x[i]);
    float total = 0;
    for (int i = threadIdx.x; i < n; i += 32) total += expf(x[i] - most);
    for (int half = 16; half; half /= 2) total += __shfl_xor_sync(~0u, total, half);
    for (int i = threadIdx.x; i < n; i += 32) y[blockIdx.x * n + i] = expf(x[i] - most) / total;
}
extern "C" __global__ void added(float* y, int* count) {
    y[threadIdx.x] += 0.5;
    count[threadIdx.x] = y[threadIdx.x] > 1 ? 7 : 8;
}
extern "C" __global__ void split(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x] * 3.0f > 3.0f ? 1 : 0;
}
int main() { gemm<<<1, 1>>>(0, 0, 0, 0, 0, 0); printf("the host is none of it"); }
"""
NARROW = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T> __device__ void product(const T* A, const T* B, float* C, int n, int k) {
    for (int i = threadIdx.x % 2; i < k; i += 2)
        atomicAdd(&C[threadIdx.x / 2], (float)A[i] * (float)B[i * n + threadIdx.x / 2]);
}
extern "C" __global__ void of_half(const half* A, const __half* B, float* C, int n, int k) { product(A, B, C, n, k); }
extern "C" __global__ void of_bf16(const nv_bfloat16* A, const __nv_bfloat16* B, float* C, int n, int k) {
    product(A, B, C, n, k);
}
extern "C" __global__ void stored(const half* x, half* y, int* count) {
    half sum = x[0] * x[1] + __float2half(0.5f);
    y[threadIdx.x] = sum;
    if (sum > half(0)) atomicAdd(count, 1);
}
"""


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    file = tmp_path_factory.mktemp("trusted") / "kernels.cu"
    file.write_text(KERNELS)
    narrow = file.with_name("narrow.cu")
    narrow.write_text(NARROW)

    def make(name: str, arguments: dict[str, Any], grid: int, block: int) -> Any:
        kernel = ReferenceKernel(
            narrow if name in NARROW else file,
            list(arguments),
            lambda sizes: {"grid": grid, "block": block},
            SM_80,
            name,
        )
        return kernel, kernel.expected(arguments, SM_80, {})

    return make


def in_numpy(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return ReferenceFunction(function, list(arguments)).expected(arguments, SM_80, {})


def f32_sum(terms: Array, order: Array) -> Array:
    total = np.zeros(terms.shape[:-1], np.float32)
    for at in order:
        total = total + terms[..., at]
    return total


def test_a_product_has_the_bound_of_any_order(trusted: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 200), (200, 7)))
    given = {"A": a, "B": b, "C": rng.random((3, 7), np.float32), "n": 7, "k": 200, "alpha": 1.5}
    kernel, expected = trusted("gemm", given, 3, 7)
    assert kernel.takes == ["A", "B", "n", "k", "alpha"]
    assert expected.keys() == {"C"}
    want = expected["C"]
    np.testing.assert_allclose(want.value, 1.5 * (a.astype(float) @ b), rtol=1e-12)
    terms = a[:, None, :] * b.T[None]
    for order in (np.arange(200), rng.permutation(200)):
        assert not wrong(np.float32(1.5) * f32_sum(terms, order), want)[0].any()
    cut = np.float32(1.5) * f32_sum(terms.astype(np.float16).astype(np.float32), np.arange(200))
    assert wrong(cut, want)[0].mean() > 0.5
    ratio = want.error / in_numpy(lambda A, B: {"C": 1.5 * (A @ B)}, given)["C"].error
    assert 0.7 < ratio.min() < ratio.max() < 1.5


def test_functions_shuffles_and_shared_memory_carry_it(trusted: Callable[..., Any]) -> None:
    x = np.random.default_rng(1).standard_normal((2, 70)).astype(np.float32)
    given = {"x": x, "y": np.ones_like(x), "n": 70}
    _, expected = trusted("softmax", given, 2, 32)
    want = expected["y"]
    e = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(want.value, e / e.sum(axis=1, keepdims=True), rtol=1e-12)

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": e / e.sum(axis=1, keepdims=True)}

    ratio = want.error / in_numpy(softmax, given)["y"].error
    assert 0.5 < ratio.min() < ratio.max() < 2


def test_what_is_written_in_place_is_taken(trusted: Callable[..., Any]) -> None:
    y = np.array([0.25, 2.0, -1.0], np.float32)
    kernel, expected = trusted("added", {"y": y, "count": np.zeros(3, np.int32)}, 1, 3)
    assert "y" in kernel.takes
    assert expected["y"].value.tolist() == [0.75, 2.5, -0.5]
    of_terms = 2.0**-24 * (np.abs(y) + 0.5)  # half an ulp of the sum of the magnitudes
    np.testing.assert_allclose(expected["y"].error, of_terms, rtol=0.01)
    assert expected["count"].value.tolist() == [8, 7, 8]
    assert not expected["count"].error.any()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("of_half", F16.dtype), pytest.param("of_bf16", BF16.dtype, marks=pytest.mark.thorough)],
)
def test_a_product_of_half_has_the_bound_of_tensor_cores(
    trusted: Callable[..., Any], name: str, dtype: Any
) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in (60, (60, 4)))
    given = {"A": a, "B": b, "C": np.zeros(4, np.float32), "n": 4, "k": 60}
    _, expected = trusted(name, given, 1, 8)
    want = expected["C"]
    np.testing.assert_allclose(want.value, a.astype(float) @ b.astype(float), rtol=1e-12)
    same = in_numpy(lambda A, B, C: {"C": A @ B}, given)["C"]
    assert 0.9 < (want.error / same.error).min() < (want.error / same.error).max() < 1.1


def test_half_is_rounded_where_it_is_stored(trusted: Callable[..., Any]) -> None:
    x = np.array([1.5, 3.0009765625], np.float16)
    _, expected = trusted(
        "stored", {"x": x, "y": np.zeros(2, np.float16), "count": np.zeros(1, np.int32)}, 1, 2
    )
    exact = 1.5 * float(x[1]) + 0.5
    np.testing.assert_allclose(expected["y"].value, exact)
    roundings = 2.0**-11 * (exact - 0.5 + exact)  # of the product, which is no half, and of the sum
    np.testing.assert_allclose(expected["y"].error, roundings, rtol=0.01)
    assert expected["count"].value.tolist() == [2]
    in_half = np.float16(np.float16(1.5) * x[1]) + np.float16(0.5)
    assert not wrong(np.full(2, in_half), expected["y"])[0].any()


def test_what_gives_no_bound_is_refused(trusted: Callable[..., Any], tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(Unsupported, match="rounding decides"):
        trusted("split", {"x": x, "y": 0 * x}, 1, 4)
    with pytest.raises(Unsupported, match="is of float16"):
        trusted("split", {"x": x.astype(np.float16), "y": x}, 1, 4)
    with pytest.raises(PtxlabError, match="out of bounds"):
        trusted("split", {"x": x, "y": 0 * x}, 1, 5)
    file = tmp_path / "added.cu"
    file.write_text("#include <cuda_fp16.h>\n__global__ void k(half* x) { atomicAdd(x, half(1)); }")
    with pytest.raises(ToolchainError, match="deleted"):
        ReferenceKernel(file, ["x"], lambda sizes: {}, SM_80)
    file = tmp_path / "packed.cu"
    file.write_text("__global__ void k(float4* x) { x[0].x = 1; }")
    with pytest.raises(Unsupported, match="has float4"):
        ReferenceKernel(file, ["x"], lambda sizes: {}, SM_80)
