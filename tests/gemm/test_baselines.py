"""The baselines on the CPU: right, and honest about where they ran."""

from __future__ import annotations

import platform

import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import DeviceUnavailable
from ptxlab.gemm import LADDER, Problem, run
from ptxlab.gemm.ladder import BASELINES, HostBaseline

HOST = [name for name, baseline in BASELINES.items() if isinstance(baseline, HostBaseline)]


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("size", [(40, 30, 50), (1, 1, 1), (3, 4, 0)], ids=str)
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in HOST for dtype, _ in LADDER[name].types]
)
def test_right_to_the_bound(
    device: Device, name: str, dtype: str, size: tuple[int, int, int], layout: str
) -> None:
    problem = Problem(
        *size, dtype, layout=layout, epilogue="bias+relu", alpha=1.5, beta=-2, lda=60, ldd=33
    )
    result = run(device, problem, LADDER[name])
    assert result.passed, result
    assert (result.device, result.arch) == ("cpu", platform.machine())
    assert result.launched.seconds > 0
    assert result.tflops == problem.flops / result.launched.seconds / 1e12
    assert result.launched.counters == {}


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
def test_without_a_gpu_there_is_no_cublas(device: Device, name: str) -> None:
    if device.kind != "emulator":
        pytest.skip("there is a GPU")
    with pytest.raises(
        DeviceUnavailable, match="needs a GPU, and this is ptxlab emulator"
    ) as caught:
        run(device, Problem(8, 8, 8, "f32"), LADDER[name])
    assert caught.value.exit_status == 3
