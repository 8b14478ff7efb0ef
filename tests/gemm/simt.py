"""What the tests of the upper SIMT rungs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.problem import LAYOUTS, Inputs, uploaded
from ptxlab.gemm.run import prepare

KERNELS = ("block_tiled", "block_tiled_vectorized", "warp_tiled")

QUICK = {
    "block_tiled": {"BM": 64, "BN": 32, "TM": 8, "TN": 4},
    "block_tiled_vectorized": {"BM": 64, "BN": 64},  # TN = 4 would have one four of B alone
    "warp_tiled": {"BM": 64, "BN": 64, "WM": 32, "WN": 32},
    "tensor_core": {"BM": 64, "BN": 64, "WM": 32, "WN": 32},
}
"""Tiles that are compiled or run more quickly than the usual ones, and have all that those have."""

EACH_WAY = [
    layout if layout in ("nn", "tt") else pytest.param(layout, marks=pytest.mark.thorough)
    for layout in LAYOUTS
]
"""Each of A and B as it is and transposed: what copies one does not know of the other."""


def one_of_each(twins: Sequence[Any], kind: Callable[[Any], object] = itemgetter(0)) -> list[Any]:
    """Return faulty twins, all but the first of each ``kind`` thorough: one shows that the test can fail."""
    kinds = [kind(twin) for twin in twins]
    return [
        pytest.param(*twin, marks=[pytest.mark.thorough] * (kinds[number] in kinds[:number]))
        for number, twin in enumerate(twins)
    ]


Rewrite = Callable[[str, str, str], None]
T = TypeVar("T")


def whole_numbers(problem: Problem) -> Inputs:
    """Return inputs with which nothing is rounded: numpy knows D to the bit."""
    random = np.random.default_rng(problem.seed)
    m, n, k = problem.m, problem.n, problem.k

    def some(*shape: int) -> Array:
        return random.integers(-9, 10, shape).astype(np.float32)

    d = some(m, n) if problem.beta else np.full((m, n), np.nan, np.float32)
    return Inputs(some(m, k), some(k, n), d, some(n) if "bias" in problem.epilogue else None)


@pytest.fixture
def rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Replace a text in a kernel's file."""

    def replaced(name: str, old: str, new: str) -> None:
        shipped, original = resources.path, resources.path(ALGORITHMS[name].file)
        text = original.read_text()
        assert old in text
        file = tmp_path / original.name
        file.write_text(text.replace(old, new))

        def path(wanted: str) -> Path:
            return file if wanted == ALGORITHMS[name].file else shipped(wanted)

        monkeypatch.setattr(resources, "path", path)

    return replaced


def observed(
    observe: Callable[..., T],
    device: Device,
    name: str,
    problem: Problem,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> T:
    """Launch a kernel watched by ``count`` or ``check``."""
    if device.kind != "emulator":
        pytest.skip("a GPU is watched by tools of its own")
    algorithm = ALGORITHMS[name]
    tile = algorithm.cut(sizes, problem.dtype)
    with uploaded(device, problem, whole_numbers(problem)) as x:
        return observe(*prepare(device, x, algorithm, tile))
