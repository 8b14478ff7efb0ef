from __future__ import annotations

import math
import os
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.cli.readers import dimensions
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.arrays import ELEMENT_TYPES, ArrayValue, errors, npz
from ptxlab.verbs.launching.values import is_array, read, split
from tests.together import in_one_test

SEED = (0, 0)


def array(text: str, seed: tuple[int, ...] = SEED) -> ArrayValue:
    value = read("A", text, seed)
    assert isinstance(value, ArrayValue)
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("128", 128),
        ("-1", -1),
        ("0x80000000", 2**31),
        ("0b101", 5),
        ("0.5", 0.5),
        ("1e5", 1e5),
        ("-inf", -math.inf),
    ],
)
def test_scalars_keep_their_kind(text: str, value: float) -> None:
    read_back = read("n", text, SEED)
    assert read_back == value
    assert type(read_back) is type(value)


def test_split_takes_the_first_equals_sign() -> None:
    assert split("A=randn(2,f32,seed=1)") == ("A", "randn(2,f32,seed=1)")
    assert split(" n = 3 ") == ("n", "3")


@pytest.mark.parametrize("text", ["n", "=3", "n=", "two words=3", ""])
def test_split_says_what_an_argument_looks_like(text: str) -> None:
    with pytest.raises(PtxlabError, match="is not NAME=VALUE"):
        split(text)


@in_one_test("name", sorted(ELEMENT_TYPES))
def test_every_type_can_be_filled(name: str) -> None:
    dtype = ELEMENT_TYPES[name].dtype
    assert np.array_equal(array(f"zeros(2x3,{name})").array, np.zeros((2, 3), dtype))
    assert np.array_equal(array(f"ones(4,{name})").array, np.array([1, 1, 1, 1], dtype))
    counted = array(f"arange(2x3x4,{name})")
    assert counted.array.dtype == dtype
    assert counted.dtype == name
    assert np.array_equal(counted.array.ravel(), np.arange(24).astype(dtype))
    assert counted.array.shape == (2, 3, 4)
    assert np.array_equal(array(f"eye(2x3,{name})").array, np.array([[1, 0, 0], [0, 1, 0]], dtype))


def test_integers_count_past_their_width_as_bits_do() -> None:
    assert [int(x) for x in array("arange(258,u8)").array[-3:]] == [255, 0, 1]


def test_randn_is_the_seed_and_nothing_else() -> None:
    seeded = array("randn(64x32,bf16,seed=1)")
    expected = np.random.default_rng(1).standard_normal((64, 32)).astype(ml_dtypes.bfloat16)
    assert seeded.array.tobytes() == expected.tobytes()
    assert array("randn(64x32,bf16,seed=1)", (7, 7)).array.tobytes() == expected.tobytes()
    assert array("randn(64,f32)", (0, 1)).array.tobytes() != array("randn(64,f32)").array.tobytes()


def test_tf32_is_f32_of_fewer_bits() -> None:
    made = array("randn(4096,tf32,seed=1)")
    exact = np.random.default_rng(1).standard_normal(4096)
    assert made.dtype == "tf32"
    assert not np.any(made.array.view(np.uint32) & 0x1FFF)
    step = 2.0 ** (np.floor(np.log2(abs(exact))) - 10)
    assert np.all(abs(made.array - exact) <= step / 2)
    assert np.any(abs(made.array - exact) > step / 2.1)


def save(path: Path, values: Any) -> str:
    with path.open("wb") as file:
        np.save(file, values)
    return f"@{path}"


