import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from ptxlab.device.arguments import pack
from ptxlab.device.memory import Buffer
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.functions import Parameter, parameters
from ptxlab.syntax.tree import Declaration, Declarator, Function
from tests.fuzzed import fuzzed
from tests.together import in_one_test

BF16 = ml_dtypes.bfloat16


class Memory(Buffer):
    """A buffer that is nowhere but at its address."""

    address = 0x7F00_1234_5678

    def __init__(self) -> None: ...


def declare(kind: str, name: str = "x", **more: Any) -> Declaration:
    dimensions = more.pop("dimensions", ())
    return Declaration("param", kind, (Declarator(name, dimensions=dimensions),), **more)


def layout(*declarations: Declaration) -> tuple[Parameter, ...]:
    return parameters(Function("k", True, declarations))


def bind(kind: str, value: Any, **more: Any) -> bytes:
    return pack("k", layout(declare(kind, **more)), [value])


def refuse(kind: str, value: Any, **more: Any) -> str:
    with pytest.raises(PtxlabError) as caught:
        bind(kind, value, **more)
    assert caught.value.exit_status == 2
    text = str(caught.value)
    assert "kernel k: parameter 0 (x) is ." + kind in text
    return text


# ---- layout ---------------------------------------------------------------------------------


def test_layout_of_a_mixed_block() -> None:
    parameters = layout(
        declare("u8", "a"),
        declare("u64", "b"),
        declare("u16", "c"),
        declare("f32", "d"),
        declare("b8", "e", dimensions=(24,), alignment=8),
        declare("u8", "f"),
        declare("b8", "g", dimensions=(128,), alignment=64),
        declare("u64", "h", pointer=("global", 16)),
    )
    assert [p.offset for p in parameters] == [0, 8, 16, 20, 24, 48, 64, 192]
    assert [p.size for p in parameters] == [1, 8, 2, 4, 24, 1, 128, 8]
    assert [p.alignment for p in parameters] == [1, 8, 2, 4, 8, 1, 64, 8]
    assert [p.count for p in parameters] == [1, 1, 1, 1, 24, 1, 128, 1]
    assert [p.is_pointer for p in parameters] == [False] * 7 + [True]
    assert [p.index for p in parameters] == list(range(8))


NATIVE = {"u8": "B", "s16": "h", "u32": "I", "s64": "q", "f32": "f", "f64": "d"}


@fuzzed(st.lists(st.sampled_from(sorted(NATIVE)), max_size=12))
def test_layout_and_bytes_are_those_of_c(kinds: list[str]) -> None:
    """A kernel's block is laid out like a C struct, which the struct module knows by itself."""
    values = [float(i) if kind[0] == "f" else i for i, kind in enumerate(kinds)]
    parameters = layout(*(declare(kind, f"p{i}") for i, kind in enumerate(kinds)))
    expected = struct.pack("@" + "".join(NATIVE[kind] for kind in kinds), *values)
    assert pack("k", parameters, values) == expected


@fuzzed(st.lists(st.sampled_from([*sorted(NATIVE), "pointer", "inner"]), min_size=1, max_size=9))
def test_members_of_a_struct_lie_as_in_c(kinds: list[str]) -> None:
    """Its end is padded too, which the struct module does for a last member that is as wide as the widest."""
    members: list[Any] = []
    numbers: list[float] = []
    native, inner = "", (np.uint8(7), np.float64(0.5))
    for n, kind in enumerate(kinds):
        if kind == "inner":  # it begins where the widest of its own may, and ends padded
            members.append(inner)
            native, numbers = native + "0dB7xd", [*numbers, 7, 0.5]
        elif kind == "pointer":
            members.append(Memory())
            native, numbers = native + "Q", [*numbers, Memory.address]
        else:
            members.append(TYPES[kind].dtype.type(n))
            native, numbers = native + NATIVE[kind], [*numbers, n]
    wide = any(kind in ("pointer", "inner", "s64", "f64") for kind in kinds)
    widest = "q" if wide else max((NATIVE[kind] for kind in kinds), key=struct.calcsize)
    expected = struct.pack(f"@{native}0{widest}", *numbers)
    assert bind("b8", tuple(members), dimensions=(len(expected),)) == expected
    assert f"{len(expected)} bytes" in refuse("b8", tuple(members), dimensions=(len(expected) + 8,))


