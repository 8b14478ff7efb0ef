"""Whole GEMMs on the device: every algorithm and type, sizes at and around the tile's edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.reference import compare, error_bound
from ptxlab.gemm.run import Operands, launch
from ptxlab.isa.types import TYPES

CASES = [(name, *types) for name, algorithm in ALGORITHMS.items() for types in algorithm.types]
SIZES = [(1, 1, 1), (17, 9, 33), (128, 128, 32), (129, 257, 65), (40, 136, 200), (3, 5, 0)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("name", "dtype", "acc"), CASES)
def test_right_to_the_bound(
    device: Device, name: str, dtype: str, acc: str, size: tuple[int, int, int]
) -> None:
    result = run(device, Problem(*size, dtype, acc, seed=5), name)
    assert result.passed, result
    assert 0 <= result.max_error <= result.tolerance
    assert result.worst is not None
    assert (result.m, result.n, result.k) == size
    assert (result.algorithm, result.dtype, result.acc) == (name, dtype, acc)
    assert (result.device, result.arch) == (device.kind, device.target.name)
    assert (result.tflops is None) == (device.kind == "emulator")
    assert result.seconds > 0


@pytest.mark.parametrize("size", [(0, 5, 3), (5, 0, 3), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_empty_d_is_right_without_a_launch(
    device: Device, name: str, size: tuple[int, int, int]
) -> None:
    result = run(device, Problem(*size, *ALGORITHMS[name].types[0]), name)
    assert result.passed
    assert (result.worst, result.seconds, result.counters) == (None, 0.0, {})


def test_no_k_overwrites_d_with_zeros(device: Device) -> None:
    for algorithm in ALGORITHMS.values():
        dtype, acc = algorithm.types[0]
        d = device.upload(np.full((3, 5), np.nan, TYPES[acc].dtype))
        nothing = device.upload(np.zeros(8, TYPES[dtype].dtype))
        operands = Operands(nothing, 8, nothing, 8, d, 5)
        launch(device, Problem(3, 5, 0, dtype, acc), algorithm, operands)
        assert not d.numpy().any()


SENTINEL = -7.0


@pytest.mark.parametrize("more", [1, 2, 8], ids=["odd", "even", "aligned"])
@pytest.mark.parametrize("size", [(17, 9, 33), (130, 135, 70), (128, 128, 64)], ids=str)
@pytest.mark.parametrize(("name", "dtype", "acc"), CASES)
def test_rows_longer_than_the_matrix(
    device: Device, name: str, dtype: str, acc: str, size: tuple[int, int, int], more: int
) -> None:
    """Every matrix is a window of a larger one: NaN around A and B, sentinels around D."""
    m, n, k = size
    a, b = Problem(m, n, k, dtype, acc).inputs()
    wide = {
        "a": np.full((m + 1, -(-k // 8) * 8 + more), np.nan, a.dtype),
        "b": np.full((k + 1, -(-n // 8) * 8 + more), np.nan, b.dtype),
        "d": np.full((m + 1, -(-n // 8) * 8 + more), SENTINEL, TYPES[acc].dtype),
    }
    wide["a"][:m, :k], wide["b"][:k, :n] = a, b
    x, y, d = (device.upload(wide[name]) for name in "abd")
    lda, ldb, ldd = (wide[name].shape[1] for name in "abd")
    launch(device, Problem(m, n, k, dtype, acc), ALGORITHMS[name], Operands(x, lda, y, ldb, d, ldd))
    found = d.numpy()
    bound = error_bound(ALGORITHMS[name].method, device.target.dot16, a, b, acc)
    assert compare(found[:m, :n], a, b, bound).error <= bound.coefficient
    found[:m, :n] = SENTINEL
    assert (found == SENTINEL).all()


@pytest.mark.parametrize(
    ("name", "dtype", "acc", "said"),
    [
        ("tensor_cor", "bf16", "f32", "did you mean tensor_core?"),
        ("tensor_core", "f32", "f32", "bf16 -> f32, f16 -> f32, f16 -> f16"),
        ("naive", "f16", "f16", "tensor_core can"),
    ],
)
def test_what_cannot_be_run(device: Device, name: str, dtype: str, acc: str, said: str) -> None:
    with pytest.raises(PtxlabError) as caught:
        run(device, Problem(8, 8, 8, dtype, acc), name)
    assert said in str(caught.value)


# What a slip of the pen in the kernel would be.
SLIPS = {
    "tensor_core": [
        ("u16(0)", "u16(0x3f80)"),
        ("row < rows ? min", "row <= rows ? min"),
        ("min(max(columns, 0), 8)", "8"),
        ("left > 0; left -= BK", "left >= BK; left -= BK"),
        ("b[step % 2][j]", "b[0][j]"),
        ("place<BK / 8>(row + lane % 16", "place<BK / 8>(lane % 16"),
        ("column0 = member / height", "column0 = member % height"),
        ("line[8 * j + e]", "line[8 * j]"),
        ("cp_async_wait<STAGES - 2>", "cp_async_wait<STAGES - 1>"),
    ],
    "block_tiled_vectorized": [
        ("left > 0; left -= BK", "left >= BK; left -= BK"),
        ("left >= 4) {\n        four.vector", "left >= 1) {\n        four.vector"),
        ("% 16 == 0", "% 4 == 0"),
        ("i < left ? from[i] : 0", "from[i]"),
        ("a_exists ? left - a_k : 0", "left - a_k"),
        ("b_k < left ? b_left : 0", "b_left"),
        ("(a_k + i) * A_LINE", "a_k * A_LINE + i"),
        ("sum[i][half], n - across", "sum[i][0], n - across"),
        ("if (down >= m) continue;", ""),
    ],
}


@pytest.mark.parametrize(
    ("name", "old", "new"), [(name, *slip) for name, slips in SLIPS.items() for slip in slips]
)
def test_a_slip_in_the_kernel_is_noticed(
    device: Device, tmp_path: Path, name: str, old: str, new: str
) -> None:
    algorithm = ALGORITHMS[name]
    text = resources.path(algorithm.file).read_text()
    assert old in text
    file = tmp_path / "faulty.cu"
    file.write_text(text.replace(old, new))
    m, n, k = 130, 135, 70
    dtype, acc = algorithm.types[0]
    a, b = Problem(m, n, k, dtype, acc).inputs()
    bound = error_bound(algorithm.method, device.target.dot16, a, b, acc)

    def wrong(more: int) -> bool:
        """Say whether the kernel fails with rows of a multiple of 8, plus ``more`` elements."""
        wide_a = np.full((m + 1, 72 + more), np.nan, a.dtype)
        wide_b = np.full((k + 1, 136 + more), np.nan, b.dtype)
        wide_a[:m, :k], wide_b[:k, :n] = a, b
        x, y, d = device.upload(wide_a), device.upload(wide_b), device.zeros((m, n), acc)
        shape = algorithm.launch(algorithm.tile, m, n)
        try:
            device.load(file).kernel(name).launch(
                shape.grid, shape.block, [m, n, k, x, 72 + more, y, 136 + more, d, n], shape.shared
            )
        except LaunchError:
            return True
        return compare(d.numpy(), a, b, bound).error > bound.coefficient

    assert wrong(8) or wrong(1)
