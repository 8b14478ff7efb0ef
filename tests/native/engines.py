"""Matrix products by an engine, and all else by arrays: for these alone something is compiled."""

from __future__ import annotations

import pytest

from ptxlab.emulator.native.heat import Heat, Key
from ptxlab.emulator.operations import matrix_native


class _Hot(Heat):
    """Whatever is asked for has taken long enough."""

    def is_hot(self, key: Key, cost: int) -> bool:
        return True


def multiply_by(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Have products computed by ``array`` or as ``native`` code from now on."""
    monkeypatch.setenv("PTXLAB_ENGINE", {"array": "array", "native": "auto"}[engine])
    monkeypatch.setattr(matrix_native, "PROCESS", _Hot())
