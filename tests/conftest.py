"""Short names for the options of ptxlab's own pytest plugin, which brings the fixture ``device``."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest
from _pytest.runner import runtestprotocol

from ptxlab.errors import PtxlabError
from tests.answers import ARCHIVE, unpack


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ptxlab")
    for name in ("device", "arch"):
        default = {"device": "emulator"}.get(name)
        group.addoption(
            f"--{name}", dest=f"ptxlab_{name}", default=default, help=f"--ptxlab-{name}"
        )
    group.addoption(
        "--ask-tools",
        action="store_true",
        help="ask NVRTC, nvJitLink and nvdisasm what is on record too",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Tests read what is printed, and on a GPU a child of their process would print it.
    os.environ["PTXLAB_CHILD"] = ""
    # Tests have all processors already, and what they patch is patched in their process alone.
    os.environ["PTXLAB_WORKERS"] = "1"
    # A loaded kernel is some 100,000 objects, and hardly one of them is garbage: looking for it as often as
    # usual takes a third of the time. What a worker makes in all is about as many as this, some 1 GB.
    gc.set_threshold(10_000_000)
    if not hasattr(config, "workerinput") and not config.getoption("ask_tools"):
        with suppress(PtxlabError):  # the cache only ever saves time
            unpack(ARCHIVE.read_bytes())
    begin_elsewhere(config)


def begin_elsewhere(config: pytest.Config) -> None:
    """Have each worker collect all tests from another file on, and find compiled what others have begun with.

    To rewrite the assertions of all files takes three times as long as to collect them.
    """
    worker = getattr(config, "workerinput", None)
    if worker and config.args == config.getini("testpaths"):
        files = sorted(map(str, (config.rootpath / "tests").rglob("test_*.py")))
        first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = [*files[first:], *files[:first]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring what a worker has collected into the order that is everybody's."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)


def pytest_collection_finish() -> None:
    # What was collected stays to the end: nobody need look through it again.
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Have a worker tell of a test that passes but once: to tell of its setup and teardown, too, takes as long as it."""
    if not hasattr(item.config, "workerinput"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    passed = all(report.passed for report in reports)
    for report in reports:
        if report.when == "call" or not passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish() -> None:
    # Nor through anything else: pytest looks for garbage five times before it ends.
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Cut kernels as usual, whatever ``ptxlab bench --tiles`` has kept here, and have pytest within pytest keep to itself.

    Pytest removes the folders of earlier runs in the end, some 27,000 files of this suite: on a slow disk a minute.
    """
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptxlab.gemm.tile_file.path", lambda: folder / "tiles.json")
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(folder))
        yield
