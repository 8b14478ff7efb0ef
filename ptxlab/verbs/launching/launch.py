"""From the options of ``add_launch`` to a kernel on a device with its arguments in place.

    asked = read_launch(args)                what the command line and the file's header say
    with open_device(args) as device:
        launch = bind_launch(asked, device)  load, choose the kernel, upload the arrays
        result = launch.run()                or launch.kernel.run(launch.config, ...)
        arguments = launch.arguments()       what every array holds now

A ``PreparedLaunch`` also has what a verb needs to launch in its own way: ``kernel``, ``config`` and
``passed``, the arguments as ``Kernel.run`` takes them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cli.common import SASS
from ptxlab.cli.isolation import limited
from ptxlab.cli.parser import Parser
from ptxlab.cli.readers import suggestion
from ptxlab.device.loading import find_file, is_cuda, is_machine_code
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device, Dump, Kernel, LaunchResult, Module
from ptxlab.device.shapes import declared
from ptxlab.errors import PtxlabError
from ptxlab.files import read_text
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import Parameter, statements
from ptxlab.syntax.header import read_header
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Address, Function, Instruction, Name
from ptxlab.verbs.launching.arrays import ArrayValue
from ptxlab.verbs.launching.faults import told_by_source
from ptxlab.verbs.launching.options import add_run, compilation
from ptxlab.verbs.launching.values import ArgumentValue, MapValue, StructValue, read, split


@dataclass(frozen=True, slots=True)
class Asked:
    """A launch as the user asked for it. ``kernel`` and ``block`` are None where nobody said.

    ``options`` go to NVRTC, ``timeout`` is in seconds, ``values`` are the arguments as they were named,
    ``variables`` what those of the module are to hold.
    """

    file: str
    options: Sequence[str]
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...] | None
    cluster: tuple[int, ...] | None
    shared: int
    cooperative: bool
    timeout: float
    values: dict[str, ArgumentValue]
    variables: dict[str, ArgumentValue]

    @property
    def mapped(self) -> frozenset[str]:
        """The names of the arguments of which there are tensor maps, and that structs lead to."""
        given = (*self.values.values(), *self.variables.values())
        maps = (value.array for value in given if isinstance(value, MapValue))
        return frozenset(maps).union(
            *(value.names for value in given if isinstance(value, StructValue))
        )


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument after the launch. ``dtype`` is its PTX type; a scalar has no ``before``.

    ``value`` is what the kernel left in an array (``before`` what it found there), or the scalar, or
    the text of a tensor map.
    """

    name: str
    dtype: str
    value: Array | int | float | str
    before: Array | None = None

    @property
    def changed(self) -> bool:
        return self.before is not None and np.asarray(self.value).tobytes() != self.before.tobytes()


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A kernel of ``device`` and all that a launch of it takes.

    ``values`` are the arguments in the order of the parameters, ``passed`` the same for the device:
    scalars, buffers, tensor maps, and host arrays where a struct or array is passed by value, of structs tuples of
    their members; ``mapped`` are the arrays that tensor maps and structs lead to, parameters or not; ``variables`` are
    those of the module.
    """

    asked: Asked
    device: Device
    kernel: Kernel
    config: LaunchConfig
    values: dict[str, ArgumentValue]
    passed: tuple[Any, ...]
    mapped: dict[str, Buffer]
    variables: dict[str, Any]

    def run(self, dump: Dump | None = None) -> LaunchResult:
        """Launch the kernel and wait for its end, on a GPU no longer than the user allows."""
        timed = self.device.kind == "cuda"  # the emulator's progress has a limit of its own
        name, file, timeout = self.kernel.name, self.asked.file, self.asked.timeout
        with self.told_by_source(), limited(name, file, timeout) if timed else nullcontext():
            return self.kernel.run(self.config, self.passed, dump)

    def told_by_source(self) -> AbstractContextManager[None]:
        """Return what has a fault of this launch name the line of CUDA C."""
        asked = self.asked
        return told_by_source(self.kernel, asked.file, asked.options, self.config, self.passed)

    def arguments(self) -> tuple[Argument, ...]:
        """Return the arguments in the order of the parameters, then arrays that only tensor maps and structs lead to."""
        given = zip(self.kernel.parameters, self.values.items(), self.passed, strict=True)
        arguments = [_argument(name, p.type, value, held) for p, (name, value), held in given]
        arguments += [
            _argument(name, "", self.asked.values[name], held)
            for name, held in self.mapped.items()
            if name not in self.values
        ]
        return tuple(arguments)


def _argument(name: str, dtype: str, value: ArgumentValue, held: Any) -> Argument:
    if isinstance(value, MapValue | StructValue):
        return Argument(name, dtype, value.text)
    if not isinstance(value, ArrayValue):
        return Argument(name, dtype, value)
    after = held if held is value.array else held.numpy()
    return Argument(name, value.dtype, after, before=value.array)


def read_launch(args: argparse.Namespace, *, line_info: bool = False) -> Asked:
    """Complete ``args`` from the file: its header, and the target it is for; and read its arguments.

    With ``line_info`` CUDA C is compiled so that the PTX says which of its lines it comes from.
    Raises PtxlabError for an argument that is none, before any device is opened.
    """
    path = find_file(args.file)
    fill_in(args, path)
    if not is_machine_code(path) or args.engine == SASS:  # a GPU runs what it is
        args.arch = args.arch or needed_target(path)
    asked = Asked(
        file=args.file,
        options=compilation(args, line_info=line_info and is_cuda(args.file)),
        kernel=args.kernel,
        grid=args.grid or (1,),
        block=args.block,
        cluster=args.cluster,
        shared=args.shared or 0,
        cooperative=bool(args.cooperative),
        timeout=args.timeout,
        values=values(args.arg, args.seed),
        variables=values(args.set, args.seed, len(args.arg)),
    )
    _require_named(asked)
    return asked


def _require_named(asked: Asked) -> None:
    """Raise PtxlabError for a tensor map of what is no array, and a struct of what is not given before it."""
    arrays = [name for name, value in asked.values.items() if isinstance(value, ArrayValue)]
    before: list[str] = []
    for each, value in [*asked.values.items(), *asked.variables.items()]:
        if isinstance(value, MapValue) and value.array not in arrays:
            raise PtxlabError(
                f"a tensor map is one of {value.array!r}, which is no array argument{suggestion(value.array, arrays)}",
                hint=f"give --arg {value.array}=randn(64x64,f16), or another array",
            )
        if isinstance(value, StructValue):
            for name in set(value.names).difference(before):
                raise PtxlabError(
                    f"{each}={value.text} has {name!r}, which is no array, tensor map or struct before it{suggestion(name, before)}",
                    hint=f"give --arg {name}=randn(64x64,f16) before it; numbers are such as 128:s64",
                )
        if each in asked.values and not isinstance(value, int | float):
            before.append(each)


def bind_launch(asked: Asked, device: Device, module: Module | None = None) -> PreparedLaunch:
    """Load the file, unless it is loaded as ``module``, and put the arguments on the device.

    Raises PtxlabError that says which argument is missing or unknown.
    """
    if module is None:
        module = device.load(Path(asked.file), options=asked.options)
    kernel = module.kernel(asked.kernel)
    block, function = asked.block, getattr(kernel, "function", None)
    if block is None and function is not None:
        block = declared(function, "reqntid")
    bound = bind(kernel, asked.values, asked.mapped, "--block 128 and " * (block is None))
    if function is not None:
        _refuse_numbers_for_addresses(kernel, function, bound)
    if block is None:
        raise PtxlabError(
            f"how many threads has a CTA of {called(kernel.name)}?", hint="give --block"
        )
    config = LaunchConfig.of(asked.grid, block, asked.shared, asked.cluster, asked.cooperative)
    led_to: dict[str, Any] = {
        name: device.upload(value)
        for name, value in asked.values.items()
        if name in asked.mapped and isinstance(value, ArrayValue)
    }
    mapped: dict[str, Buffer] = dict(led_to)
    for name, value in asked.values.items():
        if isinstance(value, MapValue | StructValue):
            led_to[name] = placed(device, value, led_to)
    passed = tuple(
        led_to[name] if name in led_to else place(device, parameter, value, led_to)
        for parameter, (name, value) in zip(kernel.parameters, bound.items(), strict=True)
    )
    variables: dict[str, Any] = {}
    for name, value in asked.variables.items():
        variable = module.variable(name)
        variables[name] = place(device, variable.declared, value, led_to)
        variable.upload(variables[name])
    return PreparedLaunch(asked, device, kernel, config, bound, passed, mapped, variables)


def placed(device: Device, value: MapValue | StructValue, led_to: Mapping[str, Any]) -> Any:
    """Return a tensor map, or the members of a struct, of what is on the device already."""
    if isinstance(value, MapValue):
        return device.tensor_map(led_to[value.array], **value.options)
    return tuple(led_to[member] if isinstance(member, str) else member for member in value.members)


def _refuse_numbers_for_addresses(
    kernel: Kernel, function: Function, bound: Mapping[str, ArgumentValue]
) -> None:
    """Raise PtxlabError for a number, but 0, where the kernel makes a global address of the parameter as it is."""
    loaded: dict[str, str] = {}
    addresses: set[str] = set()
    for each in statements(function):
        if not isinstance(each, Instruction):
            continue
        names = [operand.text for operand in each.operands[1:] if isinstance(operand, Name)]
        read = [operand for operand in each.operands[1:] if isinstance(operand, Address)]
        if each.opcode == "ld" and "param" in each.modifiers and isinstance(each.operands[0], Name):
            if read and isinstance(read[0].base, Name):
                loaded[each.operands[0].text] = read[0].base.text
        elif each.name == "cvta.to.global.u64":
            addresses |= {loaded[name] for name in names if name in loaded}
    for parameter, (name, value) in zip(kernel.parameters, bound.items(), strict=True):
        written = function.parameters[parameter.index].names[0].name
        if written in addresses and isinstance(value, int) and value:
            raise PtxlabError(
                f"{name}={value} is a number, and {called(kernel.name)} takes an address of memory there",
                hint=f"an array is such as {name}=zeros({max(value, 1)},f32); 0 is no address",
            )


def place(
    device: Device, declared: Parameter, value: ArgumentValue, led_to: Mapping[str, Any]
) -> Any:
    """Return what a parameter or variable is given: an array by its address, unless it is one itself.

    ``led_to`` is what tensor maps and structs are of.
    """
    if isinstance(value, MapValue | StructValue):
        return placed(device, value, led_to)
    if not isinstance(value, ArrayValue):
        return value
    by_value = declared.count != 1 or declared.size != 8
    return value.array if by_value else device.upload(value)


def fill_in(args: argparse.Namespace, path: Path) -> None:
    """Complete ``args`` from the ``Run:`` line of the file that is about the same kernel.

    Arguments and macros are completed one by one, everything else as a whole.
    """
    given = next((run for run in run_lines(path) if args.kernel in (None, run.kernel)), None)
    if given is None:
        return
    for name in ("kernel", "grid", "block", "cluster", "shared", "cooperative", "std"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(given, name))
    args.arg = merged(given.arg, args.arg)
    args.set = merged(given.set, args.set)
    args.D = merged(given.D, args.D)
    args.use_fast_math = args.use_fast_math or given.use_fast_math
    args.I = args.I + given.I


def needed_target(path: Path) -> str | None:
    """Return the target that a file is for, of a family its first, where the usual one does not run it.

    PTX says so itself, CUDA C in its header; of machine code it is the first that it has.
    """
    if is_machine_code(path):
        from ptxlab.machine.binary import about, compiled, usual_target  # here: PTX can spare it

        with about(str(path)):
            return usual_target(compiled(path.read_bytes()))
    text = _text(path)
    named = re.findall(r"^\s*\.target\s+(sm_\d+[af]?)\b", text, re.MULTILINE)
    in_header = re.findall(r"^(sm_\d+[af]?)$", read_header(text, str(path)).target)
    for needed in (*named, *in_header):
        able = [name for name, target in TARGETS.items() if target.runs(needed)]
        if able and DEFAULT_TARGET not in able:
            return able[0]
    return None


def run_lines(path: Path) -> list[argparse.Namespace]:
    """Read the ``Run:`` lines in the header of a file."""
    lines = _text(path).splitlines(keepends=True)
    text = "".join(takewhile(lambda line: line.startswith("//"), lines))
    parser = Parser(prog=f"the Run line of {path}")
    add_run(parser)
    commands = read_header(text, str(path)).runs
    for words in commands:
        if words[:2] != ("ptxlab", "run"):
            raise PtxlabError(
                f"the Run: line of {path} is no command, but {' '.join(words) or 'empty'}",
                hint=f"Run: ptxlab run {path} --grid 1 --block 32",
            )
    return [parser.parse_args(words[2:]) for words in commands]


def _text(path: Path) -> str:
    """Return what a file has to say: nothing if it is no text, which loading it says, or takes for the cubin it is."""
    try:
        return "" if is_machine_code(path) else read_text(path)
    except ValueError:
        return ""


def merged(defaults: list[str], given: list[str]) -> list[str]:
    """Return the ``NAME=VALUE`` of ``defaults``, replaced and then followed by those ``given``."""
    named = {text.partition("=")[0].strip(): text for text in defaults}
    named |= {text.partition("=")[0].strip(): text for text in given}
    return list(named.values())


def values(arguments: Sequence[str], seed: int, first: int = 0) -> dict[str, ArgumentValue]:
    """Read ``NAME=VALUE`` options; arrays without a seed of their own differ by position, from ``first``."""
    values: dict[str, ArgumentValue] = {}
    for index, argument in enumerate(arguments, first):
        name, text = split(argument)
        values[name] = read(name, text, (seed, index))
    return values


def bind(
    kernel: Kernel,
    values: Mapping[str, ArgumentValue],
    mapped: Container[str] = (),
    also: str = "",
) -> dict[str, ArgumentValue]:
    """Return ``values`` in the order of the kernel's parameters, under the names they were given.

    Names that are the parameters' bind by name, also as the PTX has them, names of which none is a parameter's in order. Those
    that are ``mapped`` need not be parameters: in order, the first of them are none if there are too
    many. Raises PtxlabError that says which argument is missing or unknown, and what is to be given ``also``.
    """
    names = [parameter.name for parameter in kernel.parameters]
    takes = f"{called(kernel.name)} takes {', '.join(names) or 'no arguments'}"
    written = {f"{kernel.name}_{name}": name for name in names}
    asked = {written.get(name, name): name for name in values}
    known = [name for name in asked if name in names]
    unmapped = {name: value for name, value in values.items() if name not in mapped}
    spare = [name for name in values if name in mapped][: max(len(values) - len(names), 0)]
    given = {name: value for name, value in values.items() if name not in spare}
    if not known and len(given) == len(names):
        return given
    for name in unmapped:
        if known and written.get(name, name) not in names:
            raise PtxlabError(f"no parameter {name!r}{suggestion(name, names)}", hint=takes)
    if not known and values:
        raise PtxlabError(
            f"{len(values)} arguments for {len(names)} parameters, and no name is a parameter's",
            hint=takes,
        )
    if missing := [name for name in names if name not in asked]:
        first = next(p for p in kernel.parameters if p.name == missing[0])
        example = "randn(64x64,f32)" if first.size == 8 and first.count == 1 else "64"
        raise PtxlabError(
            f"no value for {', '.join(missing)}",
            hint=f'{takes}: give {also}--arg {missing[0]}="{example}" or another value',
        )
    return {asked[name]: values[asked[name]] for name in names}
