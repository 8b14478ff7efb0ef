"""Every native form of an operation against what the same row computes as arrays, bit by bit.

Numbers are random bits, many of them edges: NaN of all payloads, subnormal numbers, ties, limits.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest

import ptxlab.emulator  # noqa: F401  (registers every operation)
from ptxlab.arrays import Array
from ptxlab.emulator.prepare.row import ROWS, RowForm
from ptxlab.native import compiler
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.text import ModuleFunction
from ptxlab.native.tracing.trace import trace
from ptxlab.native.tracing.ufuncs import llvm_type
from ptxlab.native.value import VectorValue
from ptxlab.numbers.types import TYPES as DECLARED

TYPES = DECLARED | {"cc": DECLARED["pred"]}

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

COUNT = 2048
LOP3_TABLE = 0x96


def computed_forms() -> list[RowForm]:
    """Return the forms that are functions of registers."""
    rows = [row for group in ROWS.values() for row in group]
    plain = [row for row in rows if (row.compute or row.make) and not row.step]
    return [form for row in plain for form in row.forms()]


def some_forms() -> list[RowForm]:
    """Return the forms, but of those of many types that are alike few: ``set`` and ``setp``, numbers of few bits."""
    forms, often = computed_forms(), ("set", "setp")
    few_bits = re.compile(r"u?e\d+m\d.*").fullmatch
    narrow = [form for form in forms if any(map(few_bits, form.modifiers))]
    others = [form for form in forms if form.opcode not in often and form not in narrow]
    return others + [form for form in forms if form.opcode in often][::11] + narrow[::60]


@cache
def native_forms(having: Callable[[], list[RowForm]] = some_forms) -> list[RowForm]:
    """Return the forms that have native code."""
    return [form for form in having() if function("f", form) is not None]


def named(name: str) -> RowForm:
    [form] = [form for form in computed_forms() if form.name == name]
    return form


def function(name: str, form: RowForm, count: int = COUNT) -> ModuleFunction | None:
    """Return the function of a form over arrays; None where it has no native code."""
    code, values = FunctionBuilder("void"), []
    given, made = (
        [code.parameter(f"{side}{i}", "ptr") for i in range(len(types))]
        for side, types in (("in", form.operands), ("out", form.results))
    )
    with code.thread_loop(code.number("i64", 0), code.number("i64", count)) as index:
        for array, operand in zip(given, form.operands, strict=True):
            dtype = TYPES[operand].dtype
            value = array.at(index, dtype.itemsize).load(f"i{8 * dtype.itemsize}", LANES, align=1)
            kind = llvm_type(dtype)
            values.append(value.to("trunc", "i1") if kind == "i1" else value.as_kind(kind))
        if form.opcode == "lop3":
            values[3] = code.number("i32", LOP3_TABLE)
        results = trace(form.compute, [TYPES[T].dtype for T in form.operands], code, *values)
        if results is None:
            return None
        for array, T, result in zip(made, form.results, results, strict=False):
            assert result.kind == llvm_type(TYPES[T].dtype)
            value = result.made_canonical().splat(LANES)
            stored = value.to("zext", "i8") if value.kind == "i1" else value
            array.at(index, stored.width // 8).store(stored, align=1)
    return code.function(name)


def words(choose: np.random.Generator, name: str) -> Array:
    """Return bits of a type, many of them near the edges."""
    kind = TYPES[name]
    if kind.name == "pred":
        return choose.integers(0, 2, COUNT).astype(bool)
    bits = choose.integers(0, 1 << 64, COUNT, np.uint64)
    bits >>= choose.choice(np.array([0, 0, 1, 32, 33, 40, 56, 63], np.uint64), COUNT)
    operand = bits.astype(f"u{kind.bytes}")
    if kind.kind == "float":
        edges = np.array(
            [0, -0.0, 1, -1, 0.5, 1.5, 2.5, 2**31, -(2**31), 2**63, 2**32, np.inf, -np.inf],
        )
        with np.errstate(over="ignore"):
            edges = edges.astype(kind.dtype).view(operand.dtype)
        dropped = {2: 6, 4: 9, 8: 12}[kind.bytes]
        small = operand >> np.array(dropped, operand.dtype)  # subnormal numbers
        nan = operand | edges[-2]
        near = choose.standard_normal(COUNT).astype(kind.dtype).view(operand.dtype)
        among = np.stack([operand, choose.choice(edges, COUNT), small, nan, near])
        operand = among[choose.integers(0, 5, COUNT), np.arange(COUNT)]
    else:
        top = 1 << kind.bits - 1
        edges = np.array([0, 1, top - 1, top, 2 * top - 1], np.uint64).astype(operand.dtype)
        operand = np.where(choose.random(COUNT) < 0.4, choose.choice(edges, COUNT), operand)
    return operand.view(kind.dtype)


def run_natively(form: RowForm, *inputs: Array) -> list[Array]:
    """Return the results of one form for as many numbers as the inputs have, a multiple of eight."""
    count = len(inputs[0])
    made = function("f0", form, count)
    assert made is not None
    outputs = [np.zeros(count, TYPES[name].dtype) for name in form.results]
    arrays = (*inputs, *outputs)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))
    run = compiler.compile(made.text, "f0", kind, masked=False)
    run(*(array.ctypes.data for array in arrays))
    return outputs


def compare(forms: Sequence[RowForm]) -> Iterator[str]:
    """Yield the names of forms whose results differ."""
    used: dict[str, str] = {}
    for i, form in enumerate(forms):
        made = function(f"f{i}", form)
        assert made is not None
        used |= made.used
    text = "\n".join(used.values())
    choose = np.random.default_rng(5)
    for i, form in enumerate(forms):
        inputs = [words(choose, name) for name in form.operands]
        if form.opcode == "lop3":
            inputs[3][:] = LOP3_TABLE
        with np.errstate(all="ignore"):
            expected = form.compute(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        outputs = [np.zeros(COUNT, TYPES[name].dtype) for name in form.results]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(inputs) + len(outputs)))
        run = compiler.compile(text, f"f{i}", kind, masked=False)
        run(*(array.ctypes.data for array in (*inputs, *outputs)))
        for output, other in zip(outputs, expected, strict=True):
            if not np.array_equal(output.view(np.uint8), other.view(np.uint8)):
                yield form.name


def of_any_width(name: str) -> str:
    """Return the name of an integer type without its width."""
    return re.sub(r"^([usb])(8|16|32|64)", r"\1", name)


@pytest.mark.parametrize(
    ("having", "least"),
    [(some_forms, 2_030), pytest.param(computed_forms, 5_560, marks=pytest.mark.thorough)],
)
def test_nearly_all_forms_have_machine_code(
    having: Callable[[], list[RowForm]], least: int
) -> None:
    forms, native = having(), native_forms(having)
    assert len(native) >= least
    # numpy's transcendental functions, float64 rounded elsewhere than to nearest, and what looks bit by bit.
    without = {form.name.split(".")[0] for form in forms} - {form.opcode for form in native}
    assert without == {"sin", "cos", "tanh", "fns"}


def test_a_half_is_rounded_once() -> None:
    """The exact sum is below a tie of float16 by half a unit of float32, which is on the tie itself."""
    a, b, c = (np.full(8, x, np.float16) for x in (1.5, 1 + 2**-10, -(2**-24)))
    [result] = run_natively(named("fma.rn.f16"), a, b, c)
    assert result.tolist() == [1.5 + 2**-10] * 8


@pytest.mark.parametrize(("name", "bits"), [("cvt.rn.f16.f64", 10), ("cvt.rn.bf16.f64", 7)])
def test_a_double_is_rounded_once(name: str, bits: int) -> None:
    """What is next to a tie by less than f32 can tell is none."""
    tie, step, little = 1 + 2.0 ** -(bits + 1), 2.0**-bits, 2.0**-40
    sizes = [tie - little, tie, tie + little, tie + step - little, tie + step, tie + step + little]
    wanted = [1, 1, 1 + step, 1 + step, 1 + 2 * step, 1 + 2 * step]
    for sign in (1, -1):
        [result] = run_natively(named(name), sign * np.array([*sizes, 1, 1]))
        assert result[:6].astype(np.float64).tolist() == [sign * value for value in wanted]


@pytest.mark.parametrize("of_processor", [True, False])
@pytest.mark.parametrize("name", ["mul.lo.u64", "mul.lo.s64"])
def test_the_low_half_of_a_product(
    monkeypatch: pytest.MonkeyPatch, name: str, of_processor: bool
) -> None:
    """A processor's own instruction takes part where it has one."""
    has = compiler.has
    monkeypatch.setattr(compiler, "has", lambda *names: of_processor and has(*names))
    made = function("f", named(name))
    assert made is not None
    assert ("vpmullq" in made.text) == compiler.has("avx512dq", "avx512vl")
    a, b = (words(np.random.default_rng(seed), name[-3:]) for seed in (1, 2))
    [result] = run_natively(named(name), a, b)
    products = [int(x) * int(y) % (1 << 64) for x, y in zip(a, b, strict=True)]
    assert result.view(np.uint64).tolist() == products


def test_native_forms_have_the_bits_of_arrays() -> None:
    forms = native_forms()
    # One of each operation and type, of integers of any width, of the arithmetic that compilers cheat at all in
    # double precision.
    precise = ("add", "fma", "div", "sqrt", "min")
    double = [form for form in forms if form.opcode in precise and "f64" in form.modifiers]
    one_of: dict[tuple[str, ...], RowForm] = {}
    for form in random.Random(1).sample(forms, len(forms)):
        one_of.setdefault((form.opcode, *map(of_any_width, form.modifiers[-1:])), form)
    assert list(compare([*double, *one_of.values()])) == []


@pytest.mark.thorough
@pytest.mark.parametrize("opcode", sorted({form.opcode for form in computed_forms()}))
def test_all_native_forms_have_the_bits_of_arrays(opcode: str) -> None:
    native = [form for form in native_forms(computed_forms) if form.opcode == opcode]
    assert list(compare(native)) == []


def test_a_native_form_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = [named("sqrt.rn.f32"), named("add.f32")]
    monkeypatch.setattr(VectorValue, "made_canonical", lambda self: self)  # any NaN
    assert set(compare(forms)) == {"sqrt.rn.f32", "add.f32"}
