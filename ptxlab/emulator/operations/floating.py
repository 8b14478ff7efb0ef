"""Single- and double-precision arithmetic with one rounding.

PTX ISA, "Floating-Point Instructions": add, sub, mul, fma, div, rcp, sqrt, neg, abs, min, max,
copysign, testp. Without a rounding modifier results are rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers, alu
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.numbers import doubles, floats
from ptxlab.numbers.floats import F32, Format, by_block, flush, saturate, settle, settle_f64

ROUNDINGS = ("rn", "rz", "rm", "rp")
Compute = Callable[..., Array]

_SIGN: dict[int, Any] = {32: np.uint32(1 << 31), 64: np.uint64(1 << 63)}


def with_flush(compute: Compute, fmt: Format = F32) -> Compute:
    """Return ``compute`` with subnormal inputs and results replaced by zero (``.ftz``)."""
    return lambda *inputs: flush(compute(*(flush(x, fmt) for x in inputs)), fmt)


def with_saturation(compute: Compute) -> Compute:
    """Return ``compute`` with its result clamped to [0, 1] (``.sat``)."""
    return lambda *inputs: saturate(compute(*inputs))


def _arithmetic(m: Modifiers, count: int, single: Compute, double: Compute, mode: str) -> Alu:
    """Build ``d = op(inputs)`` for f32 and f64, where the functions take the rounding mode last."""
    ftz, sat = m.take("ftz"), m.take("sat")
    kind = m.type("f32", "f64")
    if kind.name == "f64":
        if ftz or sat:
            raise UnknownForm("takes neither .ftz nor .sat with type .f64")
        return Alu(("f64",), ("f64",) * count, _bind(double, mode))
    compute = _bind(single, mode)
    if ftz:
        compute = with_flush(compute)
    if sat:
        compute = with_saturation(compute)
    return Alu(("f32",), ("f32",) * count, compute)


def _bind(compute: Compute, mode: str) -> Compute:
    if mode == "rn" and compute in _NEAREST:
        return _NEAREST[compute]
    return lambda *inputs: by_block(lambda *block: compute(*block, mode), *inputs)


def _sub_f32(a: Array, b: Array, mode: str) -> Array:
    return floats.add_f32(a, -b, mode)


def _sub_f64(a: Array, b: Array, mode: str) -> Array:
    return settle_f64(doubles.add_f64(a, -b, mode), a, b)


# The commonest forms, without the detour of a mode.
_NEAREST: dict[Compute, Compute] = {
    floats.fma_f32: floats.fma_f32_nearest,
    floats.add_f32: lambda a, b: settle(a + b),
    _sub_f32: lambda a, b: settle(a - b),
    floats.mul_f32: lambda a, b: settle(a * b),
    doubles.add_f64: lambda a, b: settle_f64(a + b, a, b),
    doubles.mul_f64: lambda a, b: settle_f64(a * b, a, b),
    _sub_f64: lambda a, b: settle_f64(a - b, a, b),
}


def add(m: Modifiers) -> Alu:
    """``add{.rnd}{.ftz}{.sat}.f32``, ``add{.rnd}.f64``."""
    mode = m.one_of(*ROUNDINGS, default="rn")
    return _arithmetic(m, 2, floats.add_f32, doubles.add_f64, mode)


def sub(m: Modifiers) -> Alu:
    """``sub{.rnd}{.ftz}{.sat}.f32``, ``sub{.rnd}.f64``."""
    return _arithmetic(m, 2, _sub_f32, _sub_f64, m.one_of(*ROUNDINGS, default="rn"))


def mul(m: Modifiers) -> Alu:
    """``mul{.rnd}{.ftz}{.sat}.f32``, ``mul{.rnd}.f64``."""
    mode = m.one_of(*ROUNDINGS, default="rn")
    return _arithmetic(m, 2, floats.mul_f32, doubles.mul_f64, mode)


def fma(m: Modifiers) -> Alu:
    """``fma.rnd{.ftz}{.sat}.f32``, ``fma.rnd.f64``; ``mad`` is the same instruction."""
    return _arithmetic(m, 3, floats.fma_f32, doubles.fma_f64, m.one_of(*ROUNDINGS))


def _quotient_f32(a: Array, b: Array, mode: str) -> Array:
    """Divide under ``mode``: the remainder of the nearest quotient says where the exact one lies."""
    r: Array = a / b
    if mode != "rn":
        back = floats.double(r) * floats.double(b)
        excess = np.sign(back - floats.double(a)) * np.sign(b)
        r = _step_back(r, np.where(np.isfinite(a) & np.isfinite(b) & (b != 0), excess, 0), mode)
    return settle(r)


def _root_f32(a: Array, mode: str) -> Array:
    r: Array = np.sqrt(a)
    if mode != "rn":
        excess = np.sign(floats.double(r) * floats.double(r) - floats.double(a))
        r = _step_back(r, np.where(np.isfinite(a), excess, 0), mode)
    return settle(r)


def _step_back(r: Array, excess: Array, mode: str) -> Array:
    """Move ``r``, whose difference to the exact value has the sign ``excess``, to ``mode``'s side."""
    if mode == "rz":
        wrong, target = np.sign(r) * excess > 0, np.float32(0)
    elif mode == "rm":
        wrong, target = excess > 0, np.float32(-np.inf)
    else:
        wrong, target = excess < 0, np.float32(np.inf)
    return np.where(wrong, np.nextafter(r, target), r)


