"""The same launch of PTX and of the machine code it became, both on the emulator: where they part, and whether they may.

Both leave memory; where that differs, the last store to the first element that does is looked for on both sides, and
from there it goes back along the values, as far as the other side does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.diff import DeviceLaunch, Output, compared
from ptxlab.observe.liberties import Liberty, taken
from ptxlab.observe.unmatched import Point, Unmatched, WarpValues, result
from ptxlab.observe.value_flow import RegisterNames
from ptxlab.observe.value_trace import StoreFinder, ValueTrace

SHOWN = 24
"""Instructions of either side that are told."""
_WORD = re.compile(r"[%$\w]+")


@dataclass(frozen=True, slots=True)
class ToldStep:
    """What a thread did at a ``line`` of a side's text, and the bits of the registers that it wrote there.

    ``origin`` is the line of PTX that an instruction of machine code was made from, None where nobody says.
    """

    line: int
    text: str
    thread: int
    registers: Mapping[str, str]
    origin: int | None


@dataclass(frozen=True, slots=True)
class EngineSide:
    """One side from what both have to the store: the instructions whose values the other has not, in their order.

    ``store`` is None where no thread stored the element.
    """

    store: ToldStep | None
    steps: tuple[ToldStep, ...]
    cta: int | None


@dataclass(frozen=True, slots=True)
class EnginesReport:
    """What PTX and its machine code made of a launch.

    ``first`` are the first instructions that differ, of PTX and of machine code; ``liberty`` is what explains it, None
    where PTX leaves nothing open. ``cut`` says that not all steps could be kept.
    """

    kernel: str
    outputs: tuple[Output, ...]
    sides: tuple[EngineSide, EngineSide] | None
    first: tuple[ToldStep | None, ToldStep | None]
    liberty: Liberty | None
    cut: bool

    @property
    def same(self) -> bool:
        return not any(output.differing for output in self.outputs)

    @property
    def allowed(self) -> bool:
        """Whether nothing differs, or nothing but what PTX leaves open."""
        return self.verdict in ("same", "may")

    @property
    def verdict(self) -> str:
        """``same``, ``may`` where PTX leaves it open, ``may not``, or ``unknown`` where it could not be followed."""
        if self.same:
            return "same"
        if self.liberty is not None:
            return "may"
        followed = self.sides is not None and all(side.store for side in self.sides)
        return "may not" if followed and not self.cut else "unknown"


Bound = Callable[[], DeviceLaunch]
"""Puts fresh arguments on a device, with the kernel of one side."""


def compare(
    config: LaunchConfig, ptx: Bound, machine: Bound, origins: Mapping[int, int]
) -> EnginesReport:
    """Launch both and return where they part; ``origins`` says of lines of machine code which of PTX they come from.

    Raises PtxlabError where a launch fails.
    """
    launches = [ptx(), machine()]
    held = []
    for launch in launches:
        launch.kernel.run(config, launch.args)
        held.append([(name, array.numpy()) for name, array in launch.arrays])
    pairs = [(name, a, b) for (name, a), (_, b) in zip(held[0], held[1], strict=True)]
    outputs = tuple(compared(name, a, _alike(a, b)) for name, a, b in pairs)
    only_nans = not any(output.differing for output in outputs)
    if only_nans:
        outputs = tuple(compared(name, a, b) for name, a, b in pairs)
    kernel = launches[0].kernel.name
    parted = next((at for at, output in enumerate(outputs) if output.differing), None)
    if parted is None:
        return EnginesReport(kernel, outputs, None, (None, None), None, cut=False)
    traces = [_followed(config, bound, parted, outputs[parted]) for bound in (ptx, machine)]
    report = _parting(kernel, outputs, traces, origins)
    return replace(report, liberty=_of_nan(report)) if only_nans else report


def _alike(a: Array, b: Array) -> Array:
    """Return ``b`` with the NaN of ``a`` where both have one."""
    if a.dtype.kind in "biu":
        return b
    return np.where(np.isnan(a) & np.isnan(b), a, b)


def _of_nan(report: EnginesReport) -> Liberty:
    store = report.sides[0].store if report.sides else None
    line = 0 if store is None else store.line
    return Liberty(
        "NaN", line, "where they differ both have a NaN, whose sign and payload are not told"
    )


@dataclass(frozen=True, slots=True)
class _Followed:
    """A side's CTA, step by step, its text, and the last store to the element, behind a bulk copy that to its source."""

    trace: ValueTrace | None
    stored: Sequence[Point]
    text: Sequence[str]

    @property
    def start(self) -> Point | None:
        return self.stored[0] if self.stored else None


