"""A thread's bits never depend on its neighbours: every form alone, among edge cases, and in blocks."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.forms import forms, opcodes
from ptxlab.emulator.prepare.row import RowForm
from ptxlab.numbers import rounding
from ptxlab.numbers.types import TYPES

THREADS = 14
HALVES = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "u16x2": "u16", "s16x2": "s16"}


@pytest.fixture(scope="module")
def pool(reference: Any) -> Any:
    """Give numbers of a PTX type to draw from: its edge cases and random ones."""

    @cache
    def words(name: str) -> Array:
        kind = TYPES[name]
        if name == "b128":
            return np.array([bytes(range(i, i + 16)) for i in range(99)], kind.dtype)
        if name in HALVES:
            half = words(HALVES[name]).view(f"u{kind.bytes // 2}").astype(kind.dtype)
            both: Array = half | np.roll(half, 5) << kind.dtype.type(kind.bits // 2)
            return both
        source = "f32" if name == "tf32" else name
        if source in reference.fields:
            patterns = reference.floats(source, 1, 40, 1)[0]
        else:
            patterns = reference.integers(kind.bits, 1, 40, 1)[0]
        numbers: Array = np.array(patterns, f"u{kind.bytes}").view(kind.dtype)
        return numbers

    return words


def brink(reference: Any, name: str) -> list[int]:
    """Return factors and addend of a sum that two roundings would take to the least normal number.

    It lies above the tie next to it by as little as a product can show.
    """
    exponent_bits, fraction = reference.fields[name]
    normal = 2 - (1 << (exponent_bits - 1))
    small = Fraction(2) ** -(fraction // 2)
    size = normal - fraction - 1
    values = (
        -(1 + small) * Fraction(2) ** (size // 2),
        (1 - small + small**2) * Fraction(2) ** (size - size // 2),
        Fraction(2) ** normal,
    )
    return [reference.encode(value, name) for value in values]


def draw(form: RowForm, reference: Any, pool: Any, random: np.random.Generator) -> list[Array]:
    """Draw one array for each operand; of floating-point sums the first row is on the brink."""
    inputs: list[Array] = []
    for name in form.operands:
        if name in ("pred", "cc"):
            inputs.append(random.integers(0, 2, THREADS).astype(bool))
        else:
            inputs.append(random.choice(pool(name), THREADS))
    name = form.operands[0]
    part = HALVES.get(name, name)
    if form.operands == (name,) * 3 and part in reference.fields:
        kind = TYPES[name]
        for array, bits in zip(inputs, brink(reference, part), strict=True):
            array.view(f"u{TYPES[part].bytes}")[: kind.bits // TYPES[part].bits] = bits
    if form.opcode == "lop3":
        inputs[3][:] = inputs[3][0]  # its table is an immediate
    return inputs


def run(operation: RowForm, inputs: list[Array]) -> Array:
    """Return the bytes of all results, [threads, bytes]."""
    with np.errstate(all="ignore"):
        results = operation.compute(*inputs)
    if len(operation.results) == 1:
        results = (results,)
    threads = len(inputs[0])
    columns = [np.ascontiguousarray(r).view(np.uint8).reshape(threads, -1) for r in results]
    return np.concatenate(columns, axis=1)


def alone(operation: RowForm, inputs: list[Array]) -> Array:
    """Run one thread after another."""
    rows = [run(operation, [x[i : i + 1] for x in inputs]) for i in range(len(inputs[0]))]
    return np.concatenate(rows)


# Of what has thousands of forms, each comparison with each type and with each combination, every seventh always runs:
# nearly any two modifiers that there are together are together in some of those.
STEPS = {"set": 7}


@pytest.mark.parametrize(
    ("opcode", "step"),
    [
        *((opcode, STEPS.get(opcode, 1)) for opcode in opcodes()),
        *(pytest.param(opcode, 1, marks=pytest.mark.thorough) for opcode in STEPS),
    ],
)
def test_every_form_is_the_same_alone_and_among_others(
    reference: Any, pool: Any, opcode: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(len(opcode))
    for form in [form for form in forms(opcode) if form.operands][::step]:
        inputs = draw(form, reference, pool, random)
        apart = alone(form, inputs)
        np.testing.assert_array_equal(run(form, inputs), apart, form.name)
        with monkeypatch.context() as patch:
            patch.setattr(rounding, "BLOCK", 4)
            np.testing.assert_array_equal(run(form, inputs), apart, form.name)
