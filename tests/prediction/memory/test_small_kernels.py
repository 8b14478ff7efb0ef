"""Kernels whose arrays the L2 cache has, against what others measured: how fast CTAs begin, and stores leave.

RRZE-HPC/gpu-benches, gpu-small-kernels, most with graphs: one product and one store of f64 a thread, launch after launch, in
GB/s of both. What is measured of 4,096 numbers is taken for what a launch takes. Its CTAs of 32 to 128 threads are where the
chips' ``cta`` is from; those of 256 and more, and whether DRAM is asked, are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.memory.l2 import Cache
from ptxlab.prediction.memory.touched import Touched
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from tests.prediction.running import without_launch

LENGTH = 188_385
KERNEL = f"""\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from, .param .u32 size)
{{
  .reg .b32 t<5>; .reg .f64 x; .reg .b64 p, q, w; .reg .pred u;
  ld.param.u64 p, [to]; ld.param.u64 q, [from]; ld.param.u32 t3, [size];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mov.u32 t4, %ntid.x; mad.lo.u32 t2, t1, t4, t0;
  rem.u32 t2, t2, {LENGTH};
  setp.ge.u32 u, t2, t3; @u ret;
  mov.f64 x, 0d0000000000000000; mul.wide.u32 w, t2, 8; add.u64 p, p, w; add.u64 q, q, w;
  BODY
}}
"""
"""Each thread has a place of ``LENGTH``."""

BODIES = {
    "read": "ld.global.nc.f64 x, [q]; setp.neu.f64 u, x, 0d405EC00000000000; @u ret; st.global.f64 [p], x; ret;",
    "scale": "ld.global.nc.f64 x, [q]; mul.f64 x, x, 0d3FD0000000000000; st.global.f64 [p], x; ret;",
    "write": "st.global.f64 [p], x; ret;",
}
SCALE = KERNEL.replace(f"  rem.u32 t2, t2, {LENGTH};\n", "").replace("BODY", BODIES["scale"])
BLOCKS = (32, 64, 128, 256, 512, 1024)
MEASURED = {
    ("a100", 1410, 49): {
        130569: (428, 656, 929, 1061, 1197, 1193),
        1042953: (635, 1203, 2192, 2881, 2946, 2908),
        8331138: (681, 1348, 1679, 1679, 1671, 1676),
    },
    ("l40s", 2490, 70): {
        458481: (836, 1471, 2370, 2967, 2984, 2570),
        2210918: (937, 1817, 3421, 4497, 4496, 3767),
        10661781: (759, 758, 758, 758, 756, 757),
    },
    ("h200", 1980, 52): {
        458481: (741, 1305, 2112, 2884, 2918, 2944),
        1967710: (823, 1590, 2980, 4966, 5011, 4959),
    },
    ("a40", 1740, 60): {
        95080: (489, 726, 920, 922, 883, 734),
        227855: (611, 1037, 1532, 1598, 1495, 1214),
        922544: (615, 595, 599, 593, 590, 599),
    },
}
"""By GPU, its clock in MHz and GB/s of 4,096 numbers: by how many numbers, GB/s with CTAs of so many threads."""

FOLLOWING = {
    ("a100", 1410): {
        4096: (22, 24, 24, 24),
    },
    ("h200", 1980): {
        4096: (26, 26, 27, 27),
        29653: (181, 181, 187, 183),
        106831: (595, 643, 645, 647),
        363162: (1443, 1664, 1673, 1688),
    },
    ("a40", 1740): {
        4096: (31, 32, 32, 29),
        29653: (223, 226, 228, 204),
        106831: (646, 628, 643, 563),
        363162: (1318, 1391, 1430, 1134),
    },
    ("l40s", 2490): {
        4096: (40, 40, 39, 37),
        29653: (281, 290, 267, 250),
        106831: (824, 875, 886, 879),
        363162: (1794, 2067, 2132, 1866),
    },
}
"""The same without graphs, a launch behind the other: with CTAs of 128 threads and more, of A100 where its table has the same columns. Chips' ``launch`` is what 4,096 numbers take, and no more."""

OF_TWO_CTAS = {
    ("a100", 1410, 60_000): {
        64: {"read": 267, "scale": 513, "write": 387},
        256: {"read": 988, "scale": 1815, "write": 1405},
    },
    ("gh200", 1980, 80_000): {
        64: {"read": 383, "scale": 742, "write": 571},
        256: {"read": 1456, "scale": 2704, "write": 2052},
    },
    ("l40s", 2490, 40_000): {
        64: {"read": 458, "scale": 894, "write": 645},
        256: {"read": 1517, "scale": 2954, "write": 2527},
    },
}
"""RRZE-HPC/gpu-benches, gpu-l2-stream, arrays of some 3 MB, in GB/s of two CTAs an SM of so many threads; by GPU, its clock in MHz and
shared memory of which two CTAs have enough."""