def _followed(config: LaunchConfig, bound: Bound, at: int, output: Output) -> _Followed:
    """Launch once more to see which CTA stored an element last, and again to see how it came to that."""

    def launched(watcher: Callable[[int], StoreFinder | ValueTrace]) -> tuple[int, Sequence[str]]:
        launch = bound()
        _, array = launch.arrays[at]
        assert output.index is not None
        flat = int(np.ravel_multi_index(output.index, array.shape)) if array.shape else 0
        address = array.address + flat * array.dtype.itemsize
        assert isinstance(launch.kernel, EmulatorKernel)
        launch.kernel.watch(watcher(address)).run(config, launch.args)
        return address, launch.kernel.program.module.source.text.splitlines()

    finders: list[StoreFinder] = []

    def find(address: int) -> StoreFinder:
        finders.append(StoreFinder(address))
        return finders[-1]

    _, text = launched(find)
    cta = finders[0].cta
    if cta is None:
        return _Followed(None, (), text)
    trace = ValueTrace(cta)
    address, text = launched(lambda _: trace)
    return _Followed(trace, trace.stored("global", address), text)


def _parting(
    kernel: str,
    outputs: tuple[Output, ...],
    followed: Sequence[_Followed],
    origins: Mapping[int, int],
) -> EnginesReport:
    a, b = followed
    cut = any(side.trace is not None and side.trace.cut for side in followed)
    if a.trace is None or b.trace is None or a.start is None or b.start is None:
        sides = tuple(_alone(side, origins if side is b else {}) for side in followed)
        return EnginesReport(kernel, outputs, (sides[0], sides[1]), (None, None), None, cut)
    of_a, of_b = _values(a.trace), _values(b.trace)
    ptx, machine = Unmatched(a.trace, a.stored, of_b), Unmatched(b.trace, b.stored, of_a)
    liberty = taken(a.trace, ptx.points, sorted(ptx.unwritten), of_b)
    first = _first(a.trace, ptx.points, b.trace, machine.points, origins)
    told = [
        EngineSide(
            _told(side, side.start, lines),
            tuple(_lines(side, unmatched.points, lines)),
            side.trace.number if side.trace else None,
        )
        for side, unmatched, lines in ((a, ptx, {}), (b, machine, origins))
        if side.start is not None
    ]
    pair = (
        _among(told[0].steps, _told(a, first[0], {})),
        _among(told[1].steps, _told(b, first[1], origins)),
    )
    return EnginesReport(kernel, outputs, (told[0], told[1]), pair, liberty, cut)


def _among(steps: Sequence[ToldStep], step: ToldStep) -> ToldStep:
    """Return the step that a point is part of, with all that it wrote."""
    same = (each for each in steps if (each.line, each.thread) == (step.line, step.thread))
    return next(same, step)


def _values(trace: ValueTrace) -> Callable[[int], WarpValues]:
    return cache(lambda thread: WarpValues(trace, thread))


def _first(
    ptx: ValueTrace,
    of_ptx: Sequence[Point],
    machine: ValueTrace,
    of_machine: Sequence[Point],
    origins: Mapping[int, int],
) -> tuple[Point, Point]:
    """Return the first point of PTX that an instruction of machine code was made from which differs too, and that one."""
    made: dict[int, Point] = {}
    for point in of_machine:
        made.setdefault(origins.get(machine.steps[point[0]].site.line, 0), point)
    for point in of_ptx:
        line = ptx.steps[point[0]].site.line
        if line in made and ptx.steps[point[0]].writes:
            return point, made[line]
    return of_ptx[0], of_machine[0]


def _alone(side: _Followed, origins: Mapping[int, int]) -> EngineSide:
    store = None if side.start is None else _told(side, side.start, origins)
    return EngineSide(store, (), side.trace.number if side.trace else None)


def _told(side: _Followed, point: Point, origins: Mapping[int, int]) -> ToldStep:
    assert side.trace is not None
    number, thread = point
    step = side.trace.steps[number]
    line = step.site.line
    text = side.text[line - 1].strip() if 0 < line <= len(side.text) else step.site.instruction.name
    wrote = result(step, thread, RegisterNames())
    named = {name: bits for name, bits in wrote.items() if name in _WORD.findall(text)}
    return ToldStep(line, text, thread, named, origins.get(line))


def _lines(side: _Followed, points: Sequence[Point], origins: Mapping[int, int]) -> list[ToldStep]:
    """Return the first points, those of one instruction of machine code as one."""
    told: list[ToldStep] = []
    for point in points:
        step = _told(side, point, origins)
        if not step.line:  # before the first instruction: what a launch gives
            continue
        if told and (told[-1].line, told[-1].thread) == (step.line, step.thread):
            step = replace(step, registers={**told.pop().registers, **step.registers})
        elif len(told) == SHOWN:
            break
        told.append(step)
    return told
