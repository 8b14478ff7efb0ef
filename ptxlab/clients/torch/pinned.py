"""Pinned memory of the CPU, which a GPU reaches too."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_pinned: dict[int, weakref.ref[Any]] = {}
"""The storages in pinned memory, by address."""


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Have the memory of a new tensor on the CPU be pinned."""
    storage = tensor.untyped_storage()
    address = storage.data_ptr()
    if address:
        _pinned[address] = weakref.ref(storage, lambda _: _pinned.pop(address, None))
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() in _pinned