def scaled(gpu: str, size: int, block: int, clock: int | None = None) -> Prediction:
    arrays = [np.zeros(size), np.zeros(size)]
    return predict(SCALE, gpu, size // block + 1, block, [*arrays, size], clock=clock)


def compared(
    gpu: str, clock: int, blocks: Sequence[int], rates: Mapping[int, Sequence[int]]
) -> Iterator[tuple[Prediction, float]]:
    """Yield what is predicted of CTAs of so many threads, and how many seconds were measured."""
    for size, measured in rates.items():
        for block, rate in zip(blocks, measured, strict=True):
            yield scaled(gpu, size, block, clock), 16 * size / (rate * 1e9)


@pytest.mark.parametrize(("gpu", "clock", "least"), MEASURED)
def test_small_kernels_take_as_long_as_was_measured(gpu: str, clock: int, least: int) -> None:
    launch = 16 * 4096 / (least * 1e9)
    every = compared(gpu, clock, BLOCKS, MEASURED[gpu, clock, least])
    errors = [(without_launch(told) + launch) / seconds - 1 for told, seconds in every]
    assert mean(map(abs, errors)) < 0.12
    assert max(map(abs, errors)) < 0.26


@pytest.mark.parametrize(("gpu", "clock"), FOLLOWING)
def test_launches_that_follow_each_other_cost_less_than_one_alone(gpu: str, clock: int) -> None:
    every = compared(gpu, clock, BLOCKS[2:], FOLLOWING[gpu, clock])
    errors = [told.seconds / seconds - 1 for told, seconds in every]
    assert mean(map(abs, errors)) < 0.08, errors
    assert max(map(abs, errors)) < 0.23, errors
    least = scaled(gpu, 4096, 128, clock).seconds
    assert least == pytest.approx(16 * 4096 / (max(FOLLOWING[gpu, clock][4096]) * 1e9), rel=0.04)


def test_a_grid_of_small_ctas_is_bound_by_how_fast_they_begin(tmp_path: Path) -> None:
    """10,001 CTAs of a warp, whatever SMs they are on; of a file's GPU as fast as it says."""
    arrays = [np.zeros(320_000), np.zeros(320_000)]
    slow = tmp_path / "slow.toml"
    slow.write_text('like = "a100"\ncta = 10')
    told, later = (
        predict(SCALE, gpu, 10_001, 32, [*arrays, 320_000], what_if=["ctas=inf"])
        for gpu in ("a100", str(slow))
    )
    for each, apart in ((told, find("a100").cta), (later, 10)):
        cycles = without_launch(each) * each.clock_mhz * 1e6
        assert cycles == pytest.approx(10_001 * apart)
        assert (each.bound, each.bound_by, each.used["ctas"]) == ("ctas", "ctas", 1)
    assert told.what_if[0].seconds == later.what_if[0].seconds < told.seconds
    assert told.what_if[0].bound_by != "ctas"


def test_what_a_launch_has_left_is_there_if_it_fits() -> None:
    """An A100 has 40 MiB, whoever asks, but for what CTAs of both halves ask for, which is there twice."""
    mib = 1 << 20
    cache = Cache.of(find("a100"))

    def has_all(size: int, ctas: int, stored: int = 0) -> bool:
        touched, there = (
            Touched({0: times * size * mib} if times else {}, {1: stored * mib}, {})
            for times in (ctas, min(ctas, 1))
        )
        return cache.has_all(touched, there)

    assert [has_all(n, 1) for n in (20, 21, 40, 41)] == [True, True, True, False]
    assert [has_all(n, 9) for n in (20, 21)] == [True, False]
    assert [has_all(0, 0, n) for n in (40, 41)] == [True, False]
    fits, larger = (scaled("a100", n * mib // 16, 256) for n in (39, 41))
    assert fits.dram_bytes == 0
    assert larger.dram_bytes == pytest.approx(41 * mib, rel=1e-3)


@pytest.mark.parametrize(("gpu", "clock", "shared"), OF_TWO_CTAS)
def test_few_ctas_that_follow_each_other_take_as_long_as_was_measured(
    gpu: str, clock: int, shared: int
) -> None:
    """Each a load, or a store, or both: one begins when another has ended, and what that stored has left."""
    threads = 1 << 22
    errors = []
    for block, measured in OF_TWO_CTAS[gpu, clock, shared].items():
        for body, rate in measured.items():
            arrays = [np.zeros(LENGTH), np.zeros(LENGTH)]
            source = KERNEL.replace("BODY", BODIES[body])
            told = predict(
                source, gpu, threads // block, block, [*arrays, LENGTH], shared=shared, clock=clock
            )
            assert told.occupancy.ctas == 2
            nbytes = 8 * threads * (2 if body == "scale" else 1)
            errors.append(nbytes / without_launch(told) / (rate * 1e9) - 1)
    assert mean(map(abs, errors)) < 0.12
    assert max(map(abs, errors)) < 0.25
