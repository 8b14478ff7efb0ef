"""One device for all tests: the emulator, or a GPU with ``--device cuda``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ptxlab")
    group.addoption("--device", default="emulator", help="emulator (the default), cuda or cuda:N")
    group.addoption("--arch", default=None, help="the target the emulator is, as sm_90a")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    try:
        opened = open_device(
            request.config.getoption("--device"), arch=request.config.getoption("--arch")
        )
    except PtxlabError as error:
        pytest.exit(str(error), returncode=error.exit_status)
    yield opened
    opened.close()
