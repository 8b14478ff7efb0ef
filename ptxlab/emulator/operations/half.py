"""Half-precision and bfloat16 arithmetic, one value or two packed ones at a time.

PTX ISA, "Half Precision Floating-Point Instructions". Each result is rounded once: sums and
products of two 16-bit numbers are rounded from float32, which is wide enough for the second
rounding to change nothing, and a fused multiply-add is rounded from float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.emulator.operations.floating import extremum, with_xorsign
from ptxlab.emulator.prepare.operation import Alu, Array, Modifiers
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.numbers.floats import (
    BF16,
    F16,
    Format,
    by_block,
    flush,
    has_nan,
    relu,
    saturate,
    two_sum,
    wide_f32_to_bf16,
)

Compute = Callable[..., Array]

_TYPES: dict[str, Format] = {"f16": F16, "f16x2": F16, "bf16": BF16, "bf16x2": BF16}


def build(name: str, count: int, compute: Compute) -> Alu:
    """Return the Alu of an operation on 16-bit values for the scalar or the packed type."""
    if name.endswith("x2"):
        compute = packed(compute, _TYPES[name].dtype)
    return Alu((name,), (name,) * count, lambda *inputs: by_block(compute, *inputs))


def packed(compute: Compute, dtype: np.dtype[np.generic]) -> Compute:
    """Return ``compute`` applied to both halves of 32-bit words."""

    def both(*inputs: Array) -> Array:
        halves = (np.ascontiguousarray(x).view(dtype).reshape(-1, 2) for x in inputs)
        return np.ascontiguousarray(compute(*halves)).view(np.uint32).reshape(-1)

    return both


def _narrow(wide: Array, fmt: Format) -> Array:
    """Round float32 (float16: or float64) to nearest and make NaN canonical."""
    r = wide.astype(fmt.dtype)
    if has_nan(wide):
        r[wide != wide] = fmt.nan_value
    return r


def _single(x: Array) -> Array:
    return x.astype(np.float32)


def _add(fmt: Format) -> Compute:
    return lambda a, b: _narrow(_single(a) + _single(b), fmt)


def _sub(fmt: Format) -> Compute:
    return lambda a, b: _narrow(_single(a) - _single(b), fmt)


def _mul(fmt: Format) -> Compute:
    return lambda a, b: _narrow(_single(a) * _single(b), fmt)


def _finish_bf16(high: Array, low: Array | None = None) -> Array:
    r = wide_f32_to_bf16(high, low)
    bad = high != high
    if bad.any():
        r[bad] = BF16.nan_value
    return r


def _fma(fmt: Format) -> Compute:
    """Fuse in float64: the product is exact there.

    For f16 the rounding of the sum cannot be seen: a sum in f16's range that needs more than 53
    bits has one term too small to reach a tie. For bf16 the error of the sum decides ties.
    """
    if fmt is F16:
        return lambda a, b, c: _narrow(_double(a) * _double(b) + _double(c), fmt)
    return lambda a, b, c: _finish_bf16(*two_sum(_double(a) * _double(b), _double(c)))


def _double(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def _arithmetic(m: Modifiers, count: int, make: Callable[[Format], Compute]) -> Alu:
    """Build an operation with ``.ftz``, ``.sat`` and ``.relu`` where the ISA has them."""
    m.take("rn")
    ftz, sat = m.take("ftz"), m.take("sat")
    use_relu = count == 3 and m.take("relu")
    name = m.type(*_TYPES).name
    fmt = _TYPES[name]
    if fmt is BF16 and (ftz or sat):
        raise UnknownForm(f"takes neither .ftz nor .sat with type .{name}")
    if sat and use_relu:
        raise UnknownForm("takes .sat or .relu, not both")
    compute = _flushed(make(fmt), fmt) if ftz else make(fmt)
    if sat:
        return build(name, count, lambda *inputs: saturate(compute(*inputs)))
    if use_relu:
        return build(name, count, lambda *inputs: relu(compute(*inputs), fmt))
    return build(name, count, compute)


def _flushed(compute: Compute, fmt: Format) -> Compute:
    return lambda *inputs: flush(compute(*(flush(x, fmt) for x in inputs)), fmt)


def add(m: Modifiers) -> Alu:
    """``add{.rn}{.ftz}{.sat}.f16[x2]``, ``add{.rn}.bf16[x2]``."""
    return _arithmetic(m, 2, _add)


def sub(m: Modifiers) -> Alu:
    """``sub{.rn}{.ftz}{.sat}.f16[x2]``, ``sub{.rn}.bf16[x2]``."""
    return _arithmetic(m, 2, _sub)


def mul(m: Modifiers) -> Alu:
    """``mul{.rn}{.ftz}{.sat}.f16[x2]``, ``mul{.rn}.bf16[x2]``."""
    return _arithmetic(m, 2, _mul)


def fma(m: Modifiers) -> Alu:
    """``fma.rn{.ftz}{.sat}.f16[x2]``, ``fma.rn{.ftz}.relu.f16[x2]``, ``fma.rn{.relu}.bf16[x2]``."""
    if "rn" not in m.rest():
        raise UnknownForm("needs .rn")
    return _arithmetic(m, 3, _fma)


def _on_bits(m: Modifiers, change: Callable[[Array], Array]) -> Alu:
    ftz = m.take("ftz")
    name = m.type(*_TYPES).name
    fmt = _TYPES[name]
    if fmt is BF16 and ftz:
        raise UnknownForm(f"does not take .ftz with type .{name}")

    def compute(a: Array) -> Array:
        return change(a.view(np.uint16)).view(fmt.dtype)

    return build(name, 1, _flushed(compute, fmt) if ftz else compute)


def neg(m: Modifiers) -> Alu:
    """``neg{.ftz}.f16[x2]``, ``neg.bf16[x2]``: the sign bit alone, of NaN too."""
    return _on_bits(m, lambda bits: bits ^ np.uint16(0x8000))


def absolute(m: Modifiers) -> Alu:
    """``abs{.ftz}.f16[x2]``, ``abs.bf16[x2]``: the sign bit alone, of NaN too."""
    return _on_bits(m, lambda bits: bits & np.uint16(0x7FFF))


def _extremum(m: Modifiers, largest: bool) -> Alu:
    ftz, propagate, xorsign = m.take("ftz"), m.take("NaN"), m.take("xorsign")
    if xorsign and not m.take("abs"):
        raise UnknownForm("takes .xorsign only with .abs")
    name = m.type(*_TYPES).name
    fmt = _TYPES[name]
    if fmt is BF16 and ftz:
        raise UnknownForm(f"does not take .ftz with type .{name}")
    choose = extremum(largest, propagate)
    if xorsign:
        choose = with_xorsign(choose)

    def compute(a: Array, b: Array) -> Array:
        return _narrow(choose(_single(a), _single(b)), fmt)

    return build(name, 2, _flushed(compute, fmt) if ftz else compute)


def minimum(m: Modifiers) -> Alu:
    """``min{.ftz}{.NaN}{.xorsign.abs}`` of f16, f16x2, bf16 and bf16x2 (no .ftz on bf16)."""
    return _extremum(m, largest=False)


def maximum(m: Modifiers) -> Alu:
    """``max{.ftz}{.NaN}{.xorsign.abs}`` of f16, f16x2, bf16 and bf16x2 (no .ftz on bf16)."""
    return _extremum(m, largest=True)
