"""Half-precision and bfloat16 arithmetic, one value or two packed ones at a time.

PTX ISA, "Half Precision Floating-Point Instructions". Each result is rounded once: sums and
products of two 16-bit numbers are rounded from float32, which is wide enough for the second
rounding to change nothing, and a fused multiply-add is rounded from float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.emulator.operations.floating import extremum, floating, with_flush, with_xorsign
from ptxlab.emulator.prepare.refused import refuse
from ptxlab.emulator.prepare.row import Array
from ptxlab.numbers.formats import (
    BF16,
    F16,
    Format,
)
from ptxlab.numbers.rounding import (
    by_block,
    narrow,
    saturate,
    two_sum,
    wide_f32_to_bf16,
)
from ptxlab.numbers.rounding import (
    relu as not_negative,
)

Compute = Callable[..., Array]

_TYPES: dict[str, Format] = {"f16": F16, "f16x2": F16, "bf16": BF16, "bf16x2": BF16}


def by_half(T: str, compute: Compute) -> Compute:
    """Return an operation on 16-bit values for their type, or for the packed one."""
    if T.endswith("x2"):
        compute = packed(compute, _TYPES[T].dtype)
    return lambda *inputs: by_block(compute, *inputs)


def packed(compute: Compute, dtype: np.dtype[np.generic]) -> Compute:
    """Return ``compute`` applied to both halves of 32-bit words."""

    def both(*inputs: Array) -> Array:
        halves = (np.ascontiguousarray(x).view(dtype).reshape(-1, 2) for x in inputs)
        return np.ascontiguousarray(compute(*halves)).view(np.uint32).reshape(-1)

    return both


def _single(x: Array) -> Array:
    return x.astype(np.float32)


def _add(fmt: Format) -> Compute:
    return lambda a, b: narrow(_single(a) + _single(b), fmt)


def _sub(fmt: Format) -> Compute:
    return lambda a, b: narrow(_single(a) - _single(b), fmt)


def _mul(fmt: Format) -> Compute:
    return lambda a, b: narrow(_single(a) * _single(b), fmt)


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
        return lambda a, b, c: narrow(_double(a) * _double(b) + _double(c), fmt)
    return lambda a, b, c: _finish_bf16(*two_sum(_double(a) * _double(b), _double(c)))


def _double(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def _arithmetic(
    make: Callable[[Format], Compute],
    T: str,
    ftz: str = "",
    sat: str = "",
    relu: str = "",
    rn: str = "",
) -> Compute:
    """Return an operation under its modifiers; ``.rn`` is the only rounding there is."""
    fmt = _TYPES[T]
    compute = with_flush(make(fmt), fmt) if ftz else make(fmt)
    if sat:
        return by_half(T, lambda *inputs: saturate(compute(*inputs)))
    if relu:
        return by_half(T, lambda *inputs: not_negative(compute(*inputs), fmt))
    return by_half(T, compute)


_F16, _BF16 = "f16 f16x2", "bf16 bf16x2"

for _opcode, _make in (("add", _add), ("sub", _sub), ("mul", _mul)):
    _row = partial(floating, make=partial(_arithmetic, _make), work=1)
    _row(_opcode + "{.rn}{.ftz}{.sat}.<T>", "T T -> T", T=_F16)
    _row(_opcode + "{.rn}.<T>", "T T -> T", needs="sm_90 7.8", T=_BF16)
_row = partial(floating, make=partial(_arithmetic, _fma), work=2)
_row("fma.rn{.ftz}{.sat}.<T>", "T T T -> T", T=_F16)
_row("fma.rn{.ftz}.<relu>.<T>", "T T T -> T", needs="sm_80 7.0", relu="relu", T=_F16)
_row("fma.rn{.relu}.<T>", "T T T -> T", needs="sm_80 7.0", T=_BF16)

refuse("fma.rn.oob", "the PTX ISA does not give the bit pattern of the NaN it looks for")
for _mode in ("rz", "rm", "rp"):
    for _T in _BF16.split():
        refuse(
            f"fma.{_mode}.{_T}",
            "not in the PTX ISA, though ptxas takes it, and makes f16 code of it",
        )


def _on_sign(change: Callable[[Array], Array], T: str, ftz: str = "") -> Compute:
    """Return ``neg`` or ``abs``: the sign bit alone, of NaN too."""
    fmt = _TYPES[T]

    def compute(a: Array) -> Array:
        return change(a.view(np.uint16)).view(fmt.dtype)

    return by_half(T, with_flush(compute, fmt) if ftz else compute)


_negated = partial(_on_sign, lambda bits: bits ^ np.uint16(0x8000))
_magnitude = partial(_on_sign, lambda bits: bits & np.uint16(0x7FFF))
floating("neg{.ftz}.<T>", "T -> T", make=_negated, T=_F16)
floating("abs{.ftz}.<T>", "T -> T", make=_magnitude, needs="sm_75 6.5", T=_F16)
floating("neg.<T>", "T -> T", make=_negated, needs="sm_80 7.0", T=_BF16)
floating("abs.<T>", "T -> T", make=_magnitude, needs="sm_80 7.0", T=_BF16)


def _extremum(largest: bool, T: str, NaN: str, ftz: str = "", xorsign: str = "") -> Compute:
    fmt = _TYPES[T]
    choose = extremum(largest, bool(NaN))
    if xorsign:
        choose = with_xorsign(choose)

    def compute(a: Array, b: Array) -> Array:
        return narrow(choose(_single(a), _single(b)), fmt)

    return by_half(T, with_flush(compute, fmt) if ftz else compute)


for _opcode, _largest in (("min", False), ("max", True)):
    _make = partial(_extremum, _largest)
    _signed = partial(_make, xorsign="xorsign")
    for _types, _ftz in ((_F16, "{.ftz}"), (_BF16, "")):
        _start = f"{_opcode}{_ftz}{{.NaN}}"
        floating(_start + ".<T>", "T T -> T", make=_make, needs="sm_80 7.0", T=_types)
        floating(_start + ".xorsign.abs.<T>", "T T -> T", make=_signed, needs="sm_86 7.2", T=_types)
