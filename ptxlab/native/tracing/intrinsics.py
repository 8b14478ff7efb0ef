"""The functions that machine code has a way of its own for: an instruction, or what arrays do with their contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.native.code import Value, number
from ptxlab.native.tracing.array import INTRINSICS, TracedArray
from ptxlab.native.tracing.ufuncs import NotTraced, any_nan
from ptxlab.numbers.formats import BF16, F32, Format
from ptxlab.numbers.rounding import settle_f64

Traced = TracedArray


def _writes(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        INTRINSICS[name] = function
        return function

    return register


def _where(condition: Any, yes: Any, no: Any) -> Traced:
    chosen: Traced = np.where(condition, yes, no)
    return chosen


# ---- floating point -------------------------------------------------------------------------


@_writes("settle")
def _settle(r: Traced) -> Traced:
    """Leave it open: who looks at the bits settles them."""
    return r.made(any_nan(r.value), r.dtype)


@_writes("flush")
def _flush(x: Traced, fmt: Format = F32) -> Traced:
    bits = x.made(x.code.bits(x.value), fmt.word)  # of any NaN: it is none that is flushed
    small = (bits & fmt.word.type(fmt.infinity or 0)) == 0
    zero = bits & fmt.word.type(1 << fmt.sign_bit)
    flushed = _where(small, zero, bits).view(fmt.dtype)
    return x.made(replace(flushed.value, canonical=x.value.canonical), x.dtype)


@_writes("fma_f32_nearest")
def _fma(a: Traced, b: Any, c: Any) -> Traced:
    return a.made(any_nan(a.code.call("fma", *(a.like(x).value for x in (a, b, c)))), a.dtype)


@_writes("fma_f64")
def _fma_f64(a: Traced, b: Any, c: Any, mode: str) -> Any:
    if mode != "rn":
        raise NotTraced
    return settle_f64(_fma(a, b, c), *(a.like(x) for x in (a, b, c)))  # type: ignore[arg-type]


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
    code, x, y = a.code, a.value, a.like(b).value
    first = code.select(code.compare("ogt" if largest else "olt", x, y), x, y)
    # Of equal numbers these are theirs, or a zero's: no NaN is looked at.
    same = code.op("and" if largest else "or", code.bits(x), code.bits(y))
    same = replace(code.convert("bitcast", same, x.type), canonical=first.canonical)
    r = code.select(code.compare("oeq", x, y), same, first)
    for nan, other in ((y, x), (x, y)):
        r = code.select(code.compare("uno", nan, nan), nan if propagate else other, r)
    return a.made(r, a.dtype)


@_writes("selected")
def _selected(condition: Traced, yes: Any, no: Any) -> Traced:
    """Select by the condition, numbers as they are."""
    like = yes if isinstance(yes, TracedArray) else no
    values = (like.like(x).value for x in (yes, no))
    return condition.made(condition.code.select(condition.value, *values), like.dtype)


# ---- integers -------------------------------------------------------------------------------


@_writes("quotient_signed")
def _quotient_signed(a: Traced, b: Any) -> Traced:
    """The smallest number by -1 and what is divided by zero are put aside: a processor would end the process."""
    divisor, least = a.like(b), np.iinfo(a.dtype).min
    zero = divisor == 0
    safe = _where(zero | ((a == least) & (divisor == -1)), a.dtype.type(1), divisor)
    quotient = a.made(a.code.op("sdiv", a.value, safe.value), a.dtype)
    return _where(zero, a.dtype.type(-1), quotient)


@_writes("bit_length")
def _bit_length(x: Traced) -> Any:
    leading = x.code.extended(x.code.call("ctlz", x.value, flags="i1 false"), 32, signed=False)
    return 8 * x.dtype.itemsize - x.made(leading, np.int32)


@_writes("reversed_bits")
def _reversed(x: Traced) -> Traced:
    return x.made(x.code.call("bitreverse", x.value), x.dtype)


@_writes("looked_up")
def _looked_up(index: Traced, table: np.ndarray[Any, Any]) -> Traced:
    """Read a table of the module."""
    numbers = [int(x) for x in table.view(f"u{table.itemsize}")]
    place = index.astype(np.int64).value
    return index.made(index.code.look_up(place, f"i{8 * table.itemsize}", numbers), table.dtype)


# ---- parts of words -------------------------------------------------------------------------


@_writes("split")
def _split(word: Traced, dtype: np.dtype[Any], count: int) -> list[Traced]:
    code, whole, bits = word.code, word.bits().value, 8 * np.dtype(dtype).itemsize
    shifted = (code.op("lshr", whole, number(i * bits, whole.type)) for i in range(count))
    unsigned = f"u{bits // 8}"
    return [
        word.made(code.extended(part, bits, signed=False), unsigned).view(dtype) for part in shifted
    ]


@_writes("joined")
def _joined(first: Traced, *others: Any, dtype: np.dtype[Any]) -> Traced:
    parts: Sequence[Value] = [first.like(x).bits().value for x in (first, *others)]
    bits = 8 * np.dtype(dtype).itemsize
    if bits > 64:
        raise NotTraced
    code, whole = first.code, number(0, f"i{bits}")
    for i, part in enumerate(parts):
        wider = code.extended(part, bits, signed=False)
        whole = code.op("or", whole, code.op("shl", wider, number(i * part.bits, whole.type)))
    return first.made(whole, f"u{bits // 8}").view(dtype)
