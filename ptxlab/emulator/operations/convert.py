"""cvt between scalar types: integers, f16, bf16, f32, f64, and f32 to tf32.

PTX ISA, "Data Movement and Conversion Instructions: cvt". Which modifiers a pair of types takes is
checked here; packed and 8-bit formats are in `convert_packed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ptxlab.emulator.operations import convert_pack, convert_packed
from ptxlab.emulator.operations.convert_packed import narrowing
from ptxlab.emulator.operations.floating import ROUNDINGS
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.legality import require
from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Alu, Form, UnknownForm, row
from ptxlab.emulator.prepare.steps import alu_step
from ptxlab.isa.legality import needs
from ptxlab.isa.types import ScalarType
from ptxlab.numbers.formats import (
    BF16,
    F16,
    F32,
    FORMATS,
    Array,
)
from ptxlab.numbers.rounding import (
    NAN_F32,
    Doubles,
    flush,
    narrow,
    relu,
    saturate,
    settle,
    settle_f64,
    to_odd,
    two_sum,
)
from ptxlab.syntax.tree import Instruction

Unary = Callable[[Array], Array]

_INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))
_SCALARS = (*_INTEGERS, "f16", "bf16", "f32", "f64")
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_PRECISION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@dataclass(frozen=True, slots=True)
class _Options:
    rounding: str
    ftz: bool
    sat: bool
    relu: bool
    satfinite: bool


def build(m: Modifiers) -> Alu:
    """``cvt{.rounding}{.ftz}{.sat}{.relu}{.satfinite}.dtype.atype``."""
    if m.take("pack"):
        return convert_pack.build(m)
    if convert_packed.is_packed(m.rest()):
        return convert_packed.build(m)
    options = _Options(
        m.one_of(*ROUNDINGS, *_TO_INTEGER, "rna", default=""),
        m.take("ftz"),
        m.take("sat"),
        m.take("relu"),
        m.take("satfinite"),
    )
    target = m.type(*_SCALARS, "tf32")
    source = m.type(*_SCALARS)
    if target.name == "tf32":
        return _to_tf32(source, options)
    if options.rounding == "rna":
        raise UnknownForm("takes .rna only for .tf32")
    _check(target.name, source.name, options)
    compute = _conversion(target, source, options)
    if options.ftz and source.name == "f32":
        compute = _after(lambda a: flush(a, F32), compute)
    if options.ftz and target.name == "f32":
        compute = _after(compute, lambda r: flush(r, F32))
    if options.sat and target.kind == "float":
        compute = _after(compute, saturate)
    return Alu((target.name,), (source.name,), compute)


def _check(target: str, source: str, options: _Options) -> None:
    """Refuse the combinations of modifiers that no pair of types has."""
    if options.ftz and "f32" not in (target, source):
        raise UnknownForm("takes .ftz only with type .f32")
    if "bf16" in (target, source) and {"u8", "s8"} & {target, source}:
        raise UnknownForm("does not convert between .bf16 and 8-bit integers")
    if options.sat and "bf16" in (target, source):
        raise UnknownForm("does not take .sat with type .bf16")
    if not (options.relu or options.satfinite):
        return
    if source != "f32" or target not in ("f16", "bf16"):
        raise UnknownForm("takes .relu and .satfinite only from .f32 to 16 bits")
    if options.ftz or options.sat or options.rounding not in ("rn", "rz"):
        raise UnknownForm("takes .relu and .satfinite with .rn or .rz alone")


def _after(first: Unary, then: Unary) -> Unary:
    return lambda a: then(first(a))


def _conversion(target: ScalarType, source: ScalarType, options: _Options) -> Unary:
    if source.kind != "float":
        if target.kind != "float":
            return _integer_to_integer(target, source, options)
        return _integer_to_float(target, source, options)
    if target.kind != "float":
        return _float_to_integer(target, source, options)
    return _float_to_float(target, source, options)


def _integer_to_integer(target: ScalarType, source: ScalarType, options: _Options) -> Unary:
    if options.rounding:
        raise UnknownForm("takes no rounding between integers")
    if not options.sat:
        return lambda a: a.astype(target.dtype)
    wanted, given = _limits(target), _limits(source)
    low, high = max(wanted[0], given[0]), min(wanted[1], given[1])
    if (low, high) == given:
        raise UnknownForm(f"takes no .sat where .{target.name} holds every .{source.name}")
    return lambda a: np.clip(a, low, high).astype(target.dtype)


def _limits(kind: ScalarType) -> tuple[int, int]:
    """Return the smallest and largest number of an integer type."""
    if kind.kind == "signed":
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def _need_rounding(options: _Options, choices: Iterable[str]) -> None:
    if options.rounding not in choices:
        raise UnknownForm(f"needs one of .{', .'.join(choices)}")


def _integer_to_float(target: ScalarType, source: ScalarType, options: _Options) -> Unary:
    _need_rounding(options, ROUNDINGS)
    mode = options.rounding
    if target.name in ("f32", "f64") and mode == "rn":
        return lambda a: a.astype(target.dtype)
    if target.name == "f64":
        return _directed_f64(mode) if source.bits == 64 else lambda a: a.astype(np.float64)
    fmt = FORMATS[target.name]
    if source.bits < 64:
        return lambda a: narrow(a.astype(np.float64), fmt, mode)
    return lambda a: narrow(to_odd(*two_sum(*_words(a))), fmt, mode)


def _words(a: Array) -> tuple[Doubles, Doubles]:
    """Split 64-bit integers into two float64 numbers with the same sum."""
    high = (a >> 32).astype(np.float64) * 2.0**32
    return high, (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)


def _directed_f64(mode: str) -> Unary:
    def compute(a: Array) -> Array:
        r, lost = two_sum(*_words(a))
        if mode == "rz":
            return np.where(r * lost < 0, np.nextafter(r, 0), r)
        wrong = lost < 0 if mode == "rm" else lost > 0
        return np.where(wrong, np.nextafter(r, -np.inf if mode == "rm" else np.inf), r)

    return compute


def _float_to_integer(target: ScalarType, source: ScalarType, options: _Options) -> Unary:
    """Round to an integer, clamp to the range; NaN as the ISA's cvt section says."""
    _need_rounding(options, _TO_INTEGER)
    rounder = _TO_INTEGER[options.rounding]
    least, most = _limits(target)
    low, end = float(least), float(most + 1)
    nan = 1 << (target.bits - 1) if source.bits == 64 or target.bits == 64 else 0
    if target.kind == "signed":
        nan = -nan

    def compute(a: Array) -> Array:
        x: Array = rounder(a if source.bits > 16 else a.astype(np.float32))
        if x.min() >= low and x.max() < end:
            return x.astype(target.dtype)
        r = np.where((x >= low) & (x < end), x, 0).astype(target.dtype)
        r[x < low] = least
        r[x >= end] = most
        r[x != x] = nan
        return r

    return compute


