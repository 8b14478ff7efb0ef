"""What an array should hold: computed before the launch, in the shape and the type of the array."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.arrays import ArrayValue
from ptxlab.verbs.launching.launch import Argument
from ptxlab.verbs.launching.values import ArgumentValue
from ptxlab.verbs.run.expecting import Expected, compare, expected

THIRD = np.full((2, 4), 1 / 3)


def held(array: Array, dtype: str) -> ArrayValue:
    return ArrayValue(lambda: array, array.shape, dtype)


VALUES: dict[str, ArgumentValue] = {
    "h": held(np.zeros((2, 4), np.float16), "f16"),
    "b": held(np.zeros((2, 4), ml_dtypes.bfloat16), "bf16"),
    "i": held(np.zeros((2, 4), np.int32), "s32"),
    "d": held(THIRD, "f64"),
    "other": held(np.zeros((4, 2)), "f64"),
    "n": 7,
}


def test_an_expectation_is_rounded_to_the_type_of_its_array() -> None:
    half, brain, whole = expected([("h", "d"), ("b", "1 / 3"), ("i", "d + n")], VALUES)
    assert half.array.dtype == np.float16
    assert half.array.tolist() == THIRD.astype(np.float16).tolist()
    assert brain.array.dtype == ml_dtypes.bfloat16
    assert {float(value) for value in brain.array.reshape(-1)} == {0.333984375}
    assert whole.array.tolist() == (THIRD + 7).tolist()  # integers are compared with what it is


def test_an_expectation_has_the_shape_of_its_array() -> None:
    [number] = expected([("h", "n")], VALUES)
    assert number.array.tolist() == [[7] * 4] * 2
    for text, shape in (
        ("other", "4x2"),
        ("d[0]", "4"),
        ("d.reshape(8)", "8"),
        ("d[:, :1]", "2x1"),
    ):
        with pytest.raises(PtxlabError, match=f"its shape is {shape}, h is 2x4"):
            expected([("h", text)], VALUES)
    with pytest.raises(PtxlabError, match="no array argument has this name"):
        expected([("n", "7")], VALUES)


def test_the_largest_error_is_of_all_elements() -> None:
    """NaN where one is not a number and should be."""
    want = Expected("x", "...", np.array([1.0, 2, np.nan, 4]))
    for value, wrong, error in (
        ([1.0, 2, np.nan, 4], 0, 0.0),
        ([1.5, 2, np.nan, 1], 2, 3.0),
        ([1.5, 2, 3, 4], 2, math.nan),
        ([np.nan, 2, np.nan, 1], 2, math.nan),
    ):
        outcome = compare(want, Argument("x", "f64", np.array(value)), (0, 0))
        assert (outcome.elements, outcome.wrong) == (4, wrong)
        assert outcome.largest_error == error or (
            math.isnan(error) and math.isnan(outcome.largest_error)
        )
        assert len(outcome.differences) == wrong
