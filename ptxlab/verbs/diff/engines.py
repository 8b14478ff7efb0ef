"""A program's PTX and its machine code, both launched on the emulator with the same arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from ptxlab.cli.common import print_to_stderr
from ptxlab.cli.progress import LaunchProgress
from ptxlab.device.emulator import EmulatorDevice, EmulatorModule, MachineCodeModule
from ptxlab.device.loading import is_machine_code
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Module
from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import sources
from ptxlab.observe.diff import DeviceLaunch
from ptxlab.observe.engines import Bound, EnginesReport, compare
from ptxlab.syntax.functions import SourceLine
from ptxlab.toolchain import nvjitlink
from ptxlab.verbs.launching.launch import Asked, bind_launch, read_launch


@dataclass(frozen=True, slots=True)
class EnginesTold:
    """A report, the target, and the version of what made the machine code; of CUDA C the ``sources`` of lines of PTX."""

    report: EnginesReport
    arch: str
    toolchain: str
    sources: Mapping[int, SourceLine]


def engines_report(args: argparse.Namespace) -> EnginesTold:
    """Compare the launch that is asked for. Raises PtxlabError where it fails on either engine."""
    asked = read_launch(args, line_info=True)
    if is_machine_code(asked.file):
        raise PtxlabError(
            f"{asked.file} is machine code, and has no PTX to compare it with",
            hint="give the .ptx or .cu it was made from; ptxlab check looks at the machine code alone",
        )
    with ExitStack() as stack:
        ptx, sass = (
            stack.enter_context(closing(_open(args.arch, engine, asked.timeout)))
            for engine in ("ptx", "sass")
        )
        machine = sass.load(Path(asked.file), options=asked.options)
        assert isinstance(machine, MachineCodeModule)
        program = ptx.load(machine.tree)
        first = bind_launch(asked, sass, machine)
        report = compare(
            first.config,
            _bound(asked, ptx, program),
            _bound(asked, sass, machine),
            machine.origins(first.kernel.name),
        )
        lines = sources(machine.tree, machine.tree.functions)
        return EnginesTold(report, ptx.target.name, nvjitlink.version(), lines)


def _open(arch: str | None, engine: str, timeout: float) -> EmulatorDevice:
    device = open_device(
        "emulator",
        arch=arch,
        engine=engine,
        progress=LaunchProgress(timeout),
        console=print_to_stderr,
    )
    assert isinstance(device, EmulatorDevice)
    return device


def _bound(asked: Asked, device: EmulatorDevice, module: Module) -> Bound:
    assert isinstance(module, EmulatorModule)

    def launch() -> DeviceLaunch:
        # Variables keep what a launch leaves in them: each begins with a module of its own.
        own = module.anew() if module.variables else module
        bound = bind_launch(asked, device, own)
        given = [*zip(bound.values, bound.passed, strict=True)]
        arrays = [(name, value) for name, value in given if isinstance(value, Buffer)]
        arrays += [(name, own.variable(name)) for name in own.variables]
        return DeviceLaunch(bound.kernel, bound.passed, bound.variables, arrays)

    return launch
