"""Kernels that come to memory in pieces, add near each other, or go through f64, against what others measured.

R100001/Programming-Massively-Parallel-Processors, NVBench on an RTX 3080 and two smaller ones, each launch cold. Their
clock is what a matrix times a vector says that one SM reads a line a clock of. Matrices are turned by leimao/CUTLASS-Examples
on an RTX 3090 and by ayush-os/transpose on an A100. Histograms and what is stored to parts of sectors are where
``atomics`` and the chips have their rates from; conversions and matrices that are read apart are not.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ptxlab.prediction.predict import predict

PROGRAM = """
extern "C" __global__ void rows(const float *a, const float *b, float *c, int n)
{
    int at = (blockIdx.y * 16 + threadIdx.y) * n + blockIdx.x * 16 + threadIdx.x;
    c[at] = a[at] + b[at];
}
extern "C" __global__ void columns(const float *a, const float *b, float *c, int n)
{
    int at = (blockIdx.x * 16 + threadIdx.x) * n + blockIdx.y * 16 + threadIdx.y;
    c[at] = a[at] + b[at];
}
extern "C" __global__ void turn(const float *a, float *b, int n, int high, int wide, int stored_apart)
{
    for (int i = threadIdx.y; i < high; i += blockDim.y)
        for (int j = threadIdx.x; j < wide; j += blockDim.x) {
            long row = blockIdx.y * high + i, column = blockIdx.x * wide + j;
            if (stored_apart)
                b[column * n + row] = a[row * n + column];
            else
                b[row * n + column] = a[column * n + row];
        }
}
extern "C" __global__ void clamp(const float *a, float *c)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    c[at] = min(max(a[at], 0.0), 1.0);
}
extern "C" __global__ void count(unsigned *bins, unsigned apart)
{
    atomicAdd(&bins[threadIdx.x * apart], 1);
}
extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[data[i]], 1);
}
"""
CLOCKS = {"rtx3080": 1927, "rtx3070ti": 1907, "rtx3060ti": 1923}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("scattered") / "scattered.cu"
    file.write_text(PROGRAM)
    return file


@pytest.mark.parametrize(("kernel", "us"), [("rows", 1152), ("columns", 2128)])
def test_dram_takes_longer_for_what_lies_apart(program: Path, kernel: str, us: float) -> None:
    """Sums of 8192 x 8192 numbers: CTAs that run together are at whole rows, or at 64 bytes of each."""
    n = 8192
    of = [np.zeros((n, n), np.float32) for _ in range(3)]
    prediction = predict(
        program, "rtx3080", (n // 16, n // 16), (16, 16), [*of, n],
        kernel=kernel, clock=CLOCKS["rtx3080"], cold=True,
    )  # fmt: skip
    assert prediction.bound == "dram"
    assert prediction.dram_bytes == 3 * 4 * n * n
    assert prediction.seconds * 1e6 == pytest.approx(us, rel=0.06)


@pytest.mark.parametrize(
    ("gpu", "n", "tile", "threads", "stored_apart", "us"),
    [
        ("rtx3090", 16384, (32, 64), (32, 8), 1, 7600),
        ("rtx3090", 16384, (32, 64), (32, 8), 0, 3125),
        ("a100pcie40gb", 4096, (16, 16), (16, 16), 1, 161),
        ("a100pcie40gb", 4096, (16, 16), (16, 16), 0, 144),
    ],
)
def test_a_part_of_a_sector_takes_longer_to_store_than_to_load(
    program: Path, gpu: str, n: int, tile: tuple[int, int], threads: tuple[int, int], stored_apart: int, us: float,
) -> None:  # fmt: skip
    """A matrix is turned: numbers are loaded in a row and stored apart, or the other way."""
    high, wide = tile
    of = [np.zeros((n, n), np.float32) for _ in range(2)]
    passed = [*of, n, high, wide, stored_apart]
    prediction = predict(program, gpu, (n // wide, n // high), threads, passed, kernel="turn")
    assert prediction.bound == ("stores" if stored_apart else "dram")
    assert prediction.seconds * 1e6 == pytest.approx(us, rel=0.12 if stored_apart else 0.3)


def test_numbers_go_to_f64_and_back_as_slowly_as_it_computes(program: Path) -> None:
    """2 ** 26 numbers, each to f64 and back, with two comparisons there, in convolutions of three: 1154 and 1155 us."""
    of = [np.zeros(1 << 26, np.float32) for _ in range(2)]
    launched = partial(
        predict, program, grid=1 << 17, block=512, args=of, kernel="clamp", cold=True
    )
    prediction = launched(gpu="rtx3080", clock=CLOCKS["rtx3080"])
    assert prediction.seconds * 1e6 == pytest.approx(1154, rel=0.12)
    assert prediction.used["fp64"] > 0.85
    assert launched(gpu="a100").bound == "dram"


@pytest.mark.parametrize("gpu", CLOCKS)
@pytest.mark.parametrize(("apart", "measured"), [(0, 0.97), (1, 24.6)])
def test_additions_near_each_other_take_turns(
    program: Path, gpu: str, apart: int, measured: float
) -> None:
    """512 of each CTA: to one word, or to as many in a row; so many in a clock, whatever the GPU."""
    ctas, bins = 1 << 15, np.zeros(512, np.uint32)
    prediction = predict(
        program, gpu, ctas, 512, [bins, apart], kernel="count", clock=CLOCKS[gpu], cold=True
    )
    assert prediction.bound == "atomics"
    assert ctas * 512 / (prediction.seconds * CLOCKS[gpu] * 1e6) == pytest.approx(
        measured, rel=0.05
    )


def test_a_lane_alone_in_a_sector_takes_as_long_as_eight(program: Path) -> None:
    """Bytes at random counted in 256 bins: 2 ** 30 of them take an H100 276.1 ms (yencal/gpu-histogram-optimization)."""
    n, bins = 1 << 22, np.zeros(256, np.uint32)
    numbers = np.random.default_rng(5).integers(0, 256, n, np.uint8)
    prediction = predict(
        program, "h100", 132 * 32, 512, [numbers, bins, n], kernel="histogram", cold=True
    )
    assert prediction.bound == "atomics"
    assert prediction.seconds * 1e3 == pytest.approx(276.1 * n / 2**30, rel=0.2)