@pytest.mark.parametrize(
    ("member", "told"), [(5, "numpy.int32(5)"), ([1], "members are"), (None, "members are")]
)
def test_a_member_without_a_size_is_refused(member: Any, told: str) -> None:
    assert told in refuse("b8", (np.int32(1), member), dimensions=(8,))


def test_two_dimensions_and_vectors() -> None:
    (array,) = layout(declare("f32", dimensions=(2, 3)))
    assert (array.count, array.size, array.alignment) == (6, 24, 4)
    (vector,) = layout(declare("f32", vector=4))
    assert (vector.count, vector.size, vector.alignment) == (4, 16, 16)


@pytest.mark.parametrize("declaration", [declare("texref"), declare("b8", dimensions=(None,))])
def test_unbindable_types_are_named(declaration: Declaration) -> None:
    with pytest.raises(Unsupported, match=r"kernel k: parameter 0 \(x\)"):
        layout(declaration)


def test_wrong_count_lists_the_parameters() -> None:
    parameters = layout(declare("u64", "out"), declare("f32", "alpha"))
    for args in ([], [1], [1, 2.0, 3]):
        with pytest.raises(PtxlabError, match=f"takes 2 arguments, not {len(args)}") as caught:
            pack("saxpy", parameters, args)
        assert "kernel saxpy" in str(caught.value)
        assert ".u64 out, .f32 alpha" in str(caught.value)
    with pytest.raises(PtxlabError, match="none"):
        pack("k", (), [1])
    assert pack("k", (), []) == b""


def test_error_names_the_parameter_that_is_wrong() -> None:
    parameters = layout(declare("u64", "out"), declare("u32", "n"))
    with pytest.raises(PtxlabError, match=r"kernel k: parameter 1 \(n\) is \.u32.* the float 1\.5"):
        pack("k", parameters, [0, 1.5])


# ---- integers -------------------------------------------------------------------------------

INTEGERS = [f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)]


