"""Programs for sm_90, checked: what is found, by the text of the lines that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport, Finding
from tests.emulator.hopper.conftest import hopper_text

Check = Callable[..., CheckReport]


@pytest.fixture(scope="session")
def hopper() -> Device:
    return open_device("emulator", arch="sm_90a")


@pytest.fixture
def checked(hopper: Device) -> Check:
    """Check a body, with 16 KiB of output and of input."""

    def check_body(
        body: str,
        *more: Any,
        grid: int = 1,
        block: int = 128,
        cluster: int | None = None,
        **text: str,
    ) -> CheckReport:
        kernel = hopper.load(hopper_text(body, **text)).kernel("k")
        data = hopper.upload(np.arange(1 << 12, dtype=np.uint32))
        arguments = [hopper.zeros(1 << 12, "u32"), data, *more]
        return check(kernel, LaunchConfig.of(grid, block, cluster=cluster), arguments)

    return check_body


def only(report: CheckReport) -> Finding:
    """Return the one finding of a report, apart from information."""
    [finding] = [finding for finding in report.findings if finding.severity != "info"]
    return finding


def lines(report: CheckReport, finding: Finding) -> tuple[str, str | None]:
    """Return the instructions of the lines of a finding."""

    def text(number: int) -> str:
        return report.source.line(number).strip().removesuffix(";")

    return text(finding.line), None if finding.other_line is None else text(finding.other_line)
