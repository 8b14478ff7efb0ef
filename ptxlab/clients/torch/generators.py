"""Generators of random numbers on "cuda": those of the CPU, with a state of their own."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

from ptxlab.clients.torch.errors import require_device


class _Generators(type(torch._C.Generator)):  # type: ignore[misc]
    """All generators of PyTorch are instances of what stands in the place of their class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_Generators):  # type: ignore[misc]
    """A source of random numbers, on "cuda" too."""

    def __new__(cls, device: torch.device | str | int = "cpu") -> Any:
        asked = torch.device(device)
        if asked.type != "cuda":
            return super().__new__(cls, asked)
        require_device(asked.index)
        return super().__new__(cls)

    def __init__(self, device: torch.device | str | int = "cpu") -> None:
        asked = torch.device(device)
        self._device = torch.device("cuda", 0) if asked.type == "cuda" else asked
        if asked.type == "cuda":
            _of_cuda[_implementation(self)] = self

    @property
    def device(self) -> torch.device:
        return self._device

    def clone_state(self) -> Generator:
        """Return another in the same state."""
        other = Generator(self._device)
        other.set_state(self.get_state())
        return other


def _implementation(generator: torch.Generator) -> int:
    """Return the address of what PyTorch has of a generator: the objects of Python for it may be two."""
    address = id(generator) + object.__basicsize__
    return ctypes.c_void_p.from_address(address).value or 0


_of_cuda: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
default = Generator("cuda")
"""The generator of the device."""
_lock = Lock()


def require_cuda(generator: torch.Generator) -> None:
    """Raise PyTorch's error for a generator of another device: at::check_generator."""
    if _implementation(generator) not in _of_cuda:
        raise RuntimeError(
            f"Expected a 'cuda' device type for generator but found '{generator.device.type}'"
        )


@contextmanager
def seeded() -> Iterator[None]:
    """Have what the CPU draws come from the device's generator meanwhile."""
    cpu = torch.default_generator
    with _lock:
        saved = cpu.get_state()
        cpu.set_state(default.get_state())
        try:
            yield
        finally:
            default.set_state(cpu.get_state())
            cpu.set_state(saved)
