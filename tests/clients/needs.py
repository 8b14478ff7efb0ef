"""Packages that only the tests of clients need: without them these tests are skipped, never in .ci/run."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def need(*packages: str) -> None:
    """Skip the tests of a module, or a test, where one of ``packages`` is not installed."""
    absent = [name for name in packages if find_spec(name) is None]
    if absent and os.environ.get("PTXLAB_NEEDS_CLIENTS"):
        raise ImportError(f"{', '.join(absent)} must be here: tests/clients/requirements.txt")
    if absent:
        reason = f"{', '.join(absent)} not installed: pip install -r tests/clients/requirements.txt"
        pytest.skip(reason, allow_module_level=True)
