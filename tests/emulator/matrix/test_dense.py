"""Every dense ``mma.sync``: one-hot probes and random bits, packed by formulas written here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import arithmetic
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.mma import MMA
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.doubles import (
    multiply_add_double,
)
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_bytes, multiply_add_m8n8k4
from tests.together import one_of_each

BITS = {"b1": 1, "s4": 4, "u4": 4, "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32}
BITS |= {"f64": 64}
ONE = {"f16": 0x3C00, "bf16": 0x3F80, "tf32": 0x3F800000, "f32": 0x3F800000, "f64": 0x3FF0 << 48}
ONE |= {"e4m3": 0x38, "e5m2": 0x3C, "e3m2": 0x0C, "e2m3": 0x08, "e2m1": 0x02 << 2}
TWO = {"f16": 0x4000, "bf16": 0x4000, "tf32": 0x40000000, "f32": 0x40000000, "f64": 1 << 62}
TWO |= {"e4m3": 0x40, "e5m2": 0x40, "e3m2": 0x10, "e2m3": 0x10, "e2m1": 0x04 << 2}

ORDINARY = [form for form in MMA if form.operand("A").matrices == 1]
CLASSES: list[Callable[[MatrixInstruction], Hashable]] = [
    lambda form: (form.shape, form.d_type, form.a_type, form.bit_operation),
    lambda form: (form.shape, form.d_type, form.b_type),
    lambda form: (form.shape, form.satfinite, form.rounding),
]
QUADS = [form for form in MMA if form.operand("A").matrices == 4]


def places(operand: str, form: MatrixInstruction) -> list[tuple[int, int, int, int, int]]:
    """List (lane, register, element, row, col) by the closed forms of the ISA's sections."""
    dtype = {"A": form.a_type, "B": form.b_type, "C": form.c_type, "D": form.d_type}[operand]
    bits = BITS.get(dtype, 8)
    e = max(1, 32 // bits)
    rows, cols = {"A": (form.m, form.k), "B": (form.k, form.n)}.get(operand, (form.m, form.n))
    elements = []
    for lane in range(32):
        g, q = lane >> 2, lane & 3
        for i in range(rows * cols // 32):
            r, w = i // e, i % e
            if operand == "A":
                tall = form.m == 16
                row = g + 8 * (r & 1) if tall else g
                col = q * e + w + 4 * e * (r >> 1 if tall else r)
            elif operand == "B":
                row, col = q * e + w + 4 * e * r, g
            else:
                row, col = g + 8 * (i >> 1), 2 * q + (i & 1)
            elements.append((lane, r, w, row, col))
    return elements


def pack(operand: str, form: MatrixInstruction, matrices: Array) -> Array:
    """Return [warps, 32, registers] of [warps, rows, cols] of bit patterns."""
    bits = BITS.get(getattr(form, f"{operand.lower()}_type"), 8)
    lane, register, element, row, col = np.transpose(places(operand, form))
    words = np.zeros((len(matrices), 32, 1 + register.max()), np.uint64)
    shifted = matrices[:, row, col].astype(np.uint64) << (element * bits).astype(np.uint64)
    np.bitwise_or.at(words, (np.arange(len(words))[:, None], lane, register), shifted)
    return words


def last(matrices: Array) -> Array:
    """Return [warps, rows, cols] as [rows, cols, warps], in words of their own width."""
    return np.ascontiguousarray(np.moveaxis(matrices, 0, -1))


def words_of(form: MatrixInstruction, operand: str, random: Any, warps: int) -> Any:
    dtype = getattr(form, f"{operand.lower()}_type")
    bits = BITS.get(dtype, 8)
    sizes = {"A": (form.m, form.k), "B": (form.k, form.n)}
    shape = (warps, *sizes.get(operand, (form.m, form.n)))
    word = np.dtype(f"u{max(8, bits) // 8}")
    return random.integers(0, 1 << bits, shape, dtype=np.uint64).astype(word)


def number(words: Array, dtype: str) -> Array:
    if dtype == "s4":
        return (words.astype(np.int64) ^ 8) - 8
    if dtype in ("s8", "s32"):
        return words.view(f"i{words.itemsize}").astype(np.int64)
    return words.astype(np.int64)


def expected(form: MatrixInstruction, a: Array, b: Array, c: Array, arch: str) -> Any:
    """Return D [warps, m, n] of words, by plain integers or by the arithmetic tested elsewhere."""
    rules = TARGETS[arch].arithmetic
    if form.d_type == "s32":
        left, right = number(a, form.a_type), number(b, form.b_type)
        if form.bit_operation:
            joined = left[:, :, :, None] & right[:, None]
            if form.bit_operation == "xor":
                joined = left[:, :, :, None] ^ right[:, None]
            total = joined.sum(axis=2)
        else:
            total = left @ right
        total = total + number(c, "s32")
        if form.satfinite:
            total = total.clip(-(1 << 31), (1 << 31) - 1)
        return total.astype(np.uint32)
    x, y, z = last(a), last(b), last(c)
    if form.a_type == "f64":
        d = multiply_add_double(x, y, z, rounding=form.rounding)
    elif BITS.get(form.a_type, 8) == 8:
        assert rules.dot8 is not None
        pair = {"a_type": form.a_type, "b_type": form.b_type}
        d = multiply_add_bytes(x, y, z, **pair, acc=form.d_type, rules=rules.dot8)
    else:
        d = multiply_add(x, y, z, dtype=form.a_type, acc=form.d_type, rules=rules.dot16)
    return np.moveaxis(d, -1, 0)


def assert_same(form: MatrixInstruction, actual: Array, d: Array) -> None:
    wanted = pack("D", form, d)
    wrong = np.argwhere(actual != wanted)
    assert not wrong.size, f"{form.name}: warp, lane, register {wrong[0]} and {len(wrong) - 1} more"


# Of each shape and each type of D each type of A always runs and each type of B, and what is clamped and rounded.
@pytest.mark.parametrize("form", one_of_each(ORDINARY, *CLASSES))
def test_random_bits(execute: Any, least: Any, form: MatrixInstruction) -> None:
    random = np.random.default_rng(abs(hash(form.shape)) % 1000)
    arch = least(form)
    a, b, c = (words_of(form, operand, random, 4) for operand in "ABC")
    if form.d_type == "s32":
        c[:2] = random.integers(0, 1000, c[:2].shape)
        c[2:] |= 0x7FFFFF00
    registers = execute(form, *(pack(o, form, m) for o, m in zip("ABC", (a, b, c), strict=True)), arch=arch)  # fmt: skip
    assert_same(form, registers, expected(form, a, b, c, arch))


@pytest.mark.parametrize(
    "form",
    one_of_each((f for f in ORDINARY if not f.satfinite and f.rounding == "rn"), *CLASSES[:2]),
)
def test_one_hot(execute: Any, least: Any, form: MatrixInstruction) -> None:
    """One column of A meets one row of B: D is their product where k agrees, and C where not."""
    m, n, k = form.m, form.n, form.k
    step = max(1, k // 32)
    columns = np.arange(0, k, step) + np.arange(len(range(0, k, step))) % step
    pairs = [(i, i) for i in columns] + [(i, (i + 1) % k) for i in columns]
    random = np.random.default_rng(5)
    one_a, two_a = (table.get(form.a_type, i) for i, table in ((1, ONE), (2, TWO)))
    one_b, two_b = (table.get(form.b_type, i) for i, table in ((1, ONE), (2, TWO)))
    if form.a_type == "b1":
        two_a = two_b = 0
    a, b, c = (np.zeros_like(words_of(form, o, random, len(pairs))) for o in "ABC")
    rows, cols = random.integers(0, 2, (len(pairs), m)), random.integers(0, 2, (len(pairs), n))
    for warp, (i, j) in enumerate(pairs):
        a[warp, :, i] = np.where(rows[warp], two_a, one_a)
        b[warp, j, :] = np.where(cols[warp], two_b, one_b)
    c[...] = random.integers(0, 2, c.shape) * ONE.get(form.c_type, 1)
    registers = execute(
        form, pack("A", form, a), pack("B", form, b), pack("C", form, c), arch=least(form)
    )
    weight_a, weight_b = (1 - rows, 1 - cols) if form.a_type == "b1" else (1 + rows, 1 + cols)
    met = np.array([i == j for i, j in pairs])[:, None, None]
    if form.bit_operation == "xor":
        product = weight_a[:, :, None] + weight_b[:, None, :]
        product = product - 2 * np.where(met, weight_a[:, :, None] * weight_b[:, None, :], 0)
    else:
        product = np.where(met, weight_a[:, :, None] * weight_b[:, None, :], 0)
    total = product + (c != 0)
    result = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "s32": np.int32}[form.d_type]
    d = total.astype(result).view(f"u{np.dtype(result).itemsize}")
    assert_same(form, registers, d)


def quad_place(form: MatrixInstruction, operand: str, lane: int, i: int) -> tuple[int, int]:
    """Return (row, col), from "Matrix Fragments for mma.m8n8k4 with .f16 floating point type"."""
    a_order, b_order = form.name.split(".")[4:6]
    low = lane < 16
    if operand == "A":
        if a_order == "row":
            return (lane % 4 if low else lane % 4 + 4), i
        return (i % 4 if low else i % 4 + 4), lane % 4
    if operand == "B":
        if b_order == "row":
            return lane % 4, (i if low else i + 4)
        return i, (lane % 4 if low else lane % 4 + 4)
    if getattr(form, f"{operand.lower()}_type") == "f16":
        return (lane % 4 if low else lane % 4 + 4), i
    x = (lane & 0b1) + (i & 0b10)
    return (x if low else x + 4), (i & 0b100) + (lane & 0b10) + (i & 0b1)


def quad_pack(form: MatrixInstruction, operand: str, matrices: Array) -> Array:
    """Return [warps, 32, registers] of [warps, 4 quad-pairs, rows, cols]."""
    bits = BITS[getattr(form, f"{operand.lower()}_type")]
    count = {"A": 4, "B": 4}.get(operand, 8)
    words = np.zeros((len(matrices), 32, count * bits // 32), np.uint64)
    for lane in range(32):
        quad = (lane % 16) // 4
        for i in range(count):
            row, col = quad_place(form, operand, lane, i)
            shift = np.uint64(i * bits % 32)
            words[:, lane, i * bits // 32] |= matrices[:, quad, row, col].astype(np.uint64) << shift
    return words


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("form", QUADS)
def test_m8n8k4_is_four_products(execute: Any, form: MatrixInstruction, arch: str) -> None:
    random = np.random.default_rng(11)
    warps = 5
    bits = BITS[form.c_type]
    a, b = (random.integers(0, 1 << 16, (warps, 4, *s)).astype(np.uint16) for s in ((8, 4), (4, 8)))
    c = random.integers(0, 1 << bits, (warps, 4, 8, 8)).astype(f"u{bits // 8}")
    registers = execute(
        form, quad_pack(form, "A", a), quad_pack(form, "B", b), quad_pack(form, "C", c), arch=arch
    )
    d = multiply_add_m8n8k4(
        *(np.moveaxis(x.reshape(-1, *x.shape[2:]), 0, -1).copy() for x in (a, b, c)),
        c_type=form.c_type,
        d_type=form.d_type,
        rules=TARGETS[arch].arithmetic.m8n8k4,
    )
    d = np.moveaxis(d, -1, 0).reshape(warps, 4, 8, 8)
    assert (registers == quad_pack(form, "D", d)).all()


@pytest.mark.parametrize("form", QUADS)
def test_m8n8k4_one_hot(execute: Any, form: MatrixInstruction) -> None:
    """A column and B row of one quad-pair only: the other three products are C."""
    pairs = [(quad, i, j) for quad in range(4) for i in range(4) for j in range(4)]
    a = np.zeros((len(pairs), 4, 8, 4), np.uint16)
    b = np.zeros((len(pairs), 4, 4, 8), np.uint16)
    c = np.zeros((len(pairs), 4, 8, 8), np.uint16 if form.c_type == "f16" else np.uint32)
    total = np.zeros((len(pairs), 4, 8, 8))
    for warp, (quad, i, j) in enumerate(pairs):
        left, right = np.arange(8, dtype=np.float16), np.arange(9, 17, dtype=np.float16)
        a[warp, quad, :, i] = left.view(np.uint16)
        b[warp, quad, j] = right.view(np.uint16)
        if i == j:
            total[warp, quad] = np.outer(left, right)
    registers = execute(
        form,
        quad_pack(form, "A", a),
        quad_pack(form, "B", b),
        quad_pack(form, "C", c),
        arch="sm_80",
    )
    result = np.float16 if form.d_type == "f16" else np.float32
    d = total.astype(result).view(f"u{np.dtype(result).itemsize}")
    assert (registers == quad_pack(form, "D", d)).all()


@pytest.mark.parametrize(
    ("shape", "dtype", "arch", "needed"),
    [
        ("m16n8k16", "f16", "sm_75", "sm_80"),
        ("m16n8k8", "f64", "sm_80", "sm_90"),
        ("m16n8k32", "e4m3", "sm_80", "sm_89"),
        ("m16n8k32", "e2m1", "sm_100a", "sm_120f"),
        ("m16n8k32", "e2m1", "sm_120", "sm_120f"),
    ],
)
def test_a_target_without_it_refuses(
    devices: Any, program: Any, shape: str, dtype: str, arch: str, needed: str
) -> None:
    with pytest.raises(Unsupported, match=f"does not exist on {arch}") as caught:
        devices(arch).load(program(multiplication(shape, dtype)).kernel(arch)).kernel()
    assert needed in (caught.value.hint or "")
    assert caught.value.location is not None
    assert "mma.sync" in caught.value.location.text


def test_every_form_is_refused_where_the_target_lacks_it(devices: Any, program: Any) -> None:
    refused = 0
    for form in MMA[::7]:
        for arch, target in TARGETS.items():
            if not form.runs_on(target):
                with pytest.raises(Unsupported, match=arch):
                    devices(arch).load(program(form).kernel(arch)).kernel()
                refused += 1
    assert refused > 100


@pytest.mark.parametrize("name", [
    "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32",
    "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32.satfinite",
    "mma.m8n8k4.f64.f64.f64.f64.rm.row.col.aligned.sync",
    "mma.xor.sync.row.s32.aligned.b1.col.b1.popc.m8n8k128.s32",
])  # fmt: skip
def test_modifiers_stand_in_any_order(execute: Any, name: str) -> None:
    form = multiplication(name)
    assert form.name != name
    random = np.random.default_rng(2)
    a, b, c = (words_of(form, operand, random, 2) for operand in "ABC")
    packed = [pack(o, form, m) for o, m in zip("ABC", (a, b, c), strict=True)]
    registers = execute(form, *packed, arch="sm_120a", name=name)
    assert_same(form, registers, expected(form, a, b, c, "sm_120a"))


def test_an_unknown_form_is_refused_by_name(devices: Any, program: Any) -> None:
    form = multiplication("m16n8k16", "f16")
    unknown = program(form, name=form.name.replace("k16", "k24"))
    with pytest.raises(PtxSyntaxError, match=r"ptxas takes no mma.*m16n8k24") as caught:
        devices("sm_90a").load(unknown.kernel("sm_90a")).kernel()
    assert "m16n8k16" in (caught.value.hint or "")


def test_a_wrong_packing_is_seen(execute: Any, least: Any) -> None:
    """The faulty twin: registers a1 and a2 exchanged give another D."""
    form = multiplication("m16n8k32", "s8")
    random = np.random.default_rng(3)
    a, b, c = (words_of(form, operand, random, 2) for operand in "ABC")
    packed = pack("A", form, a)[..., [0, 2, 1, 3]]
    registers = execute(form, packed, pack("B", form, b), pack("C", form, c), arch=least(form))
    with pytest.raises(AssertionError, match="warp, lane, register"):
        assert_same(form, registers, expected(form, a, b, c, least(form)))


def test_every_target_has_the_arithmetic_of_what_it_runs() -> None:
    built = 0
    for form in MULTIPLICATIONS:
        for target in TARGETS.values():
            if form.runs_on(target):
                arithmetic(form, target)
                built += 1
    assert built > 3900
    with pytest.raises(ValueError, match="sm_80 has no arithmetic"):
        arithmetic(multiplication("m16n8k32", "e4m3"), TARGETS["sm_80"])
