"""The same launch on two devices: which outputs differ, and where the first difference comes from.

Every thread's steps are traced on both (see ``ptxlab.instrument.trace``), window after window, until one
differs; that step is then looked at with its operands. Registers that hold addresses and the like
are left out, since they differ between devices for good reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ptxlab.arrays import Array, Integers, Words
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device, Kernel
from ptxlab.instrument.sites import Scoped, definition, instructions
from ptxlab.instrument.trace import SITE_BITS, Traced, look_at_step, trace
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import LaunchConfig
from ptxlab.numbers.types import TYPES
from ptxlab.observe.addresses import device_dependent
from ptxlab.observe.rounding import Executed, Judgement, judge
from ptxlab.observe.value_flow import results
from ptxlab.pictured import Readable
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Instruction, PtxModule

WINDOW_BYTES = 1 << 27
MOST_STEPS = 1 << 14


class DeviceLaunch(NamedTuple):
    """A launch on one device: its kernel, arguments, and what ``variables`` of the module hold before it.

    ``arrays`` are compared after it, each with what it is called; those of both devices are alike.
    """

    kernel: Kernel
    args: Sequence[Any]
    variables: Mapping[str, Any]
    arrays: Sequence[tuple[str, Buffer]]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A launch that can be made anew on any device.

    ``bound`` puts fresh arguments on a device, and gives the variables of its module their values.
    """

    module: PtxModule
    kernel: str
    config: LaunchConfig
    bound: Callable[[Device], DeviceLaunch]


