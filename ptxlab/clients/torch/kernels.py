"""What PyTorch's dispatcher calls for tensors on "cuda": the operation on the CPU, on the same memory.

Autograd, autocast, functions of torch.library and torch.compile are above the kernels of a backend, and
PyTorch's own. The first call of an operation comes here by the fallback of the backend and registers its
kernel; a PyTorch for GPUs has kernels for all of them, which are overridden.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from ptxlab.clients import captures
from ptxlab.clients.torch.devices import require_one_device, tensors
from ptxlab.clients.torch.errors import refuse_while_capturing, require_device
from ptxlab.clients.torch.generators import default, of_cuda, seeded
from ptxlab.clients.torch.memory import allocations
from ptxlab.clients.torch.operations import is_missing, of_gpus_alone
from ptxlab.errors import Unsupported

CPU = torch.device("cpu")
_OF_CPU = DispatchKeySet(DispatchKey.CPU)
_NO_BACKEND = "HIP"
"""A backend that no build with this dispatcher has kernels for."""
COMPOSITE = (
    "addr",
    "addr.out",
    "all.dims",
    "all.dims_out",
    "any.dims",
    "any.dims_out",
    "_chunk_cat",
    "_chunk_cat.out",
    "convolution_backward",
    "_grouped_mm",
    "linalg__powsum",
    "native_group_norm",
    "native_layer_norm",
    "split_with_sizes_copy.out",
)
"""What a GPU has kernels for, and PyTorch without one would put together of other operations."""


_WRITTEN = {"aten::native_batch_norm": ("running_mean", "running_var")}
"""What operations write though their schemas say nothing of it."""


class Kernel:
    """An operation on "cuda"; what its schema says of it is read once."""

    def __init__(self, op: Any) -> None:
        schema = op._schema
        self.op = op
        self.name = schema.name.removeprefix("aten::") + f".{schema.overload_name}".rstrip(".")
        self.arguments = [argument.name for argument in schema.arguments]
        written = {
            frozenset(argument.alias_info.before_set): argument
            for argument in schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        self.written = [argument.name for argument in written.values()]
        self.written += _WRITTEN.get(schema.name, ())
        self.out = [argument.name for argument in written.values() if argument.kwarg_only]
        aliases = [result.alias_info for result in schema.returns]
        self.returned = [
            written[frozenset(alias.before_set)].name if alias and alias.is_write else None
            for alias in aliases
        ]
        # A view is a tensor with the same storage, or becomes one, and no memory is touched.
        self.is_view = torch.Tag.inplace_view in op.tags or any(
            alias and not alias.is_write for alias in aliases
        )
        self.tensors = [
            index
            for index, argument in enumerate(schema.arguments)
            if str(argument.type) == "Tensor" and not argument.kwarg_only
        ]
        self.random = torch.Tag.nondeterministic_seeded in op.tags
        self.takes_generator = "generator" in self.arguments
        self.waits = bool(op.tags) and (
            torch.Tag.data_dependent_output in op.tags or torch.Tag.dynamic_output_shape in op.tags
        )
        of_aten = schema.name.startswith("aten::")
        self.missing = of_aten and is_missing(self.name)
        name = op.name()
        self.decomposed = not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_view:
            return self.op.redispatch(_OF_CPU, *args, **kwargs)
        if self.missing:
            refuse(self.op, args, kwargs)
        strays: list[torch.Tensor] = []
        given = [_on_host(value, strays) for value in args]
        named = {name: _on_host(value, strays) for name, value in kwargs.items()}
        if strays:
            self._require_one_device(args, kwargs)
        if self.decomposed:
            return _decomposition(self.op)(*args, **kwargs)
        if kwargs.get("pin_memory"):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        device = kwargs.get("device")
        if device is not None and device.type != "cuda":
            return self.op(*given, **named)
        if self.random:
            self._seed(args, kwargs, named)
        return self._run(self._by_name(args, kwargs), given, named)

    def _run(self, arguments: Mapping[str, Any], given: list[Any], named: dict[str, Any]) -> Any:
        if self.out:
            return self._into_out(arguments, given, named)
        if captures.active() is None:
            return self._results(arguments, self._compute(given, named))
        return self._recorded(arguments, given, named)

    def _compute(self, given: list[Any], named: Mapping[str, Any]) -> Any:
        op = self.op
        # A number comes as what it is, also where the schema says Tensor.
        if not all(isinstance(given[index], torch.Tensor) for index in self.tensors):
            op = op.overloadpacket
        if self.random and not self.takes_generator:
            with seeded():
                return op(*given, **named)
        for value in (*given, *named.values()) if self.random else ():
            if isinstance(value, torch.Generator):
                of_cuda(value).draw()
        return op(*given, **named)

    def _results(self, arguments: Mapping[str, Any], result: Any) -> Any:
        """Return what was found, on "cuda", and the arguments that were written themselves."""
        if not self.written:
            return _on_gpu(result)
        if len(self.returned) == 1:
            (name,) = self.returned
            return arguments[name] if name else _on_gpu(result)
        each = result or [None] * len(self.returned)
        results = zip(self.returned, each, strict=True)
        return tuple(arguments[name] if name else _on_gpu(value) for name, value in results) or None

    def _into_out(
        self, arguments: Mapping[str, Any], given: list[Any], named: dict[str, Any]
    ) -> Any:
        """Write into what is given for the results, which may have to grow: PyTorch decides of a copy."""
        for name in self.out:
            host = named[name]
            named[name] = host.clone() if host.numel() else host.new_empty(0)
        self._compute(given, named)
        for name in self.out:
            if arguments[name].shape != named[name].shape:
                new = allocations.on_gpu(named[name])
                place(arguments[name], new.untyped_storage(), 0, new.size(), new.stride())
        into = {name: allocations.on_host(arguments[name]) for name in self.out}
        if captures.active() is None:
            for name, host in into.items():
                host.copy_(named[name])
        else:
            captures.add(lambda: self._compute(given, {**named, **into}))
        results = tuple(arguments[name] for name in self.out)
        return results if len(results) > 1 else results[0]

    def _recorded(
        self, arguments: Mapping[str, Any], given: list[Any], named: dict[str, Any]
    ) -> Any:
        """Record the call in the graph that is captured, and return results that each replay fills.

        What it writes in place stays as it is: while capturing nothing runs on a GPU. Other results are
        to be of the right shape, which PyTorch knows when it has run.
        """
        if self.waits:
            refuse_while_capturing()
        if self.written and all(self.returned):
            captures.add(lambda: self._compute(given, named))
            return self._results(arguments, None)
        copies = [
            _copied(value) if name in self.written else value
            for name, value in zip(self.arguments, given, strict=False)
        ]
        result = self._compute(copies, named)
        kept = [*tensors([result])]

        def again() -> None:
            for into, new in zip(kept, tensors([self._compute(given, named)]), strict=True):
                into.copy_(new)

        captures.add(again)
        return self._results(arguments, result)

    def _seed(self, args: Any, kwargs: Mapping[str, Any], named: dict[str, Any]) -> None:
        """Draw from the generator that is given, or from that of the device."""
        generator = self._by_name(args, kwargs).get("generator")
        if generator is not None:
            of_cuda(generator)
        elif self.takes_generator:
            named["generator"] = default

    def _require_one_device(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        require_one_device(self.name, self._by_name(args, kwargs), self.out)

    def _by_name(self, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arguments, args, strict=False)), **kwargs}


def _on_host(value: Any, strays: list[torch.Tensor]) -> Any:
    """Return what an argument is on the CPU; tensors that are there already are ``strays``."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            return allocations.on_host(value)
        strays.append(value)
    elif isinstance(value, list | tuple):
        return [_on_host(each, strays) for each in value]
    elif isinstance(value, torch.device) and value.type == "cuda":
        require_device(value.index)
        return CPU
    return value


