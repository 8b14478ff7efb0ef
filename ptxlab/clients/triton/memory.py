"""Which memory of this process a launch of Triton may use: the storage of each tensor among its arguments.

Pointers may also come as integers, out of a tensor of integers, or as objects with a pointer; they are looked for
among the tensors that the program holds.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.torch.memory import allocations
from ptxlab.emulator import Elements

_WORD = 4
_LOWEST, _HIGHEST = 1 << 32, 1 << 48
"""What an integer lies between that may be a pointer, where the heap is not below it."""
_HERE = ("cpu", "cuda")
_MAPS = Path("/proc/self/maps")


def borrowed(arguments: Iterable[tuple[str, Any]]) -> list[Borrowed]:
    """Return the memory of arguments by name: each storage once, and those that their integers point to."""
    memory: dict[int, Borrowed] = {}
    pointers: set[int] = set()
    for name, value in _flat(arguments):
        if isinstance(value, torch.Tensor):
            _lend(f"argument {name}", value, memory)
            pointers |= _pointers_in(value)
        elif isinstance(value, int) and _lowest() <= value < _HIGHEST:
            pointers.add(value)
        elif callable(getattr(value, "data_ptr", None)):  # what Triton takes for a tensor
            pointers.add(value.data_ptr())
    if pointers:
        _follow(pointers, memory)
    return list(memory.values())


def whole_words(memory: Iterable[Borrowed]) -> list[Borrowed]:
    """Return memory with the rest of its last word, which an atomic operation on 16 bits swaps whole."""
    return [piece._replace(nbytes=-(-piece.nbytes // _WORD) * _WORD) for piece in memory]


def _flat(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and numbers among arguments, those inside of tuples, views and descriptors too."""
    for name, value in arguments:
        if isinstance(value, tuple | list):
            yield from _flat((f"{name}[{index}]", item) for index, item in enumerate(value))
        elif not isinstance(value, torch.Tensor) and hasattr(value, "base"):
            yield from _flat([(name, value.base)])
        else:
            yield name, value


def _lend(what: str, tensor: torch.Tensor, memory: dict[int, Borrowed]) -> None:
    if tensor.device.type not in _HERE:
        return
    storage = tensor.untyped_storage()
    address, nbytes = storage.data_ptr(), storage.nbytes()
    if nbytes and address not in memory:
        dtype = str(tensor.dtype).removeprefix("torch.")
        name = f"{what}, {dtype}{list(tensor.shape)}"
        elements = Elements(
            what.removeprefix("argument "),
            tensor.data_ptr(),
            tensor.itemsize,
            tensor.stride(),
            tuple(tensor.shape),
            dtype,
        )
        memory[address] = Borrowed(address, nbytes, name, storage, dtype, elements)


def _pointers_in(tensor: torch.Tensor) -> set[int]:
    if tensor.dtype not in (torch.int64, torch.uint64) or tensor.device.type not in _HERE:
        return set()
    host = allocations.on_host(tensor) if tensor.is_cuda else tensor.detach()
    words = host.view(torch.int64).numpy()
    likely = words[(words >= _lowest()) & (words < _HIGHEST)]
    return set(np.unique(likely).tolist())


@cache
def _lowest() -> int:
    """Return the lowest number that may be a pointer: the heap of Debian's Python begins below 4 GiB."""
    maps = _MAPS.read_text(encoding="ascii") if _MAPS.exists() else ""
    heaps = [line.split("-")[0] for line in maps.splitlines() if line.endswith("[heap]")]
    return min([_LOWEST, *(int(begin, 16) for begin in heaps)])


def _has_memory(tensor: torch.Tensor) -> bool:
    """Say whether a tensor has memory here, and is not one that others stand behind."""
    wraps = torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)
    return tensor.device.type in _HERE and not wraps


def _follow(pointers: set[int], memory: dict[int, Borrowed]) -> None:
    """Add the storages that ``pointers`` lie in, and those that integers in these lie in."""
    live: dict[int, torch.Tensor] = {}
    for value in gc.get_objects():
        if issubclass(type(value), torch.Tensor) and _has_memory(value):
            live.setdefault(value.untyped_storage().data_ptr(), value)
    begins = sorted(live)
    seen: set[int] = set()
    while pointers:
        pointer = pointers.pop()
        at = bisect_right(begins, pointer) - 1
        if at < 0 or begins[at] in seen:
            continue
        tensor = live[begins[at]]
        if pointer < begins[at] + tensor.untyped_storage().nbytes():
            seen.add(begins[at])
            _lend("a tensor that is pointed to", tensor, memory)
            pointers |= _pointers_in(tensor)