@dataclass(frozen=True, slots=True)
class Output:
    """An array after both launches: how many of its elements differ in bits, and the first of them.

    ``index`` is where it is, ``a`` and ``b`` what it is; None, and zeros, where none differs.
    """

    name: str
    differing: int
    total: int
    index: tuple[int, ...] | None = None
    a: Any = 0
    b: Any = 0


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first step of any thread after which a register differs.

    ``thread`` is numbered over the grid, ``step`` counts the thread's instructions that write
    registers, from 0. ``bits`` are the register on both devices, ``lanes`` is in how many lanes of the
    warp a register differs. Where the two threads went different ways, ``register`` is "" and the
    instruction is the last that they have in common.
    """

    instruction: Instruction
    thread: int
    step: int
    register: str
    bits: tuple[int, int]
    lanes: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class DiffReport(Readable):
    """What two ``devices`` made of the same launch; ``steps`` is how many were compared in all.

    Of the lines ``unverified`` nobody has measured the bits that an emulator gives.
    """

    launch: Repeatable
    devices: tuple[str, str]
    outputs: tuple[Output, ...]
    first: FirstDifference | None
    steps: int
    unverified: tuple[int, ...]

    def __repr__(self) -> str:
        verdict = "the same" if self.same else "they differ"
        return f"<diff of {called(self.launch.kernel)} on {' and '.join(self.devices)}: {verdict}>"

    @property
    def same(self) -> bool:
        return self.first is None and not any(output.differing for output in self.outputs)


def diff(launch: Repeatable, a: Device, b: Device) -> DiffReport:
    """Make the ``launch`` on both devices and return where they part.

    Raises PtxlabError where the launch fails on one of them.
    """
    bound = launch.bound(a)
    left, unknown = _arrays(launch, bound)
    # Bound only now: that gives arrays that a client has in its own memory what they held at first.
    right, others = _arrays(launch, launch.bound(b))
    outputs = tuple(
        compared(name, values, other)
        for (name, values), (_, other) in zip(left, right, strict=True)
    )
    sites = _sites(launch, bound)
    parting, steps = _first_parting(launch, sites, a, b) if sites else (None, 0)
    first = None if parting is None else _look(launch, sites, parting, a, b)
    devices = (f"{a.kind}:{a.target.name}", f"{b.kind}:{b.target.name}")
    unverified = tuple(sorted({*unknown, *others}))
    return DiffReport(launch, devices, outputs, first, steps, unverified)


def _arrays(
    launch: Repeatable, bound: DeviceLaunch
) -> tuple[list[tuple[str, Array]], tuple[int, ...]]:
    """Launch the program as it is; return what is in every array after it, by name, and unverified lines."""
    result = bound.kernel.run(launch.config, bound.args)
    return [(name, array.numpy()) for name, array in bound.arrays], result.unverified


def compared(name: str, values: Array, other: Array) -> Output:
    differing = _raw(values) != _raw(other)
    if not differing.any():
        return Output(name, 0, values.size)
    first = np.unravel_index(int(np.argmax(differing)), values.shape)
    where = tuple(int(index) for index in first)
    return Output(name, int(differing.sum()), values.size, where, values[first], other[first])


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


# ---- where they part ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parting:
    """The first step that differs, of which thread, and the site it is at on both devices.

    A site is None where the thread has ended, ``before`` is the site of the step before.
    """

    thread: int
    step: int
    sites: tuple[int | None, int | None]
    before: int


def _sites(launch: Repeatable, bound: DeviceLaunch) -> list[Traced]:
    """Return the instructions to follow: those that write registers which hold results."""
    function = definition(launch.module, launch.kernel)
    names = [declaration.names[0].name for declaration in function.parameters]
    given = [*zip(names, bound.args, strict=True), *bound.variables.items()]
    skipped = device_dependent(
        function, [name for name, value in given if isinstance(value, Buffer)]
    )
    sites = []
    for site in instructions(function):
        kept = _typed(site, [name for name in results(site) if name not in skipped])
        if kept:
            sites.append(Traced(site, kept))
    return sites


def _typed(site: Scoped, registers: Sequence[str]) -> list[tuple[str, str]]:
    """Return the different ones of ``registers`` with their types, less those wider than 64 bits."""
    pairs = ((name, site.type_of(name)) for name in dict.fromkeys(registers))
    return [(name, kind) for name, kind in pairs if kind in TYPES and TYPES[kind].bits <= 64]


def _first_parting(
    launch: Repeatable, sites: Sequence[Traced], a: Device, b: Device
) -> tuple[_Parting | None, int]:
    """Compare the traces window by window; return also how many steps were the same or compared."""
    steps = max(1, min(MOST_STEPS, WINDOW_BYTES // (8 * launch.config.threads)))
    first = made = 0
    # the site of each thread's last step before the window
    last = np.zeros(launch.config.threads, np.int64)
    while True:
        module = trace(launch.module, launch.kernel, sites, first, steps)
        first_words, other = (_rows(launch, device, module, 1 + steps) for device in (a, b))
        counts = np.stack([first_words[:, 0], other[:, 0]]).astype(np.int64) - first
        made += int(np.clip(counts, 0, steps).min(axis=0).sum())
        parting = _parting(first_words[:, 1:], other[:, 1:], counts, first, last)
        if parting is not None:
            return parting, made
        if counts.max() <= steps:
            return None, made
        last = (first_words[:, -1] & np.uint64((1 << SITE_BITS) - 1)).astype(np.int64)
        first += steps


def _rows(launch: Repeatable, device: Device, module: PtxModule, slots: int) -> Words:
    with device.zeros((launch.config.threads, slots), "u64") as buffer:
        bound, traced = launch.bound(device), device.load(module)
        for name, value in bound.variables.items():
            traced.variable(name).upload(value)
        traced.kernel(launch.kernel).run(launch.config, [*bound.args, buffer])
        return np.asarray(buffer.numpy(), np.uint64)


def _parting(
    first_words: Words, other: Words, counts: Integers, first: int, last: Integers
) -> _Parting | None:
    differing = first_words != other
    if not differing.any():
        return None
    column = int(np.argmax(differing.any(axis=0)))
    thread = int(np.argmax(differing[:, column]))
    mask = (1 << SITE_BITS) - 1
    sites = [
        int(words[thread, column]) & mask if counts[side, thread] > column else None
        for side, words in enumerate((first_words, other))
    ]
    before = int(first_words[thread, column - 1]) & mask if column else int(last[thread])
    return _Parting(thread, first + column, (sites[0], sites[1]), before)


# ---- looking at it --------------------------------------------------------------------------


def _look(
    launch: Repeatable, sites: Sequence[Traced], parting: _Parting, a: Device, b: Device
) -> FirstDifference:
    site = parting.sites[0]
    if site is None or site != parting.sites[1]:
        return _another_way(sites[parting.before], parting)
    watched = sites[site]
    scoped, instruction = watched.site, watched.site.instruction
    named = [name for operand in instruction.operands for name in scoped.registers(operand)]
    before = _typed(scoped, named)
    module = look_at_step(launch.module, launch.kernel, sites, parting.step, watched, before)
    slots = 1 + len(before) + len(watched.registers)
    rows = [
        _warp(launch, parting.thread, _rows(launch, device, module, slots)) for device in (a, b)
    ]
    step = Executed(
        instruction,
        tuple(kind for _, kind in watched.registers),
        {name: rows[0][:, 1 + i] for i, (name, _) in enumerate(before)},
        (rows[0][:, 1 + len(before) :], rows[1][:, 1 + len(before) :]),
    )
    differing = step.results[0] != step.results[1]
    lane = parting.thread % launch.config.cta_threads % WARP
    column = int(np.argmax(differing[lane]))
    a_bits, b_bits = (int(words[lane, column]) for words in step.results)
    return FirstDifference(
        instruction=instruction,
        thread=parting.thread,
        step=parting.step,
        register=watched.registers[column][0],
        bits=(a_bits, b_bits),
        lanes=int(differing.any(axis=1).sum()),
        judgement=judge(step, lane, column),
    )


def _another_way(last: Traced, parting: _Parting) -> FirstDifference:
    reason = (
        "after this instruction the thread goes another way, though no register differs: "
        "it branches on an address, a clock or what another thread did"
    )
    judgement = Judgement("control flow", "", ((), ()), reason)
    instruction = last.site.instruction
    return FirstDifference(instruction, parting.thread, parting.step, "", (0, 0), 0, judgement)


def _warp(launch: Repeatable, thread: int, rows: Words) -> Words:
    size = launch.config.cta_threads
    cta, inside = divmod(thread, size)
    first = inside - inside % WARP
    return rows[cta * size + first : cta * size + min(first + WARP, size)]
