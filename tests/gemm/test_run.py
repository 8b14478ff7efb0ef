"""Whole GEMMs on the device: every kernel, with all that a problem can ask for, at a tile's edges.

The matrix is pairwise rather than full: each kernel meets every layout, epilogue, CTA order, pair of
factors and way of storing rows, and each of these meets the others in some kernel. What takes long to
compile has its usual tile with one of four layouts, another one for each pair of types, and a smaller
one with the others. Two of a kernel's four choices always run, with A and B either way in both pairs of them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm import ALGORITHMS, LADDER, Algorithm, Problem, Tile, find_algorithm, run
from ptxlab.gemm.problem import EPILOGUES, LAYOUTS, DeviceOperands
from ptxlab.gemm.reference import compare, epilogue_of, error_bound, reference
from ptxlab.gemm.run import compute, launch
from ptxlab.gemm.scaled import SCALED
from ptxlab.verbs.gemm.text import text
from tests.gemm.simt import QUICK, Rewrite, rewrite, whole_numbers

__all__ = ["rewrite"]

# Those with tensor maps have tests of their own, and so have numbers that share scales.
EVERYWHERE = {name: each for name, each in ALGORITHMS.items() if not each.maps}
KERNELS = [
    (name, *types)
    for name, algorithm in EVERYWHERE.items()
    for types in algorithm.types
    if types[0] not in SCALED
]
GROUPS = (1, 2, 3, 8)
FACTORS = ((1.0, 0.0), (0.5, -1.25), (1.0, 1.0), (-2.0, 0.0))
ROOM = ("tight", "odd", "aligned", "even")


def sizes(tile: Tile, choice: int) -> list[tuple[int, int, int]]:
    """Sizes at the edges of a tile: below, on and above, and hardly anything at all."""
    m, n, k = tile.bm, tile.bn, max(tile.bk, 8)
    return [
        [(m, n, 2 * k), (1, 1, 1), (2 * m + 3, 5, k)],
        [(m + 1, n - 1, 2 * k + 1), (5, 3, 0)],
        [(m - 1, n + 1, k - 1), (7, n + 9, 3 * k - 2)],
        [(m // 2 + 1, n + 3, k + 3), (201, 173, 77), (5, 3, 0)],
    ][choice]


def leading(width: int, room: str) -> int | None:
    """Room between rows: none, or such that rows are aligned to 1, 8 or 2 elements."""
    wide = -(-width // 8) * 8
    return {"tight": None, "odd": wide + 1, "aligned": wide + 8, "even": wide + 2}[room]


def often(name: str, dtype: str, acc: str, choice: int) -> bool:
    """Whether a case always runs: of a kernel of many types each type has a choice of its own.

    Of the others it is by turns the first and the last, where both A and B are as they are and then transposed, or
    the two between, where one of them is.
    """
    types = ALGORITHMS[name].types
    if len(types) > 3:
        return choice == types.index((dtype, acc)) % 4
    return (choice in (0, 3)) == (KERNELS.index((name, dtype, acc)) % 2 == 0)


@pytest.mark.parametrize(
    ("name", "dtype", "acc", "choice"),
    [
        pytest.param(*types, choice, marks=[pytest.mark.thorough] * (not often(*types, choice)))
        for types in KERNELS
        for choice in range(4)
    ],
)
def test_right_to_the_bound(keeping: Device, name: str, dtype: str, acc: str, choice: int) -> None:
    algorithm = ALGORITHMS[name]
    turn = KERNELS.index((name, dtype, acc))
    layout = algorithm.layouts[choice % len(algorithm.layouts)]
    epilogue = algorithm.epilogues[(choice + turn) % len(algorithm.epilogues)]
    macros = {} if choice == turn % 4 else dict(QUICK.get(name, {}))
    if not algorithm.file.endswith(".ptx"):
        macros["GROUP"] = GROUPS[(choice + turn // 4) % 4]
    tile = algorithm.cut(macros, dtype)
    for j, (m, n, k) in enumerate(sizes(tile, choice)):
        alpha, beta = FACTORS[(choice + j) % 4]
        room = ROOM[(choice + 2 * j + turn) % 4]
        rows = Problem(m, n, k, dtype, acc, layout=layout).stored
        lda, ldb, ldd = (leading(width, room) for _, width in rows)
        problem = Problem(
            m, n, k, dtype, acc, seed=5, layout=layout, epilogue=epilogue, alpha=alpha, beta=beta,
            lda=lda, ldb=ldb, ldd=ldd,
        )  # fmt: skip
        result = run(keeping, problem, algorithm, macros)
        assert result.passed, result
        verdict = result.verdict
        assert 0 <= verdict.error <= verdict.tolerance
        assert verdict.worst.index is not None
        assert verdict.strays == 0
        assert (result.rung, result.problem) == (algorithm, problem)
        assert (result.device, result.arch) == (keeping.kind, keeping.target.name)
        assert (result.tflops is None) == (keeping.kind == "emulator")
        assert result.launched.seconds > 0


@pytest.mark.parametrize("turn", range(16))
def test_each_meets_every_other(turn: int) -> None:
    """What the test above chooses, all kernels together, contains every pair of choices."""
    met = {
        (LAYOUTS[choice], EPILOGUES[(choice + turn) % 4])
        for choice, turn in product(range(4), range(len(KERNELS)))
    }
    assert met == set(product(LAYOUTS, EPILOGUES))


@pytest.mark.parametrize("name", [name for name in EVERYWHERE if name not in QUICK])
def test_matrices_begin_anywhere(keeping: Device, name: str) -> None:
    """Rows of whole vectors do not help where the first of them begins one element off.

    The other kernels have tests of their own, one for each number of elements.
    """
    algorithm = ALGORITHMS[name]
    dtype, acc = algorithm.types[0]
    problem = Problem(40, 48, 32, dtype, acc, beta=1)
    inputs = problem.inputs()
    whole = [np.append(np.full(1, np.nan, x.dtype), x) for x in (inputs.a, inputs.b, inputs.d)]
    buffers = [keeping.upload(memory) for memory in whole]
    places: list[Any] = [buffer.address + buffer.dtype.itemsize for buffer in buffers]
    launch(keeping, DeviceOperands(problem, *places), algorithm, algorithm.tile)
    d = buffers[2].numpy()
    assert np.isnan(d[0])
    plus = epilogue_of(problem, inputs)
    bound = error_bound(algorithm.method, keeping.target.dot16, inputs.a, inputs.b, acc, plus)
    worst = compare(d[1:].reshape(40, 48), reference(inputs.a, inputs.b, plus), bound)
    assert worst.error <= bound.coefficient


@pytest.mark.parametrize("size", [(0, 5, 3), (5, 0, 3), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_empty_d_is_right_without_a_launch(
    device: Device, name: str, size: tuple[int, int, int]
) -> None:
    result = run(device, Problem(*size, *ALGORITHMS[name].types[0]), ALGORITHMS[name])
    assert result.passed
    assert result.verdict.worst.index is None
    assert (result.launched.seconds, result.launched.counters) == (0.0, {})


def test_simt_rungs_agree_to_the_bit_and_with_whole_numbers_with_numpy(keeping: Device) -> None:
    """Each adds up one fma after the other in increasing k: the order of the work changes nothing.

    With whole numbers nothing is rounded, so D is known to the bit without our reference.
    """
    problem = Problem(70, 75, 67, "f32", layout="tn", epilogue="bias+relu", alpha=0.75, beta=0.5)
    whole = Problem(40, 50, 60, "f32", layout="tn", epilogue="bias+relu", alpha=2, beta=-3)
    inputs, numbers = problem.inputs(), whole_numbers(whole)
    expected = np.maximum(2 * (numbers.a @ numbers.b) - 3 * numbers.d + numbers.bias, 0)
    digests = set()
    rungs = [rung for rung in LADDER.values() if ("f32", "f32") in rung.types]
    for rung in rungs:
        sizes = QUICK.get(rung.name, {})
        if not rung.name.startswith("cublas"):
            computed = compute(keeping, whole, numbers, rung, sizes)
            np.testing.assert_array_equal(computed.d, expected)
        if isinstance(rung, Algorithm):
            assert rung.method == "fma"
            digests.add(compute(keeping, problem, inputs, rung, sizes).d.tobytes())
    assert sum(isinstance(rung, Algorithm) for rung in rungs) >= 7
    assert len(digests) == 1


def test_relu_keeps_what_is_no_number(keeping: Device) -> None:
    problem = Problem(4, 3, 5, "f32", epilogue="relu")
    inputs = whole_numbers(problem)
    inputs.a[2, 1] = np.nan
    d = compute(keeping, problem, inputs, ALGORITHMS["naive"]).d
    assert np.isnan(d[2]).all()
    np.testing.assert_array_equal(np.isnan(d).any(axis=1), [False, False, True, False])


def test_what_is_written_between_rows_is_wrong(device: Device, rewrite: Rewrite) -> None:
    store = "D.store(row, column, sum);"
    rewrite("naive", store, f"{store} if (column == 0 && row + 1 < m) d[s64(row) * ldd + n] = 7;")
    problem = Problem(40, 24, 8, "f32", ldd=27)
    result = run(device, problem, ALGORITHMS["naive"])
    assert result.verdict.error <= result.verdict.tolerance
    assert result.verdict.strays == 39  # after each row but the last, with which memory ends
    assert not result.passed
    assert "WRONG: 39 elements between the rows of D were written" in text(result)
    assert run(device, replace(problem, ldd=None), ALGORITHMS["naive"]).verdict.strays == 0


@pytest.mark.parametrize(
    ("name", "dtype", "acc", "said"),
    [
        ("tensor_cor", "bf16", "f32", "did you mean tensor_core?"),
        ("coalescing", "f16", "f32", "it takes f32 -> f32"),
        ("naive", "f16", "f16", "tensor_core can"),
    ],
)
def test_what_cannot_be_run(device: Device, name: str, dtype: str, acc: str, said: str) -> None:
    with pytest.raises(PtxlabError) as caught:
        run(device, Problem(8, 8, 8, dtype, acc), find_algorithm(name))
    assert said in str(caught.value)
