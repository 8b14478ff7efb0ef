"""Short names for the options of ptxlab's own pytest plugin, which brings the fixture ``device``."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ptxlab")
    for name in ("device", "arch"):
        default = {"device": "emulator"}.get(name)
        group.addoption(
            f"--{name}", dest=f"ptxlab_{name}", default=default, help=f"--ptxlab-{name}"
        )


def pytest_configure(config: pytest.Config) -> None:
    # Tests read what is printed, and on a GPU a child of their process would print it.
    os.environ["PTXLAB_CHILD"] = ""