def _float_to_float(target: ScalarType, source: ScalarType, options: _Options) -> Unary:
    if target.name == source.name:
        return _same_float(target, options)
    if _PRECISION[target.name] > _PRECISION[source.name] and target.bits > source.bits:
        if options.rounding not in (("", *ROUNDINGS) if source.name == "bf16" else ("",)):
            raise UnknownForm("takes no rounding to a wider type")
        if target.name == "f64":
            return _to_double
        return lambda a: settle(a.astype(np.float32))
    _need_rounding(options, ROUNDINGS)
    return narrowing(FORMATS[target.name], options.rounding, options.relu, options.satfinite)


def _to_double(a: Array) -> Array:
    wide = a.astype(np.float64)
    return settle_f64(wide, wide)


def _same_float(kind: ScalarType, options: _Options) -> Unary:
    """Round to an integer in the same format, or only settle the NaN."""
    rounder = _TO_INTEGER.get(options.rounding)
    if options.rounding and rounder is None:
        raise UnknownForm("takes an integer rounding between equal types")
    if kind.name == "f64":
        return lambda a: settle_f64(rounder(a) if rounder else a, a)
    if kind.name == "f32":
        return lambda a: settle(rounder(a) if rounder else a)
    fmt = F16 if kind.name == "f16" else BF16

    def compute(a: Array) -> Array:
        wide = a.astype(np.float32)
        r = (rounder(wide) if rounder else wide).astype(fmt.dtype)
        return np.where(wide == wide, r, fmt.nan_value).astype(fmt.dtype, copy=False)

    return compute


_TF32_LOST = np.uint32(0x1FFF)
_TF32_MAX = np.array([0x7F7FE000], np.uint32).view(np.float32)[0]


def _to_tf32(source: ScalarType, options: _Options) -> Alu:
    """Round to the upper 19 bits; the lower 13 of the result are zero (of NaN: ones)."""
    if source.name != "f32" or options.ftz or options.sat:
        raise UnknownForm("converts to .tf32 only from .f32, without .ftz or .sat")
    _need_rounding(options, ("rna", "rn", "rz"))
    if options.relu and options.rounding == "rna":
        raise UnknownForm("takes .relu with .rn or .rz")

    def compute(a: Array) -> Array:
        x = np.clip(a, -_TF32_MAX, _TF32_MAX) if options.satfinite else a
        bits = x.view(np.uint32)
        if options.rounding == "rna":
            bits = bits + np.uint32(0x1000)
        elif options.rounding == "rn":
            bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        r = np.where(a == a, (bits & ~_TF32_LOST).view(np.float32), NAN_F32)
        return relu(r, F32) if options.relu else r

    return Alu(("tf32",), ("f32",), compute)


def convert(context: Context, instruction: Instruction, form: Form) -> Step:
    """Convert numbers."""
    modifiers = Modifiers(instruction.modifiers, context.target)
    operation = build(modifiers)
    modifiers.finish()
    require(context, needs("cvt", instruction.modifiers))
    return alu_step(context, instruction, operation)


row("cvt.*", "", step=convert, mix="conversion")
