"""A value of machine code that numpy takes for an array: what numpy's functions do to it is written down.

numpy hands its functions over (NEP 13, NEP 18). Where an array's contents decide what Python does next there is
nothing to write, and NotTraced is raised: a shortcut must ask ``some`` or ``every`` first, and take the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ptxlab.arrays import Symbolic
from ptxlab.native.builder import LANES
from ptxlab.native.compiler import has_halves
from ptxlab.native.tracing.ufuncs import BITWISE, WRITTEN, NotTraced, any_nan, constant, llvm_type
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import BF16, F16, F32, F64

INTRINSICS: dict[str, Callable[..., Any]] = {}
"""What has a way of its own, by the name of the function (``ptxlab.arrays.intrinsic``)."""

_BRAIN_FRACTION = F32.fraction_bits - BF16.fraction_bits
_DOUBLE_FRACTION = F64.fraction_bits - F32.fraction_bits


class TracedArray(Symbolic, NDArrayOperatorsMixin):
    """What stands for an array of all threads."""

    shape, ndim, size = (LANES,), 1, LANES

    def __init__(self, value: VectorValue, dtype: Any) -> None:
        self.value, self.dtype = value, np.dtype(dtype)
        self.known = value.constant if self.dtype.kind in "iu" else None

    def __len__(self) -> int:
        return LANES

    def __bool__(self) -> bool:
        raise NotTraced

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotTraced

    def __getitem__(self, at: int) -> int:
        """Return the number that all threads have, where it is known."""
        if self.known is None:
            raise NotTraced
        return self.known

    def intrinsic(self, name: str, *others: Any, **options: Any) -> Any:
        return INTRINSICS[name](self, *others, **options)

    def like(self, x: Any, dtype: Any = None) -> TracedArray:
        """Return anything that stands beside it as a traced array, of the same dtype if none is given."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        if isinstance(x, TracedArray):
            return x.astype(dtype)
        return TracedArray(constant(self.value.code, x, dtype), dtype)

    def bits(self) -> TracedArray:
        return self.view(f"u{self.dtype.itemsize}")

    # ---- what arrays have -------------------------------------------------------------------

    def view(self, dtype: Any) -> TracedArray:
        dtype = np.dtype(dtype)
        if dtype.itemsize != self.dtype.itemsize or "b" in {dtype.kind, self.dtype.kind}:
            if dtype == self.dtype:
                return self
            raise NotTraced
        return TracedArray(self.value.as_kind(llvm_type(dtype)), dtype)

    def copy(self) -> TracedArray:
        return self

    def astype(self, dtype: Any, copy: bool = True) -> TracedArray:
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if self.dtype in _WIDENED:
            return TracedArray(_WIDENED[self.dtype](self.value), np.float32).astype(dtype)
        if dtype in _NARROWED:
            return TracedArray(_NARROWED[dtype](self._single(dtype).value), dtype)
        if not (_has_instructions(self.dtype) and _has_instructions(dtype)):
            raise NotTraced
        return TracedArray(self._converted(dtype), dtype)

    def _single(self, narrower: np.dtype[Any]) -> TracedArray:
        """Return it in f32, on the way to fewer bits."""
        if self.dtype == np.float64 and narrower == F16.dtype:
            odd: TracedArray = odd_single(self)
            return odd.astype(np.float32)
        if self.dtype != np.float32:
            raise NotTraced  # it would be rounded twice
        return self

    def _converted(self, to: np.dtype[Any]) -> VectorValue:
        value, kind, source = self.value, llvm_type(to), self.dtype
        match source.kind, to.kind:
            case "f", "f":
                opcode = "fpext" if to.itemsize > source.itemsize else "fptrunc"
                return any_nan(value.to(opcode, kind))
            case "f", "i" | "u":
                # Beyond the range it is anything, but always the same.
                return value.to("fptosi" if to.kind == "i" else "fptoui", kind).frozen()
            case _, "f":
                return value.to("sitofp" if source.kind == "i" else "uitofp", kind)
            case _, "b":
                return value.is_("une" if source.kind == "f" else "ne", 0)
        return value.extended(8 * to.itemsize, signed=source.kind == "i")

    # ---- numpy's own ways in ----------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        write = WRITTEN.get(ufunc)
        if write is None or method != "__call__" or options.keys() - {"dtype"}:
            raise NotTraced
        kinds = [_kind(x) for x in given]
        if "dtype" in options:
            kinds = [np.dtype(options["dtype"])] * len(given)
        *wanted, result = ufunc.resolve_dtypes((*kinds, None))
        if wanted[0] in _WIDENED and ufunc not in BITWISE:  # as numpy does: in f32, and back
            single = ufunc(*(self.like(x, wanted[0]).astype(np.float32) for x in given))
            return single.astype(result) if result in _NARROWED else single
        if not (_has_instructions(wanted[0]) or wanted[0] in _WIDENED):
            raise NotTraced
        values = [self.like(x, kind).value for x, kind in zip(given, wanted, strict=True)]
        return TracedArray(write(wanted[0], *values), result)

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], options: Any
    ) -> Any:
        if options or function not in (np.where, np.clip) or len(args) != 3:
            raise NotTraced
        if function is np.clip:
            x, low, high = args
            return np.minimum(np.maximum(x, low), high)
        condition, *choices = args
        dtype = np.result_type(*(x.dtype if isinstance(x, TracedArray) else x for x in choices))
        yes, no = (self.like(x, dtype) for x in choices)
        if dtype == np.float64 and (yes.value.is_literal or no.value.is_literal):
            yes, no = yes.bits(), no.bits()  # LLVM may return any NaN for another
        holds = self.like(condition, bool).value
        return TracedArray(holds.choose(yes.value, no.value), yes.dtype).view(dtype)


