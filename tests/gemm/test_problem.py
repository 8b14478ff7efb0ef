"""Problems: their inputs, how they lie in memory, and what is none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm import Problem
from ptxlab.gemm.problem import gathered, spread, to_tf32, uploaded
from tests.together import in_one_test


@pytest.mark.parametrize(
    ("dtype", "kind"), [("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("f16", np.float16)]
)
def test_inputs_are_standard_normal_and_repeatable(dtype: str, kind: type) -> None:
    inputs = Problem(200, 150, 100, dtype, seed=3).inputs()
    a, b = inputs.a, inputs.b
    assert (a.shape, b.shape) == ((200, 100), (100, 150))
    assert a.dtype == b.dtype == kind
    assert a.flags.c_contiguous
    assert b.flags.c_contiguous
    for matrix in (a.astype(np.float64), b.astype(np.float64)):
        assert abs(matrix.mean()) < 0.03
        assert abs(matrix.std() - 1) < 0.03
    again = Problem(200, 150, 100, dtype, seed=3).inputs()
    other = Problem(200, 150, 100, dtype, seed=4).inputs()
    assert a.tobytes() == again.a.tobytes()
    assert b.tobytes() == again.b.tobytes()
    assert a.tobytes() != other.a.tobytes()
    assert a.tobytes()[:1000] != b.tobytes()[:1000]
    assert np.isnan(inputs.d.astype(np.float32)).all()
    assert inputs.bias is None


def test_what_else_is_read_changes_nothing_before_it() -> None:
    plain = Problem(20, 30, 10, "f16", "f16", seed=3).inputs()
    more = Problem(20, 30, 10, "f16", "f16", seed=3, epilogue="bias+relu", beta=2, layout="tt")
    inputs = more.inputs()
    assert plain.a.tobytes() == inputs.a.tobytes()
    assert plain.b.tobytes() == inputs.b.tobytes()
    assert inputs.d.dtype == np.float16
    assert abs(inputs.d.astype(float).std() - 1) < 0.1
    assert inputs.bias is not None
    assert inputs.bias.shape == (30,)
    assert inputs.bias.dtype == np.float32


def test_factors_are_rounded_to_f32() -> None:
    problem = Problem(1, 1, 1, alpha=0.1, beta=1 / 3)
    assert (problem.alpha, problem.beta) == (float(np.float32(0.1)), float(np.float32(1 / 3)))


def test_tf32_has_ten_fraction_bits_and_ties_go_away_from_zero() -> None:
    ulp = 2.0**-10
    for value, rounded in [
        (1 + ulp / 2, 1 + ulp),
        (-1 - ulp / 2, -1 - ulp),
        (1 + ulp / 2 - 2.0**-23, 1),
        (1 + 3 * ulp / 2, 1 + 2 * ulp),
        (2 - 2.0**-23, 2),
        (0, 0),
        (2.0**-149, 0),
        (2.0**-137, 2.0**-136),
    ]:
        assert to_tf32(np.array([value], np.float32)) == np.float32(rounded)


# ---- in memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matrices_lie_as_the_layout_says(device: Device, layout: str) -> None:
    problem = Problem(5, 7, 3, "f32", layout=layout, beta=1, epilogue="bias", lda=9, ldd=8)
    inputs = problem.inputs()
    with uploaded(device, problem, inputs) as x:
        a, b, d = x.a.numpy(), x.b.numpy(), x.d.numpy()
        ldb = 3 if layout[1] == "t" else 7
        assert problem.leading == (9, ldb, 8)
        assert x.arguments()[4:9:2] == [9, ldb, 8]
        assert len(a) == (2 * 9 + 5 if layout[0] == "t" else 4 * 9 + 3)
        assert (len(b), len(d)) == (21, 4 * 8 + 7)
        for (row, p), value in np.ndenumerate(inputs.a):
            assert a[p * 9 + row if layout[0] == "t" else row * 9 + p] == value
        for (p, column), value in np.ndenumerate(inputs.b):
            assert b[column * ldb + p if layout[1] == "t" else p * ldb + column] == value
        assert np.isnan(a).sum() == len(a) - 15
        assert x.bias is not None
        assert inputs.bias is not None
        np.testing.assert_array_equal(x.bias.numpy(), inputs.bias)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_write_between_rows_is_counted(kind: Any) -> None:
    matrix = np.arange(6, dtype=kind).reshape(2, 3)
    memory = spread(matrix, 5)
    assert len(memory) == 8
    gathered_matrix, strays = gathered(memory, 2, 3, 5)
    np.testing.assert_array_equal(gathered_matrix, matrix)
    assert strays == 0
    memory[3] = 0
    assert gathered(memory, 2, 3, 5)[1] == 1
    memory[4] = -np.array(np.nan, kind)  # not the NaN that was there
    assert gathered(memory, 2, 3, 5)[1] == 2
    for rows, columns in ((0, 3), (2, 0)):
        nothing = spread(np.zeros((rows, columns), kind), 5)
        assert (len(nothing), gathered(nothing, rows, columns, 5)[1]) == (0, 0)


def test_integers_reach_as_far_as_eight_bits_do_and_the_least_lies_between_rows() -> None:
    a = Problem(400, 1, 300, "s8", seed=3).inputs().a
    assert a.dtype == np.int8
    assert abs(a.mean()) < 1
    assert abs(a.std() - 32) < 1
    assert {a.min(), a.max()} == {-128, 127}
    memory = spread(a[:2, :3], 5)
    assert memory[3:5].tolist() == [-128, -128]
    memory[4] = 0
    assert gathered(memory, 2, 3, 5)[1] == 1


def test_flops() -> None:
    assert Problem(3, 4, 5).flops == 120


@in_one_test(
    ("given", "said"),
    [
        ({"m": -1}, "m = -1"),
        ({"n": 2**31}, "n = 2147483648"),
        ({"k": -5}, "k = -5"),
        ({"dtype": "bf17"}, "did you mean bf16?"),
        ({"dtype": "s8", "k": 2**17}, "k = 131072 is not below 2^17: sums of s8 have 32 bits"),
        ({"acc": "bf16"}, "acc is one of f32, f16"),
        ({"layout": "nm"}, "layout is one of nn, nt, tn, tt"),
        ({"epilogue": "bias+rely"}, "did you mean bias+relu?"),
        ({"alpha": float("nan")}, "alpha = nan is not a finite f32"),
        ({"beta": 1e39}, "beta = 1e+39 is not a finite f32"),
        ({"lda": 3}, "lda = 3 is not between 4, the length of a row"),
        ({"lda": 2, "layout": "tn"}, "lda = 2 is not between 3"),
        ({"ldd": 2**31}, "ldd = 2147483648"),
    ],
)
def test_what_is_no_problem(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PtxlabError) as caught:
        Problem(**{"m": 3, "n": 5, "k": 4, **given})
    assert said in str(caught.value)
