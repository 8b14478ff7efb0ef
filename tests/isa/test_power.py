"""The clocks that limits of power leave, held against what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxlab.isa.gpus import GPUS

BY_NAME = {gpu.name: gpu for gpu in GPUS}

CUBLAS_USES = 0.741
"""The part of the FMA pipes that cuBLAS of f32 uses on GA102: salykova/sgemm.cu, assets/perf_locked.png, from 8,000 on."""


def test_tensor_cores_that_multiply_leave_a_lower_clock() -> None:
    gpu = BY_NAME["H100 SXM"]
    assert gpu.clock_at(1.0) == 1469
    assert gpu.clock_at(0.5) == round(1469 * 2 ** (1 / 3)), (
        "half the work at twice the cube of the clock"
    )
    assert gpu.clock_at(0.0) == gpu.clock_at(0.1) == gpu.clock == 1980
    assert BY_NAME["RTX 4090"].clock_at(1.0, 1.0) == 2520, "nobody measured that"


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("A100 SXM", 271.2), ("H100 SXM", 794.5), ("GH200", 828.6), ("B200", 1745), ("A40", 122.29), ("L4", 59.4),
    ],
)  # fmt: skip
def test_at_the_clock_that_power_leaves_tensor_cores_reach_what_was_measured(
    name: str, reached: float
) -> None:
    """stas00/ml-engineering, "Maximum Achievable Matmul FLOPS", of bf16; zzc0721/torch-performance-test-data, 185 and 120."""
    gpu = BY_NAME[name]
    flop = gpu.tensor["bf16", "f32"] * gpu.sms * gpu.clock_at(1.0) * 1e6
    assert flop / 1e12 == pytest.approx(reached, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "reached"), [("A40", 23.73), ("RTX 3080", 20.97), ("RTX 3070 Ti", 16.04), ("RTX A6000", 24.38)]
)  # fmt: skip
def test_the_power_of_one_card_says_what_f32_reaches_on_others(name: str, reached: float) -> None:
    """cuBLAS on cards that the constants are not of: zzc0721/torch-performance-test-data, 185, 114, 184; chsasank/device-benchmarks, 15."""
    gpu = BY_NAME[name]
    flop = gpu.fp32 * gpu.sms * CUBLAS_USES * gpu.clock_at(0.0, CUBLAS_USES) * 1e6
    assert flop / 1e12 == pytest.approx(reached, rel=0.04)


def test_fma_pipes_and_tensor_cores_that_work_at_once_leave_less_than_either() -> None:
    gpu = BY_NAME["RTX 3090"]
    assert [gpu.clock_at(0.0, use) for use in (0.463, 0.741)] == [1695, 1567], "as was measured"
    assert gpu.clock_at(0.5, 0.5) < min(gpu.clock_at(0.5), gpu.clock_at(0.0, 0.5))
    assert gpu.clock_at(0.0) == gpu.clock, "what is drawn besides leaves more than it runs at"


def test_the_clock_that_power_leaves_goes_as_the_cube_root_of_its_limit() -> None:
    card = BY_NAME["RTX 5090"]
    left = card.clock_at(1.0)
    assert replace(card, power=400).clock_at(1.0) == pytest.approx(
        left * (400 / 575) ** (1 / 3), abs=1
    )
    assert replace(card, sms=85).clock_at(0.9) == card.clock, "half the SMs have twice as much"


def test_the_power_of_one_card_says_what_another_with_its_chip_is_left() -> None:
    """On RTX PRO 6000 Max-Q 1687 to 1695 MHz were seen at 300 W: waynehacking8/blackwell-tensorcore-kernels. An A100 of 250 W
    reaches 241 TFLOP/s of f16: zzc0721/torch-performance-test-data, issue 108."""
    card, other = BY_NAME["RTX 5090"], BY_NAME["RTX PRO 6000 Max-Q"]
    assert card.tflops(card.tensor["bf16", "f32"]) == pytest.approx(240.05, abs=0.1)
    assert card.clock_at(0.5) == card.clock, "cuBLAS ran at it with half of what there is"
    assert other.clock_at(1.0) == pytest.approx(1691, rel=0.01)
    pcie = BY_NAME["A100 PCIe 40GB"]
    flop = pcie.tensor["f16", "f32"] * pcie.sms * pcie.clock_at(1.0) * 1e6
    assert flop / 1e12 == pytest.approx(241.49, rel=0.05)
