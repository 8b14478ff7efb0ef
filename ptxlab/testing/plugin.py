"""The pytest plugin: a device for tests, and an emulator for kernels in Triton.

``pytest --ptxlab-device cuda`` runs the tests on the first GPU; the default is the emulator, so that
the same tests run on every machine. ``--ptxlab-arch sm_80`` says what the emulator is.

``pytest --ptxlab-triton sm_80`` runs tests of kernels in Triton that know nothing of ptxlab on the
emulator, ``--ptxlab-cute sm_90a`` those in CuTe DSL, and ``--ptxlab-driver sm_80`` those of what calls the CUDA
driver: cuda.core, Numba, tinygrad. With ``--ptxlab-check`` a test fails if one of its launches has a race or the like. Those marked
``ptxlab_too_large`` are skipped there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ptxlab.clients.session import Session
    from ptxlab.device.protocol import Device

TOO_LARGE = "ptxlab_too_large"
_SESSION: pytest.StashKey[Session] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose the device, and what kernels of others run on."""
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
    group.addoption(
        "--ptxlab-triton",
        default=None,
        metavar="NAME",
        help="run kernels in Triton on the emulator, which is this target, such as sm_80",
    )
    group.addoption(
        "--ptxlab-cute",
        default=None,
        metavar="NAME",
        help="run kernels in CuTe DSL on the emulator, which is this target, such as sm_90a",
    )
    group.addoption(
        "--ptxlab-check",
        action="store_true",
        help="fail a test whose launches on the emulator have a race, a missing wait, a bad access",
    )
    group.addoption(
        "--ptxlab-driver",
        default=None,
        metavar="NAME",
        help="be the CUDA driver, with an emulated GPU behind it that is this target, such as sm_80",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Open the emulator for clients, before any file of the tests is imported. Raises pytest.UsageError."""
    options = early_config.known_args_namespace
    asked = {options.ptxlab_triton, options.ptxlab_cute, options.ptxlab_driver} - {None}
    here = "PYTEST_XDIST_WORKER" in os.environ or not getattr(options, "numprocesses", None)
    if not asked or not here:  # else in the workers, where the tests are
        return
    from ptxlab.clients.session import Session
    from ptxlab.errors import PtxlabError

    if len(asked) > 1:
        raise pytest.UsageError(
            "--ptxlab-triton, --ptxlab-cute and --ptxlab-driver are to be the same GPU"
        )
    arch = asked.pop()
    try:
        early_config.stash[_SESSION] = session = Session(arch, check=options.ptxlab_check)
        if options.ptxlab_cute:
            from ptxlab import cute  # which is a driver, too

            cute.use_emulator(session=session)
        elif options.ptxlab_driver:
            from ptxlab.driver import install

            install(arch, session=session)
        if options.ptxlab_triton:
            from ptxlab.triton import use_emulator

            use_emulator(session=session)
    except PtxlabError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", f"{TOO_LARGE}: takes too long on the emulator, where it is skipped"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is too large for the emulator."""
    marker = item.get_closest_marker(TOO_LARGE)
    if marker is not None and _SESSION in item.config.stash:
        pytest.skip(marker.kwargs.get("reason", "too large for the emulator"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test if its launches, those of its fixtures included, did not pass their checks.

    Where it has failed already, what they found stands in its report: it may be why.
    """
    try:
        yield
    except BaseException:
        if told := _findings(item):
            item.add_report_section("call", "findings of ptxlab", told)
        raise
    if told := _findings(item):
        pytest.fail(told, pytrace=False)


def _findings(item: pytest.Item) -> str:
    """Return what the checks have found since this was last asked."""
    session = item.config.stash.get(_SESSION, None)
    if session is None or not session.reports:
        return ""
    from ptxlab.verbs.check.text import sources_of, text

    told = [text(report, sources_of(report)) for report in session.reports]
    session.reports.clear()
    return "\n\n".join(told)


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
