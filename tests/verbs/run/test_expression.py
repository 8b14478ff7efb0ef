from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.expression import FUNCTIONS, METHODS, evaluate, is_rounded
from tests.together import in_one_test

A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5
B = np.arange(12, dtype=np.float32).reshape(3, 4)
NAMES: dict[str, Any] = {
    "a": A,
    "b": B,
    "h": A.astype(ml_dtypes.bfloat16),
    "u": np.array([1, 2, 0xFFFFFFFF], np.uint32),
    "n": 3,
    "x": 0.5,
}


@in_one_test(
    ("text", "value"),
    [
        ("a @ b + 1", A @ B + 1),
        ("(a @ b).T", (A @ B).T),
        ("h.astype(f32) @ b", A.astype(ml_dtypes.bfloat16).astype(np.float32) @ B),
        ("a.astype(f64) / n", A.astype(np.float64) / 3),
        ("-a ** 2 % 3", -(A**2) % 3),
        ("where(a > 0, a, 0)", np.where(A > 0, A, 0)),
        ("np.maximum(a, x) + numpy.sqrt(abs(a))", np.maximum(A, 0.5) + np.sqrt(np.abs(A))),
        ("a[:, None, ::-1][..., 1]", A[:, None, ::-1][..., 1]),
        ("a[1, 0:n]", A[1, 0:3]),
        ("sum(b, axis=(0, 1))", np.sum(B)),
        ("b.sum(axis=0, keepdims=1 == 1)", B.sum(axis=0, keepdims=True)),
        ("(u >> 1) ^ ~u & 7", (NAMES["u"] >> 1) ^ ~NAMES["u"] & 7),
        ("u.view(s32)", NAMES["u"].view(np.int32)),
        ("zeros((2, 2), dtype=f32) + eye(2)", np.eye(2)),
        ("b.reshape(4, 3)", B.reshape(4, 3)),
        ("b[:, ::-1].ravel()", B[:, ::-1].ravel()),
        ("b.transpose().flatten()", B.T.flatten()),
        ("2 ** 31", 2**31),
        ("(7 << 4000) >> 3999", 14),
        ("sum(a) == a.sum()", True),
    ],
)
def test_numpy_says_the_same(text: str, value: Any) -> None:
    evaluated = evaluate(text, NAMES)
    assert np.array_equal(evaluated, value)
    assert np.asarray(evaluated).dtype == np.asarray(value).dtype


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("in + is", A + 3),
        ("is * in[0:is - 1]", 3 * A[0:2]),
        ("in.sum(axis=0) - class.max() + inner", A.sum(axis=0) - 7 + 1),
        ("in_ @ in.T", 2 * (A @ A.T)),
    ],
)
def test_an_argument_is_called_what_the_kernel_calls_it(text: str, value: Any) -> None:
    names = {"in": A, "is": 3, "class": np.array([7]), "inner": 1, "in_": 2 * A}
    assert np.array_equal(evaluate(text, names), value)


