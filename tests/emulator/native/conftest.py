"""Both engines: as arrays, and as machine code from the first instruction on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.emulator.native import dispatch_loop, engine, heat, warp_operation
from ptxlab.emulator.native.segment import Segment, specializations_of
from ptxlab.emulator.run import executable
from ptxlab.errors import LaunchError
from tests.emulator.native.separate import Separate, separate

Words = npt.NDArray[np.uint8]
Both = Callable[..., Words]


def begin_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know neither programs nor what is hot in them, as a process that begins."""
    heat_of_process = heat.Heat()
    for module in (engine, dispatch_loop, warp_operation):
        monkeypatch.setattr(module, "PROCESS", heat_of_process)
    monkeypatch.setattr(executable, "_RECENT", [])


@pytest.fixture(autouse=True)
def beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have made hot would cut a kernel's blocks into other parts."""
    begin_process(monkeypatch)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Collects for each segment that is reached whether it ran as machine code.

    No segment is known from another test, which may have met so many shapes that there are to be no more.
    """
    specializations_of.cache_clear()
    done: list[bool] = []
    natively = Segment._natively

    def noting(self: Segment, *args: Any) -> bool:
        done.append(natively(self, *args))
        return done[-1]

    monkeypatch.setattr(Segment, "_natively", noting)
    return done


@pytest.fixture(scope="session")
def other() -> Iterator[Separate]:
    """A process for machine code that may end its own."""
    with separate() as process:
        yield process


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, calls: list[bool]) -> Iterator[Both]:
    """Run kernel ``k(data)`` on both engines; return what ``data`` is then, the same bits on both.

    A fault, too, must be the same: its message is returned. Machine code must have been tried.
    """

    def run(text: str, data: Array, grid: Any = 1, block: Any = 256) -> Any:
        results, messages = [], []
        for name in ("array", "native"):
            monkeypatch.setenv("PTXLAB_ENGINE", name)
            device = open_device("emulator", arch="sm_90a")
            buffer, message = device.upload(data), ""
            try:
                device.load(text).kernel("k").launch(grid, block, [buffer])
            except LaunchError as error:
                message = str(error)
            results.append(buffer.numpy().view(np.uint8).reshape(-1))
            messages.append(message)
        assert messages[0] == messages[1]
        np.testing.assert_array_equal(results[0], results[1])
        return messages[0] or results[0]

    yield run
    assert calls