def test_files_come_back_to_the_bit(tmp_path: Path) -> None:
    values = np.array([[1.5, np.nan], [-0.0, np.inf]], np.float32)
    loaded = array(save(tmp_path / "x.npy", values))
    assert (loaded.dtype, loaded.array.tobytes()) == ("f32", values.tobytes())
    short = np.asfortranarray(np.arange(6).reshape(2, 3)).astype(np.int16)
    loaded = array(save(tmp_path / "y.npy", short))
    assert (loaded.dtype, loaded.array.tolist()) == ("s16", short.tolist())
    for dtype, name in (
        (np.uint32, "u32"),
        (np.uint8, "u8"),
        (np.int64, "s64"),
        (np.float16, "f16"),
    ):
        assert array(save(tmp_path / "w.npy", np.zeros(3, dtype))).dtype == name
    halves = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    text = save(tmp_path / "z.npy", halves)
    assert array(f"{text}:bf16").array.tobytes() == halves.tobytes()
    assert array(f"{text}:bf16").dtype == "bf16"
    with pytest.raises(PtxlabError, match=r"say how to read it, as @.*z\.npy:bf16"):
        read("A", text, SEED)


def test_an_archive_gives_the_array_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    integers, halves = np.arange(3, dtype=np.int32), np.array([1.5, -2], ml_dtypes.bfloat16)
    np.savez(path, one=integers, two=halves)
    assert array(f"@{path}:one").array.tolist() == [0, 1, 2]
    assert array(f"@{path}:two:bf16").array.tobytes() == halves.tobytes()
    for text, why in (
        (f"@{path}", "holds one, two; say @.*npz:NAME"),
        (f"@{path}:oen", r"has no 'oen', it holds one, two; did you mean one\?"),
        (f"@{path}:two", r"say how to read it, as @.*npz:two:bf16"),
        (f"@{tmp_path / 'none.npz'}:one", "No such file"),
    ):
        with pytest.raises(PtxlabError, match=why):
            read("A", text, SEED)
    np.savez(path, only=integers)
    assert array(f"@{path}").array.tolist() == [0, 1, 2]


def test_the_same_arrays_are_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(npz({"file": np.arange(3), "b": np.ones(2)}))
    with zipfile.ZipFile(path) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert array(f"@{path}:file").array.tolist() == [0, 1, 2]


def test_bytes_of_eight_bit_floats_are_those_of_ml_dtypes() -> None:
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        expected = np.random.default_rng(5).standard_normal(256).astype(dtype)
        assert array(f"randn(256,{name},seed=5)").array.tobytes() == expected.tobytes()


DAMAGE = 200


def test_damaged_files_are_refused_and_nothing_else(tmp_path: Path) -> None:
    """Flip and cut the bytes of both kinds of file: an array or one clear error comes of it."""
    choose = random.Random(3)
    path = tmp_path / "x.npy"
    np.savez(tmp_path / "x.npz", x=np.arange(40.0))
    np.save(path, np.arange(40.0))
    refused = 0
    for name in ("x.npy", "x.npz"):
        whole = (tmp_path / name).read_bytes()
        for _ in range(DAMAGE):
            data = bytearray(whole[: choose.choice([len(whole), choose.randrange(len(whole))])])
            for _ in range(choose.randrange(4)):
                if data:
                    data[choose.randrange(min(len(data), 150))] = choose.randrange(256)
            (tmp_path / name).write_bytes(data)
            try:
                array(f"@{tmp_path / name}")
            except PtxlabError:
                refused += 1
    assert DAMAGE / 2 < refused < 2 * DAMAGE


WORDS = (
    "zeros", "randn", "eye", "arange", "tma", "box=", "(", ")", ",", "x", "seed=", "f32", "e4m3", "b128", "0", "-1",
    "7", "99999999999999999999", "1e400", "nan", "0x", "@", ":", "=", " ", "é", "\0", "9" * 5000,
)  # fmt: skip


def test_any_text_is_a_value_or_an_error() -> None:
    choose = random.Random(4)
    values = 0
    for _ in range(3000):
        text = "".join(choose.choices(WORDS, k=choose.randint(1, 7)))
        try:
            read(*split(f"A={text}"), SEED)
            values += 1
        except PtxlabError:
            continue
    assert values > 100


