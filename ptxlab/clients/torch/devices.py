"""What PyTorch says of tensors that are not all on "cuda" when an operation there is given them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ptxlab.clients.torch.operations import checked_as

Named = Mapping[str, Any]
"""The arguments of an operation by name, in the order of its schema."""


def require_one_device(name: str, arguments: Named, out: Iterable[str]) -> None:
    """Raise PyTorch's error for tensors of an operation of ``aten`` that are not on one device.

    ``out`` are the arguments that it writes its results to.
    """
    special = _SPECIAL.get(name)
    checked = checked_as(name)
    if special is not None:
        special(arguments)
    elif checked is not None:
        _require_same(checked, arguments, list(out))
    else:
        _require_iterable(arguments, set(out))


def _require_same(checked: str, arguments: Named, out: list[str]) -> None:
    """c10::impl::check_and_update_common_device."""
    common: torch.device | None = None
    for argument in [*out, *(name for name in arguments if name not in out)]:
        for tensor in tensors(arguments.get(argument)):
            common = common or tensor.device
            if tensor.device != common:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but got {argument} is on "
                    f"{tensor.device}, different from other tensors on {common} (when checking "
                    f"argument in method {checked})"
                )


def _require_iterable(arguments: Named, out: set[str]) -> None:
    """at::TensorIterator: a number on the CPU goes with tensors on "cuda", one at most."""
    numbers = 0
    for argument, value in arguments.items():
        for tensor in tensors(value):
            if tensor.is_cuda:
                continue
            if tensor.dim() or argument in out:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, cuda:0 and {tensor.device}!"
                )
            numbers += 1
    if numbers > 1:
        raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an argument, which may be a list."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)


def _indexed(arguments: Named) -> None:
    indexed = arguments["self"].device
    for index in tensors(arguments["indices"]):
        if index.device.type not in ("cpu", indexed.type):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({indexed})"
            )


def _put(arguments: Named) -> None:
    _indexed(arguments)
    if arguments["values"].dim():
        _require_iterable({name: arguments[name] for name in ("self", "values")}, {"self"})


def _masked(arguments: Named) -> None:
    self, mask = arguments["self"].device, arguments["mask"].device
    if self != mask:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {mask} and self on {self}"
        )


def _any(arguments: Named) -> None:
    """Take a number from wherever it is."""


_SPECIAL: Mapping[str, Callable[[Named], None]] = {
    "index.Tensor": _indexed,
    "index.Tensor_out": _indexed,
    "_index_put_impl_": _put,
    "masked_fill_.Scalar": _masked,
    "masked_fill_.Tensor": _masked,
    "fill_.Tensor": _any,
    "index_fill_.int_Tensor": _any,
    "bernoulli_.Tensor": _any,
    "_fused_adam_.tensor_lr": _any,
    "_fused_adamw_.tensor_lr": _any,
    "_fused_sgd_.tensor_lr": _any,
    "_fused_adagrad_.tensor_lr": _any,
}
