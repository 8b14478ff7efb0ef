"""Tensors of other types, made by calling the type.

A new tensor's memory comes from a kernel in Python, whose tensor has a Python object, and one of a subclass wants one
without: it is another view of the same memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_Base: Any = torch.Tensor.__base__


def _new(*given: Any, **named: Any) -> Any:  # torch.compile takes no other names of arguments
    kind, *arguments = given
    if kind is torch.Tensor:
        return _Base.__new__(kind, *arguments, **named)
    with _disable_current_modes():
        return _Base.__new__(torch.Tensor, *arguments, **named).as_subclass(kind)


def install() -> None:
    """Have ``torch.Tensor`` make tensors of its subclasses."""
    torch.Tensor.__new__ = staticmethod(_new)
