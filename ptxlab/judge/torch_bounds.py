"""What a module of PyTorch computes, in float64, with how far from it a right kernel may be.

The module is traced to the operations of aten that it is made of, most of them taken apart further by PyTorch's own
decompositions; what is left has a rule in the table below, or is refused by its name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ptxlab.errors import Unsupported
from ptxlab.judge.rounding import Bounded, Rounding

_TAKEN_APART = (
    "gelu", "elu", "hardtanh", "leaky_relu", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
    "native_batch_norm", "addmm", "addmv", "baddbmm", "linalg_vector_norm", "mse_loss", "smooth_l1_loss", "huber_loss",
    "softplus", "logsumexp", "var_mean", "std_mean", "addcmul", "addcdiv", "lerp", "hardsigmoid", "hardswish",
    "silu", "mish", "log_sigmoid_forward", "threshold", "binary_cross_entropy", "nll_loss_forward",
)  # fmt: skip
"""What PyTorch takes for an operation of its core, and can take apart all the same."""


def expected(module: Any, inputs: Sequence[Any], rules: Rounding) -> list[Bounded]:
    """Return what a module in float64 makes of inputs, an array each. Raises Unsupported for what has no rule."""
    table = {**core_aten_decompositions(), **dict(_taken_apart())}
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        graph = make_fx(lambda *tensors: module(*tensors), decomposition_table=table)(*inputs)
        interpreter = _BoundedInterpreter(graph, rules)
        result = interpreter.run(*(interpreter.exact(each) for each in inputs))
    answers = result if isinstance(result, list | tuple) else [result]
    return [interpreter.number(each) for each in answers]


def _taken_apart() -> Iterator[tuple[Any, Any]]:
    for name in _TAKEN_APART:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            if (op := getattr(packet, overload)) in decomposition_table:
                yield op, decomposition_table[op]


class _BoundedInterpreter(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs the operations of a graph on bounded numbers, by the rules for arithmetic."""

    def __init__(self, graph: Any, rules: Rounding) -> None:
        super().__init__(graph)
        self.rules = rules

    def exact(self, value: Any) -> Any:
        """Return a tensor of numbers that are given, and whatever else as it is."""
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return Bounded(value, torch.zeros_like(value), self.rules.dtype)
        return value

    def number(self, value: Any) -> Bounded:
        if isinstance(value, Bounded):
            if value.value.dtype is not torch.bool:
                return value
            return Bounded(value.value.double(), value.error.double(), self.rules.dtype)
        if isinstance(value, torch.Tensor):
            zeros = torch.zeros(value.shape, dtype=torch.float64)
            return Bounded(value.double(), zeros, self.rules.dtype)
        told = self.rules.constant(float(value))
        held, error = (
            torch.tensor(float(each), dtype=torch.float64) for each in (told.value, told.error)
        )
        return Bounded(held, error, told.dtype)

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        """Return a parameter or buffer of the module, which is exact."""
        return self.exact(super().get_attr(target, args, kwargs))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(each, Bounded) for each in _flat([args, kwargs])):
            return target(*args, **kwargs)
        name = target.overloadpacket.__name__
        rule = _RULES.get(name) or _RULES.get(name.removesuffix("_"))
        if rule is None:
            raise _no_rule(name)
        return rule(self, target, args, kwargs)


Rule = Callable[[_BoundedInterpreter, Any, Any, Any], Any]
"""What becomes of the numbers among the arguments of an operation."""


