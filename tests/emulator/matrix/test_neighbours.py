"""An element of D never depends on what lies beside it: other warps, other rows and other columns."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import Factors, arithmetic
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.matrix.multiplication import MatrixInstruction

M, N, WARPS = 2, 2, 12
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "f64": (11, 52)}
"""Bits of exponent and fraction, in the words that hold the numbers."""
INTEGERS = {"s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def float_words(
    fields: tuple[int, int], shape: tuple[int, ...], random: np.random.Generator
) -> Array:
    """Draw [..., warps]; a warp has numbers of one kind: zero, subnormal, near one, huge, special, any."""
    exponent_bits, fraction = fields
    width = 1 + exponent_bits + fraction
    bits = random.integers(0, 1 << width, shape, dtype=np.uint64)
    exponent = bits >> np.uint64(fraction) & np.uint64((1 << exponent_bits) - 1)
    top, bias = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    near = bias - 2 + exponent % 4
    spread = [
        exponent * 0,
        near,
        exponent * 0 + top - 1,
        np.where(exponent % 8, near, top),
        exponent,
    ]
    kind = np.arange(shape[-1]) % (len(spread) + 1)
    exponent = np.choose(np.minimum(kind, len(spread) - 1), spread)
    sign_and_fraction = bits & np.uint64(1 << (width - 1) | (1 << fraction) - 1)
    words = sign_and_fraction | exponent.astype(np.uint64) << np.uint64(fraction)
    words[..., kind == len(spread)] &= np.uint64(1 << (width - 1))
    return words.astype(f"u{width // 8}")


def draw(
    form: MatrixInstruction, dtype: str, shape: tuple[int, ...], random: np.random.Generator
) -> Array:
    """Draw words of a type, [..., warps]; of bytes some warps are zero, some without NaN."""
    if dtype in FLOATS:
        return float_words(FLOATS[dtype], shape, random)
    bits = INTEGERS.get(dtype, 4 if form.operand("B").bits == 4 else 8)
    words = random.integers(0, 1 << bits, shape, dtype=np.uint64).astype(f"u{max(bits, 8) // 8}")
    words[..., ::4] &= 0x13 & (1 << bits) - 1
    words[..., 2::4] = 0
    return words


def factors(form: MatrixInstruction, random: np.random.Generator) -> Factors:
    stored = form.k // 2 if form.metadata else form.k
    a = draw(form, form.a_type, (M, stored, WARPS), random)
    b = draw(form, form.b_type, (form.k, N, WARPS), random)
    c = draw(form, form.c_type, (M, N, WARPS), random)
    c[random.random(c.shape) < 0.3] = 0
    places = None
    if form.metadata:
        picked = random.integers(0, 2, (M, stored, WARPS))  # one of each two
        places = picked + 2 * np.arange(stored)[:, None]
    scales: tuple[Array, ...] = ()
    if form.scales:
        blocks = form.scales[0].blocks
        scales = (
            random.integers(0, 256, (M, blocks, WARPS), dtype=np.uint8),
            random.integers(0, 256, (blocks, N, WARPS), dtype=np.uint8),
        )
    return Factors(a, b, c, places, scales)


def element(x: Factors, i: int, j: int, warp: int) -> Factors:
    """Return the factors of one element of D."""
    row, column, at = (slice(k, k + 1) for k in (i, j, warp))
    return Factors(
        x.a[row, :, at].copy(),
        x.b[:, column, at].copy(),
        x.c[row, column, at].copy(),
        None if x.places is None else x.places[row, :, at],
        x.scales and (x.scales[0][row, :, at], x.scales[1][:, column, at]),
    )


def arithmetics(target: str) -> list[MatrixInstruction]:
    """Return instructions of a target, one for each arithmetic and type of A, with any type of B.

    Integers and double precision are the same on all: those of the first target that has all forms stand for others.
    """
    instructions: dict[Hashable, MatrixInstruction] = {}
    for form in MULTIPLICATIONS:
        same = form.d_type in ("s32", "f64") and target not in ("sm_80", "sm_90a")
        if form.runs_on(TARGETS[target]) and not same:
            types = (form.a_type, form.c_type, form.d_type, form.scales)
            how = (form.satfinite, form.rounding, form.bit_operation, form.family)
            instructions.setdefault((types, how, form.k), form)
    return list(instructions.values())


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_an_element_is_the_same_alone_and_among_others(target: str) -> None:
    random = np.random.default_rng(3)
    for form in arithmetics(target):
        compute = arithmetic(form, TARGETS[target])
        whole = factors(form, random)
        d = compute(whole)
        assert d.shape == (M, N, WARPS)
        for warp in range(WARPS):
            i, j = warp % M, 2 * warp // WARPS
            actual = compute(element(whole, i, j, warp))
            assert actual.item() == d[i, j, warp], (form.name, i, j, warp)
