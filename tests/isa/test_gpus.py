"""GPUs as data: SMs, clocks and rates must make the TFLOP/s that NVIDIA prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxlab.isa.gpus import GPUS, Gpu, gpus_of, sms_of
from ptxlab.isa.targets import TARGETS

BY_NAME = {gpu.name: gpu for gpu in GPUS}

RATED = {"RTX 5090": 2407}
"""MHz that data sheets' rates are at, of who runs at more."""

PRINTED = [
    # GPU, TFLOP/s of FFMA, of bf16 -> f32, of f16 -> f16, of tf32: data sheets, dense
    ("A100 SXM", 19.5, 312, 312, 156),
    ("RTX 3090", 35.6, 71, 142, 35.6),
    ("RTX 3080", 29.8, 59.5, 119, 29.8),
    ("RTX 3070 Ti", 21.7, 43.5, 87, 21.7),
    ("RTX 3070", 20.3, 40.6, 81.3, 20.3),
    ("RTX 3060 Ti", 16.2, 32.4, 64.8, 16.2),
    ("RTX 4090", 82.6, 165.2, 330.3, 82.6),
    ("RTX 5090", 104.8, 209.5, 419, 104.8),
    ("B200", 75, 2250, 2250, 1125),
    ("A100 SXM 40GB", 19.5, 312, 312, 156),
    ("A100 PCIe 40GB", 19.5, 312, 312, 156),
    ("A30", 10.3, 165, 165, 82),
    ("A40", 37.4, 149.7, 149.7, 74.8),
    ("RTX A4000", 19.2, 76.7, 76.7, 38.3),
    ("A10", 31.2, 125, 125, 62.5),
    ("L40S", 91.6, 362.05, 362.05, 183),
    ("L4", 30.3, 121, 121, 60),
    ("RTX 4080 SUPER", 52.2, 104.4, 208.9, 52.2),
    ("RTX 4080", 48.7, 97.5, 194.9, 48.7),
    ("RTX 4070 Ti", 40.1, 80.2, 160.4, 40.1),
    ("RTX 4070 SUPER", 35.5, 71, 142, 35.5),
    ("RTX 4070", 29.1, 58.3, 116.6, 29.1),
    ("RTX 5080", 56.3, 112.6, 225.1, 56.3),
    ("RTX 5070 Ti", 43.9, 87.9, 175.8, 43.9),
    ("RTX 5070", 30.9, 61.7, 123.5, 30.9),
]


def rated(name: str) -> Gpu:
    """Return a GPU at the clock that its data sheet's rates are at."""
    gpu = BY_NAME[name]
    return replace(gpu, clock=RATED.get(name, gpu.clock))


@pytest.mark.parametrize(("name", "fp32", "bf16", "f16", "tf32"), PRINTED)
def test_the_peaks_are_those_printed(
    name: str, fp32: float, bf16: float, f16: float, tf32: float
) -> None:
    gpu = rated(name)
    # Tensor cores of B200 and L40S are rated at a lower clock, those of L4 and A30 printed rounded.
    tolerance = {"B200": 0.06, "L40S": 0.013, "L4": 0.01, "A30": 0.01}.get(name, 0.006)
    assert gpu.tflops(gpu.fp32) == pytest.approx(fp32, rel=tolerance)
    printed = {("bf16", "f32"): bf16, ("f16", "f16"): f16, ("tf32", "f32"): tf32}
    for types, tflops in printed.items():
        assert gpu.tflops(gpu.tensor[types]) == pytest.approx(tflops, rel=tolerance)


NARROW = [
    # GPU, TFLOP/s of s8, of e4m3 -> f32, of e4m3 -> f16, of e2m1 with scales: data sheets, dense
    ("T4", 130, None, None, None),
    ("A100 SXM", 624, None, None, None),
    ("RTX 3090", 284, None, None, None),
    ("RTX A6000", 309.7, None, None, None),
    ("RTX 4090", 660.6, 330.3, 660.6, None),
    ("RTX 5090", 838, 419, 838, 1676),
]


@pytest.mark.parametrize(("name", "s8", "to_f32", "to_f16", "scaled"), NARROW)
def test_the_peaks_of_narrow_types_are_those_printed(
    name: str, s8: float, to_f32: float | None, to_f16: float | None, scaled: float | None
) -> None:
    gpu = rated(name)
    printed = {
        ("s8", "s32"): s8, ("e4m3", "f32"): to_f32, ("e4m3", "f16"): to_f16, ("e2m1", "f32"): scaled,
    }  # fmt: skip
    for types, tflops in printed.items():
        if tflops is None:
            assert types not in gpu.tensor
        else:
            assert gpu.tflops(gpu.tensor[types]) == pytest.approx(tflops, rel=0.006)


def test_a_b200_multiplies_integers_as_fast_as_e4m3() -> None:
    """HGX B200 specifications: 72 POPS of INT8 and 72 PFLOPS of FP8, of eight GPUs and sparse matrices."""
    tensor = BY_NAME["B200"].tensor
    assert tensor["s8", "s32"] == tensor["s8", "f32"] == tensor["e4m3", "f32"]


def test_a_t4_has_no_bf16_and_half_an_l1() -> None:
    gpu = BY_NAME["T4"]
    assert gpu.tflops(gpu.fp32) == pytest.approx(8.1, rel=0.01)
    assert gpu.tflops(gpu.tensor["f16", "f32"]) == pytest.approx(65, rel=0.01)
    assert ("bf16", "f32") not in gpu.tensor
    assert gpu.l1 == 64


@pytest.mark.parametrize("name", ["H100 SXM", "H200 SXM"])
def test_hopper_is_rated_at_two_clocks(name: str) -> None:
    """67 TFLOP/s of FFMA are at 1980 MHz, the 989 of tensor cores at 1830."""
    gpu = BY_NAME[name]
    assert gpu.tflops(gpu.fp32) == pytest.approx(66.9, rel=0.001)
    assert gpu.tflops(gpu.tensor["bf16", "f32"]) * 1830 / 1980 == pytest.approx(989, rel=0.001)


def test_bytes_for_a_clock_and_sm() -> None:
    """By hand, for an A100: 7.2 TB/s of L2, 19.5 of shared memory."""
    gpu = BY_NAME["A100 SXM"]
    per_second = gpu.sms * gpu.clock * 1e6
    assert gpu.memory_bytes * per_second == pytest.approx(2.039e12)
    assert gpu.l2_bytes is not None
    assert gpu.l2_bytes * per_second == pytest.approx(7.2e12, rel=0.01)
    assert gpu.l1 * per_second == pytest.approx(19.5e12, rel=0.01)


def test_the_gpu_that_stands_for_a_target() -> None:
    assert [gpu.name for gpu in gpus_of(TARGETS["sm_90a"])][:2] == ["H200 SXM", "H100 SXM"]
    assert gpus_of(TARGETS["sm_90"]) == gpus_of(TARGETS["sm_90a"])
    assert gpus_of(TARGETS["sm_80"])[0].name == "A100 SXM"
    assert gpus_of(TARGETS["sm_103a"]) == ()
    known = {"sm_100a": 148, "sm_103a": 148, "sm_110a": 20, "sm_121a": 48, "sm_107a": None}
    assert {name: sms_of(TARGETS[name]) for name in known} == known
