"""Arrays for a reference in NumPy that carry how far from them a right kernel may be.

They are what a reference is given: ``A @ B``, ``np.exp(x - x.max(axis=1, keepdims=True))``, slices, ``np.where``. What
has no rule is refused by name, as no bound would follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ptxlab.errors import Unsupported
from ptxlab.judge.rounding import FUNCTION_UNITS, Bounded, Rounding

_SLOPE = {"sin": 1.0, "cos": 1.0}
"""Functions that are not monotone, and how steep they are at most."""

_EXTREMES = ("max", "min", "amax", "amin")
_CHOICES = ("maximum", "minimum", "absolute", "fabs", "fmax", "fmin")
_SIGNS = ("positive", "negative", "copysign")
_OF_SHAPES = ("zeros_like", "ones_like", "full_like", "empty_like", "shape", "ndim", "size")
_JOINS = ("concatenate", "stack", "vstack", "hstack")
_PRODUCTS = ("dot", "inner", "outer", "vdot", "convolve", "correlate", "tensordot", "einsum")
_SUMS = ("sum", "mean", "cumsum", "trace")
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_MOVES = (
    "reshape", "transpose", "swapaxes", "moveaxis", "ravel", "squeeze", "expand_dims", "broadcast_to",
    "repeat", "tile", "flip", "roll", "copy", "diagonal", "diag", "tril", "triu", "take", "ascontiguousarray",
)  # fmt: skip
"""Functions of numpy by what is known of them."""


class BoundedArray(NDArrayOperatorsMixin):
    """An array of a reference: its ``number``s, and the ``rules`` that say what becomes of them."""

    __array_priority__ = 1000

    def __init__(self, rules: Rounding, number: Bounded) -> None:
        self.rules, self.number = rules, number

    shape = property(lambda self: self.number.value.shape)
    ndim = property(lambda self: self.number.value.ndim)
    size = property(lambda self: self.number.value.size)
    dtype = property(lambda self: self.number.value.dtype)
    T = property(lambda self: self._moved(np.transpose))

    def __len__(self) -> int:
        return len(self.number.value)

    def __getitem__(self, key: Any) -> BoundedArray:
        return self._moved(lambda array: array[key])

    def astype(self, dtype: Any, **_: Any) -> BoundedArray:
        """Round to a type that has fewer digits; a wider one takes all there are."""
        if np.dtype(dtype).kind in "iub":
            raise Unsupported(
                f"a reference makes {np.dtype(dtype)} of rounded numbers: no bound follows"
            )
        return BoundedArray(self.rules, self.rules.stored(self.number, np.dtype(dtype)))

    def __getattr__(self, name: str) -> Any:
        """Return a method of arrays, which is the function of the same name."""
        if name.startswith("_") or not hasattr(np, name):
            raise AttributeError(name)
        return partial(getattr(np, name), self)

    def reshape(self, *shape: Any, **more: Any) -> BoundedArray:
        return self._moved(lambda array: array.reshape(*shape, **more))

    def transpose(self, *axes: int) -> BoundedArray:
        return self._moved(lambda array: array.transpose(*axes))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Unsupported("a reference hands its arrays to what is not NumPy: no bound follows")

    def _moved(self, f: Callable[..., Any]) -> BoundedArray:
        return BoundedArray(self.rules, self.rules.move(f, self.number))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        name = ufunc.__name__
        reduces = {"add": np.sum, "maximum": np.max, "minimum": np.min}
        if method == "reduce" and name in reduces:
            return self.__array_function__(
                reduces[name], (), inputs, {k: v for k, v in more.items() if v is not None}
            )
        if method != "__call__" or set(more) - {"where"} or more.get("where", True) is not True:
            raise _no_rule(f"{name}.{method}")
        rules, numbers = self.rules, [self._number(each) for each in inputs]
        result = _elementwise(rules, ufunc, name, numbers)
        return BoundedArray(rules, result) if isinstance(result, Bounded) else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name, rules = function.__name__, self.rules
        if name in _OF_SHAPES:
            return function(args[0].number.value, *args[1:], **kwargs)
        if name == "where":
            condition, *others = args
            chosen = partial(np.where, condition)
            return BoundedArray(rules, rules.move(chosen, *map(self._number, others)))
        if name in _JOINS:
            numbers = [self._number(each) for each in args[0]]
            joined = rules.move(lambda *arrays: function(arrays, *args[1:], **kwargs), *numbers)
            return BoundedArray(rules, joined)
        if name in _PRODUCTS:
            return BoundedArray(rules, self._product(function, args, kwargs))
        if name in ("var", "std"):
            return self._spread(name, args[0], **kwargs)
        if any(isinstance(each, BoundedArray) for each in (*args[1:], *kwargs.values())):
            raise _no_rule(name)
        return BoundedArray(rules, self._changed(function, name, args, kwargs))

    def _changed(self, function: Any, name: str, args: Any, kwargs: Any) -> Bounded:
        """Return what a function of one array makes of its numbers."""
        number, rest = self._number(args[0]), args[1:]

        def f(array: Any) -> Any:
            return function(array, *rest, **kwargs)

        if name in _MOVES:
            return self.rules.move(f, number)
        if name in _SUMS:
            results = number.value.size if name == "cumsum" else 1
            terms = number.value.size // max(np.size(f(number.value)), 1) * results
            return self.rules.total(f, number, terms)
        if name in _EXTREMES:
            return Bounded(f(number.value), np.max(number.error, *rest, **kwargs), number.dtype)
        if name == "clip":
            return self.rules.choose(f, number)
        raise _no_rule(name)

    def _spread(
        self,
        name: str,
        array: BoundedArray,
        axis: Any = None,
        ddof: int = 0,
        keepdims: bool = False,
    ) -> Any:
        off = array - array.mean(axis=axis, keepdims=True)
        total = (off * off).sum(axis=axis, keepdims=keepdims)
        spread = total / (array.size // max(total.size, 1) - ddof)
        return np.sqrt(spread) if name == "std" else spread

    def _product(self, function: Any, args: Any, kwargs: Any) -> Bounded:
        """Return sums of products; ones in place of all numbers tell how many are in each."""
        told = [each for each in args if isinstance(each, str)]

        def f(*arrays: Any) -> Any:
            return function(*told, *arrays, **kwargs)

        numbers = [self._number(each) for each in args if not isinstance(each, str)]
        if len(numbers) == 1:
            return self.rules.total(f, numbers[0], numbers[0].value.size)
        a, b = numbers
        terms = int(np.max(f(np.ones(a.value.shape), np.ones(b.value.shape)), initial=1))
        return self.rules.product(f, a, b, terms)

    def _number(self, value: Any) -> Bounded:
        if isinstance(value, BoundedArray):
            return value.number
        return self.rules.constant(np.asarray(value, np.float64))


def _elementwise(rules: Rounding, ufunc: Any, name: str, numbers: list[Bounded]) -> Any:
    if name in _COMPARISONS:
        a, b = numbers
        with np.errstate(invalid="ignore"):
            undecided = (abs(a.value - b.value) <= a.error + b.error) & (a.error + b.error > 0)
        if undecided.any():
            raise Unsupported(
                f"a reference compares rounded numbers ({name}), and rounding decides: no bound follows"
            )
        return ufunc(a.value, b.value)
    match name:
        case "add":
            return rules.add(numbers[0], numbers[1])
        case "subtract":
            return rules.add(numbers[0], numbers[1], sign=-1.0)
        case "multiply":
            return rules.multiply(*numbers)
        case "divide":
            return rules.divide(*numbers)
        case "square":
            return rules.multiply(numbers[0], numbers[0])
        case "reciprocal":
            return rules.divide(Bounded(1.0, 0.0, numbers[0].dtype), numbers[0])
        case "matmul":
            a, b = numbers
            return rules.product(np.matmul, a, b, a.value.shape[-1])
        case "isnan" | "isfinite" | "isinf" | "signbit":
            return ufunc(numbers[0].value)
        case "power" if numbers[1].value.size == 1 and not numbers[1].error.any():
            exponent = float(numbers[1].value)
            if exponent == 2:
                return rules.multiply(numbers[0], numbers[0])
            return rules.function(name, lambda x: np.power(x, exponent), numbers[0])
    if name in _SIGNS:
        return Bounded(
            ufunc(*(number.value for number in numbers)), numbers[0].error, numbers[0].dtype
        )
    if name in _CHOICES:
        return rules.choose(ufunc, *numbers)
    if name in FUNCTION_UNITS and len(numbers) == 1:
        return rules.function(name, ufunc, numbers[0], _SLOPE.get(name))
    raise _no_rule(name)


def _no_rule(name: str) -> Unsupported:
    return Unsupported(
        f"no bound is known for numpy's {name} in a reference",
        hint="write it with arithmetic, matmul, einsum, sum, mean, max, exp, log, sqrt, tanh and the like",
    )
