"""``ptxlab diff``: the same launch on two devices or targets, and where their results part."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from ptxlab.cli import readers
from ptxlab.cli.common import add_common, emit
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch

if TYPE_CHECKING:
    from ptxlab.device.protocol import Device

ENGINES = ("ptx", "sass")
"""What --a and --b are where a program is compared with its machine code."""

EXAMPLE = f"""\
example:
  ptxlab diff ptx/mma_m16n8k16_bf16_f32.ptx --a emulator:sm_80 --b emulator:sm_90a
  ptxlab diff kernels/tensor_core.cu --a emulator --b cuda
  ptxlab diff kernels/naive.cu --a ptx --b sass --arch sm_90a      its PTX, and what ptxas made of it

Compares every array to the bit, and then every register that every thread writes, up to the first
that differs; says whether rounding explains it. Registers that hold addresses are left out. Exit status
1 when anything differs.

With --a ptx --b sass the emulator runs the PTX of a program, and the machine code that ptxas makes of it
(--toolchain says which ptxas). Where the memory they leave differs, it is followed from the first store that
differs back along the values, to the first instruction whose inputs agree and whose result does not. The verdict
says by which rule of PTX ptxas may do so, or that it may not. Exit status 1 when it may not.

{ARGUMENTS}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    for name, default in (("a", "emulator"), ("b", "cuda")):
        parser.add_argument(
            f"--{name}",
            type=side,
            default=default,
            metavar="emulator[:ARCH]|cuda[:N]|ptx|sass",
            help=f"one of the two (default {default})",
        )
    add_common(parser)
    parser.set_defaults(device=None, device_options=("a", "b"))


def side(text: str) -> str:
    """Check the spelling of a device: as ``--device``, with the target of an emulator behind it; or an engine."""
    if text in ENGINES:
        return text
    kind, _, arch = text.partition(":")
    if kind == "emulator" and arch:
        return f"{kind}:{readers.target(arch)}"
    try:
        return readers.device(text)
    except ValueError as error:
        kinds = f"emulator:ARCH, {' or '.join(ENGINES)}"
        raise ValueError(f"{error}; here also {kinds}, all of the one FILE") from None


def execute(args: argparse.Namespace) -> int:
    """Launch on both, compare, and return 0 when nothing differs."""
    from pathlib import Path

    from ptxlab.device.loading import load_ptx
    from ptxlab.device.memory import Buffer
    from ptxlab.observe.diff import DeviceLaunch, Repeatable, diff
    from ptxlab.verbs.diff import text as view
    from ptxlab.verbs.launching.launch import bind_launch, read_launch

    if args.device is not None:
        raise PtxlabError(
            "diff takes two devices, and --device is one",
            hint="say --a emulator:sm_80 --b cuda; --arch is the target of an emulator without one",
        )
    if {args.a, args.b} & set(ENGINES):
        return _engines(args)
    asked = read_launch(args)
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(closing(open_side(spec, args.arch, asked.timeout)))
            for spec in (args.a, args.b)
        )
        # What CUDA C becomes for the older one runs on both.
        older = min((a.target, b.target), key=lambda target: target.capability)
        module = load_ptx(Path(asked.file), older, asked.options)
        loaded = {device: device.load(module) for device in (a, b)}
        first = bind_launch(asked, a, loaded[a])

        def bound(device: Device) -> DeviceLaunch:
            launch = bind_launch(asked, device, loaded[device])
            given = zip(launch.values, launch.passed, strict=True)
            arrays = [(name, value) for name, value in given if isinstance(value, Buffer)]
            return DeviceLaunch(launch.kernel, launch.passed, launch.variables, arrays)

        repeatable = Repeatable(module, first.kernel.name, first.config, bound)
        with first.told_by_source():
            report = diff(repeatable, a, b)
    emit(args, lambda: view.text(args.file, report), lambda: view.as_json(args.file, report))
    return 0 if report.same else 1


def _engines(args: argparse.Namespace) -> int:
    """Launch the PTX of a program, and its machine code, and compare."""
    from ptxlab.verbs.diff import engines_text as view
    from ptxlab.verbs.diff.engines import engines_report

    if (args.a, args.b) != ENGINES:
        raise PtxlabError("PTX is compared with its machine code", hint="say --a ptx --b sass")
    told = engines_report(args)
    emit(args, lambda: view.text(args.file, told), lambda: view.as_json(args.file, told))
    return int(not told.report.allowed)


def open_side(spec: str, arch: str | None, timeout: float) -> Device:
    """Open the device of ``--a`` or ``--b``; ``arch`` is what an emulator is that names no target."""
    from ptxlab.cli.common import print_to_stderr
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.device.opening import open_device

    emulated = spec.startswith("emulator")
    try:
        return open_device(
            "emulator" if emulated else spec,
            arch=spec.partition(":")[2] or arch if emulated else None,
            progress=LaunchProgress(timeout),
            console=print_to_stderr,
        )
    except DeviceUnavailable as absent:
        hint = "without one there are --a emulator:sm_80 --b emulator:sm_90a, and --a ptx --b sass"
        raise DeviceUnavailable(absent.message, hint=hint) from None
