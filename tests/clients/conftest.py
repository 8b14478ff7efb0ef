"""Triton's compiler with a cache of its own, and its kernels, for tests that say on which GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from ptxlab.clients.session import Session
from tests.clients.needs import need


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Import the kernels, once in a process."""
    need("triton", "torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield import_module("tests.clients.triton.kernels")


@pytest.fixture
def emulate(kernels: Any) -> Callable[..., Session]:
    """Return ``ptxlab.triton.use_emulator``, with PyTorch's numbers the same in every test."""
    from ptxlab.triton import use_emulator

    import_module("torch").manual_seed(4)
    return use_emulator
