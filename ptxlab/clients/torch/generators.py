"""Generators of random numbers on "cuda": those of the CPU, with the state of a GPU's.

Sources: ATen/cuda/CUDAGeneratorImpl.cpp for the state and its errors; Steele, Lea, Flood, "Fast Splittable Pseudorandom
Number Generators" for SplitMix64.
"""

from __future__ import annotations

import ctypes
import secrets
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch

from ptxlab.clients.torch.errors import require_device


class _Generators(type(torch._C.Generator)):  # type: ignore[misc]
    """All generators of PyTorch are instances of what stands in the place of their class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


_SEED = 67280421310721
"""Of a generator that nobody has given one: c10::default_rng_seed_val."""
_EACH = 4
"""By how much an offset grows at least, and a multiple of which it is: what Philox makes at a time."""
_WORDS = struct.Struct("<Qq")
_MASK = (1 << 64) - 1


class Generator(torch._C.Generator, metaclass=_Generators):  # type: ignore[misc]
    """A source of random numbers, on "cuda" too, where its state is that of Philox: a seed, and an offset that grows.

    The numbers are those of the CPU, of a seed that is made of both.
    """

    def __new__(cls, device: torch.device | str | int = "cpu") -> Any:
        asked = torch.device(device)
        if asked.type != "cuda":
            return super().__new__(cls, asked)
        require_device(asked.index)
        return super().__new__(cls)

    def __init__(self, device: torch.device | str | int = "cpu") -> None:
        asked = torch.device(device)
        self._device = torch.device("cuda", 0) if asked.type == "cuda" else asked
        self._seed, self._offset = _SEED, 0
        if asked.type == "cuda":
            _of_cuda[_implementation(self)] = self

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def _is_cuda(self) -> bool:
        return bool(self._device.type == "cuda")

    def manual_seed(self, seed: int) -> Generator:
        """Begin anew with a seed."""
        if self._is_cuda:
            self._seed, self._offset = seed % (1 << 64), 0
        else:
            super().manual_seed(seed)
        return self

    def seed(self) -> int:
        """Begin anew with a seed that nobody knows before, and return it."""
        if not self._is_cuda:
            return int(super().seed())
        return self.manual_seed(secrets.randbits(53)).initial_seed()

    def initial_seed(self) -> int:
        return self._seed if self._is_cuda else int(super().initial_seed())

    def get_state(self) -> torch.Tensor:
        """Return the state: of "cuda" 16 bytes, the seed and the offset."""
        if not self._is_cuda:
            return super().get_state()
        words = _WORDS.pack(self._seed, self._offset)
        return torch.tensor(list(words), dtype=torch.uint8, device="cpu")

    def set_state(self, state: torch.Tensor) -> Generator:
        """Take a state; one without an offset has 0, as CUDA's."""
        if not self._is_cuda:
            super().set_state(state)
            return self
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8 or state.is_cuda:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.numel() not in (_WORDS.size, _WORDS.size // 2):
            raise RuntimeError("RNG state is wrong size")
        data = bytes(state.tolist()).ljust(_WORDS.size, b"\0")
        self._seed, self._offset = _WORDS.unpack(data)
        return self

    def get_offset(self) -> int:
        return self._offset if self._is_cuda else int(super().get_offset())

    def set_offset(self, offset: int) -> Generator:
        """Take an offset. Raises RuntimeError for one that is no multiple of 4."""
        if not self._is_cuda:
            super().set_offset(offset)
        elif offset % _EACH:
            raise RuntimeError("offset must be a multiple of 4")
        else:
            self._offset = offset
        return self

    def clone_state(self) -> Generator:
        """Return another in the same state."""
        other = Generator(self._device)
        other.set_state(self.get_state())
        return other

    def next_seed(self) -> int:
        """Return the seed of what is drawn now, and have the offset grow: SplitMix64 of both."""
        with _lock:
            mixed = self._seed + 0x9E3779B97F4A7C15 * (self._offset // _EACH + 1)
            self._offset += _EACH
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed & _MASK) >> shift) * factor & _MASK
        return mixed ^ mixed >> 31

    def draw(self) -> None:
        """Be ready for what is drawn now."""
        torch._C.Generator.manual_seed(self, self.next_seed())


def _implementation(generator: torch.Generator) -> int:
    """Return the address of what PyTorch has of a generator: the objects of Python for it may be two."""
    address = id(generator) + object.__basicsize__
    return ctypes.c_void_p.from_address(address).value or 0


_of_cuda: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
_lock = RLock()
default = Generator("cuda")
"""The generator of the device."""


def of_cuda(generator: torch.Generator) -> Generator:
    """Return a generator as what it is here. Raises PyTorch's error for one of another device: at::check_generator."""
    own = _of_cuda.get(_implementation(generator))
    if own is None:
        raise RuntimeError(
            f"Expected a 'cuda' device type for generator but found '{generator.device.type}'"
        )
    return own


@contextmanager
def seeded() -> Iterator[None]:
    """Have what the CPU draws come from the device's generator meanwhile."""
    cpu = torch.default_generator
    with _lock:
        saved = cpu.get_state()
        cpu.manual_seed(default.next_seed())
        try:
            yield
        finally:
            cpu.set_state(saved)
