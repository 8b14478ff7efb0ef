"""What ``ptxlab run`` does between its command line and its result: bind, upload, launch, collect."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.cli.parser import suggestion
from ptxlab.cli.values import ArrayValue, Value, read, split
from ptxlab.device.protocol import Device, Kernel, LaunchResult
from ptxlab.errors import PtxlabError
from ptxlab.view.launch import Argument, Launch


def values(arguments: Sequence[str], seed: int) -> dict[str, Value]:
    """Read the ``NAME=VALUE`` arguments; arrays without a seed of their own differ by position."""
    found: dict[str, Value] = {}
    for index, argument in enumerate(arguments):
        name, text = split(argument)
        found[name] = read(name, text, (seed, index))
    return found


def check_saved(saved: Sequence[tuple[str, str]], values: Mapping[str, Value]) -> None:
    """Refuse, before any work is done, to save what is no array."""
    arrays = [name for name, value in values.items() if isinstance(value, ArrayValue)]
    for name, _ in saved:
        if name not in arrays:
            raise PtxlabError(
                f"--save {name}: no array argument has this name{suggestion(name, arrays)}",
                hint=f"arrays are {', '.join(arrays)}" if arrays else None,
            )


def launch(args: argparse.Namespace, values: Mapping[str, Value], device: Device) -> Launch:
    """Load the file, launch its kernel on ``values`` and return what it left."""
    module = device.load(Path(args.file), options=[f"-D{macro}" for macro in args.D])
    kernel = module.kernel(args.kernel)
    bound = bind(kernel, values)
    if args.block is None:
        raise PtxlabError(f"how many threads has a CTA of {kernel.name}?", hint="give --block")
    grid, shared = args.grid or (1,), args.shared or 0
    result, arguments = _run(device, kernel, bound, grid, args.block, shared)
    return Launch(
        file=args.file,
        kernel=kernel.name,
        device=device.kind,
        arch=device.target.name,
        grid=grid,
        block=args.block,
        shared=shared,
        seconds=result.seconds,
        counters=result.counters,
        arguments=arguments,
    )


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


def npy(launch: Launch, name: str) -> bytes:
    """Return the array argument ``name`` as the contents of a .npy file."""
    content = io.BytesIO()
    for argument in launch.arguments:
        if argument.name == name:
            np.save(content, np.asarray(argument.value))
    return content.getvalue()


def _run(
    device: Device,
    kernel: Kernel,
    bound: Mapping[str, Value],
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
) -> tuple[LaunchResult, tuple[Argument, ...]]:
    """Upload the arrays, launch, and read every array back."""
    passed: list[Any] = []
    for parameter, value in zip(kernel.parameters, bound.values(), strict=True):
        if not isinstance(value, ArrayValue):
            passed.append(value)
        elif parameter.count != 1:  # a struct or array that the kernel takes by value
            passed.append(value.array)
        else:
            passed.append(device.upload(value.array))
    result = kernel.launch(grid, block, passed, shared)
    arguments = []
    for parameter, name, given in zip(kernel.parameters, bound, passed, strict=True):
        value = bound[name]
        if not isinstance(value, ArrayValue):
            arguments.append(Argument(name, parameter.type, value))
            continue
        after = given if given is value.array else given.numpy()
        arguments.append(Argument(name, value.dtype, after, before=value.array))
    return result, tuple(arguments)
