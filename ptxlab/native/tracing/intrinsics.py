"""The functions that machine code has a way of its own for: an instruction, or what arrays do with their contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.native import compiler
from ptxlab.native.tracing.array import INTRINSICS, TracedArray
from ptxlab.native.tracing.ufuncs import NotTraced, any_nan
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import BF16, F32, Format
from ptxlab.numbers.rounding import propagate_nan_f64

Traced = TracedArray

_MULTIPLIES = "avx512dq", "avx512vl"
"""The extensions of a processor that multiplies words of 64 bits, in registers of 256 bits."""


def _writes(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        INTRINSICS[name] = function
        return function

    return register


def _where(condition: Any, yes: Any, no: Any) -> Traced:
    chosen: Traced = np.where(condition, yes, no)
    return chosen


def _any_bits(value: VectorValue) -> VectorValue:
    """Return the bits of a number, of a NaN any."""
    return value.bits(f"i{value.width}")


# ---- floating point -------------------------------------------------------------------------


@_writes("canonical_nan")
def _canonical_nan(r: Traced) -> Traced:
    """Leave it open: who looks at the bits settles them."""
    return Traced(any_nan(r.value), r.dtype)


@_writes("flush")
def _flush(x: Traced, fmt: Format = F32) -> Traced:
    bits = Traced(_any_bits(x.value), fmt.word)  # of any NaN: it is none that is flushed
    small = (bits & fmt.word.type(fmt.infinity or 0)) == 0
    zero = bits & fmt.word.type(1 << fmt.sign_bit)
    flushed = _where(small, zero, bits).view(fmt.dtype)
    return Traced(replace(flushed.value, canonical=x.value.canonical), x.dtype)


@_writes("fma_f32_nearest")
def _fma(a: Traced, b: Any, c: Any) -> Traced:
    return Traced(any_nan(a.value.call("fma", a.like(b).value, a.like(c).value)), a.dtype)


@_writes("fma_f64")
def _fma_f64(a: Traced, b: Any, c: Any, mode: str) -> Any:
    if mode != "rn":
        raise NotTraced
    return propagate_nan_f64(_fma(a, b, c), *(a.like(x) for x in (a, b, c)))  # type: ignore[arg-type]


@_writes("wide_f32_to_bf16")
def _wide_to_brain(high: Traced, low: Any = None) -> Any:
    """Round to float32, and where that is a tie of bfloat16 step to the side of the exact value."""
    single = high.astype(np.float32)
    rest = high - single.astype(np.float64)
    if low is not None:
        rest = rest + low
    bits = single.bits()
    tie = (bits & np.uint32(0xFFFF)) == 0x8000
    inward = (rest < 0) != (single < 0)
    stepped = np.where(inward, bits - np.uint32(1), bits + np.uint32(1))
    exact = np.where(tie & ((rest < 0) | (rest > 0)), stepped, bits).view(np.float32)
    return exact.astype(BF16.dtype)


@_writes("extreme")
def _extreme(a: Traced, b: Any, largest: bool, propagate: bool) -> Traced:
    x, y = a.value, a.like(b).value
    first = x.is_("ogt" if largest else "olt", y).choose(x, y)
    # Of equal numbers these are theirs, or a zero's: no NaN is looked at.
    words = _any_bits(x).apply("and" if largest else "or", _any_bits(y))
    same = replace(words.bits(x.kind), canonical=first.canonical)
    r = x.is_("oeq", y).choose(same, first)
    for nan, other in ((y, x), (x, y)):
        r = nan.is_("uno", nan).choose(nan if propagate else other, r)
    return Traced(r, a.dtype)


@_writes("selected")
def _selected(condition: Traced, yes: Any, no: Any) -> Traced:
    """Select by the condition, numbers as they are."""
    like = yes if isinstance(yes, TracedArray) else no
    values = (like.like(x).value for x in (yes, no))
    return Traced(condition.value.choose(*values), like.dtype)


# ---- integers -------------------------------------------------------------------------------


@_writes("quotient_signed")
def _quotient_signed(a: Traced, b: Any) -> Traced:
    """The smallest number by -1 and what is divided by zero are put aside: a processor would end the process."""
    divisor, least = a.like(b), np.iinfo(a.dtype).min
    zero = divisor == 0
    safe = _where(zero | ((a == least) & (divisor == -1)), a.dtype.type(1), divisor)
    quotient = Traced(a.value.apply("sdiv", safe.value), a.dtype)
    return _where(zero, a.dtype.type(-1), quotient)


@_writes("low_product")
def _low_product(a: Traced, b: Any) -> Any:
    """Multiply with the instruction of AVX-512 where there is one: LLVM, which may use none, takes eight."""
    x, y = a.value, a.like(b).value
    if x.is_literal or y.is_literal or not (x.lanes or y.lanes) or not compiler.has(*_MULTIPLIES):
        return a * b
    return Traced(x.assembled("vpmullq $2, $1, $0", y), a.dtype)


@_writes("bit_length")
def _bit_length(x: Traced) -> Any:
    leading = x.value.call("ctlz", flags="i1 false").extended(32, signed=False)
    return 8 * x.dtype.itemsize - Traced(leading, np.int32)


@_writes("reversed_bits")
def _reversed(x: Traced) -> Traced:
    return Traced(x.value.call("bitreverse"), x.dtype)


@_writes("looked_up")
def _looked_up(index: Traced, table: np.ndarray[Any, Any]) -> Traced:
    """Read a table of the module."""
    numbers = [int(x) for x in table.view(f"u{table.itemsize}")]
    at = index.astype(np.int64).value
    words = at.looked_up(f"i{8 * table.itemsize}", numbers)
    return Traced(words, f"u{table.itemsize}").view(table.dtype)


# ---- parts of words -------------------------------------------------------------------------


@_writes("split")
def _split(word: Traced, dtype: np.dtype[Any], count: int) -> list[Traced]:
    whole, bits = word.bits().value, 8 * np.dtype(dtype).itemsize
    parts = [(whole >> i * bits).extended(bits, signed=False) for i in range(count)]
    return [Traced(part, f"u{bits // 8}").view(dtype) for part in parts]


@_writes("joined")
def _joined(first: Traced, *others: Any, dtype: np.dtype[Any]) -> Traced:
    parts = [first.like(x).bits().value for x in (first, *others)]
    bits = 8 * np.dtype(dtype).itemsize
    if bits > 64:
        raise NotTraced
    whole, *rest = (part.extended(bits, signed=False) for part in parts)
    for i, part in enumerate(rest, 1):
        whole = whole | part << i * parts[0].width
    return Traced(whole, f"u{bits // 8}").view(dtype)