@in_one_test(
    "text",
    ["32", "2,3", "1,1,1", "0", "", "1,2,3,4", "-1", "1.5", "³", "9" * 5000, "1,,2", " 1", "0x10"],
)
def test_sizes_of_a_launch(text: str) -> None:
    right = re.fullmatch(r" *0*[1-9][0-9]{0,17}(,0*[1-9][0-9]{0,17}){0,2}", text)
    try:
        assert dimensions(text) == tuple(map(int, text.split(",")))
        assert right
    except ValueError:
        assert not right


@in_one_test(
    ("text", "why"),
    [
        ("zeros(99999999x99999999,f32)", "this machine has"),
        ("randn(1000000x1000000,bf16)", "this machine has"),
        ("zeroes(3,f32)", r"no zeroes\(\).*did you mean zeros\?"),
        ("zeros(3,float33)", "no array type 'float33'"),
        ("zeros(3,bf61)", r"no array type 'bf61'.*did you mean bf16\?"),
        ("zeros(3,pred)", "no array type 'pred'"),
        ("zeros(0,f32)", "'0' is not a shape"),
        ("zeros(3*4,f32)", "'3.4' is not a shape"),
        ("zeros(3)", "zeros takes a shape and a type"),
        ("zeros(3,f32,seed=1)", "zeros takes a shape and a type"),
        ("randn(3,f32,1)", "randn takes a shape and a type, and seed=N"),
        ("randn(3,f32,seed=x)", "'x' is not an integer of 0 or more"),
        ("randn(3,s32)", "randn makes floating-point types, not s32"),
        ("eye(2x2x2,f32)", "eye has one or two dimensions"),
        ("@nowhere.npy", "cannot read nowhere.npy: No such file"),
        (f"@{__file__}", "is not a .npy file"),
        ("twelve", "'twelve' is not a number"),
        ("[1,2]", r"'\[1,2\]' is not a number"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(PtxlabError, match=why) as caught:
        read("A", text, SEED)
    assert caught.value.message.startswith(f"argument A={text}: ")
    assert caught.value.hint


def test_an_array_is_made_where_nobody_says_how_much_memory_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Windows, which has no sysconf."""
    monkeypatch.delattr(os, "sysconf")
    assert array("ones(2x3,f32)").array.sum() == 6


def test_what_is_as_near_as_a_tolerance_says_is_right() -> None:
    """The tolerance is of what is wanted; infinities and NaN are right where they are wanted."""
    inf, nan = np.inf, np.nan
    cases = [
        (inf, inf, True, 0), (-inf, -inf, True, 0), (nan, nan, True, 0), (inf, -inf, False, inf),
        (inf, 1, False, inf), (1, inf, False, inf), (4, 6, True, 2), (6, 4, False, 2), (5.5, 4, True, 1.5),
        (-5.5, -4, True, 1.5), (0.5, 0, True, 0.5), (0.75, 0, False, 0.75), (1, nan, False, nan),
    ]  # fmt: skip
    value, want, right, error = (np.array(column) for column in zip(*cases, strict=True))
    is_right, found_error = errors(value, want, (0.25, 0.5))
    assert is_right.tolist() == right.astype(bool).tolist()
    np.testing.assert_array_equal(found_error, error)


def test_an_array_is_no_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made in 64 bits, whatever it then has."""
    pages = {"SC_PAGE_SIZE": 100, "SC_PHYS_PAGES": 10}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert array("zeros(125,u8)").array.size == 125
    with pytest.raises(PtxlabError, match="making it takes 1,008 bytes, this machine has 1,000"):
        read("A", "zeros(126,u8)", SEED)


@in_one_test(
    ("text", "expected"),
    [
        ("@x.npy", True), ("zeros(4,f32)", True), ("randn(4x4, f16 ,seed=3)", True), ("zeros(f32)", False),
        ("zeros(f32,4)", False), ("zeros(4)", False), ("tma(f32,box=4)", False), ("tma(a,f32)", False), ("5", False),
        ("f32", False), ("sin(4,f32)", False),
    ],
)  # fmt: skip
def test_what_is_an_array(text: str, expected: bool) -> None:
    assert is_array(text) is expected
