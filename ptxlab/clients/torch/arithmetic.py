"""Operations on "cuda" of whose types a GPU has others than a CPU, or checks them first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey

from ptxlab.clients.torch.kernels import Kernel

aten = torch.ops.aten


def _convolution(input: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
    """Check the types first, as PyTorch does before it calls cuDNN."""
    for name, other in (("weight", weight), ("bias", bias)):
        if input.is_cuda and other is not None and other.type() != input.type():
            raise RuntimeError(
                f"Input type ({input.type()}) and {name} type ({other.type()}) should be the same"
            )
    if not input.is_cuda:  # which PyTorch finds out itself
        return aten.convolution.default._op_dk(_COMPOSITE, input, weight, bias, *rest)
    return _CONVOLUTION(input, weight, bias, *rest)


_CONVOLUTION = Kernel(aten.convolution.default)
_COMPOSITE = DispatchKey.CompositeExplicitAutograd


def _of_floats(kernel: Kernel, name: str, operand: int) -> Callable[..., torch.Tensor]:
    """Return a product of matrices, which a GPU has for floating-point numbers alone."""

    def product(*args: Any, **kwargs: Any) -> torch.Tensor:
        dtype = args[operand].dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            type_ = _TYPES.get(dtype, str(dtype))
            raise NotImplementedError(f"\"{name}\" not implemented for '{type_}'")
        return kernel(*args, **kwargs)

    return product


_TYPES = {
    torch.bool: "Bool",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
}
"""Types as c10::ScalarType calls them."""
_PRODUCTS = {
    op: _of_floats(Kernel(getattr(aten, op).default), name, operand)
    for op, name, operand in (
        ("mm", "addmm_cuda", 0),
        ("addmm", "addmm_cuda", 1),
        ("addmm_", "addmm_cuda", 1),
        ("bmm", "baddbmm_cuda", 0),
        ("baddbmm", "baddbmm_cuda", 1),
        ("baddbmm_", "baddbmm_cuda", 1),
        ("addmv", "addmv_impl_cuda", 1),
        ("dot", "dot", 0),
    )
}


def _widened(op: Any) -> Callable[..., torch.Tensor]:
    """Return a product whose result has a wider type than its operands."""

    def product(*args: Any, **kwargs: Any) -> torch.Tensor:
        *operands, dtype = args
        result: torch.Tensor = op(*(each.to(dtype) for each in operands), **kwargs)
        return result

    return product


def _softmax(self: torch.Tensor, dim: int, half_to_float: bool, *, of: Kernel) -> torch.Tensor:
    """Widen numbers of 16 bits first, which a CPU does apart."""
    result: torch.Tensor = of(self.float() if half_to_float else self, dim, False)
    return result


def _softmax_backward(
    grad_output: torch.Tensor,
    output: torch.Tensor,
    dim: int,
    input_dtype: torch.dtype,
    *,
    of: Kernel,
) -> torch.Tensor:
    gradient: torch.Tensor = of(grad_output, output, dim, output.dtype)
    return gradient.to(input_dtype)


_SOFTMAX = {
    name: partial(function, of=Kernel(getattr(aten, name).default))
    for name, function in (
        ("_softmax", _softmax),
        ("_log_softmax", _softmax),
        ("_softmax_backward_data", _softmax_backward),
        ("_log_softmax_backward_data", _softmax_backward),
    )
}


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    **{f"{op}.dtype": _widened(getattr(aten, op)) for op in ("mm", "bmm", "addmm", "baddbmm")},
    **_PRODUCTS,
    **_SOFTMAX,
}
"""The functions by the operation whose kernel on "cuda" they are."""