def _div_approx(a: Array, b: Array) -> Array:
    """Divide as ``div.approx``: for |b| above 2**126 the reciprocal is 0 (PTX ISA, "div")."""
    r = settle(a / b)
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    if not huge.any():
        return r
    return settle(np.where(huge, a * np.copysign(np.float32(0), b), r))


def div(m: Modifiers) -> Alu:
    """``div{.approx, .full}{.ftz}.f32``, ``div.rnd{.ftz}.f32``, ``div.rnd.f64``.

    ``.full`` gives the correctly rounded quotient, which is within its 2 ulp.
    """
    mode = m.one_of("approx", "full", *ROUNDINGS)
    if mode in ROUNDINGS:
        return _no_sat(m, 2, _quotient_f32, doubles.div_f64, mode)
    compute: Compute = _div_approx if mode == "approx" else lambda a, b: settle(a / b)
    ftz = m.take("ftz")
    m.type("f32")
    return Alu(("f32",), ("f32", "f32"), with_flush(compute) if ftz else compute)


def _no_sat(m: Modifiers, count: int, single: Compute, double: Compute, mode: str) -> Alu:
    if "sat" in m.rest():
        raise UnknownForm("does not take .sat")
    return _arithmetic(m, count, single, double, mode)


def reciprocal(m: Modifiers, mode: str) -> Alu:
    """``rcp.rnd{.ftz}.f32``, ``rcp.rnd.f64``."""
    one_f32, one_f64 = np.ones(1, np.float32), np.ones(1)
    return _no_sat(
        m,
        1,
        lambda a, mode: _quotient_f32(one_f32, a, mode),
        lambda a, mode: doubles.div_f64(one_f64, a, mode),
        mode,
    )


def root(m: Modifiers, mode: str) -> Alu:
    """``sqrt.rnd{.ftz}.f32``, ``sqrt.rnd.f64``."""
    return _no_sat(m, 1, _root_f32, doubles.sqrt_f64, mode)


def _on_bits(m: Modifiers, change: Callable[[Array, Any], Array]) -> Alu:
    """Build ``neg`` or ``abs``, which act on the sign bit alone, of NaN too."""
    ftz = m.take("ftz")
    kind = m.type("f32", "f64")
    if ftz and kind.name == "f64":
        raise UnknownForm("does not take .ftz with type .f64")
    sign = _SIGN[kind.bits]

    def compute(a: Array) -> Array:
        return change(a.view(sign.dtype), sign).view(a.dtype)

    return Alu((kind.name,), (kind.name,), with_flush(compute) if ftz else compute)


def neg(m: Modifiers) -> Alu:
    """``neg{.ftz}.f32``, ``neg.f64``."""
    return _on_bits(m, np.bitwise_xor)


def absolute(m: Modifiers) -> Alu:
    """``abs{.ftz}.f32``, ``abs.f64``."""
    return _on_bits(m, lambda bits, sign: bits & ~sign)


