"""cvt to and from two values in one register: f16x2, bf16x2, ue8m0x2 and 8-, 6- and 4-bit formats.

PTX ISA, "Data Movement and Conversion Instructions: cvt" and "Alternate Floating-Point Data
Formats". Of two source operands the first becomes the upper half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.row import Alu, UnknownForm
from ptxlab.numbers.formats import (
    BF16,
    F16,
    Array,
    Format,
)
from ptxlab.numbers.rounding import (
    narrow,
    relu,
)

Unary = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class _Tiny:
    """A format of at most 8 bits, two of which fill a register of type ``register``.

    ``shift`` is the distance of the two; ``nan`` the byte that a NaN becomes: the format's NaN, or
    its largest number where it has none.
    """

    dtype: Any
    largest: float
    nan: int
    register: str = "b16"
    shift: int = 8


_TINY: dict[str, _Tiny] = {
    "e4m3x2": _Tiny(ml_dtypes.float8_e4m3fn, 448.0, 0x7F),
    "e5m2x2": _Tiny(ml_dtypes.float8_e5m2, 57344.0, 0x7F),
    "e2m3x2": _Tiny(ml_dtypes.float6_e2m3fn, 7.5, 0x1F),
    "e3m2x2": _Tiny(ml_dtypes.float6_e3m2fn, 28.0, 0x1F),
    "e2m1x2": _Tiny(ml_dtypes.float4_e2m1fn, 6.0, 0x7, "b8", 4),
}
_HALVES: dict[str, Format] = {"f16x2": F16, "bf16x2": BF16}
_SCALE = "ue8m0x2"


def is_packed(names: Sequence[str]) -> bool:
    """Say whether one of a cvt's types holds two values."""
    return any(name in _TINY or name in _HALVES or name == _SCALE for name in names)


def build(m: Modifiers) -> Alu:
    """Build ``cvt`` where a type holds two values."""
    if _SCALE in m.rest():
        return _scales(m)
    mode = m.one_of("rn", "rz", "rs")
    use_relu, satfinite = m.take("relu"), m.take("satfinite")
    target, source = _two_types(m)
    if mode == "rs":
        return _pack_randomly(target, source, use_relu, satfinite)
    if target in _HALVES and source == "f32":
        return _pack_halves(target, mode, use_relu, satfinite)
    if mode != "rn":
        raise UnknownForm("needs .rn with these types")
    if target in _TINY and source in ("f32", "f16x2"):
        if not satfinite:
            raise UnknownForm(f"needs .satfinite with type .{target}")
        return _pack_tiny(target, source, use_relu)
    if target == "f16x2" and source in _TINY and not satfinite:
        return _unpack_tiny(source, use_relu)
    raise UnknownForm(f"does not convert .{source} to .{target}")


def _two_types(m: Modifiers) -> tuple[str, str]:
    names = (*_HALVES, *_TINY, "f32")
    return m.one_of(*names), m.one_of(*names)


def _pack_halves(target: str, mode: str, use_relu: bool, satfinite: bool) -> Alu:
    fmt = _HALVES[target]
    convert = narrowing(fmt, mode, use_relu, satfinite)

    def compute(a: Array, b: Array) -> Array:
        upper = convert(a).view(np.uint16).astype(np.uint32)
        return (upper << np.uint32(16)) | convert(b).view(np.uint16)

    return Alu((target,), ("f32", "f32"), compute)


def narrowing(fmt: Format, mode: str, use_relu: bool, satfinite: bool) -> Unary:
    """Return the conversion of f32 or f64 numbers to a 16-bit format (f32, from f64)."""

    def compute(a: Array) -> Array:
        if satfinite:
            a = np.clip(a, np.float32(-fmt.max_finite), np.float32(fmt.max_finite))
        if mode == "rn" and a.dtype == np.float32:
            r = a.astype(fmt.dtype)
            bad = a != a
            if bad.any():
                r[bad] = fmt.nan_value
        else:
            r = narrow(a.astype(np.float64), fmt, mode)
        return relu(r, fmt) if use_relu else r

    return compute


def _pack_tiny(target: str, source: str, use_relu: bool) -> Alu:
    tiny = _TINY[target]
    word = np.dtype("u1") if tiny.register == "b8" else np.dtype("u2")
    shift = word.type(tiny.shift)

    def convert(x: Array) -> Array:
        low = 0.0 if use_relu else -tiny.largest
        inside = np.clip(x, np.float32(low), np.float32(tiny.largest))
        if use_relu:
            inside = np.where(x > 0, inside, np.float32(0))
        bits = inside.astype(tiny.dtype).view(np.uint8)
        return np.where(x == x, bits, np.uint8(tiny.nan)).astype(word)

    def from_two(a: Array, b: Array) -> Array:
        return (convert(a) << shift) | convert(b)

    if source == "f32":
        return Alu((tiny.register,), ("f32", "f32"), from_two)

    def from_halves(a: Array) -> Array:
        halves = np.ascontiguousarray(a).view(np.float16).reshape(-1, 2).astype(np.float32)
        return from_two(halves[:, 1], halves[:, 0])

    return Alu((tiny.register,), ("f16x2",), from_halves)


