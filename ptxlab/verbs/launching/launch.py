"""From the options of ``add_launch`` to a kernel on a device with its arguments in place.

    asked = read_launch(args)                what the command line and the file's header say
    with open_device(args) as device:
        launch = bind_launch(asked, device)  load, choose the kernel, upload the arrays
        result = launch.run()                or launch.kernel.run(launch.config, ...)
        arguments = launch.arguments()       what every array holds now

A ``Launch`` also has what a verb needs to launch in its own way: ``kernel``, ``config`` and
``passed``, the arguments as ``Kernel.run`` takes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.cli.isolation import limited
from ptxlab.cli.parser import Parser
from ptxlab.cli.readers import suggestion
from ptxlab.device.loading import locate
from ptxlab.device.protocol import Device, Dump, Kernel, LaunchResult, Module
from ptxlab.device.shapes import declared
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.header import read_header
from ptxlab.verbs.launching.arrays import ArrayValue
from ptxlab.verbs.launching.options import add_run, compilation
from ptxlab.verbs.launching.values import Value, read, split


@dataclass(frozen=True, slots=True)
class Asked:
    """A launch as the user asked for it. ``kernel`` and ``block`` are None where nobody said.

    ``options`` go to NVRTC, ``timeout`` is in seconds, ``values`` are the arguments as they were named.
    """

    file: str
    options: Sequence[str]
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...] | None
    cluster: tuple[int, ...] | None
    shared: int
    timeout: float
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument after the launch. ``dtype`` is its PTX type; a scalar has no ``before``.

    ``value`` is what the kernel left in an array (``before`` what it found there), or the scalar.
    """

    name: str
    dtype: str
    value: npt.NDArray[Any] | int | float
    before: npt.NDArray[Any] | None = None

    @property
    def changed(self) -> bool:
        return self.before is not None and np.asarray(self.value).tobytes() != self.before.tobytes()


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of ``device`` and all that a launch of it takes.

    ``values`` are the arguments in the order of the parameters, ``passed`` the same for the device:
    scalars, buffers, and host arrays where a struct or array is passed by value. ``block`` is that of
    ``config`` with as many sizes as were given.
    """

    asked: Asked
    device: Device
    kernel: Kernel
    block: tuple[int, ...]
    config: LaunchConfig
    values: dict[str, Value]
    passed: tuple[Any, ...]

    def run(self, dump: Dump | None = None) -> LaunchResult:
        """Launch the kernel and wait for its end, on a GPU no longer than the user allows."""
        timed = self.device.kind == "cuda"  # the emulator's progress has a limit of its own
        name, file, timeout = self.kernel.name, self.asked.file, self.asked.timeout
        with limited(name, file, timeout) if timed else nullcontext():
            return self.kernel.run(self.config, self.passed, dump)

    def arguments(self) -> tuple[Argument, ...]:
        found = []
        for parameter, name, given in zip(
            self.kernel.parameters, self.values, self.passed, strict=True
        ):
            value = self.values[name]
            if not isinstance(value, ArrayValue):
                found.append(Argument(name, parameter.type, value))
                continue
            after = given if given is value.array else given.numpy()
            found.append(Argument(name, value.dtype, after, before=value.array))
        return tuple(found)


def read_launch(args: argparse.Namespace, *, line_info: bool = False) -> Asked:
    """Complete ``args`` from the header of the file, and read its arguments.

    With ``line_info`` CUDA C is compiled so that the PTX says which of its lines it comes from.
    Raises PtxlabError for an argument that is none, before any device is opened.
    """
    fill_in(args, locate(args.file))
    return Asked(
        file=args.file,
        options=compilation(args, line_info=line_info and args.file.endswith(".cu")),
        kernel=args.kernel,
        grid=args.grid or (1,),
        block=args.block,
        cluster=args.cluster,
        shared=args.shared or 0,
        timeout=args.timeout,
        values=values(args.arg, args.seed),
    )


def bind_launch(asked: Asked, device: Device, module: Module | None = None) -> Launch:
    """Load the file, unless it is loaded as ``module``, and put the arguments on the device.

    Raises PtxlabError that says which argument is missing or unknown.
    """
    if module is None:
        module = device.load(Path(asked.file), options=asked.options)
    kernel = module.kernel(asked.kernel)
    bound = bind(kernel, asked.values)
    block, function = asked.block, getattr(kernel, "function", None)
    if block is None and function is not None:
        block = declared(function, "reqntid")
    if block is None:
        raise PtxlabError(f"how many threads has a CTA of {kernel.name}?", hint="give --block")
    config = LaunchConfig.of(asked.grid, block, asked.shared, asked.cluster)
    passed: list[Any] = []
    for parameter, value in zip(kernel.parameters, bound.values(), strict=True):
        if not isinstance(value, ArrayValue):
            passed.append(value)
        elif parameter.count != 1:  # a struct or array that the kernel takes by value
            passed.append(value.array)
        else:
            passed.append(device.upload(value.array))
    return Launch(asked, device, kernel, block, config, bound, tuple(passed))


def fill_in(args: argparse.Namespace, path: Path) -> None:
    """Complete ``args`` from the ``Run:`` line of the file that is about the same kernel.

    Arguments and macros are completed one by one, everything else as a whole.
    """
    given = next((run for run in run_lines(path) if args.kernel in (None, run.kernel)), None)
    if given is None:
        return
    for name in ("kernel", "grid", "block", "cluster", "shared", "std"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(given, name))
    args.arg = merged(given.arg, args.arg)
    args.D = merged(given.D, args.D)
    args.I = args.I + given.I


def run_lines(path: Path) -> list[argparse.Namespace]:
    """Read the ``Run:`` lines in the header of a file."""
    # What is not text has no header: loading it says so, or takes it for the cubin it is.
    text = path.read_text(encoding="utf-8", errors="replace")
    parser = Parser(prog=f"the Run line of {path}")
    add_run(parser)
    return [parser.parse_args(words[2:]) for words in read_header(text, str(path)).runs]


def merged(defaults: list[str], given: list[str]) -> list[str]:
    """Return the ``NAME=VALUE`` of ``defaults``, replaced and then followed by those ``given``."""
    named = {text.partition("=")[0].strip(): text for text in defaults}
    named |= {text.partition("=")[0].strip(): text for text in given}
    return list(named.values())


def values(arguments: Sequence[str], seed: int) -> dict[str, Value]:
    """Read the ``NAME=VALUE`` arguments; arrays without a seed of their own differ by position."""
    found: dict[str, Value] = {}
    for index, argument in enumerate(arguments):
        name, text = split(argument)
        found[name] = read(name, text, (seed, index))
    return found


def bind(kernel: Kernel, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return ``values`` in the order of the kernel's parameters, under the names they were given.

    Names that are the parameters' bind by name, names of which none is a parameter's in order.
    Raises PtxlabError that says which argument is missing or unknown.
    """
    names = [parameter.name for parameter in kernel.parameters]
    takes = f"{kernel.name} takes {', '.join(names) or 'no arguments'}"
    known = [name for name in values if name in names]
    if not known and len(values) == len(names):
        return dict(values)
    for name in values:
        if known and name not in names:
            raise PtxlabError(f"no parameter {name!r}{suggestion(name, names)}", hint=takes)
    if not known and values:
        raise PtxlabError(
            f"{len(values)} arguments for {len(names)} parameters, and no name is a parameter's",
            hint=takes,
        )
    if missing := [name for name in names if name not in values]:
        raise PtxlabError(
            f"no value for {', '.join(missing)}", hint=f"{takes}: give --arg {missing[0]}=VALUE"
        )
    return {name: values[name] for name in names}
