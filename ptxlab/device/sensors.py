"""The clock and the power of a GPU while it works, read through NVML.

The package nvidia-ml-py has it; it is no part of ptxlab's own needs. NVML API Reference Guide,
"Device Queries".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Event, Thread
from typing import Any

from ptxlab.installation import adding_extra

PERIOD = 0.05
"""Seconds between two readings; power is itself a mean over a while."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The clock of the SMs in MHz and the power of the board in W at one moment, None if unknown."""

    clock: float | None
    power: float | None


class Sensors:
    """The sensors of the GPU at a PCI bus, by NVML's module ``api`` and its own ``handle``."""

    def __init__(self, api: Any, handle: Any) -> None:
        self._api = api
        self._handle = handle

    def read(self) -> Reading:
        """Return the clock of the SMs in MHz and the power of the board in W, None where unknown."""
        clock = self._ask("nvmlDeviceGetClockInfo", self._handle, self._api.NVML_CLOCK_SM)
        power = self._ask("nvmlDeviceGetPowerUsage", self._handle)
        return Reading(clock, None if power is None else power / 1e3)

    @property
    def power_limit(self) -> float | None:
        """The power in W that the board is kept below."""
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit", self._handle)
        return None if limit is None else limit / 1e3

    @property
    def driver(self) -> str | None:
        """The version of the NVIDIA driver: ``580.159.03``."""
        version = self._ask("nvmlSystemGetDriverVersion")
        return version.decode() if isinstance(version, bytes) else version

    def _ask(self, function: str, *args: Any) -> Any:
        try:
            return getattr(self._api, function)(*args)
        except self._api.NVMLError:
            return None


def open_sensors(bus: str) -> Sensors | str:
    """Return the sensors of the GPU at PCI bus ``bus`` ("0000:0f:00.0"), or why there are none."""
    try:
        api = import_module("pynvml")
    except ImportError:
        return f"nvidia-ml-py is not installed ({adding_extra('bench')})"
    try:
        api.nvmlInit()
        return Sensors(api, api.nvmlDeviceGetHandleByPciBusId(bus.encode()))
    except api.NVMLError as error:
        return f"NVML does not answer: {error}"


@contextmanager
def sampled(read: Callable[[], Reading], period: float = PERIOD) -> Iterator[Sequence[Reading]]:
    """Collect readings in a thread, one every ``period`` seconds, until the end of the ``with``."""
    readings: list[Reading] = []
    ended = Event()

    def collect() -> None:
        while not ended.wait(period):
            readings.append(read())

    thread = Thread(target=collect, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()
