"""The pytest plugin: a device for tests, chosen on pytest's command line.

``pytest --ptxlab-device cuda`` runs the tests on the first GPU; the default is the emulator, so that
the same tests run on every machine. ``--ptxlab-arch sm_80`` says what the emulator is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ptxlab.device.protocol import Device


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the device."""
    group = parser.getgroup("ptxlab")
    group.addoption(
        "--ptxlab-device",
        default="emulator",
        metavar="NAME",
        help="where kernels run: emulator (the default), cuda, cuda:N, or auto",
    )
    group.addoption(
        "--ptxlab-arch",
        default=None,
        metavar="NAME",
        help="the target the emulator is, such as sm_80 (default sm_90a)",
    )


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Open the device of ``--ptxlab-device``; without it there is nothing to test, and pytest ends."""
    from ptxlab.device.opening import open_device
    from ptxlab.errors import PtxlabError

    name, arch = (request.config.getoption(f"--ptxlab-{what}") for what in ("device", "arch"))
    try:
        opened = open_device(name, arch=arch)
    except PtxlabError as error:
        pytest.exit(str(error), returncode=error.exit_status)
    yield opened
    opened.close()
