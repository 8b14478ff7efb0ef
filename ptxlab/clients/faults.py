"""Why a launch of a program stopped, told at the line of its source, with what led there."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.errors import LaunchError, Location
from ptxlab.instrument.sites import sources
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import SourceLine


@contextmanager
def faults_at_source(
    kernel: EmulatorKernel, config: LaunchConfig, parameters: bytes
) -> Iterator[None]:
    """Have a fault of a launch name the line of the source, where the PTX says which it is, and then that of the PTX.

    What other lines computed of a wrong address is told with it, as far as memory still leads there.
    """
    try:
        yield
    except LaunchError as fault:
        from ptxlab.observe.faulted import address_made_of  # here: most launches have no fault

        lines = _sources(kernel)
        made_of = address_made_of(kernel, config, parameters, fault, lines)
        told = at_source(kernel, fault, [each.told(_text(each.source)) for each in made_of])
        raise told from None


def at_source(kernel: EmulatorKernel, fault: LaunchError, notes: Sequence[str] = ()) -> LaunchError:
    """Return a fault told at the line of the source with ``notes``; as it is where the PTX does not say which that is."""
    where = fault.location
    line = None
    if where is not None and where.path == kernel.program.module.source.path:
        line = _sources(kernel).get(where.line)
    if line is None:
        return fault
    text = _text(line)
    column = len(text) - len(text.lstrip()) + 1
    return fault.told_at(Location(line.path, line.line, column, text), notes)


def _sources(kernel: EmulatorKernel) -> dict[int, SourceLine]:
    """Return of each line of the PTX that of the source."""
    return sources(kernel.program.module, kernel.program.reachable)


def _text(line: SourceLine) -> str:
    return linecache.getline(line.path, line.line).rstrip()
