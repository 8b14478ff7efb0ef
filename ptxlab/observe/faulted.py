"""What a wrong address is made of in a launch that has stopped: part of it is made again, and looked at there."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.computed import Computed, Definitions
from ptxlab.syntax.functions import SourceLine

LONGEST = 5.0
"""Seconds after which nobody waits for more to be said of a fault."""


def address_made_of(
    kernel: EmulatorKernel,
    config: LaunchConfig,
    parameters: bytes,
    fault: LaunchError,
    sources: Mapping[int, SourceLine],
) -> tuple[Computed, ...]:
    """Return what the wrong address is made of that stopped a launch, nearest first, by its thread's values.

    The cluster of that thread alone runs again, on what memory holds now and will again. Where it does not stop at the
    same place with the same address, as what it reads is no longer what it was, nothing is said. ``sources`` have of
    each line of the PTX that of the source.
    """
    if fault.access is None or not sources:
        return ()
    standing = _Standing()
    again = _fault(kernel.watch(standing, fault.access.cta), config, parameters)
    if again is None or (again.location, again.access) != (fault.location, fault.access):
        return ()
    lane = standing.wave.lane_in(fault.access.cta, fault.access.thread)
    definitions = standing.definitions(sources)
    return definitions.behind(standing.site, standing.frame.registers, lane)


def _fault(kernel: EmulatorKernel, config: LaunchConfig, parameters: bytes) -> LaunchError | None:
    """Make a launch of which nothing is left, and return why it stopped, None where it did not so soon."""
    end = perf_counter() + LONGEST

    def limit(done: int, total: int) -> None:
        if perf_counter() > end:
            raise TimeoutError("it takes too long")

    try:
        with kernel.device.rehearsing(limit):
            kernel.launch_packed(config, parameters)
    except LaunchError as error:
        return error
    except Unsupported:
        return None
    return None


class _Standing(Watcher):
    """Knows where a wave stands: at which instruction, of which activation."""

    wave: Wave
    site: Site
    frame: Frame

    def begin(self, wave: Wave) -> None:
        self.wave = wave

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self.site, self.frame = site, frame

    def definitions(self, sources: Mapping[int, SourceLine]) -> Definitions:
        function = next(each for each in self.wave.functions if each.name == self.site.function)
        return Definitions(function, sources)
