"""A device that loads a program once for all problems of a test, and the engine that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

import pytest

from ptxlab.device.loading import Loadable
from ptxlab.device.protocol import Device, Module
from ptxlab.syntax.tree import PtxModule

FEW = 16
"""Programs that are kept, of some 10 MB each: as many as the tests of a module have in common."""


class Keeping:
    """A device that keeps the last few programs it loaded."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._load = lru_cache(maxsize=FEW)(device.load)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> Module:
        given = source.source.text if isinstance(source, PtxModule) else str(source)
        return self._load(given, options=tuple(options))


@pytest.fixture(autouse=True, scope="package")
def as_arrays() -> Iterator[None]:
    """Have no machine code made of kernels that run once: it has tests of its own, and takes as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXLAB_ENGINE", "array")
        yield


@pytest.fixture(scope="module")
def keeping(device: Device) -> Device:
    return cast(Device, Keeping(device))
