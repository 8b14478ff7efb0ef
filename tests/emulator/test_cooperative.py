"""Cooperative launches: all CTAs run together, and wait for each other as CUDA's grids do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.emulator.run import grid
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.toolchain.nvrtc import compile_cuda

SOURCE = Path(__file__).parent / "cuda" / "grid.cu"
CTAS, THREADS = 96, 256  # more than one wave of another launch


@pytest.fixture(scope="module", params=["sm_80", "sm_90a"])
def program(request: Any) -> tuple[Device, Any]:
    device = open_device("emulator", arch=request.param)
    ptx = compile_cuda(SOURCE.read_text(), path=str(SOURCE), arch=request.param)
    return device, device.load(ptx)


def launched(
    program: tuple[Device, Any], kernel: str, cooperative: bool, ctas: int = CTAS
) -> tuple[Any, Any]:
    """Return what a kernel leaves in its two arrays."""
    device, module = program
    count = ctas * THREADS
    with device.zeros(count, "s32") as between, device.zeros(count, "s32") as out:
        module.kernel(kernel).launch(ctas, THREADS, [between, out, count], cooperative=cooperative)
        return between.numpy(), out.numpy()


def test_a_grid_waits_for_all_of_its_ctas(program: tuple[Device, Any]) -> None:
    assert CTAS * THREADS > grid.WAVE_THREADS
    numbers = np.arange(CTAS * THREADS, dtype=np.int32)
    between, out = launched(program, "reverse", cooperative=True)
    assert np.array_equal(out, 3 * numbers[::-1])
    assert np.array_equal(between, 3 * numbers + CTAS * THREADS)


def test_without_the_barrier_the_other_end_is_not_there(program: tuple[Device, Any]) -> None:
    _, out = launched(program, "unordered", cooperative=False)
    assert not np.array_equal(out, 3 * np.arange(CTAS * THREADS)[::-1])


def test_the_barrier_of_a_grid_needs_a_cooperative_launch(program: tuple[Device, Any]) -> None:
    with pytest.raises(LaunchError, match="trap"):
        launched(program, "reverse", cooperative=False)


def test_each_launch_has_a_workspace_of_its_own(program: tuple[Device, Any]) -> None:
    memory = program[0].memory  # type: ignore[attr-defined]
    before = len(memory._allocations)
    for ctas in (1, 3, 2):
        _, out = launched(program, "reverse", cooperative=True, ctas=ctas)
        assert np.array_equal(out, 3 * np.arange(ctas * THREADS)[::-1])
    assert len(memory._allocations) == before


def test_more_ctas_than_fit_are_refused(program: tuple[Device, Any]) -> None:
    with pytest.raises(PtxlabError, match="has 1056 CTAs at most, not 1057"):
        launched(program, "unordered", cooperative=True, ctas=1057)
