"""Kernels that walk once through arrays of 2 GiB, against what others measured: DRAM, occupancy, what L1 has of neighbours.

RRZE-HPC/gpu-benches, gpu-stream, in GB/s: a number of f64 a thread, two CTAs an SM, as shared memory leaves room for no
more. The rates of stores alone and of three loads to a store with all warps are where the chips' ``dram`` is from; the others are not.
"""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest

from ptxlab.prediction.predict import predict
from tests.prediction.running import without_launch

NUMBERS = 1 << 28
KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 8 .b8 kept[];
.visible .entry k(.param .u64 to, .param .u64 from, .param .u64 others, .param .u64 more, .param .u64 size, .param .u32 never)
{
  .reg .b32 t<5>; .reg .f64 x, y, z; .reg .b64 p, q, r, s, w, n; .reg .pred u, v;
  ld.param.u64 p, [to]; ld.param.u64 q, [from]; ld.param.u64 r, [others]; ld.param.u64 s, [more];
  ld.param.u64 n, [size]; ld.param.u32 t3, [never]; mov.u32 t4, kept;
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mov.u32 t2, %ntid.x; mad.lo.u32 t0, t1, t2, t0;
  cvt.s64.s32 w, t0; setp.ge.u64 u, w, n; @u ret; setp.eq.u32 v, t3, 0; @v bra begin;
  ld.global.nc.f64 x, [q]; st.shared.f64 [t4], x;
begin:
  shl.b64 w, w, 3; add.u64 p, p, w; add.u64 q, q, w; add.u64 r, r, w; add.u64 s, s, w;
  mov.f64 x, 0d3FD0000000000000;
  BODY
  st.global.f64 [p], x; @v ret; ld.shared.f64 x, [t4]; st.global.f64 [p], x; ret;
}
"""
"""A thread has a number, and one case that never comes: so code is as its author's is."""

LOAD = "ld.global.nc.f64 {0}, [{1}];"
NEIGHBOURS = "ld.global.nc.f64 y, [q+{0}]; fma.rn.f64 x, y, 0d3FD0000000000000, x;"
BODIES = {
    "init": "",
    "scale": LOAD.format("x", "q") + "mul.f64 x, x, 0d3FF3333333333333;",
    "triad": "".join(map(LOAD.format, "xyz", "qsr")) + "fma.rn.f64 x, x, y, z;",
    "stencil": "".join(NEIGHBOURS.format(8 * n) for n in range(5)),
}
"""What a thread does before it stores; the last loads five numbers in a row, of which its neighbours load four."""

MOVED = {"init": 1, "scale": 2, "triad": 4, "stencil": 2}
MEASURED = {
    ("gh200", 228): {
        64: (591, 464, 798, 419),
        256: (2186, 1397, 2367, 1320),
        1024: (3942, 3174, 3783, 3120),
    },
    ("a100", 164): {
        64: (406, 303, 534, 273),
        256: (1488, 1025, 1571, 936),
        1024: (1894, 1737, 1794, 1686),
    },
    ("a40", 100): {64: (400, 291, 498, 237), 256: (680, 644, 670, 512)},
}
"""By GPU and the KiB of shared memory of an SM: by threads of a CTA, GB/s of each body."""


@pytest.mark.parametrize(("gpu", "kib"), MEASURED)
def test_streams_take_as_long_as_was_measured(gpu: str, kib: int) -> None:
    arrays = [np.zeros(NUMBERS + 8) for _ in range(4)]
    errors = {}
    for threads, rates in MEASURED[gpu, kib].items():
        for (name, body), rate in zip(BODIES.items(), rates, strict=True):
            told = predict(
                KERNEL.replace("BODY", body), gpu, NUMBERS // threads, threads, [*arrays, NUMBERS, 0], shared=kib // 3 << 10
            )  # fmt: skip
            assert told.occupancy.ctas == 2
            moved = 8 * NUMBERS * MOVED[name]
            errors[name, threads] = moved / without_launch(told) / rate / 1e9 - 1
            assert told.dram_bytes == pytest.approx(moved, rel=0.05)
    assert mean(map(abs, errors.values())) < 0.09, errors
    assert max(map(abs, errors.values())) < 0.3, errors
