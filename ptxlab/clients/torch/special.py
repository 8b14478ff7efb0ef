"""Operations on "cuda" that are not those of the CPU on the same memory: copies, growing, pinned memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey

from ptxlab.clients import captures
from ptxlab.clients.torch.arithmetic import ARITHMETIC
from ptxlab.clients.torch.errors import refuse_while_capturing, require_device
from ptxlab.clients.torch.kernels import CPU, Kernel, place
from ptxlab.clients.torch.memory import allocations
from ptxlab.clients.torch.pinned import is_pinned, pinned
from ptxlab.clients.torch.recurrent import RECURRENT
from ptxlab.clients.torch.scaled import SCALED

aten = torch.ops.aten
_MATH = 0
"""torch.nn.attention.SDPBackend.MATH: attention put together of other operations."""


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between the CPU and "cuda", or on it."""
    into = allocations.on_host(self) if self.is_cuda else self
    source = allocations.on_host(src) if src.is_cuda else src
    if captures.active() is None:
        into.copy_(source)
        return self
    if not all(each.is_cuda or is_pinned(each) for each in (self, src)):
        refuse_while_capturing()
    captures.add(lambda: into.copy_(source))
    return self


def _number(self: torch.Tensor) -> Any:
    """Return the number of a tensor, for which the program waits."""
    refuse_while_capturing()
    return aten._local_scalar_dense(allocations.on_host(self))


def _equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    refuse_while_capturing()
    same: bool = _EQUAL(self, other)
    return same


_EQUAL = Kernel(aten.equal.default)


def _resize(
    self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """Be of another shape, with the elements that there are, as they lie in memory."""
    shaped = torch.empty(size, dtype=self.dtype, device="meta")
    if memory_format not in (None, torch.preserve_format):
        shaped = shaped.contiguous(memory_format=memory_format)
    needed = (self.storage_offset() + shaped.numel()) * self.itemsize
    before = self.untyped_storage()
    storage = before
    if needed > before.nbytes():
        grown = torch.empty(needed, dtype=torch.uint8, device=CPU)
        old = torch.empty(0, dtype=torch.uint8, device=self.device)
        place(old, before, 0, (before.nbytes(),), (1,))
        grown[: before.nbytes()].copy_(allocations.on_host(old))
        storage = allocations.on_gpu(grown).untyped_storage()
    return place(self, storage, self.storage_offset(), shaped.size(), shaped.stride())


def _set_storage(self: torch.Tensor, source: Any) -> torch.Tensor:
    return place(self, source, 0, (source.nbytes() // self.itemsize,), (1,))


def _set_tensor(self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    where = source.storage_offset(), source.size(), source.stride()
    return place(self, source.untyped_storage(), *where)


def _set_none(self: torch.Tensor) -> torch.Tensor:
    return _set_tensor(self, torch.empty(0, dtype=self.dtype, device=self.device))


def _record_stream(self: torch.Tensor, s: torch.Stream) -> None:
    """Do nothing: what is freed is in nobody's use."""


_STRIDED = (None, torch.strided)
_LAYOUTS = {None: "", torch.strided: "", torch.sparse_coo: "Sparse", torch._mkldnn: "Mkldnn"}
"""What the name of a backend begins with, by layout; the others are SparseCsr."""


def _allocating(op: Any) -> Callable[..., torch.Tensor]:
    """Return an operation that makes memory, of a size and maybe strides; it may be pinned."""

    def allocate(
        size: Sequence[int],
        *strides: Sequence[int],
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        **memory_format: Any,
    ) -> torch.Tensor:
        kind = "cpu" if device is None else device.type
        on_gpu = kind == "cuda" and layout in _STRIDED
        if on_gpu:
            assert device is not None
            require_device(device.index)
            if pin_memory:
                raise RuntimeError("Only dense CPU tensors can be pinned")
            itemsize = (dtype or torch.get_default_dtype()).itemsize
            allocations.require_room(math.prod(size) * itemsize)
            key, device = DispatchKey.CPU, CPU
        else:
            key = DispatchKey.Meta if kind == "meta" else _key(layout, kind)
        pin = bool(pin_memory) and key is DispatchKey.CPU
        made: torch.Tensor = op._op_dk(
            key,
            size,
            *strides,
            dtype=dtype,
            layout=layout,
            device=device,
            pin_memory=False if pin else pin_memory,
            **memory_format,
        )
        if on_gpu:
            return allocations.on_gpu(made)
        return pinned(made) if pin else made

    return allocate


def _key(layout: torch.layout | None, kind: str) -> Any:
    return getattr(DispatchKey, _LAYOUTS.get(layout, "SparseCsr") + kind.upper())


def _pin(self: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    return pinned(self.clone())


SPECIAL: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("copy_", "CUDA", _copy),
    ("_local_scalar_dense", "CUDA", _number),
    ("equal", "CUDA", _equal),
    ("resize_", "CUDA", _resize),
    ("set_.source_Storage_storage_offset", "CUDA", place),
    ("set_.source_Storage", "CUDA", _set_storage),
    ("set_.source_Tensor", "CUDA", _set_tensor),
    ("set_", "CUDA", _set_none),
    ("record_stream", "CUDA", _record_stream),
    ("_fused_sdp_choice", "CUDA", lambda *_, **__: _MATH),
    *(
        (f"_use_{library}_ctc_loss{overload}", "CUDA", lambda *_, **__: False)
        for library in ("cudnn", "miopen")
        for overload in ("", ".Tensor")
    ),
    *(
        (name, backend, _allocating(op))
        for name, op in (
            ("empty.memory_format", aten.empty.memory_format),
            ("empty_strided", aten.empty_strided.default),
        )
        for backend in ("BackendSelect", "CUDA")
    ),
    ("is_pinned", "CPU", lambda tensor, device=None: is_pinned(tensor)),
    ("_pin_memory", "CPU", _pin),
    *((name, "CUDA", function) for name, function in (ARITHMETIC | RECURRENT | SCALED).items()),
)
"""The operation, the backend whose kernel it is, and the kernel."""