def span(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return -(2 ** (bits - 1)), 2 ** (bits - 1 if kind[0] == "s" else bits) - 1


@in_one_test("kind", INTEGERS)
def test_integers_bind_in_range_and_only_there(kind: str) -> None:
    low, high = span(kind)
    size = int(kind[1:]) // 8
    for value in {low, low + 1, max(low, -1), 0, 1, high - 1, high}:
        assert bind(kind, value) == (value % 2 ** (8 * size)).to_bytes(size, "little")
    for value in (low - 1, high + 1, 10**30):
        assert f"its range is {low} to {high}" in refuse(kind, value)


@in_one_test("kind", INTEGERS)
@in_one_test(
    "value",
    [True, np.bool_(True), np.int8(1), np.uint64(1), np.int64(1), np.array(1), ml_dtypes.int4(1)],
)
def test_every_integer_one_binds(kind: str, value: Any) -> None:
    assert bind(kind, value) == (1).to_bytes(int(kind[1:]) // 8, "little")


def test_numpy_integers_are_held_to_the_range_too() -> None:
    refuse("u32", np.int64(-(2**31) - 1))
    refuse("u32", np.uint64(2**32))
    refuse("s32", np.uint32(2**31))
    assert bind("b32", np.int32(-1)) == b"\xff" * 4


@in_one_test("kind", ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"])
@in_one_test("value", [1.0, np.float32(1), np.float64(1), np.float16(1), BF16(1)])
def test_floats_do_not_bind_to_integers(kind: str, value: Any) -> None:
    refuse(kind, value)


# ---- floats ---------------------------------------------------------------------------------


def test_python_floats_round_to_nearest_even() -> None:
    assert bind("f32", 0.1) == struct.pack("<f", 0.1)
    assert bind("f64", 0.1) == struct.pack("<d", 0.1)
    assert bind("f16", 0.1) == struct.pack("<e", 0.1)
    assert bind("bf16", 1.0) == b"\x80\x3f"
    assert bind("f32", float("-inf")) == struct.pack("<f", float("-inf"))
    assert np.isnan(np.frombuffer(bind("f32", float("nan")), np.float32)[0])
    assert bind("f32", -0.0) == b"\0\0\0\x80"


@in_one_test("kind", ["f16", "f32", "f64", "bf16"])
@in_one_test("given_as", [np.float16, np.float32, np.float64, BF16])
def test_nan_of_any_type_is_nan(kind: str, given_as: Any) -> None:
    bound = np.frombuffer(bind(kind, given_as(float("nan"))), TYPES[kind].dtype)
    assert np.isnan(bound.astype(np.float64)).all()


@fuzzed(st.floats(-1e38, 1e38))
def test_bf16_is_rounded_once(value: float) -> None:
    """Against exact fractions: the result is the nearest bf16, and the even one of two."""
    bits = int.from_bytes(bind("bf16", value), "little")
    exact = Fraction(value)

    def distance(candidate: int) -> Fraction:
        word = np.array([candidate], np.uint16).view(BF16)[0]
        return abs(Fraction(float(word)) - exact)

    mine = distance(bits)
    for neighbour in (bits - 1, bits + 1):
        if 0 <= neighbour < 2**16 and neighbour & 0x7F80 != 0x7F80 and (neighbour ^ bits) < 0x8000:
            assert mine < distance(neighbour) or (mine == distance(neighbour) and bits % 2 == 0)


def test_bf16_tie_broken_below_f32() -> None:
    value = 1 + 2**-8 + 2**-40  # rounding to f32 first makes it a tie, which goes down
    assert bind("bf16", value) == b"\x81\x3f"
    assert bind("bf16", -value) == b"\x81\xbf"


@pytest.mark.parametrize(
    ("kind", "value"), [("f32", 1e39), ("f16", 65520.0), ("bf16", 3.4e38), ("b32", -1e39)]
)
def test_float_that_would_become_infinite_is_refused(kind: str, value: float) -> None:
    assert "too large" in refuse(kind, value)


def test_integers_bind_to_floats_when_exact() -> None:
    assert bind("f32", 2**24) == struct.pack("<f", 2**24)
    assert bind("f64", np.int32(-3)) == struct.pack("<d", -3)
    assert bind("f16", 2048) == struct.pack("<e", 2048)
    for kind, value in (("f32", 2**24 + 1), ("f16", 2049), ("f64", 2**53 + 1), ("f16", 10**6)):
        assert "not exact" in refuse(kind, value)
    assert "not exact" in refuse("f64", 10**400)


def test_typed_floats_bind_where_their_value_is_kept() -> None:
    assert bind("f32", np.float32(0.1)) == struct.pack("<f", 0.1)
    assert bind("f32", np.float16(0.1)) == struct.pack("<f", float(np.float16(0.1)))
    assert bind("f32", BF16(0.1)) == struct.pack("<f", float(BF16(0.1)))
    assert bind("f64", np.float32(0.1)) == struct.pack("<d", float(np.float32(0.1)))
    assert bind("f16", np.float32(0.5)) == struct.pack("<e", 0.5)
    assert "cannot hold" in refuse("f16", np.float32(0.1))
    assert "cannot hold" in refuse("bf16", np.float16(0.1))
    assert "cannot hold" in refuse("f16", np.float32(1e30))


@pytest.mark.parametrize(
    ("kind", "dtype"), [("f16", np.float16), ("bf16", BF16), ("f32", np.float32), ("b16", BF16)]
)
def test_every_pattern_of_a_typed_float_is_kept(kind: str, dtype: Any) -> None:
    size = np.dtype(dtype).itemsize
    words = np.random.default_rng(1).integers(0, 2 ** (8 * size), 500, dtype=f"u{size}")
    for word, value in zip(words, words.view(dtype), strict=True):
        assert bind(kind, value) == word.tobytes()


def test_untyped_parameters_take_bits() -> None:
    assert bind("b32", 0.1) == struct.pack("<f", 0.1)
    assert bind("b64", 0.1) == struct.pack("<d", 0.1)
    assert bind("b32", np.float32(0.1)) == struct.pack("<f", 0.1)
    assert bind("b16", np.float16(0.1)) == struct.pack("<e", 0.1)
    assert bind("b16", BF16(1)) == b"\x80\x3f"
    assert bind("b8", ml_dtypes.float8_e4m3fn(1)) == b"\x38"
    assert bind("f16x2", 0x3C003C00) == b"\x00\x3c" * 2
    refuse("b64", np.float32(1))
    refuse("b32", np.float16(1))
    refuse("f16x2", 1.0)
    assert "scalar" in refuse("b16", 1.0)
    assert "scalar" in refuse("b8", 1.0)


# ---- buffers --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["u64", "s64", "b64"])
@pytest.mark.parametrize("pointer", [None, ("global", 16)])
def test_buffer_binds_by_address(kind: str, pointer: Any) -> None:
    assert bind(kind, Memory(), pointer=pointer) == Memory.address.to_bytes(8, "little")


@pytest.mark.parametrize("kind", ["u32", "b32", "f32", "f64", "u8", "b128"])
def test_buffer_needs_a_64_bit_integer(kind: str) -> None:
    assert "a buffer" in refuse(kind, Memory())


@pytest.mark.parametrize("value", [np.zeros(4, np.float32), [1, 2], (1,)])
def test_array_for_a_pointer_says_upload(value: Any) -> None:
    assert "device.upload" in refuse("u64", value)
    assert "pointer" in refuse("u64", value, pointer=("", None))


@in_one_test("kind", sorted(set(TYPES) - {"pred"}))
@in_one_test("value", ["text", None, 1j, np.complex64(1), object, {}, np.str_("x")])
def test_nothing_else_binds(kind: str, value: Any) -> None:
    refuse(kind, value)


def test_none_says_how_to_write_a_null_pointer() -> None:
    assert "0 for a null pointer" in refuse("u64", None)
    assert bind("u64", 0) == bytes(8)


# ---- structs and arrays by value ------------------------------------------------------------

RECORD = np.dtype([("n", "<i4"), ("scale", "<f4"), ("base", "<u8")])


@pytest.mark.parametrize(
    "value",
    [
        np.array((7, 0.5, 9), RECORD),
        np.array((7, 0.5, 9), RECORD)[()],
        np.frombuffer(struct.pack("<ifQ", 7, 0.5, 9), np.uint8),
        struct.pack("<ifQ", 7, 0.5, 9),
        bytearray(struct.pack("<ifQ", 7, 0.5, 9)),
    ],
    ids=["0-d record", "record", "bytes array", "bytes", "bytearray"],
)
def test_struct_by_value(value: Any) -> None:
    expected = struct.pack("<ifQ", 7, 0.5, 9)
    assert bind("b8", value, dimensions=(16,), alignment=8) == expected
    assert "16 bytes, not 12" in refuse("b8", value, dimensions=(12,))


@pytest.mark.parametrize("value", [1, 1.0, [1] * 16, "x" * 16, np.array([None])])
def test_struct_takes_no_plain_values(value: Any) -> None:
    refuse("b8", value, dimensions=(16,))


def test_typed_array_by_value() -> None:
    values = np.array([1, 2, 3], np.float32)
    assert bind("f32", values, dimensions=(3,)) == values.tobytes()
    assert "float32" in refuse("f32", values.astype(np.int32), dimensions=(3,))
    assert "not 12" in refuse("f32", values[:2], dimensions=(3,))


def test_128_bits() -> None:
    assert bind("b128", 2**127) == bytes(15) + b"\x80"
    assert bind("b128", -1) == b"\xff" * 16
    assert bind("b128", bytes(range(16))) == bytes(range(16))
    refuse("b128", 2**128)
    refuse("b128", 1.0)
    refuse("b128", bytes(15))


def test_a_struct_of_one_byte_is_bytes_of_its_size() -> None:
    record = np.zeros((), [("c", "u1")])[()]
    record["c"] = 7
    for value in (b"\7", np.array([7], np.uint8), record, 7):
        assert bind("b8", value, dimensions=(1,)) == b"\7"
    refuse("b8", b"\7\7", dimensions=(1,))
    refuse("b8", np.zeros(2, np.uint8), dimensions=(1,))
