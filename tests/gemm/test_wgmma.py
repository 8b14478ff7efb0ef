"""The rungs of Hopper: right on every problem, to the bit those of mma.sync, and fast by their machine code."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.facts import main_loop
from ptxlab.gemm.problem import DeviceOperands, uploaded
from ptxlab.gemm.run import compute, prepare
from ptxlab.gemm.tile import Sizes
from ptxlab.toolchain import assemble_cuda
from tests.gemm.mapped import (
    PROBLEM,
    Rewrite,
    assembled,
    by_turns,
    checked,
    expected,
    is_right,
    problems,
    rewrite,
    rung,
    whole_numbers,
)
from tests.gemm.simt import one_of_each
from tests.together import thorough

__all__ = ["rewrite"]

RUNGS = [name for name, each in ALGORITHMS.items() if each.target == "sm_90a"]


NARROW = {"BN": 128, "WN": 128}
"""As many warps as usual, with no more columns than the first rung has."""


# ---- right --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "turn"), by_turns(RUNGS))
def test_every_problem(keeping: Device, name: str, turn: int) -> None:
    for problem in problems(RUNGS.index(name) + 2 * turn, turn):
        assert is_right(keeping, problem, rung(name), NARROW), problem


def test_random_numbers_are_added_up_as_by_mma_sync(keeping: Device) -> None:
    """Both take 16 products at a time in increasing k, and round alike."""
    problem = Problem(130, 260, 136)
    inputs = problem.inputs()
    results = {
        compute(keeping, problem, inputs, rung(name)).d.tobytes()
        for name in ("tensor_core", "wgmma", "wgmma_persistent")
    }
    assert len(results) == 1


def test_a_larger_one(keeping: Device) -> None:
    result = run(keeping, Problem(256, 512, 256), ALGORITHMS["wgmma_pipelined"])
    assert result.passed
    assert result.verdict.error > 0


def test_matrices_begin_anywhere(keeping: Device) -> None:
    """What begins one element off is copied for its tensor map, and D is stored without one."""
    algorithm, problem = rung("wgmma_persistent"), Problem(40, 48, 32)
    inputs = whole_numbers(problem)
    memory = [inputs.a, inputs.b, inputs.d]
    with uploaded(keeping, problem, inputs) as aligned:
        _, _, arguments = prepare(keeping, aligned, algorithm, algorithm.tile)
        maps = [arguments[number] for number in (3, 4, 7)]
        assert [tensor_map.buffer for tensor_map in maps] == [aligned.a, aligned.b, aligned.d]
    off = [keeping.upload(np.append(np.zeros(1, matrix.dtype), matrix)) for matrix in memory]
    parts: list[Any] = [_Part(buffer) for buffer in off]
    operands = DeviceOperands(problem, *parts)
    kernel, config, arguments = prepare(keeping, operands, algorithm, algorithm.tile)
    assert arguments[7] == bytes(128)
    arguments[5] = parts[2].address
    kernel.run(config, arguments)
    d = off[2].numpy()
    assert d[0] == 0
    np.testing.assert_array_equal(d[1:].reshape(40, 48), expected(problem, inputs))


class _Part:
    """All of a buffer but its first element, as a buffer."""

    def __init__(self, whole: Any) -> None:
        self.whole, self.dtype = whole, whole.dtype
        self.address = whole.address + whole.dtype.itemsize
        self.nbytes = whole.nbytes - whole.dtype.itemsize

    def numpy(self) -> Any:
        return self.whole.numpy()[1:]


def test_elsewhere_they_are_left_out() -> None:
    from ptxlab.device.opening import open_device

    for arch in ("sm_80", "sm_100a"):
        with pytest.raises(Unsupported, match=f"wgmma is for sm_90a, and this is {arch}"):
            run(open_device("emulator", arch=arch), Problem(8, 8, 8), ALGORITHMS["wgmma"])


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("wgmma", {"BK": 32}, "a tile is as deep as a panel"),
        ("wgmma", {"WN": 64}, "a warp has all columns of the tile"),
        ("wgmma", {"BN": 64, "WN": 64}, "a product is 128 or 256 columns wide"),
        ("wgmma", {"STAGES": 2}, "tiles are copied one at a time"),
        ("wgmma_specialised", {"WM": 32}, "a thread has at most 128 results"),
        ("wgmma_cluster", {"CLUSTER": 8}, "the CTAs of a cluster copy whole panels"),
    ],
)
def test_tiles_that_cannot_be(device: Device, name: str, sizes: Sizes, said: str) -> None:
    with pytest.raises(PtxlabError, match=said):
        run(device, Problem(64, 64, 64), ALGORITHMS[name], sizes)


# ---- what a slip of the pen would be ------------------------------------------------------------

QUICK = {"BM": 64, "BN": 128, "WM": 16, "WN": 128}
SLIPS = [
    ("wgmma", "!first || step > 0", "!first"),
    ("wgmma", "K_MAJOR ? first : p, K_MAJOR ? p : first", "first, p"),
    ("wgmma", "TRANSPOSE_B ? 32 : 16 * LINE", "32"),
    ("wgmma", "mbarrier_wait(full, i % 2)", "mbarrier_wait(full, 0)"),
    ("wgmma_pipelined", "mbarrier_wait(empty(), parity ^ 1)", "mbarrier_wait(empty(), parity)"),
    ("wgmma_cluster", "tile.column + rank * PART, p", "tile.column, p"),
    ("wgmma_cluster", "if (lane_id() < CLUSTER) mbarrier", "if (lane_id() < 1) mbarrier"),
    ("wgmma_persistent", "i / 2 ^ odd", "i / 2"),
    ("wgmma_persistent", "if (row >= m || column >= n) return {};", ""),
]


def _method(slip: tuple[str, str, str]) -> str:
    return ALGORITHMS[slip[0]].method


@pytest.mark.parametrize(("name", "old", "new"), one_of_each(SLIPS, _method))
def test_a_slip_is_noticed(device: Device, rewrite: Rewrite, name: str, old: str, new: str) -> None:
    slipped = rewrite(rung(name), old, new)
    with contextlib.suppress(LaunchError):
        assert not is_right(device, PROBLEM, slipped, QUICK)


# The last has what those before it have.
@pytest.mark.parametrize("name", [*thorough(RUNGS[:-1]), RUNGS[-1]])
def test_without_a_slip_it_works_and_nothing_races(device: Device, name: str) -> None:
    report, d = checked(device, rung(name), QUICK)
    assert report.verdict == "clean", report.findings
    np.testing.assert_array_equal(d, expected(PROBLEM, whole_numbers(PROBLEM)))


WAITS = [
    ("wgmma_pipelined", "if (tile > 0) release(before)", "release(ring.empty())"),
    ("wgmma_pipelined", "            wgmma_wait<1>();", ""),
    ("wgmma_cluster", "    }\n    cluster_barrier();", "    }"),
    ("wgmma_persistent", "        async_proxy_fence();", ""),
    ("wgmma_persistent", "if (thread == 0) bulk_wait_read<1>();", ""),
]


@pytest.mark.parametrize(("name", "old", "new"), one_of_each(WAITS, _method))
def test_a_missing_wait_is_found(
    device: Device, rewrite: Rewrite, name: str, old: str, new: str
) -> None:
    report, _ = checked(device, rewrite(rung(name), old, new), QUICK)
    assert report.verdict != "clean"


# ---- what the compilers make of them ------------------------------------------------------------


@pytest.mark.parametrize("name", RUNGS)
def test_products_run_on_while_others_begin(name: str) -> None:
    """Neither spills nor a wait of ptxas's own, which it warns of with a number (C7510)."""
    algorithm = ALGORITHMS[name]
    cubin, function = assembled(algorithm, "sm_90a", RUNGS.index(name))
    assert "(C7" not in cubin.log
    threads = algorithm.launch(Problem(1, 1, 1), algorithm.tile).cta_threads
    assert cubin.kernels[name].registers * threads <= 65536
    tile, opcodes = algorithm.tile, function.opcodes()
    steps, wide = tile.bk // 16, tile.wm // 16
    assert opcodes["HGMMA"] == steps * wide
    loop = main_loop(function, "HGMMA")
    assert loop is not None
    assert loop.count("HGMMA") == steps * wide
    assert len(loop.instructions) < 100
    assert (loop.count("BAR"), loop.count("MEMBAR")) == (name == "wgmma", 0)
    assert opcodes["USETMAXREG"] == (2 if algorithm.producers == 128 else 0)


def test_a_wait_of_its_own_would_be_seen(tmp_path: Path) -> None:
    """Sums that begin as zeros are registers that something else than wgmma defines."""
    name = "wgmma_pipelined"
    for file in resources.path("kernels").glob("*.cuh"):
        text = file.read_text().replace(
            "f32 sums[HEIGHT / 64][BN / 2];", "f32 sums[1][BN / 2] = {};"
        )
        (tmp_path / file.name).write_text(text)
    source = resources.path(ALGORITHMS[name].file).read_text()
    options = [f"-D{macro}={size}" for macro, size in QUICK.items()]
    path = str(tmp_path / "x.cu")
    _, cubin = assemble_cuda(source, path=path, arch="sm_90a", options=options)
    assert "(C7" in cubin.log
