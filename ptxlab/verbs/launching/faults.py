"""Why a launch of CUDA C stopped, told at the line of its source and not of the PTX or machine code it became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.loading import is_cuda
from ptxlab.device.protocol import Kernel
from ptxlab.errors import LaunchError, Location
from ptxlab.instrument.sites import instructions
from ptxlab.syntax.functions import SourceLine, source_lines
from ptxlab.syntax.tree import PtxModule
from ptxlab.view.sources import indented, read_sources


@contextmanager
def told_by_source(kernel: Kernel, file: str, options: Sequence[str]) -> Iterator[None]:
    """Have a LaunchError of ``kernel``, of a ``file`` compiled with ``options``, name the line of CUDA C."""
    try:
        yield
    except LaunchError as fault:
        line = _source_line(fault.location, kernel, file, options)
        if line is None:
            raise
        where = fault.location
        assert where is not None
        column, text = indented(read_sources([line.path]), *line)
        hint = f"it is {' '.join(where.text.split())} on line {where.line} of {where.path}"
        raise LaunchError(
            fault.message,
            location=Location(*line, column, text),
            hint=f"{fault.hint}; {hint}" if fault.hint else hint,
            kind=fault.kind,
        ) from None


def _source_line(
    where: Location | None, kernel: Kernel, file: str, options: Sequence[str]
) -> SourceLine | None:
    """Return where an instruction comes from, as the same program says that is compiled to tell its lines."""
    if where is None or not isinstance(kernel, EmulatorKernel) or not is_cuda(file):
        return None
    from ptxlab.toolchain import LINE_INFO  # here: a launch without faults can spare it

    telling = kernel.module.device.load(Path(file), options=[*dict.fromkeys((*options, LINE_INFO))])
    twin = telling.kernel(kernel.name)
    assert isinstance(twin, EmulatorKernel)
    program, same = kernel.program.module, twin.program.module
    at = [number for number, _, _ in _placed(program)].index(where.line)
    instruction, (_, other, line) = _placed(program)[at][1], _placed(same)[at]
    return line if instruction == other else None


def _placed(module: PtxModule) -> list[tuple[int, str, SourceLine | None]]:
    """Return of each instruction of a program its line, its name, and the line that it comes from."""
    return [
        (site.instruction.position.line, site.instruction.name, line)
        for function in module.functions
        if function.body is not None
        for site, line in zip(instructions(function), source_lines(module, function), strict=True)
    ]