def tf32_by_bits(x: Any) -> Any:
    """Round f32 to the nearest tf32, ties away from zero, as integers."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("text", ["y.astype(tf32)", "y.astype(dtype=tf32)"])
def test_tf32_is_rounded_as_cvt_rna_does(text: str) -> None:
    y = np.random.default_rng(5).integers(0, 0x7F000000, 4096, np.uint32).view(np.float32)
    y[:2] = np.array([0x3F801000, 0xBF803000], np.uint32).view(np.float32)  # ties
    value = evaluate(text, {"y": y})
    assert value.dtype == np.float32
    assert np.array_equal(value, tf32_by_bits(y))
    assert not np.array_equal(value, y)


def test_tf32_of_doubles_is_rounded_once() -> None:
    above = np.array([1 + 2.0**-11 - 2.0**-40])  # in f32 it is a tie, and that goes up
    assert evaluate("y.astype(tf32)", {"y": above}) == 1
    assert np.array_equal(evaluate("arange(2049, 2052, dtype=tf32)", {}), [2050, 2050, 2052])
    assert evaluate("u.view(tf32)", NAMES).view(np.uint32).tolist() == [1, 2, 0xFFFFFFFF]


def test_an_argument_goes_before_a_type_of_its_name() -> None:
    assert evaluate("f32 + 1", {"f32": 2}) == 3


@in_one_test(
    ("text", "why"),
    [
        ("__import__('os').system('true')", r"there is no \.system\(\)"),
        ("a[0](1)", "may call"),
        ("a.__class__", "is not something it may contain"),
        ("a.T.base.__class__", "is not something it may contain"),
        ("a.tofile(x)", r"there is no \.tofile\(\)"),
        ("a.dump(x)", r"there is no \.dump\(\)"),
        ("np.load(x)", r"there is no load\(\)"),
        ("np.random.seed(0)", r"there is no \.seed\(\)|no 'np'"),
        ("open(x)", r"there is no open\(\)"),
        ("f32(1)", r"there is no f32\(\)"),
        ("f32.type", "is not something it may contain"),
        ("f32.astype(f32)", "'f32' is no array"),
        ("n.reshape(1)", "'n' is no array"),
        ("n[0]", "'n' is no array"),
        ("'text'", "is not something it may contain"),
        ("1j", "is not something it may contain"),
        ("f'{a}'", "is not something it may contain"),
        ("lambda: 1", "is not something it may contain"),
        ("[i for i in a]", "is not something it may contain"),
        ("a if n else b", "is not something it may contain"),
        ("a and b", "is not something it may contain"),
        ("1 < a < 2", "is not something it may contain"),
        ("(n := 2)", "is not something it may contain"),
        ("sum(*a)", "is not something it may contain"),
        ("sum(a, out=b)", "out is no keyword here"),
        ("sum(a, **n)", "is no keyword here"),
        ("a.astype(f32, copy=0)", "copy is no keyword here"),
        ("c + 1", "there is no 'c'"),
        ("a + ", "does not parse"),
        ("", "does not parse"),
        ("a; b", "does not parse"),
        ("a @ a", "matmul"),
        ("a + b", "broadcast"),
        ("a[5]", "out of bounds"),
        ("a[x]", "only integers"),
        ("9 ** 9 ** 9", "too large an integer"),
        ("1 << 999999999", "too large an integer"),
        ("1 / 0", "division by zero"),
        ("1 << -1", "negative shift count"),
        ("zeros(10 ** 15)", "more than fits in memory"),
        ("(" * 500 + "1" + ")" * 500, "does not parse|nests too deeply"),
        ("-" * 1500 + "1", "nests too deeply"),
        ("1" * 2001, "longer than 2000"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str, why: str) -> None:
    with pytest.raises(PtxlabError, match=why) as caught:
        evaluate(text, NAMES)
    assert caught.value.exit_status == 2
    assert caught.value.hint


def test_the_tables_hold_nothing_that_writes_or_reads_files() -> None:
    assert all(callable(getattr(np, name)) for name in FUNCTIONS)
    assert all(callable(getattr(A, name)) for name in METHODS)
    files = {
        "load",
        "save",
        "fromfile",
        "tofile",
        "dump",
        "memmap",
        "loadtxt",
        "genfromtxt",
        "open",
    }
    assert not files & {*FUNCTIONS, *METHODS}


PIECES = (
    "a", "b", "h", "u", "n", "x", "f32", "np", "(", ")", "[", "]", "{", "}", ",", ":", ".", ".T", "@",
    "**", "<<", "-", "~", "=", "==", "1", "0", "1e999", "0x", "None", "True", "...", "sum", "zeros",
    "reshape", "astype", "__class__", "'", '"', "lambda", "\n", "\0", "é", " ",
)  # fmt: skip


def test_no_text_gets_anything_but_a_value_or_an_error() -> None:
    choose = random.Random(6)
    values = errors = 0
    for _ in range(3000):
        text = "".join(choose.choices(PIECES, k=choose.randint(1, 9)))
        try:
            evaluate(text, NAMES)
            values += 1
        except PtxlabError:
            errors += 1
    assert min(values, errors) > 50


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        ("a @ b", True), ("sum(a)", True), ("a.sum(axis=0)", True), ("exp(a)", True),
        ("a * x + y", False), ("where(a > 0, a, 0)", False), ("a.astype(f16)", False),
    ],
)  # fmt: skip
def test_what_may_be_off_by_rounding(text: str, rounded: bool) -> None:
    assert is_rounded(text) == rounded


def test_products_of_narrow_numbers_are_added_up_in_wide_ones() -> None:
    ones = np.ones((1, 4096), np.float16)
    assert evaluate("a @ b", {"a": ones, "b": ones.T}).item() == 4096
    assert (
        evaluate("a @ b", {"a": ones.astype(np.int8), "b": ones.T.astype(np.int8)}).dtype == np.int8
    )
