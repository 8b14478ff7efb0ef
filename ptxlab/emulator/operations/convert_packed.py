"""cvt to and from two values in one register: f16x2, bf16x2, ue8m0x2, 8-, 6- and 4-bit formats; cvt.pack.

PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack" and "Alternate Floating-Point
Data Formats". Of two source operands the first becomes the upper part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array, looked_up
from ptxlab.emulator.operations.convert import RUBIN, Unary, conversion, narrowing
from ptxlab.emulator.operations.floating import format_of
from ptxlab.emulator.prepare.forms import refuse
from ptxlab.emulator.prepare.row import Binary
from ptxlab.matrix.form import Fidelity
from ptxlab.numbers.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    F16,
    F32,
    FORMATS,
    UE5M3,
    UE8M0,
    Format,
)
from ptxlab.numbers.rounding import at_random, flush, narrow
from ptxlab.numbers.rounding import relu as not_negative
from ptxlab.numbers.types import limits, packing, unpacked

BLACKWELL = "sm_100f sm_110f sm_120f"


def _cell(fmt: Format) -> int:
    """Return how many bits of a register each of two values takes."""
    return 4 if fmt.bits == 4 else fmt.word_bits


def _side_by_side(part: Unary, bits: int) -> Binary:
    """Return the function that puts the words of two parts, of ``bits`` bits, into one register."""
    dtype = np.dtype(f"u{max(2 * bits // 8, 1)}")
    shift = dtype.type(bits)

    def compute(a: Array, b: Array) -> Array:
        both: Array = (part(a).astype(dtype) << shift) | part(b).astype(dtype)
        return both

    return compute


def _from_halves(both: Binary, T: str) -> Unary:
    """Return ``both``, which takes two f32, for a register with two numbers."""

    def compute(a: Array) -> Array:
        [lower], [upper] = unpacked(T, a)
        return both(upper.astype(np.float32), lower.astype(np.float32))

    return compute


# ---- from two f32, or a register with two halves --------------------------------------------


def _narrowed(D: str, rnd: str = "rn", satfinite: str = "satfinite", **more: str) -> Binary:
    """Return the conversion of two f32; a NaN becomes the largest number where there is none."""
    fmt = format_of(D)
    convert = narrowing(fmt.name, rnd, satfinite, **more)
    return _side_by_side(lambda x: convert(x).view(fmt.word), _cell(fmt))


def _randomly(D: str, satfinite: str, relu: str) -> Callable[[Array, Array, Array], Array]:
    """Round away from zero by chance: as many random bits for each half as it has fewer than f32."""
    fmt = format_of(D)
    bits = F32.fraction_bits - fmt.fraction_bits

    def convert(x: Array, random: Array) -> Array:
        r = narrow(x, fmt, at_random(random, bits), finite=bool(satfinite))
        return (not_negative(r, fmt) if relu else r).view(fmt.word)

    def compute(a: Array, b: Array, random: Array) -> Array:
        upper = convert(a, random >> np.uint32(16)).astype(np.uint32)
        return (upper << np.uint32(16)) | convert(b, random)

    return compute


conversion(
    "cvt.<rnd>{.satfinite}{.relu}{.pzo}.<D>.f32",
    "f32 f32 -> D",
    make=_narrowed,
    rnd="rn rz",
    D="f16x2 bf16x2",
    needs={"": "sm_80 7.0", "satfinite": "sm_80 8.1", "pzo": RUBIN},
)
conversion(
    "cvt.rs{.satfinite}{.relu}.<D>.f32",
    "f32 f32 b32 -> D",
    make=_randomly,
    D="f16x2 bf16x2",
    fidelity="model",
    needs="sm_100f 8.7",
)


# ---- formats of 8, 6 and 4 bits -------------------------------------------------------------


def _narrowed_halves(D: str, rnd: str, S: str, satfinite: str = "satfinite", **more: str) -> Unary:
    return _from_halves(_narrowed(D, rnd, satfinite, **more), S)


def _divided(
    D: str, rnd: str, S: str = "f32", satfinite: str = "satfinite", **more: str
) -> Callable[..., Array]:
    """Divide both numbers by a power of two first; what is subnormal in ``S`` counts as zero."""
    fmt, given, powers = format_of(D), FORMATS[packing(S)[0]], _values(UE8M0).astype(np.float64)
    convert = narrowing(fmt.name, rnd, satfinite, **more)

    def compute(*operands: Array) -> Array:
        *numbers, scale = operands
        if S != "f32":
            numbers = [half for [half] in reversed(unpacked(S, *numbers))]
        power = looked_up(scale, powers.view(np.uint64)).view(np.float64)
        both = _side_by_side(lambda x: convert(x).view(fmt.word), _cell(fmt))
        return both(*(flush(x, given).astype(np.float64) / power for x in numbers))

    return compute


def _values(fmt: Format) -> Array:
    """Return what each code of up to 8 bits stands for."""
    return fmt.decode(np.arange(256, dtype=np.uint8))[0]


def _both(a: Array, cell: int) -> tuple[Array, Array]:
    """Return the upper and the lower code of a register with two."""
    return a >> a.dtype.type(cell), a & a.dtype.type((1 << cell) - 1)


def _grow(values: Array, cell: int, wide: Format, satfinite: str = "", relu: str = "") -> Unary:
    """Each of ``values``, by its code, is one of ``wide`` or beyond it, so a table of them is the conversion."""
    with np.errstate(over="ignore"):
        grown = narrow(values, wide, finite=bool(satfinite))
    table = (not_negative(grown, wide) if relu else grown).view(np.uint16).astype(np.uint32)

    def compute(a: Array) -> Array:
        upper, lower = _both(a, cell)
        words: Array = looked_up(upper, table) << np.uint32(16) | looked_up(lower, table)
        return words

    return compute


def _grow_scaled(values: Array, cell: int, satfinite: str, relu: str = "") -> Binary:
    """Multiply each by its power of two, which leads out of what bfloat16 has at both ends."""
    numbers, powers = (x.astype(np.float64).view(np.uint64) for x in (values, _values(UE8M0)))

    def convert(code: Array, scale: Array) -> Array:
        x, power = looked_up(code, numbers), looked_up(scale, powers)
        r = narrow(x.view(np.float64) * power.view(np.float64), BF16, finite=bool(satfinite))
        return (not_negative(r, BF16) if relu else r).view(np.uint16).astype(np.uint32)

    def compute(a: Array, scale: Array) -> Array:
        upper, lower = map(convert, _both(a, cell), _both(scale, UE8M0.bits))
        words: Array = upper << np.uint32(16) | lower
        return words

    return compute


_NEEDS = {8: "sm_89:8.1 7.8", 6: f"{BLACKWELL} 8.6", 4: f"{BLACKWELL} 8.6"}
_HALVES: dict[int, str | dict[str, str]] = {
    8: {"": _NEEDS[8], "bf16x2": f"{BLACKWELL} 9.1"},
    6: f"{BLACKWELL} 9.1",
}
_HALVES[4] = _HALVES[6]
SCALED, SCALED_ALIKE = "scaled::n2::ue8m0", "scaled::n1::ue8m0"


def _to_bf16(two: str, values: Array, cell: int, needs: str, relu: str = "{.relu}") -> None:
    """Add the rows of conversions to bfloat16, of which each number may have a scale."""
    register, grown = f"b{2 * cell}", partial(_grow, values, cell, BF16)
    start = f"cvt.rn{{.satfinite}}{relu}"
    conversion(f"{start}.bf16x2.{two}", f"{register} -> bf16x2", make=grown, needs=needs)
    conversion(
        f"{start}.{SCALED}.bf16x2.{two}",
        f"{register} b16 -> bf16x2",
        make=partial(_grow_scaled, values, cell),
        needs=needs,
    )


def _scaled_alike(start: str, two: str, register: str) -> None:
    """Add the rows of conversions to ``two`` narrow numbers that are divided by the same scale.

    Those of f32 are as NVIDIA's cudnn-frontend has measured them on sm_107 ("fp32_to_fp8_pack_scaled"). Whether what
    is subnormal only in f16 counts as zero too, the PTX ISA alone says.
    """
    known: tuple[tuple[str, str, Fidelity], ...] = (
        ("f32 f32", "f32", "exact"),
        ("bf16x2", "bf16x2", "exact"),
        ("f16x2", "f16x2", "unverified"),
    )
    for given, source, fidelity in known:
        conversion(
            f"{start}.{SCALED_ALIKE}.<D>.<S>",
            f"{given} b8 -> {register}",
            make=_divided,
            rnd="rn rz",
            needs=RUBIN,
            fidelity=fidelity,
            D=two,
            S=source,
        )


for _fmt in (E4M3, E5M2, E2M3, E3M2, E2M1):
    _two, _register = f"{_fmt.name}x2", f"b{2 * _cell(_fmt)}"
    for _rnd, _whole, _half in (
        ("rn", _NEEDS[_fmt.bits], _HALVES[_fmt.bits]),
        ("rz", RUBIN, RUBIN),
    ):
        conversion(
            "cvt.<rnd>.satfinite{.relu}{.pzo}.<D>.f32",
            f"f32 f32 -> {_register}",
            make=_narrowed,
            rnd=_rnd,
            needs={"": _whole, "pzo": RUBIN},
            D=_two,
        )
        conversion(
            "cvt.<rnd>.satfinite{.relu}{.pzo}.<D>.<S>",
            f"S -> {_register}",
            make=_narrowed_halves,
            rnd=_rnd,
            needs=({"": _half} if isinstance(_half, str) else _half) | {"pzo": RUBIN},
            D=_two,
            S="f16x2 bf16x2",
        )
    _scaled_alike("cvt.<rnd>.satfinite{.relu}{.pzo}", _two, _register)
    conversion(
        f"cvt.rn{{.relu}}.f16x2.{_two}",
        f"{_register} -> f16x2",
        make=partial(_grow, _values(_fmt), _cell(_fmt), F16),
        needs=_NEEDS[_fmt.bits],
    )
    _to_bf16(_two, _values(_fmt), _cell(_fmt), f"{BLACKWELL} 9.2")
    for _relu in ("", "relu."):
        refuse(
            f"cvt.rs.{_relu}satfinite.{_fmt.name}x4",
            "the PTX ISA leaves open how four values share the random bits",
        )

_SCALES, _UNSIGNED = (
    "cvt.<rnd>{.satfinite}",
    partial(conversion, rnd="rn rz rp", needs=RUBIN, D="ue5m3x2"),
)
_UNSIGNED(f"{_SCALES}.<D>.f32", "f32 f32 -> b16", make=_narrowed)
_UNSIGNED(f"{_SCALES}.<D>.<S>", "S -> b16", make=_narrowed_halves, S="f16x2 bf16x2")
_scaled_alike(_SCALES, "ue5m3x2", "b16")
conversion(
    "cvt.rn.f16x2.ue5m3x2", "b16 -> f16x2", _grow(_values(UE5M3), UE5M3.bits, F16), needs=RUBIN
)
_to_bf16("ue5m3x2", _values(UE5M3), UE5M3.bits, RUBIN, relu="")

_FIXED_POINT = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32) / np.float32(64)
_to_bf16("s2f6x2", _FIXED_POINT, 8, "sm_100a sm_103a sm_107a sm_110a sm_120a sm_121a 9.1")
for _relu in ("", ".relu"):
    for _scaled in ("", f".{SCALED}"):
        refuse(
            f"cvt.rn.satfinite{_relu}{_scaled}.s2f6x2",
            "the PTX ISA leaves open what numbers of -2 and below become: -2, or -127/64",
        )


# ---- scales ---------------------------------------------------------------------------------

_LEAST_SCALE = np.float32(2.0**-UE8M0.bias).view(np.uint32)
_INFINITY = np.float32(np.inf).view(np.uint32)


def _exponents(rnd: str, satfinite: str) -> Binary:
    """Keep the exponents of two f32: powers of two from 2**-127 on, whatever the sign; 255 is NaN."""

    def convert(x: Array) -> Array:
        magnitude = x.view(np.uint32) & np.uint32(F32.nan)
        field = magnitude >> np.uint32(F32.fraction_bits)
        if rnd == "rp":
            between = (magnitude & np.uint32((1 << F32.fraction_bits) - 1)) != 0
            within = (magnitude > _LEAST_SCALE) & (magnitude < _INFINITY)
            field = field + (between & within)
        if satfinite:
            largest = np.minimum(field, np.uint32(UE8M0.largest))
            field = np.where(magnitude <= _INFINITY, largest, field)
        return field.astype(np.uint16)

    return _side_by_side(convert, UE8M0.bits)


def _exponents_of_halves(rnd: str, satfinite: str) -> Unary:
    return _from_halves(_exponents(rnd, satfinite), "bf16x2")


_scale = partial(conversion, rnd="rz rp", needs=f"{BLACKWELL} 8.6")
_scale("cvt.<rnd>{.satfinite}.ue8m0x2.f32", "f32 f32 -> b16", make=_exponents)
_scale("cvt.<rnd>{.satfinite}.ue8m0x2.bf16x2", "bf16x2 -> b16", make=_exponents_of_halves)
conversion(
    "cvt.rn.bf16x2.ue8m0x2",
    "b16 -> bf16x2",
    _grow(_values(UE8M0), UE8M0.bits, BF16),
    needs=f"{BLACKWELL} 8.6",
)


# ---- cvt.pack -------------------------------------------------------------------------------


def _pack(D: str) -> Binary:
    """Return the packing of two s32 as integers of type D, the first above."""
    (low, high), bits = limits(D), int(D[1:])
    return _side_by_side(lambda x: np.clip(x, low, high) & ((1 << bits) - 1), bits)


def _pack_below(D: str) -> Callable[[Array, Array, Array], Array]:
    """Shift c to make room for a and b."""
    both, above = _pack(D), np.uint32(2 * int(D[1:]))
    return lambda a, b, c: (c << above) | both(a, b)


_NEEDS_PACK = {"": "sm_72 6.5", **dict.fromkeys(("u4", "s4", "u2", "s2"), "sm_75 6.5")}
conversion("cvt.pack.sat.<D>.s32", "s32 s32 -> u32", make=_pack, D="u16 s16", needs=_NEEDS_PACK)
conversion(
    "cvt.pack.sat.<D>.s32.b32",
    "s32 s32 b32 -> u32",
    make=_pack_below,
    D="u8 s8 u4 s4 u2 s2",
    needs=_NEEDS_PACK,
)