def extremum(largest: bool, propagate: bool) -> Compute:
    """Return min or max of f32 or f64: -0 is below +0; NaN loses, or wins if ``propagate``.

    NaN results are left for the caller to make canonical.
    """
    chooser = np.maximum if largest else np.minimum
    combine = np.bitwise_and if largest else np.bitwise_or

    def compute(a: Array, b: Array) -> Array:
        r: Array = chooser(a, b)
        if not propagate and np.isnan(r).any():
            # Not numpy's fmin: to that, a signalling NaN is at times more than a NaN.
            r = np.where(np.isnan(a), b, np.where(np.isnan(b), a, r))
        zero = r == 0
        if not zero.any():
            return r
        word = f"u{r.dtype.itemsize}"
        return np.where(zero & (a == b), combine(a.view(word), b.view(word)).view(r.dtype), r)

    return compute


def with_xorsign(compute: Compute) -> Compute:
    """Return ``compute`` on magnitudes, with the product's sign on its result (``.xorsign.abs``)."""

    def signed(a: Array, b: Array) -> Array:
        sign = np.signbit(a) ^ np.signbit(b)
        r = compute(np.abs(a), np.abs(b))
        return np.where(sign, -r, r)

    return signed


def _extremum(m: Modifiers, largest: bool) -> Alu:
    ftz, propagate = m.take("ftz"), m.take("NaN")
    if m.sources == 3:
        return _extremum_of_three(m, extremum(largest, propagate), ftz)
    xorsign = m.take("xorsign")
    if xorsign and not m.take("abs"):
        raise UnknownForm("takes .xorsign only with .abs")
    kind = m.type("f32", "f64")
    raw = extremum(largest, propagate)
    if kind.name == "f64":
        if ftz or propagate or xorsign:
            raise UnknownForm("takes no modifier with type .f64")
        return Alu(("f64",), ("f64", "f64"), lambda a, b: settle_f64(raw(a, b), a, b))
    if xorsign:
        raw = with_xorsign(raw)

    def compute(a: Array, b: Array) -> Array:
        return settle(raw(a, b))

    return Alu(("f32",), ("f32", "f32"), with_flush(compute) if ftz else compute)


def _extremum_of_three(m: Modifiers, choose: Compute, ftz: bool) -> Alu:
    """Build the forms with three sources, whose ``.abs`` drops all three signs."""
    magnitude = m.take("abs")
    m.type("f32")

    def compute(*inputs: Array) -> Array:
        a, b, c = (np.abs(x) for x in inputs) if magnitude else inputs
        return settle(choose(choose(a, b), c))

    return Alu(("f32",), ("f32", "f32", "f32"), with_flush(compute) if ftz else compute)


def minimum(m: Modifiers) -> Alu:
    """``min{.ftz}{.NaN}{.xorsign.abs}.f32``, ``min.f64``; ``min{.ftz}{.NaN}{.abs}.f32`` of three."""
    return _extremum(m, largest=False)


def maximum(m: Modifiers) -> Alu:
    """``max{.ftz}{.NaN}{.xorsign.abs}.f32``, ``max.f64``; ``max{.ftz}{.NaN}{.abs}.f32`` of three."""
    return _extremum(m, largest=True)


@alu("copysign")
def _copysign(m: Modifiers) -> Alu:
    """``copysign.type d, a, b``: the sign of a on the magnitude of b."""
    kind = m.type("f32", "f64")
    sign = _SIGN[kind.bits]

    def compute(a: Array, b: Array) -> Array:
        word = sign.dtype
        bits: Array = (a.view(word) & sign) | (b.view(word) & ~sign)
        return bits.view(kind.dtype)

    return Alu((kind.name,), (kind.name, kind.name), compute)


def _is_subnormal(x: Array) -> Array:
    small: Array = np.abs(x) < np.finfo(x.dtype).tiny
    nonzero: Array = x != 0
    return small & nonzero


_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: x == x,
    "notanumber": lambda x: x != x,
    "normal": lambda x: np.isfinite(x) & ~_is_subnormal(x),
    "subnormal": _is_subnormal,
}


@alu("testp")
def _testp(m: Modifiers) -> Alu:
    """``testp.op.type``; zero counts as normal."""
    test = _TESTS[m.one_of(*_TESTS)]
    kind = m.type("f32", "f64")
    return Alu(("pred",), (kind.name,), test)