def _flat(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [each for value in values for each in _flat(value)]
    return _flat(list(values.values())) if isinstance(values, dict) else [values]


def _mapped(f: Callable[[Any], Any], values: Any) -> Any:
    if isinstance(values, list | tuple):
        return type(values)(_mapped(f, each) for each in values)
    return f(values)


def _values(values: Any) -> Any:
    return _mapped(lambda each: each.value if isinstance(each, Bounded) else each, values)


def _of_first(target: Any, args: Any, kwargs: Any) -> Callable[[Any], Any]:
    """Return an operation as a function of its first argument."""
    return lambda value: target(value, *_values(args[1:]), **kwargs)


def _no_rule(name: str) -> Unsupported:
    return Unsupported(f"no bound is known for {name} of PyTorch in a reference")


# ---- the rules ------------------------------------------------------------------------------------


def _move(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Any:
    """Return numbers moved, and their bounds in the same way; what is put beside them is exact."""
    padded = target.overloadpacket.__name__ == "constant_pad_nd"
    given = {**kwargs, "dtype": torch.float64} if kwargs.get("dtype") else kwargs

    def error(each: Any) -> Any:
        if isinstance(each, Bounded):
            return each.error
        floats = isinstance(each, torch.Tensor) and each.is_floating_point()
        return torch.zeros_like(each) if floats else each

    value = target(*_values(args), **given)
    errors = target(*_mapped(error, args[:2] if padded else args), **given)
    dtypes = {each.dtype for each in _flat(args) if isinstance(each, Bounded)}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if isinstance(value, list | tuple):
        return [Bounded(v, e, dtype) for v, e in zip(value, errors, strict=True)]
    return Bounded(value, errors, dtype)


def _of_shape(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Any:
    return target(*_values(args), **kwargs)


def _compare(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Any:
    """Return a comparison, with where rounding decides it, if anywhere."""
    a, b = (self.number(each) for each in args)
    undecided = (abs(a.value - b.value) <= a.error + b.error) & (a.error + b.error > 0)
    value = target(*_values(args))
    return Bounded(value, undecided) if undecided.any() else value


def _decide(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Any:
    if any(each.error.any() for each in _flat(args) if isinstance(each, Bounded)):
        raise _no_rule(f"{target.overloadpacket.__name__} of rounded numbers")
    return target(*_values(args), **kwargs)


def _where(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    """Return what is chosen; where rounding decides, it may be the other."""
    condition, yes, no = args[0], self.number(args[1]), self.number(args[2])
    decided = condition.value if isinstance(condition, Bounded) else condition
    error = torch.where(decided, yes.error, no.error)
    if isinstance(condition, Bounded):
        either = torch.maximum(*torch.broadcast_tensors(yes.error, no.error))
        error = torch.where(condition.error, either + abs(yes.value - no.value), error)
    return Bounded(torch.where(decided, yes.value, no.value), error)


def _add(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    a, b = (self.number(each) for each in args[:2])
    name, alpha = target.overloadpacket.__name__.removesuffix("_"), kwargs.get("alpha", 1)
    if alpha != 1:
        b = self.rules.multiply(b, self.number(float(alpha)))
    if name == "rsub":
        return self.rules.add(b, a, -1.0)
    return self.rules.add(a, b, -1.0 if name == "sub" else 1.0)


def _multiply(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    return self.rules.multiply(self.number(args[0]), self.number(args[1]))


def _divide(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    a, b = (1.0, args[0]) if len(args) == 1 else args[:2]
    return self.rules.divide(self.number(a), self.number(b))


def _negate(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    x = self.number(args[0])
    return Bounded(-x.value, x.error, x.dtype)


def _power(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    x, exponent = self.number(args[0]), args[1]
    if not isinstance(exponent, int | float):
        raise _no_rule("pow of two tensors")
    if exponent == 2:
        return self.rules.multiply(x, x)
    return self.rules.function("power", lambda value: torch.pow(value, exponent), x)


def _function(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    name = target.overloadpacket.__name__.removesuffix("_")
    slope = 1.0 if name in ("sin", "cos") else None
    f = _of_first(target, args, kwargs)
    return self.rules.function(_NUMPY_NAMES.get(name, name), f, self.number(args[0]), slope)


def _choose(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    """Return the larger, the smaller, or what is within bounds that are exact."""
    numbers = [self.number(each) for each in args if isinstance(each, Bounded | torch.Tensor)]
    rest = args[len(numbers) :]
    return self.rules.choose(lambda *values: target(*values, *rest, **kwargs), *numbers)


def _extreme(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Any:
    """Return the largest or smallest of several, with where it is if that is asked for: no further off than the worst."""
    x, name = self.number(args[0]), target.overloadpacket.__name__
    value = _of_first(target, args, kwargs)(x.value)
    if name.startswith("max_pool"):
        worst = _of_first(target, args, kwargs)(x.error)
    else:
        dims = args[1] if len(args) > 1 else []
        keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
        worst = torch.amax(x.error, dims if isinstance(dims, list) else [dims], keepdim=keep)
    if isinstance(value, tuple):
        error = worst[0] if isinstance(worst, tuple) else worst
        return Bounded(value[0], error, x.dtype), value[1]
    return Bounded(value, worst, x.dtype)


def _sum(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    """Return sums or means; how many numbers are in each, ones in their place tell, or the smallest share of one."""
    x, f = self.number(args[0]), _of_first(target, args, kwargs)
    if "sum" in target.overloadpacket.__name__:
        terms = f(torch.ones_like(x.value)).max()
    else:
        alone = torch.zeros_like(x.value)
        alone[(-1,) * alone.dim()] = 1
        terms = 1 / f(alone).max().clamp(min=1 / x.value.numel())
    return self.rules.total(f, x, math.ceil(float(terms)))


def _product(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    a, b = (self.number(each) for each in args[:2])
    return self.rules.product(target, a, b, a.value.shape[-1])


def _convolution(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    x, weight, bias = self.number(args[0]), self.number(args[1]), args[2]

    def f(a: Any, b: Any) -> Any:
        return target(a, b, None, *args[3:])

    terms = int(f(torch.ones_like(x.value[:1]), torch.ones_like(weight.value)).max())
    sums = self.rules.product(f, x, weight, terms)
    if bias is None:
        return sums
    shape = (1, -1, *[1] * (x.value.dim() - 2))
    held = self.number(bias)
    spread = Bounded(held.value.reshape(shape), held.error.reshape(shape), held.dtype)
    return self.rules.add(sums, spread)


def _running_product(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    """Return products of n factors, each of which may be further from 0 by its bound, with a rounding each."""
    x, f = self.number(args[0]), _of_first(target, args, kwargs)
    value, magnitude = f(x.value), f(abs(x.value) + x.error)
    count = x.value.shape[args[1]] if len(args) > 1 else x.value.numel()
    grown = math.expm1(count * 2.0**-23) * magnitude
    return self.rules.rounded(value, magnitude - abs(value) + grown)


def _variance(self: _BoundedInterpreter, target: Any, args: Any, kwargs: Any) -> Bounded:
    x, rules = self.number(args[0]), self.rules
    dims = list(args[1]) if len(args) > 1 and args[1] else list(range(x.value.dim()))
    correction = kwargs.get("correction", args[2] if len(args) > 2 else None)
    keep = kwargs.get("keepdim", False)
    count = math.prod(x.value.shape[dim] for dim in dims)
    mean = rules.total(lambda value: value.mean(dims, keepdim=True), x, count)
    off = rules.add(x, mean, -1.0)
    squares = rules.multiply(off, off)
    total = rules.total(lambda value: value.sum(dims, keepdim=keep), squares, count)
    return rules.divide(
        total, self.number(float(count - (1 if correction is None else correction)))
    )


_NUMPY_NAMES = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}

_BY_RULE: dict[Rule, tuple[str, ...]] = {
    _move: (
        "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice",
        "select", "clone", "alias", "detach", "cat", "stack", "constant_pad_nd", "flip", "gather", "index_select", "copy",
        "as_strided", "tril", "triu", "diag_embed", "diagonal", "lift_fresh_copy", "embedding", "roll", "repeat", "unfold",
        "contiguous", "split", "split_with_sizes", "unbind", "index", "_to_copy", "pixel_shuffle", "narrow",
        "broadcast_in_dim",
    ),
    _of_shape: (
        "full_like", "zeros_like", "ones_like", "empty_like", "new_zeros", "new_full", "new_empty", "new_ones",
    ),
    _compare: ("gt", "ge", "lt", "le", "eq", "ne"),
    _decide: (
        "logical_not", "logical_and", "logical_or", "bitwise_not", "bitwise_and", "bitwise_or", "any", "all", "isnan",
        "argmax", "argmin", "sort", "topk",
    ),
    _where: ("where",),
    _add: ("add", "sub", "rsub"),
    _multiply: ("mul",),
    _divide: ("div", "reciprocal"),
    _negate: ("neg",),
    _power: ("pow",),
    _function: (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sinh", "cosh", "erf", "sqrt", "rsqrt", "sigmoid",
        "sin", "cos", "tan", "atan", "asin", "acos", "asinh", "acosh", "atanh",
    ),
    _choose: ("relu", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "abs"),
    _extreme: (
        "amax", "amin", "max", "min", "max_pool2d_with_indices", "max_pool3d_with_indices",
    ),
    _sum: (
        "sum", "mean", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    ),
    _product: ("mm", "bmm", "mv", "dot"),
    _convolution: ("convolution",),
    _running_product: ("prod", "cumprod"),
    _variance: ("var",),
}  # fmt: skip
_RULES = {name: rule for rule, names in _BY_RULE.items() for name in names}
"""The rule of each operation of aten."""
