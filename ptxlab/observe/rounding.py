"""Whether two results of one instruction differ by rounding, or one of them is wrong.

The operands were the same, so two right results differ at most by how each rounds: a matrix product by
what the sum of its terms without their signs may lose (see ``ptxlab.gemm.reference``), anything else
that computes with floating-point numbers by a few units in the last place. Integers never differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ptxlab.arrays import Array, Words
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.naming import named
from ptxlab.numbers.formats import FORMATS
from ptxlab.numbers.types import STORED, TYPES, packing
from ptxlab.syntax.tree import Instruction, Name, Vector

UNIT = {name: FORMATS[name].unit for name in ("f16", "bf16", "f32", "f64")}
"""The unit in the last place of numbers from 1 to 2."""

APPROXIMATE = 2.0**-19
"""How far the least exact .approx instructions are off, relative to the result (PTX ISA, tables of
maximum errors: 2^-20.9 for tanh and lg2, 2^-20.5 for sin and cos)."""


@dataclass(frozen=True, slots=True)
class Executed:
    """One instruction in one warp on two devices: words of 64 bits, [lane] and [lane, register].

    ``sources`` are the registers it names, as they were before it; ``types`` those it writes.
    """

    instruction: Instruction
    types: tuple[str, ...]
    sources: Mapping[str, Words]
    results: tuple[Words, Words]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a register, with its two values as numbers of ``type``, and the reason."""

    verdict: Literal["rounding", "wrong", "control flow"]
    type: str
    values: tuple[tuple[float, ...], tuple[float, ...]]
    reason: str


def judge(step: Executed, lane: int, column: int) -> Judgement:
    form = _matrix(step.instruction)
    layout = None if form is None else form.operand("D")
    kind = _number_type(step, column) if layout is None else layout.dtype
    bits = [int(words[lane, column]) for words in step.results]
    if kind not in UNIT:
        whole = TYPES[kind if kind in TYPES else step.types[column]]
        values = [np.array([word], np.uint64).astype(f"u{whole.bytes}") for word in bits]
        words_of = tuple((int(value.view(_integer(whole.dtype))[0]),) for value in values)
        return Judgement(
            "wrong", whole.name, (words_of[0], words_of[1]), "it is no floating-point number"
        )
    a, b = (_elements(word, TYPES[step.types[column]].bits, kind) for word in bits)
    values_of = (tuple(map(float, a)), tuple(map(float, b)))
    if (np.isfinite(a) != np.isfinite(b)).any() or (np.isnan(a) != np.isnan(b)).any():
        return Judgement("wrong", kind, values_of, "one of them is no finite number")
    with np.errstate(all="ignore"):
        apart = float(np.nanmax(np.abs(a - b), initial=0.0))
    if form is None or layout is None:
        allowed, reason = _scalar(step.instruction, kind, float(np.max(np.abs([a, b]))))
    else:
        allowed, reason = _product(step, form, layout, lane, column)
    if apart <= allowed:
        return Judgement("rounding", kind, values_of, f"{apart:.3g} apart, {reason} {allowed:.3g}")
    return Judgement("wrong", kind, values_of, f"{apart:.3g} apart, {reason} only {allowed:.3g}")


def _integer(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind in "iu" else np.dtype(f"u{dtype.itemsize}")


def _elements(word: int, bits: int, kind: str) -> Array:
    """Return the numbers of type ``kind`` in a register, low bits first, in float64."""
    width = TYPES[kind].bits
    parts = [(word >> low) & ((1 << width) - 1) for low in range(0, bits, width)]
    return np.array(parts, f"u{width // 8}").view(TYPES[kind].dtype).astype(np.float64)


def _number_type(step: Executed, column: int) -> str:
    """Return the type that the instruction says its result has, or else the register's."""
    for name in step.instruction.modifiers:
        if name in TYPES and TYPES[name].kind in ("float", "packed"):
            single, _ = packing(name)
            if TYPES[step.types[column]].bits in (TYPES[name].bits, 2 * TYPES[single].bits):
                return single
        elif name in TYPES:
            break
    return step.types[column]


def _scalar(instruction: Instruction, kind: str, size: float) -> tuple[float, str]:
    if "approx" in instruction.modifiers:
        return APPROXIMATE * size, "an approximation may be off by"
    return 2 * UNIT[kind] * size, "rounding makes"


# ---- matrix products ------------------------------------------------------------------------


def _matrix(instruction: Instruction) -> MatrixInstruction | None:
    form = named(instruction.name)
    return form if isinstance(form, MatrixInstruction) else None


def _product(
    step: Executed, form: MatrixInstruction, layout: FragmentLayout, lane: int, column: int
) -> tuple[float, str]:
    """Return how far two right results may be apart, in the elements of a register."""
    unit = UNIT.get(layout.dtype, UNIT["f32"])
    size = _magnitude(step, form)
    if size is None:
        words = np.stack(step.results).ravel()
        numbers = [_elements(int(word), layout.register_bits, layout.dtype) for word in words]
        fallback = 2 * (form.k + 2) * unit * float(np.abs(numbers).max())
        return fallback, "rounding of sums as large as the largest makes up to"
    places = [layout.element(lane, column, i) for i in range(layout.elements_per_register)]
    largest = max(float(size[row, col]) for row, col in places)
    return 2 * (form.k + 2) * unit * largest, "rounding of such a sum makes up to"


def _magnitude(step: Executed, form: MatrixInstruction) -> Array | None:
    """Return |A| |B| + |C|, None where the numbers of an operand are not known here."""
    matrices = []
    for name, operand in zip("ABC", step.instruction.operands[1:4], strict=False):
        layout = form.operand(name)
        kind = (TYPES | STORED).get(layout.dtype)
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        registers = [element.text for element in elements if isinstance(element, Name)]
        known = all(register in step.sources for register in registers)
        if kind is None or kind.bits != layout.bits or not registers or not known:
            return None
        words = np.stack([step.sources[register] for register in registers], axis=1)
        if words.shape[0] != layout.threads or layout.matrices > 1:
            return None
        raw = layout.unpack(words).astype(f"u{kind.bytes}")
        matrices.append(np.abs(raw.view(kind.dtype).astype(np.float64)))
    if form.metadata is not None or form.scales:
        return None
    a, b, c = matrices
    return np.asarray(a @ b + c)
