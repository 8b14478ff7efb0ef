"""Loads that wait for DRAM behind what is stored, against what others measured, and what that settles at."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ptxlab.launch_config import LaunchConfig
from ptxlab.prediction.chip import find
from ptxlab.prediction.memory.dram_queue import LEAST, MOST, DramQueue
from ptxlab.prediction.memory.l2 import Reuse
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import load_for, of_launch
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice

PROGRAM = """
typedef unsigned long long size;
template <typename Word>
__device__ void copied(Word *to, const Word *from, size nbytes)
{
    size threads = blockDim.x * gridDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, words = nbytes / sizeof(Word);
    for (size at = first; at < words; at += threads)
        to[at] = from[at];
    for (size at = words * sizeof(Word) + first; at < nbytes; at += threads)
        ((char *)to)[at] = ((const char *)from)[at];
}
#define COPY(name, Word) extern "C" __global__ void name(Word *to, const Word *from, size nbytes) { copied(to, from, nbytes); }
COPY(bytes1, unsigned char)
COPY(bytes2, unsigned short)
COPY(bytes4, unsigned)
COPY(bytes8, size)
COPY(bytes16, uint4)
extern "C" __global__ void sums(float *to, const float4 *from, size words)
{
    size at = blockIdx.x * blockDim.x + threadIdx.x;
    float4 of = from[at];
    float sum = of.x + of.y + of.z + of.w;
    for (int apart = 16; apart; apart /= 2)
        sum += __shfl_xor_sync(-1, sum, apart);
    if (threadIdx.x % 32 == 0)
        to[at / 32] = sum;
}
"""
NBYTES = 1 << 30
"""What is copied: yencal/gpu-bandwidth-benchmark, CTAs of 1024 threads, GB/s of loads and stores, read off its plots."""

MEASURED = {
    "h100": (684, 1189, 2025, 2736, 3052),
    "h200": (722, 1276, 2219, 3467, 4109),
    "a100sxm40gb": (475, 832, 1325, 1385, 1393),
}
WIDTHS = (1, 2, 4, 8, 16)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("copies") / "copies.cu"
    file.write_text(PROGRAM)
    return file


def predicted(program: Path, gpu: str, kernel: str, threads: int, count: int) -> Prediction:
    """Predict a kernel of two arrays, of which the sizes suffice, in CTAs of 1024 threads."""
    chip = find(gpu)
    with closing(UnfilledDevice(chip.gpu.target)) as device:
        assembly, module = load_for(device, str(program))
        arrays = [device.upload(Shaped((NBYTES,), "uint8")) for _ in range(2)]
        config = LaunchConfig.of(threads // 1024, 1024)
        return of_launch(assembly, module.kernel(kernel), config, [*arrays, count], chip)


def rate(program: Path, gpu: str, width: int) -> float:
    """Return the GB/s that a copy of ``width`` bytes a thread is predicted to move."""
    prediction = predicted(program, gpu, f"bytes{width}", NBYTES // width, NBYTES)
    return 2 * NBYTES / prediction.seconds / 1e9


@pytest.mark.parametrize("gpu", MEASURED)
def test_copies_wait_the_longer_the_more_dram_is_used(program: Path, gpu: str) -> None:
    """Without the queue those of 2 and 4 bytes are 13 to 42 % too fast."""
    rates = [rate(program, gpu, width) for width in WIDTHS]
    assert rates == pytest.approx(MEASURED[gpu], rel=0.12)
    assert np.abs(np.divide(rates, MEASURED[gpu]) - 1).mean() < 0.05


def test_loads_alone_do_not_wait(program: Path) -> None:
    """Sums on A100 (BBuf/how-to-optim-algorithm-in-cuda) take as long as without: DRAM does not turn around."""
    prediction = predicted(program, "h100", "sums", NBYTES // 16, NBYTES // 16)
    assert prediction.dram_bytes == pytest.approx(NBYTES, rel=0.01)
    assert prediction.used["dram"] == pytest.approx(1, abs=0.02)


def test_where_nobody_says_how_long_they_wait_they_do_not(program: Path) -> None:
    assert find("h100").memory.queue
    assert not find("rtx4090").memory.queue
    half = Reuse(loaded=1e9, stored=1e9)
    assert DramQueue.of(find("rtx4090"), half).settled(lambda wait: 1.0, 1.0) == 0
    assert DramQueue.of(find("h100"), Reuse(loaded=2e9)).each == 0
    assert DramQueue.of(find("h100"), half).each == pytest.approx(280e-9)


QUEUE = DramQueue(seconds=1e-3, each=300e-9)


@pytest.mark.parametrize("alone", [0.2e-3, 1e-3, 1.5e-3, 4e-3])
@pytest.mark.parametrize("slope", [100.0, 1000.0, 4000.0])
@pytest.mark.parametrize("rough", [0.95, 1.0, 1.05])
def test_what_is_waited_is_what_the_launch_leaves(alone: float, slope: float, rough: float) -> None:
    """A launch that takes longer by what each of its loads waits, ``slope`` of them one behind the other; of none that is known roughly."""

    def took(wait: float) -> float:
        return max(alone, alone / 2 + slope * wait)

    wait = QUEUE.settled(took, rough * took(0.0))
    assert 0 <= wait <= MOST
    settles = QUEUE.wait(max(took(wait), QUEUE.seconds * (1 + 1e-9)))
    if settles < MOST:
        assert wait == pytest.approx(settles, rel=0.1, abs=LEAST)


def test_a_launch_that_dram_bounds_however_long_its_loads_wait_is_run_few_times() -> None:
    asked = []

    def took(wait: float) -> float:
        asked.append(wait)
        return 0.5e-3

    assert QUEUE.settled(took, 0.5e-3) > LEAST
    assert len(asked) <= 5
    assert math.isinf(QUEUE.wait(1e-3))


def test_what_is_waited_for_a_moment_is_left_out() -> None:
    asked = []

    def took(wait: float) -> float:
        asked.append(wait)
        return 1.0

    assert QUEUE.settled(took, 1.0) == 0
    assert not asked