def _on_gpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return allocations.on_gpu(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_on_gpu, value))
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value


def place(tensor: torch.Tensor, storage: Any, *where: Any) -> torch.Tensor:
    """Have a tensor on "cuda" be in a storage there: ``where`` are its offset, size and strides."""
    torch.ops.aten.set_.source_Storage_storage_offset._op_dk(
        DispatchKey.CPU, tensor, storage, *where
    )
    return tensor


def refuse(op: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise what the dispatcher says of an operation without a kernel for CUDA."""
    try:
        op.redispatch(DispatchKeySet(getattr(DispatchKey, _NO_BACKEND)), *args, **kwargs)
    except NotImplementedError as error:
        text = str(error).replace(f"'{_NO_BACKEND}' backend", "'CUDA' backend", 1)
        raise NotImplementedError(text) from None


@cache
def _decomposition(op: Any) -> Callable[..., Any]:
    """Return an operation that a CPU has not, put together of others."""
    from torch._decomp import decomposition_table

    decomposition: Callable[..., Any] | None = decomposition_table.get(op)
    if decomposition is None:
        raise Unsupported(
            f"{op} is of GPUs alone: what PyTorch computes on cuda is computed by PyTorch on the CPU",
            hint="an operation that a CPU has too does the same",
        )
    return decomposition


_aten = torch.library.Library("aten", "IMPL")


def _overriding(name: str) -> Callable[..., Any]:
    """Return the kernel of an operation by name, which is made when it is first called."""
    kernel: Kernel | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal kernel
        if kernel is None:
            base, _, overload = name.partition(".")
            kernel = Kernel(getattr(getattr(torch.ops.aten, base), overload or "default"))
        return kernel(*args, **kwargs)

    return call


@cache
def register(special: tuple[tuple[str, str, Callable[..., Any]], ...]) -> None:
    """Have kernels on "cuda" for everything, and ``special`` ones: operation, backend, function."""
    own = {name for name, backend, _ in special if backend == "CUDA"}
    names = {
        name.removeprefix("aten::")
        for key in ("CPU", "CUDA", "CompositeExplicitAutogradNonFunctional")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
        if name.startswith("aten::")
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name in sorted({*names, *COMPOSITE, *of_gpus_alone()} - own):
            _aten.impl(name, _overriding(name), "CUDA", allow_override=True)
        for name, backend, function in special:
            _aten.impl(name, function, backend, allow_override=True)
