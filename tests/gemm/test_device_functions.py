"""The device functions of fragments.cuh and async_copy.cuh, each called by a small kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.protocol import Device, Kernel
from ptxlab.numbers.types import TYPES

LANE = np.arange(32)
G, Q = LANE // 4, LANE % 4


def pairs(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | high.astype(np.uint32) << 16


@pytest.fixture
def compile_kernel(device: Device, tmp_path: Path) -> Any:
    def compile_text(text: str) -> Kernel:
        file = tmp_path / "kernel.cu"
        file.write_text(text)
        return device.load(file).kernel()

    return compile_text


MAPPERS = """
#include "fragments.cuh"
extern "C" __global__ void mappers(const bf16* a, const bf16* b, const ACC* c, ACC* d, u32* out) {
    u32 fragment_a[4], fragment_b[2];
    load_matrix_a(fragment_a, a, 1, 2, 50);
    load_matrix_b(fragment_b, b, 1, 2, 29);
    Accumulator<ACC> accumulator;
    load_matrix_d(accumulator, c, 1, 2, 26);
    store_matrix_d(d, 0, 1, 18, accumulator);
    for (int i = 0; i < 4; i++) out[6 * lane_id() + i] = fragment_a[i];
    for (int i = 0; i < 2; i++) out[6 * lane_id() + 4 + i] = fragment_b[i];
}
"""


@pytest.mark.parametrize("acc", ["f32", "f16"])
def test_mappers(device: Device, compile_kernel: Any, acc: str) -> None:
    kernel = compile_kernel(MAPPERS.replace("ACC", acc))
    a = np.arange(32 * 50, dtype=np.uint16).reshape(32, 50)
    b = np.arange(32 * 29, dtype=np.uint16).reshape(32, 29) + 7
    c = np.arange(32 * 26).reshape(32, 26).astype(TYPES[acc].dtype)
    d, out = device.zeros((16, 18), acc), device.zeros((32, 6), "u32")
    kernel.launch(1, 32, [*map(device.upload, (a, b, c)), d, out])

    tile = a[16:32, 32:48]
    for i, (row, column) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8)]):
        expected = pairs(tile[G + row, 2 * Q + column], tile[G + row, 2 * Q + column + 1])
        np.testing.assert_array_equal(out.numpy()[:, i], expected)
    tile = b[16:32, 16:24]
    for i in range(2):
        expected = pairs(tile[2 * Q + 8 * i, G], tile[2 * Q + 8 * i + 1, G])
        np.testing.assert_array_equal(out.numpy()[:, 4 + i], expected)
    stored = np.zeros((16, 18), TYPES[acc].dtype)
    stored[:, 8:16] = c[16:32, 16:24]
    np.testing.assert_array_equal(d.numpy(), stored)


LDMATRIX = """
#include "fragments.cuh"
extern "C" __global__ void load(const u16* tile, u32* out) {
    __shared__ __align__(16) u16 rows[32][8];
    for (int i = 0; i < 8; i++) rows[threadIdx.x][i] = tile[8 * threadIdx.x + i];
    __syncthreads();
    const u32 row = shared_address(rows[threadIdx.x]);
    u32 r[7], s[7];
    ldmatrix_x1(r[0], row);
    ldmatrix_x2(r[1], r[2], row);
    ldmatrix_x4(r[3], r[4], r[5], r[6], row);
    ldmatrix_x1_trans(s[0], row);
    ldmatrix_x2_trans(s[1], s[2], row);
    ldmatrix_x4_trans(s[3], s[4], s[5], s[6], row);
    for (int i = 0; i < 7; i++) {
        out[14 * threadIdx.x + i] = r[i];
        out[14 * threadIdx.x + 7 + i] = s[i];
    }
}
"""


def test_ldmatrix(device: Device, compile_kernel: Any) -> None:
    matrices = np.random.default_rng(1).integers(0, 1 << 16, (4, 8, 8), np.uint16)
    out = device.zeros((32, 14), "u32")
    compile_kernel(LDMATRIX).launch(1, 32, [device.upload(matrices), out])
    for i, number in enumerate([0, 0, 1, 0, 1, 2, 3]):
        matrix = matrices[number]
        plain, transposed = out.numpy()[:, i], out.numpy()[:, 7 + i]
        np.testing.assert_array_equal(plain, pairs(matrix[G, 2 * Q], matrix[G, 2 * Q + 1]))
        np.testing.assert_array_equal(transposed, pairs(matrix[2 * Q, G], matrix[2 * Q + 1, G]))


MMA = """
#include "fragments.cuh"
extern "C" __global__ void multiply(const DTYPE* a, const DTYPE* b, ACC* d) {
    u32 fragment_a[4], fragment_b[2];
    load_matrix_a(fragment_a, a, 0, 0, 16);
    load_matrix_b(fragment_b, b, 0, 0, 8);
    Accumulator<ACC> accumulator;
    load_matrix_d(accumulator, d, 0, 0, 8);
    mma<DTYPE>(accumulator, fragment_a, fragment_b);
    store_matrix_d(d, 0, 0, 8, accumulator);
}
"""


@pytest.mark.parametrize("types", ["bf16_f32", "f16_f32", "f16_f16"])
def test_mma_is_the_one_of_the_handwritten_program(
    device: Device, compile_kernel: Any, types: str
) -> None:
    dtype, acc = types.split("_")
    random = np.random.default_rng(2)
    a = random.standard_normal((16, 16)).astype(TYPES[dtype].dtype)
    b = random.standard_normal((16, 8)).astype(TYPES[dtype].dtype)
    c = random.standard_normal((16, 8)).astype(TYPES[acc].dtype)
    outputs = []
    for kernel, more in [
        (compile_kernel(MMA.replace("DTYPE", dtype).replace("ACC", acc)), []),
        (device.load(f"ptx/mma_m16n8k16_{types}.ptx").kernel(), [16]),
    ]:
        d = device.upload(c)
        kernel.launch(1, 32, [device.upload(a), device.upload(b), d, *more])
        outputs.append(d.numpy())
    assert outputs[0].tobytes() == outputs[1].tobytes()
    exact = a.astype(float) @ b.astype(float) + c.astype(float)
    np.testing.assert_allclose(outputs[0].astype(float), exact, atol=2e-2 if acc == "f16" else 1e-5)


TF32 = """
#include "fragments.cuh"
extern "C" __global__ void multiply(const tf32* a, const tf32* b, f32* d) {
    const u32 g = lane_id() / 4, q = lane_id() % 4;
    u32 fragment_a[4], fragment_b[2];
    for (int i = 0; i < 4; i++) {
        fragment_a[i] = rounded<tf32>(a[8 * (g + i % 2 * 8) + q + i / 2 * 4].bits);
    }
    for (int i = 0; i < 2; i++) fragment_b[i] = rounded<tf32>(b[8 * (q + 4 * i) + g].bits);
    Accumulator<f32> accumulator;
    mma<tf32>(accumulator, fragment_a, fragment_b);
    store_matrix_d(d, 0, 0, 8, accumulator);
}
"""


def test_mma_of_rounded_tf32(device: Device, compile_kernel: Any) -> None:
    """Numbers whose 11th bit decides are multiplied as the next ones up."""
    random = np.random.default_rng(4)
    whole = [random.integers(-9, 10, shape).astype(np.float32) for shape in ((16, 8), (8, 8))]
    a, b = (matrix * np.float32(1 + 2.0**-11) for matrix in whole)
    d = device.zeros((16, 8), "f32")
    compile_kernel(TF32).launch(1, 32, [device.upload(a), device.upload(b), d])
    up_a, up_b = (
        ((matrix.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for matrix in (a, b)
    )
    exact = up_a.astype(float) @ up_b.astype(float)
    np.testing.assert_allclose(d.numpy(), exact, rtol=0, atol=1e-4)
    cut = a.view(np.uint32) & 0xFFFFE000, b.view(np.uint32) & 0xFFFFE000
    wrong = cut[0].view(np.float32).astype(float) @ cut[1].view(np.float32).astype(float)
    assert np.abs(wrong - exact).max() > 1e-2


SHARED = """
#include "fragments.cuh"
extern "C" __global__ void through(const uint4* from, u32* out) {
    __shared__ uint4 place[32];
    const u32 to = shared_address(place);
    store_shared(to + 16 * threadIdx.x, from[threadIdx.x]);
    __syncthreads();
    for (int i = 0; i < 4; i++) out[32 * i + threadIdx.x] = load_shared(to + 4 * (32 * i + threadIdx.x));
}
"""


def test_shared_memory_by_address(device: Device, compile_kernel: Any) -> None:
    source = np.random.default_rng(5).integers(0, 1 << 32, (32, 4), np.uint32)
    out = device.zeros((128,), "u32")
    compile_kernel(SHARED).launch(1, 32, [device.upload(source), out])
    np.testing.assert_array_equal(out.numpy(), source.reshape(-1))


ASYNC = """
#include "async_copy.cuh"
extern "C" __global__ void copy(const u32* from, u32* out) {
    __shared__ __align__(16) u32 place[32][12];
    for (int i = 0; i < 12; i++) place[threadIdx.x][i] = 0xffffffff;
    const u32 to = shared_address(place[threadIdx.x]);
    const u32* mine = from + 12 * threadIdx.x;
    cp_async_16(to, mine);
    cp_async_commit();
    cp_async_16(to + 16, mine + 4, threadIdx.x % 17);
    cp_async_4(to + 32, mine + 8, threadIdx.x % 5);
    cp_async_commit();
    cp_async_wait<1>();
    cp_async_wait<0>();
    for (int i = 0; i < 12; i++) out[12 * threadIdx.x + i] = place[threadIdx.x][i];
}
"""


def test_async_copies_fill_up_with_zeros(device: Device, compile_kernel: Any) -> None:
    source = np.random.default_rng(3).integers(0, 256, (32, 48), np.uint8)
    out = device.zeros((32, 48), "u8")
    compile_kernel(ASYNC).launch(1, 32, [device.upload(source), out])
    expected = np.full((32, 48), 255, np.uint8)
    expected[:, :36] = source[:, :36]
    for lane in range(32):
        expected[lane, 16 + lane % 17 : 32] = 0
        expected[lane, 32 + lane % 5 : 36] = 0
    np.testing.assert_array_equal(out.numpy(), expected)
