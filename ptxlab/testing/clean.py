"""Launches that the checks must find nothing in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.device.protocol import Kernel
from ptxlab.launch_config import Dim, LaunchConfig
from ptxlab.observe.check import check
from ptxlab.verbs.check.text import text


def assert_clean(
    kernel: Kernel, grid: Dim, block: Dim, args: Sequence[Any] = (), shared: int = 0
) -> None:
    """Assert that a launch has no race, missing wait, barrier misuse, bad access or uninitialised read.

    The launch happens here, on the emulator, which the kernel must be loaded on. Raises AssertionError
    with the findings, also where part of the launch could not be checked, and PtxlabError for a kernel
    of a GPU.
    """
    __tracebackhide__ = True
    report = check(kernel, LaunchConfig.of(grid, block, shared), args)
    if report.verdict != "clean":
        raise AssertionError(text(report))
