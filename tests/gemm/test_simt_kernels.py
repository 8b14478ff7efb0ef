"""The upper SIMT rungs: what is hard to get right in them.

Inputs are whole numbers, with which nothing is rounded: numpy knows D to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.run import compute
from ptxlab.observe.check import check
from tests.gemm.simt import (
    EACH_WAY,
    KERNELS,
    QUICK,
    Rewrite,
    observed,
    one_of_each,
    rewrite,
    whole_numbers,
)
from tests.together import thorough

__all__ = ["rewrite"]


# ---- right --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", EACH_WAY)
@pytest.mark.parametrize("name", KERNELS)
def test_rows_aligned_and_not(keeping: Device, name: str, layout: str) -> None:
    """All ways of copying: four at once, as many as there are, and one by one."""
    sizes = QUICK.get(name, {})
    for m, n, k, room in ((68, 72, 20, 0), (67, 70, 21, 1), (66, 73, 19, 4)):
        tight = Problem(m, n, k, "f32", layout=layout)
        lda, ldb, ldd = (-(-width // 4) * 4 + room for width in tight.leading)
        problem = replace(tight, lda=lda, ldb=ldb, ldd=ldd)
        inputs = whole_numbers(problem)
        computed = compute(keeping, problem, inputs, ALGORITHMS[name], sizes)
        np.testing.assert_array_equal(computed.d, inputs.a @ inputs.b)
        assert computed.strays == 0


@pytest.mark.parametrize("name", KERNELS)
def test_matrices_that_begin_at_any_element(keeping: Device, name: str) -> None:
    m, n, k = 36, 44, 12
    problem = Problem(m, n, k, "f32", layout="tn", epilogue="bias", alpha=2, beta=-1)
    algorithm, inputs = ALGORITHMS[name], whole_numbers(problem)
    assert inputs.bias is not None
    tile = algorithm.cut(QUICK.get(name, {}), problem.dtype)
    options = algorithm.options(problem, tile)
    kernel = keeping.load(resources.path(algorithm.file), options=options).kernel(algorithm.entry)
    config = algorithm.launch(problem, tile)
    arrays = [np.ascontiguousarray(inputs.a.T), inputs.b, inputs.d, inputs.bias]
    for skipped in (1, 2, 3):
        buffers = [
            keeping.upload(np.pad(array.reshape(-1), (skipped, 0), constant_values=np.nan))
            for array in arrays
        ]
        a, b, d, bias = (buffer.address + 4 * skipped for buffer in buffers)
        arguments = [m, n, k, a, m, b, n, d, n, 2.0, -1.0, bias]
        kernel.run(config, arguments)
        stored = buffers[2].numpy()
        assert np.isnan(stored[:skipped]).all()
        expected = 2 * (inputs.a @ inputs.b) - inputs.d + inputs.bias
        np.testing.assert_array_equal(stored[skipped:].reshape(m, n), expected)


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("name", KERNELS)
def test_infinities_stay_in_their_row_and_column(keeping: Device, name: str, layout: str) -> None:
    """What is computed beyond an edge, of zeros or of a row once more, meets nothing that exists."""
    problem = Problem(70, 68, 21, "f32", layout=layout)
    inputs = whole_numbers(problem)
    inputs.a[-1, -1] = inputs.b[-1, -1] = np.inf
    d = compute(keeping, problem, inputs, ALGORITHMS[name], QUICK.get(name, {})).d
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(d, inputs.a @ inputs.b)
    assert np.isfinite(d[:-1, :-1]).all()


OTHER_TILES = {
    "block_tiled": [
        {"BM": 64, "BN": 32, "BK": 16, "TM": 4, "TN": 2},
        {"BM": 64, "BN": 96, "TM": 8, "TN": 4},
        {"BM": 40, "BN": 24, "BK": 5, "TM": 5, "TN": 3},
    ],
    "block_tiled_vectorized": [
        {"BM": 64, "BN": 64, "BK": 16},
        {"BM": 64, "BN": 128, "TM": 4, "TN": 8, "BK": 32},
        {"BM": 32, "BN": 32, "TM": 4, "TN": 4},
    ],
    "warp_tiled": [
        {"BM": 64, "BN": 64, "WM": 32, "WN": 32},
        {"BM": 128, "BN": 64, "WM": 64, "WN": 32, "STAGES": 2, "BK": 16},
        {"BM": 64, "BN": 64, "WM": 32, "WN": 64, "STAGES": 5},
    ],
}


# Always: odd sizes and no powers of two, fours wider than the others, and both numbers of stages.
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param(name, sizes, marks=[pytest.mark.thorough] * (number not in often))
        for (name, several), often in zip(OTHER_TILES.items(), [(2,), (1,), (1, 2)], strict=True)
        for number, sizes in enumerate(several)
    ],
)
def test_other_tiles(device: Device, name: str, sizes: dict[str, int]) -> None:
    problem = Problem(101, 72, 39, "f32")
    inputs = whole_numbers(problem)
    d = compute(device, problem, inputs, ALGORITHMS[name], sizes).d
    np.testing.assert_array_equal(d, inputs.a @ inputs.b)


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("block_tiled", {"TN": 7}, "BN = 128 is not a multiple of TN = 7"),
        ("block_tiled", {"WM": 64}, "this kernel has no WM"),
        ("block_tiled_vectorized", {"TM": 2}, "a thread's part is made of four neighbours"),
        ("block_tiled_vectorized", {"BK": 6}, "four neighbours along k are copied at once"),
        ("block_tiled_vectorized", {"TM": 4, "BM": 64}, "all threads copy equally much"),
        ("warp_tiled", {"BM": 32, "WM": 8}, "a lane's part is made of four neighbours"),
        ("warp_tiled", {"BN": 192}, "all threads copy equally much"),
        ("warp_tiled", {"BK": 7}, "alternate between even and odd p"),
        ("warp_tiled", {"STAGES": 1}, "one stage is read while another one is filled"),
    ],
)
def test_tiles_that_are_refused(
    device: Device, name: str, sizes: dict[str, int], said: str
) -> None:
    problem = Problem(8, 8, 8, "f32")
    with pytest.raises(PtxlabError, match=said):
        compute(device, problem, whole_numbers(problem), ALGORITHMS[name], sizes)


# ---- what a slip of the pen would be ------------------------------------------------------------

SLIPS = {
    "block_tiled": [
        ("step < k", "step + BK <= k"),
        ("column + ACROSS * j, sum", "column + j, sum"),
        ("tiles.a[row + DOWN * i][p]", "tiles.a[row + i][p]"),
        ("x[i] * y[j]", "x[j] * y[i]"),
    ],
    "block_tiled_vectorized": [
        ("rows > 0 ? columns : 0", "columns"),
        ("columns > 0 ? rows : 0", "rows"),
        ("is_aligned(b, ldb, 16)", "true"),
        ("tile[at.row + j][at.column]", "tile[at.row][at.column + j]"),
        ("4 * DOWN * (i / 4) + i % 4", "4 * DOWN * (i / 4)"),
        ("tiles.b[p][column + 4 * ACROSS * j]", "tiles.b[p][column + 4 * j]"),
    ],
    "warp_tiled": [
        ("left > 0; left -= BK", "left >= BK; left -= BK"),
        ("min(wanted, operand.rows - SIZE)", "wanted"),
        ("< left ? 4 * SIZE : 0", "< left + 1 ? 4 * SIZE : 0"),
        ("operand.rows % 4 == 0 && ", ""),
        (" && is_aligned(operand.data, operand.leading, 16)", ""),
        ("stage = next(stage)", "stage += STAGE_BYTES"),
        ("cp_async_wait<STAGES - 2>();\n                __sync", "__sync"),
        ("(p + 1) % BK", "p"),
        ("lane % 2 + lane / 16 * 2", "lane % 4"),
    ],
}


Works = Callable[[str], bool]


@pytest.fixture
def works(device: Device) -> Works:
    """Say whether a kernel computes D, and all of it, with rows aligned and not."""

    def check(name: str) -> bool:
        for m, n, k, room in ((66, 71, 21, 1), (66, 72, 21, 0), (66, 72, 22, 2)):
            tight = Problem(m, n, k, "f32")
            lda, ldb, ldd = (width + room for width in tight.leading)
            problem = replace(tight, lda=lda, ldb=ldb, ldd=ldd)
            inputs = whole_numbers(problem)
            try:
                computed = compute(device, problem, inputs, ALGORITHMS[name], QUICK.get(name, {}))
            except LaunchError:
                return False
            if computed.strays or not np.array_equal(computed.d, inputs.a @ inputs.b):
                return False
        return True

    return check


# test_rows_aligned_and_not computes as much with the same kernels.
@pytest.mark.parametrize("name", [KERNELS[0], *thorough(KERNELS[1:])])
def test_without_a_slip_it_works(works: Works, name: str) -> None:
    assert works(name)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    one_of_each([(name, *slip) for name, slips in SLIPS.items() for slip in slips]),
)
def test_a_slip_is_noticed(works: Works, rewrite: Rewrite, name: str, old: str, new: str) -> None:
    rewrite(name, old, new)
    assert not works(name)


# ---- who waits for whom --------------------------------------------------------------------------

RACED = Problem(40, 35, 37, "f32")
"""A CTA or two, with edges, and several tiles along k: what races does so within a CTA."""


@pytest.mark.parametrize("name", [KERNELS[0], *thorough(KERNELS[1:-1]), KERNELS[-1]])
def test_threads_wait_for_each_other(device: Device, name: str) -> None:
    assert observed(check, device, name, RACED, QUICK.get(name, {})).verdict == "clean"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    one_of_each(
        [
            ("block_tiled", "        __syncthreads();\n#pragma", "#pragma"),
            ("block_tiled", "        __syncthreads();  // nobody", "        // nobody"),
            ("block_tiled_vectorized", "        __syncthreads();  // nobody", "        // nobody"),
            ("block_tiled_vectorized", "        __syncthreads();\n#pragma", "#pragma"),
            ("warp_tiled", "    __syncthreads();\n                stage", "    stage"),
            ("warp_tiled", "    __syncthreads();\n    u32 stage", "    u32 stage"),
        ],
        lambda twin: twin[0] == "warp_tiled",  # copies that are waited for, and stores
    ),
)
def test_without_a_barrier_threads_race(
    device: Device, rewrite: Rewrite, name: str, old: str, new: str
) -> None:
    rewrite(name, old, new)
    report = observed(check, device, name, RACED, QUICK.get(name, {}))
    assert {"race", "async"} & {finding.kind for finding in report.findings}