def _kind(x: Any) -> Any:
    """Return the dtype of what a ufunc is given, of one of Python's numbers its class."""
    return type(x) if type(x) in (int, float) else np.dtype(bool) if type(x) is bool else x.dtype


def _has_instructions(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biu" or dtype in (np.float32, np.float64)


# ---- numbers of 16 bits, which are their bits here ------------------------------------------


def single_from_half(words: VectorValue) -> VectorValue:
    """Widen; a NaN keeps its sign, and is quiet."""
    if not has_halves():
        raise NotTraced
    return words.bits("half").to("fpext", "float")


def single_from_brain(words: VectorValue) -> VectorValue:
    return (words.extended(32, signed=False) << _BRAIN_FRACTION).bits("float")


def half_from_single(x: VectorValue) -> VectorValue:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    if not has_halves():
        raise NotTraced
    return x.is_("uno", x).choose(F16.nan, x.to("fptrunc", "half").bits("i16"))


def brain_from_single(x: VectorValue) -> VectorValue:
    """Round to the nearest, ties to even; NaN becomes the one that operations return."""
    bits = x.bits("i32")
    even = (bits >> _BRAIN_FRACTION) & 1
    rounded = (bits + ((1 << _BRAIN_FRACTION - 1) - 1) + even) >> _BRAIN_FRACTION
    return x.is_("uno", x).choose(BF16.nan, rounded.to("trunc", "i16"))


def odd_single(x: Any) -> Any:
    """Round float64 to float32's bits, to odd: a later rounding to fewer bits is not changed by it.

    It is a function of arrays, or what stands for one. Of numbers that are subnormal in float32 more bits are left.
    """
    bits, below = x.view(np.uint64), np.uint64((1 << _DOUBLE_FRACTION) - 1)
    sticky = ((bits & below) + below) & (below + np.uint64(1))
    return ((bits | sticky) & ~below).view(np.float64)


_WIDENED = {F16.dtype: single_from_half, BF16.dtype: single_from_brain}
_NARROWED = {F16.dtype: half_from_single, BF16.dtype: brain_from_single}
