from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.view.json import plain, write

FORMATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_keep_all_their_bits(dtype: Any) -> None:
    ends = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
    array = np.array(ends, dtype)
    assert json.loads(write({"all": array, "one": array[1]})) == {"all": ends, "one": ends[1]}


@pytest.mark.parametrize("dtype", FORMATS)
def test_floats_read_back_as_the_value_they_have(dtype: Any) -> None:
    bits = np.random.default_rng(5).integers(0, 256, (1000, np.dtype(dtype).itemsize), np.uint8)
    values = bits.view(dtype)[:, 0]
    with np.errstate(invalid="ignore"):
        finite = values[np.isfinite(values.astype(np.float64))]
    assert len(finite) > 500
    for value_or_values in (plain(finite), [plain(value) for value in finite]):
        exact = [Fraction(float(value)) for value in finite]
        assert [Fraction(number) for number in json.loads(json.dumps(value_or_values))] == exact


@pytest.mark.parametrize("dtype", [*FORMATS, float])
def test_what_json_lacks_is_a_string(dtype: Any) -> None:
    several = np.array([1, math.nan, math.inf, -math.inf]).astype(dtype)
    assert plain(several) == [1, "nan", "inf", "-inf"]
    assert [plain(value) for value in several] == [1, "nan", "inf", "-inf"]
    assert plain(float(several[2])) == "inf"


def test_what_is_inside_others_is_found() -> None:
    data = {"a": ({"b": [math.inf, None]}, np.zeros((2, 1))), "c": True, "d": "nan", "e": np.True_}
    assert write(data) == (
        '{"a": [{"b": ["inf", null]}, [[0.0], [0.0]]], "c": true, "d": "nan", "e": true}'
    )


def test_what_is_no_data_is_a_mistake() -> None:
    with pytest.raises(TypeError):
        write({"a": object()})
