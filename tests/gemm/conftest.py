"""A device that loads every program once: the same kernel is launched on many problems here."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, cast

import pytest

from ptxlab.device.protocol import Device, Module


class Keeping:
    """A device that keeps what it loads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._loaded: dict[tuple[str, tuple[str, ...]], Module] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def load(self, source: str | PathLike[str], *, options: Sequence[str] = ()) -> Module:
        key = str(source), tuple(options)
        if key not in self._loaded:
            self._loaded[key] = self._device.load(source, options=options)
        return self._loaded[key]


@pytest.fixture(scope="module")
def keeping(device: Device) -> Device:
    return cast(Device, Keeping(device))
