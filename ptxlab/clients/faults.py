"""Why a launch of a program stopped, told at the line of its source, with what led there."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.errors import LaunchError, Location
from ptxlab.instrument.sites import own_lines, sources
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.tree import PtxModule


@contextmanager
def faults_at_source(
    kernel: EmulatorKernel, config: LaunchConfig, parameters: bytes
) -> Iterator[None]:
    """Have a fault of a launch name the line of the source, where the PTX says which it is, or else that of the PTX.

    What other lines computed of a wrong address is told with it, as far as memory still leads there.
    """
    try:
        yield
    except LaunchError as fault:
        from ptxlab.observe.faulted import address_made_of  # here: most launches have no fault

        module, functions = kernel.program.module, kernel.program.reachable
        lines = _sources(kernel) or own_lines(module, functions)
        made_of = address_made_of(kernel, config, parameters, fault, lines)
        notes = [each.told(_text(each.source, module)) for each in made_of]
        raise at_source(kernel, fault, notes) from None


def at_source(kernel: EmulatorKernel, fault: LaunchError, notes: Sequence[str] = ()) -> LaunchError:
    """Return a fault told with ``notes`` at the line of the source, where the PTX says which that is."""
    where = fault.location
    line = None
    if where is not None and where.path == kernel.program.module.source.path:
        line = _sources(kernel).get(where.line)
    if line is None:
        return fault.told_at(where, notes) if where and notes else fault
    text = _text(line, kernel.program.module)
    column = len(text) - len(text.lstrip()) + 1
    return fault.told_at(Location(line.path, line.line, column, text), notes)


def _sources(kernel: EmulatorKernel) -> dict[int, SourceLine]:
    """Return of each line of the PTX that of the source."""
    return sources(kernel.program.module, kernel.program.reachable)


def _text(line: SourceLine, module: PtxModule) -> str:
    if line.path == module.source.path:
        return module.source.text.splitlines()[line.line - 1].rstrip()
    return linecache.getline(line.path, line.line).rstrip()