def _unpack_tiny(source: str, use_relu: bool) -> Alu:
    """Every value of the small formats is a value of f16, so a table of them is the conversion."""
    tiny = _TINY[source]
    codes = np.arange(256, dtype=np.uint8) & np.uint8(0xF if tiny.shift == 4 else 0xFF)
    values = codes.view(tiny.dtype).astype(np.float32)
    halves = np.where(values == values, values.astype(np.float16), F16.nan_value).astype(np.float16)
    table = (relu(halves, F16) if use_relu else halves).view(np.uint16).astype(np.uint32)

    def compute(a: Array) -> Array:
        upper: Array = table[a >> a.dtype.type(tiny.shift)] << np.uint32(16)
        words: Array = upper | table[a & a.dtype.type(0xFF)]
        return words

    return Alu(("f16x2",), (tiny.register,), compute)


# Random bits for each half of the result: as many as the format has fewer than f32.
_RANDOM_BITS = {"f16x2": 13, "bf16x2": 16}


def _pack_randomly(target: str, source: str, use_relu: bool, satfinite: bool) -> Alu:
    """Build ``cvt.rs{.relu}{.satfinite}``: away from zero by chance, with the bits of ``rbits``.

    The random bits are added below the last bit that is kept, and the sum is truncated. What lies
    below the random bits (of results that are subnormal in f16) counts in full.
    """
    if target not in _RANDOM_BITS or source != "f32":
        raise UnknownForm("takes .rs only from .f32 to .f16x2 and .bf16x2")
    fmt, bits = _HALVES[target], _RANDOM_BITS[target]
    chance = np.uint32((1 << bits) - 1)

    def convert(x: Array, random: Array) -> Array:
        size = np.abs(x).astype(np.float64)
        exponent = np.frexp(np.maximum(size, fmt.min_normal))[1] - 1
        unit = np.ldexp(1.0, np.where(np.isfinite(size), exponent - fmt.fraction_bits, 0))
        steps = np.floor(size / unit)
        short = 1 - (random & chance) / float(1 << bits)
        up = size / unit - steps >= short
        r: Array = np.copysign((steps + (up & np.isfinite(size))) * unit, x)
        if satfinite:
            r = np.clip(r, -fmt.max_finite, fmt.max_finite)
        narrowed = narrow(r, fmt, "rn")
        return relu(narrowed, fmt) if use_relu else narrowed

    def compute(a: Array, b: Array, random: Array) -> Array:
        upper = convert(a, random >> np.uint32(16)).view(np.uint16).astype(np.uint32)
        return (upper << np.uint32(16)) | convert(b, random).view(np.uint16)

    return Alu((target,), ("f32", "f32", "b32"), compute)


def _scales(m: Modifiers) -> Alu:
    """``cvt{.rz, .rp}{.satfinite}.ue8m0x2{.f32, .bf16x2}``, ``cvt.rn.bf16x2.ue8m0x2``."""
    mode = m.one_of("rz", "rp", "rn")
    satfinite = m.take("satfinite")
    target, source = m.one_of(_SCALE, "bf16x2"), m.one_of(_SCALE, "bf16x2", "f32")
    if (target, source) == ("bf16x2", _SCALE) and mode == "rn" and not satfinite:
        return Alu(("bf16x2",), ("b16",), _from_scales)
    if target != _SCALE or source == _SCALE or mode == "rn":
        raise UnknownForm(f"does not convert .{source} to .{target} with .{mode}")

    def convert(x: Array) -> Array:
        """Keep the exponent: powers of two from 2**-127 on, whatever the sign; 255 is NaN."""
        magnitude = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
        field = magnitude >> np.uint32(23)
        if mode == "rp":
            between = (magnitude & np.uint32(0x7FFFFF)) != 0
            between &= (magnitude > _LEAST_SCALE) & (magnitude < _INFINITY)
            field = field + between
        if satfinite:
            field = np.where(magnitude <= _INFINITY, np.minimum(field, np.uint32(254)), field)
        return field.astype(np.uint16)

    def from_two(a: Array, b: Array) -> Array:
        return (convert(a) << np.uint16(8)) | convert(b)

    if source == "f32":
        return Alu(("b16",), ("f32", "f32"), from_two)
    return Alu(
        ("b16",),
        ("bf16x2",),
        lambda a: from_two(
            (a & np.uint32(0xFFFF0000)).view(np.float32), (a << np.uint32(16)).view(np.float32)
        ),
    )


_LEAST_SCALE, _INFINITY = np.uint32(0x00400000), np.uint32(0x7F800000)
_SCALE_AS_BF16 = np.arange(256, dtype=np.uint32) << np.uint32(7)
_SCALE_AS_BF16[0], _SCALE_AS_BF16[255] = 0x0040, 0x7FFF


def _from_scales(a: Array) -> Array:
    upper: Array = _SCALE_AS_BF16[a >> np.uint16(8)] << np.uint32(16)
    words: Array = upper | _SCALE_AS_BF16[a & np.uint16(0xFF)]
    return words
