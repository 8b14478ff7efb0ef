"""References for the operations: exact rational arithmetic, one rounder, and bit patterns to feed them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.prepare.forms import find
from ptxlab.emulator.prepare.row import Alu, RowForm
from ptxlab.numbers.types import TYPES

Exact = Fraction | float  # a float stands for an infinity or NaN

# Exponent bits and fraction bits.
FIELDS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "f32": (8, 23),
    "f64": (11, 52),
    "tf32": (8, 10),
}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}


def build_alu(instruction: str, sources: int | None = None) -> Alu | RowForm:
    opcode, *names = instruction.split(".")
    return find(opcode, tuple(names), sources)


def run_alu(instruction: str, *operands: Any) -> Any:
    """Run one instruction on arrays of bit patterns (or bools); results are bit patterns again."""
    return run_operation(instruction, build_alu(instruction, len(operands)), *operands)


def run_operation(instruction: str, operation: Alu | RowForm, *operands: Any) -> Any:
    """Run what ``build_alu`` or another builder made of ``instruction``, as ``run_alu`` does."""
    assert len(operands) == len(operation.operands)
    inputs = []
    for operand, name in zip(operands, operation.operands, strict=True):
        if name in ("pred", "cc"):
            inputs.append(np.asarray(operand, bool).reshape(-1))
            continue
        kind = TYPES[name]
        mask = (1 << kind.bits) - 1
        words = np.array([int(x) & mask for x in operand], f"u{kind.bytes}")
        inputs.append(words.view(kind.dtype))
    kept = [x.copy() for x in inputs]
    for x in inputs:
        x.flags.writeable = False
    with np.errstate(all="ignore"):
        results = operation.compute(*inputs)
    for x, before in zip(inputs, kept, strict=True):
        assert x.tobytes() == before.tobytes(), "an input was written"
    single = len(operation.results) == 1
    outputs = []
    for result, name in zip((results,) if single else results, operation.results, strict=True):
        flag = name in ("pred", "cc")
        dtype = np.dtype(bool) if flag else TYPES[name].dtype
        assert result.dtype == dtype, (instruction, result.dtype, dtype)
        assert result.ndim == 1
        outputs.append(result if flag else result.view(f"u{dtype.itemsize}"))
    return outputs[0] if single else tuple(outputs)


@cache
def decode(bits: int, name: str) -> Exact:
    """Return the exact value of a bit pattern (the sign of zero is lost)."""
    exponent_bits, fraction_bits = FIELDS[name]
    negative = bits >> (exponent_bits + fraction_bits) & 1
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else (-math.inf if negative else math.inf)
    bias = (1 << (exponent_bits - 1)) - 1
    size = fraction + ((1 << fraction_bits) if exponent else 0)
    shift = max(exponent, 1) - bias - fraction_bits
    return Fraction((-size if negative else size) << max(shift, 0), 1 << max(-shift, 0))


def sign_bit(bits: int, name: str) -> int:
    return bits >> sum(FIELDS[name]) & 1


def encode(value: Exact, name: str, mode: str = "rn", zero_sign: int = 0) -> int:
    """Round an exact value to the bit pattern of a format: the one rounder of these tests."""
    if isinstance(value, float):
        if math.isnan(value):
            return NAN[name]
        exponent_bits, fraction_bits = FIELDS[name]
        infinity = ((1 << exponent_bits) - 1) << fraction_bits
        return infinity | ((value < 0) << (exponent_bits + fraction_bits))
    return rounded(value.numerator, value.denominator, name, mode, zero_sign)


def rounded(numerator: int, denominator: int, name: str, mode: str, zero_sign: int) -> int:
    """Round a quotient to the bit pattern of a format."""
    exponent_bits, fraction_bits = FIELDS[name]
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    top = 1 << (exponent_bits + fraction_bits)
    if numerator == 0:
        return top if zero_sign else 0
    negative, numerator = numerator < 0, abs(numerator)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = numerator.bit_length() - denominator.bit_length()
    if denominator << max(exponent, 0) > numerator << max(-exponent, 0):
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    shift = exponent - fraction_bits
    unit = denominator << max(shift, 0)
    steps, rest = divmod(numerator << max(-shift, 0), unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and steps % 2 == 1),
        "rna": rest * 2 >= unit,
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    pattern = ((exponent + bias - 1) << fraction_bits) + steps + up
    if pattern >= infinity:
        grows = (
            mode in ("rn", "rna") or (mode == "rm" and negative) or (mode == "rp" and not negative)
        )
        pattern = infinity if grows else infinity - 1
    return pattern | (top if negative else 0)


def flush_bits(bits: int, name: str) -> int:
    exponent_bits, fraction_bits = FIELDS[name]
    if bits >> fraction_bits & ((1 << exponent_bits) - 1) == 0:
        return bits & (1 << (exponent_bits + fraction_bits))
    return bits


def stand_in(bits: int, name: str) -> float:
    """A float that behaves as ``bits`` does next to infinities, NaN and zeros."""
    value = decode(bits, name)
    if isinstance(value, float):
        return value
    return math.copysign(0.0 if value == 0 else 1.0, -1 if sign_bit(bits, name) else 1)


@lru_cache(maxsize=1 << 14)
def fma_bits(a: int, b: int, c: int, name: str, mode: str = "rn") -> int:
    """The reference fused multiply-add; sums and products are special cases of it."""
    x, y, z = decode(a, name), decode(b, name), decode(c, name)
    if isinstance(x, float) or isinstance(y, float) or isinstance(z, float):
        p, q, r = (stand_in(bits, name) for bits in (a, b, c))
        return encode_special(p * q + r, name, (a, b, c))
    product, below = x.numerator * y.numerator, x.denominator * y.denominator
    total = product * z.denominator + z.numerator * below
    sign = sign_bit(a, name) ^ sign_bit(b, name)
    if total == 0 and not (product == z == 0 and sign == sign_bit(c, name)):
        sign = int(mode == "rm")
    return rounded(total, below * z.denominator, name, mode, sign)


def encode_special(value: float, name: str, operands: Iterable[int]) -> int:
    """Encode an infinity or NaN; a double NaN keeps the first NaN operand's payload."""
    if math.isnan(value) and name == "f64":
        for bits in operands:
            if isinstance(number := decode(bits, name), float) and math.isnan(number):
                return bits | 1 << 51
    return encode(value if math.isinf(value) or math.isnan(value) else Fraction(value), name)


