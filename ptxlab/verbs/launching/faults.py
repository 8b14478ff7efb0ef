"""Why a launch stopped, told at the line of the source, not of the PTX or machine code that became of CUDA C, with what led there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.loading import is_cuda
from ptxlab.device.protocol import Arguments, Kernel
from ptxlab.errors import LaunchError, Location
from ptxlab.instrument.sites import instructions, own_lines
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import SourceLine, source_lines
from ptxlab.syntax.tree import PtxModule
from ptxlab.view.sources import indented, read_sources


@contextmanager
def told_by_source(
    kernel: Kernel, file: str, options: Sequence[str], config: LaunchConfig, args: Arguments
) -> Iterator[None]:
    """Have a LaunchError of ``kernel``, of a ``file`` compiled with ``options``, name the line of CUDA C.

    What other lines computed of a wrong address is told with it, as the launch with ``args`` has it when it is made again.
    """
    try:
        yield
    except LaunchError as fault:
        if fault.location is None or not isinstance(kernel, EmulatorKernel):
            raise
        lines = _sources(kernel, file, options)
        if fault.location.line not in lines:
            raise
        from ptxlab.observe.faulted import address_made_of  # here: most launches have no fault

        made_of = address_made_of(kernel, config, kernel.packed(args), fault, lines)
        line = lines[fault.location.line]
        texts = read_sources([line.path, *(each.source.path for each in made_of)])
        column, text = indented(texts, *line)
        notes = [each.told(indented(texts, *each.source)[1]) for each in made_of]
        where = Location(*line, column, text) if is_cuda(file) else fault.location
        raise fault.told_at(where, notes) from None


def _sources(kernel: EmulatorKernel, file: str, options: Sequence[str]) -> Mapping[int, SourceLine]:
    """Return where the lines of a program come from: of CUDA C as the same says that is compiled to tell it."""
    if not is_cuda(file):
        program = kernel.program
        return own_lines(program.module, program.reachable)
    from ptxlab.toolchain import LINE_INFO  # here: a launch without faults can spare it

    telling = kernel.module.device.load(Path(file), options=[*dict.fromkeys((*options, LINE_INFO))])
    twin = telling.kernel(kernel.name)
    assert isinstance(twin, EmulatorKernel)
    placed = zip(_placed(kernel.program.module), _placed(twin.program.module), strict=False)
    return {
        number: line
        for (number, name, _), (_, other, line) in placed
        if name == other and line is not None
    }


def _placed(module: PtxModule) -> list[tuple[int, str, SourceLine | None]]:
    """Return of each instruction of a program its line, its name, and the line that it comes from."""
    return [
        (site.instruction.position.line, site.instruction.name, line)
        for function in module.functions
        if function.body is not None
        for site, line in zip(instructions(function), source_lines(module, function), strict=True)
    ]
