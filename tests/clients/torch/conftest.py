"""PyTorch with the emulator as its GPU. What these tests do to "cuda" holds on a GPU as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def as_deep_as_before() -> Iterator[None]:
    """Undo what PyTorch's compiler does to the process: other tests nest as deep as Python allows."""
    deepest = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(deepest)


@pytest.fixture(scope="module")
def session(kernels: Any) -> Any:
    return import_module("ptxlab.triton").use_emulator("sm_80")


@pytest.fixture
def torch(session: Any) -> Any:
    torch = import_module("torch")
    torch.manual_seed(4)
    return torch