def edge_floats(name: str) -> list[int]:
    exponent_bits, fraction_bits = FIELDS[name]
    bias = (1 << (exponent_bits - 1)) - 1
    word_of_one = bias << fraction_bits
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    positive = [
        0,
        1,
        2,
        3,
        (1 << fraction_bits) - 1,
        1 << fraction_bits,
        (1 << fraction_bits) + 1,
        word_of_one - 1,
        word_of_one,
        word_of_one + 1,
        word_of_one + (1 << (fraction_bits // 2)),
        word_of_one + (1 << fraction_bits),
        word_of_one + 3 * (1 << (fraction_bits - 1)),
        word_of_one - (fraction_bits << fraction_bits),
        word_of_one - ((fraction_bits + 1) << fraction_bits),
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | 1 << (fraction_bits - 1),
    ]
    top = 1 << (exponent_bits + fraction_bits)
    return [*positive, *(bits | top for bits in positive)]


def random_floats(name: str, count: int, seed: int) -> list[int]:
    """Random bit patterns: a third uniform, a third near one, a third near one with few bits set."""
    rng = np.random.default_rng(seed)
    exponent_bits, fraction_bits = FIELDS[name]
    width = 1 + exponent_bits + fraction_bits
    bias = (1 << (exponent_bits - 1)) - 1
    number = np.arange(count)
    bits = rng.integers(0, 1 << width, count, np.uint64)
    spread = rng.integers(-fraction_bits - 2, fraction_bits + 3, count) // (1 + number % 2 * 3)
    exponent = np.clip(bias + spread, 0, (1 << exponent_bits) - 2).astype(np.uint64)
    near = bits & ~_field(exponent_bits, fraction_bits) | exponent << np.uint64(fraction_bits)
    first, second = np.uint64(1) << rng.integers(0, fraction_bits, (2, count), np.uint64)
    few = near & ~_field(fraction_bits) | first + second & _field(fraction_bits)
    return [int(pattern) for pattern in np.choose(number % 3, [bits, near, few])]


def _field(bits: int, start: int = 0) -> np.uint64:
    return np.uint64(((1 << bits) - 1) << start)


def float_operands(name: str, arity: int, count: int, seed: int) -> list[list[int]]:
    """All combinations of edges (a sample of them for three operands) and random patterns."""
    edges = list(product(edge_floats(name), repeat=arity))
    if len(edges) > 1500:
        rng = np.random.default_rng(seed)
        edges = [edges[int(i)] for i in rng.choice(len(edges), 1500, replace=False)]
    columns = [[row[i] for row in edges] for i in range(arity)]
    return [column + random_floats(name, count, seed + 1 + i) for i, column in enumerate(columns)]


def edge_integers(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    return [0, 1, 2, 3, 31, 32, 33, 63, 64, 255, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1]


@cache
def edge_operands(bits: int, arity: int) -> list[tuple[int, ...]]:
    mask = (1 << bits) - 1
    edges = [edge & mask for edge in edge_integers(bits)]
    return list(zip(*product(edges, repeat=arity), strict=True))


def integer_operands(bits: int, arity: int, count: int, seed: int) -> list[list[int]]:
    """All combinations of edges, random patterns, and random patterns with few significant bits."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 1 << 64, (arity, count), np.uint64)
    patterns[:, 1::2] >>= rng.integers(0, 64, (arity, count // 2), np.uint64)
    columns = (patterns & _field(bits)).tolist()
    return [
        [*edges, *column] for edges, column in zip(edge_operands(bits, arity), columns, strict=True)
    ]


def signed(pattern: int, bits: int) -> int:
    return pattern - (1 << bits) if pattern >> (bits - 1) & 1 else pattern


def assert_matches(instruction: str, expected: Callable[..., int], *operands: list[int]) -> None:
    """Compare an instruction with the reference in every lane, and once with shared operands."""
    got = run_alu(instruction, *operands)
    wanted = [expected(*row) for row in zip(*operands, strict=True)]
    for lane, (actual, right) in enumerate(zip(got.tolist(), wanted, strict=True)):
        if actual != right:
            row = [hex(operand[lane]) for operand in operands]
            pytest.fail(f"{instruction} of {row}: {actual:#x}, not {right:#x}")
    if len(operands) > 1:
        shared = [operands[0], *([operand[7]] for operand in operands[1:])]
        wanted = [expected(x, *(operand[7] for operand in operands[1:])) for x in operands[0][:99]]
        assert run_alu(instruction, shared[0][:99], *shared[1:]).tolist() == wanted, instruction


class Reference:
    """The names above, as a fixture."""

    build = staticmethod(build_alu)
    run = staticmethod(run_alu)
    run_operation = staticmethod(run_operation)
    matches = staticmethod(assert_matches)
    decode = staticmethod(decode)
    encode = staticmethod(encode)
    flush = staticmethod(flush_bits)
    fma = staticmethod(fma_bits)
    special = staticmethod(encode_special)
    stand_in = staticmethod(stand_in)
    sign = staticmethod(sign_bit)
    signed = staticmethod(signed)
    floats = staticmethod(float_operands)
    integers = staticmethod(integer_operands)
    fields = FIELDS
    nan = NAN


@pytest.fixture(scope="session")
def reference() -> type[Reference]:
    return Reference
