"""A launch counted: every instruction with its counters, by line of PTX and of CUDA C, and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ptxlab.device.protocol import Kernel
from ptxlab.instrument.sites import instructions
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.counters import Counts, total
from ptxlab.observe.counting import Counting, Tally
from ptxlab.observe.traffic import SECTOR_BYTES, Conflict
from ptxlab.observe.work import work
from ptxlab.syntax.functions import SourceLine, source_lines, statements
from ptxlab.syntax.tree import Function, Instruction, Label, Module, Name

MAIN_SHARE = 0.5
"""The part of all executed instructions that the main loop has at least."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One instruction: the ``number``-th of ``function``, on ``line`` of the PTX.

    ``kind`` is its class in the instruction mix. ``source`` is the line of CUDA C it comes from, where
    the PTX says so. ``conflict`` is the worst bank conflict, None where there was none.
    """

    function: str
    number: int
    instruction: Instruction
    line: int
    source: SourceLine | None
    kind: str
    counts: Counts
    conflict: Conflict | None


@dataclass(frozen=True, slots=True)
class Line:
    """The instructions of one line of PTX (``number``) or CUDA C, and their sum."""

    number: int
    instructions: tuple[Counted, ...]
    counts: Counts
    conflict: Conflict | None


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions of ``function`` whose numbers are in ``span``: one loop, inner ones included."""

    function: str
    span: range


@dataclass(frozen=True)
class Profile:
    """What a launch of ``kernel`` did on ``target``.

    ``instructions`` are all those of the functions it entered, executed or not, in text order.
    ``barriers`` counts every barrier once for each CTA. ``path`` and ``text`` are the PTX.
    """

    kernel: str
    target: str
    config: LaunchConfig
    path: str
    text: tuple[str, ...]
    instructions: tuple[Counted, ...]
    barriers: int
    loops: tuple[Loop, ...]

    @property
    def ctas(self) -> int:
        return self.config.ctas

    @property
    def threads(self) -> int:
        return self.config.threads

    @cached_property
    def totals(self) -> Counts:
        return total(one.counts for one in self.instructions)

    @cached_property
    def mix(self) -> dict[str, int]:
        """How many instructions of each class warps executed, the most first."""
        found: Counter[str] = Counter()
        for one in self.instructions:
            found[one.kind] += one.counts.executed
        return {kind: count for kind, count in found.most_common() if count}

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        return tuple(_line(number, of) for number, of in _by(self.instructions, lambda i: i.line))

    @cached_property
    def sources(self) -> dict[str, tuple[Line, ...]]:
        """The lines of every file of CUDA C that instructions come from, the busiest file first."""
        placed = [one for one in self.instructions if one.source is not None]
        found: dict[str, list[Line]] = {}
        for source, of in _by(placed, lambda one: one.source or SourceLine("", 0)):
            found.setdefault(source.path, []).append(_line(source.line, of))
        busy = {path: total(line.counts for line in lines) for path, lines in found.items()}
        order = sorted(found, key=lambda path: -busy[path].executed)
        return {path: tuple(found[path]) for path in order}

    @cached_property
    def main_loop(self) -> tuple[Counted, ...]:
        """The instructions of the innermost loop that has half of all executions; none if none has."""
        least = MAIN_SHARE * self.totals.executed
        inside = [
            [i for i in self.instructions if i.function == loop.function and i.number in loop.span]
            for loop in sorted(self.loops, key=lambda loop: len(loop.span))
        ]
        for body in inside:
            if sum(one.counts.executed for one in body) >= least:
                return tuple(body)
        return ()

    @cached_property
    def main_loop_totals(self) -> Counts:
        return total(one.counts for one in self.main_loop)

    @property
    def bytes_per_flop(self) -> dict[str, float] | None:
        """Bytes moved for each FLOP, by where; None when nothing was computed.

        ``global`` and ``shared`` are the bytes that threads asked for; ``sectors`` those that caches
        fetch for the former, 32 for each sector.
        """
        counts = self.totals
        if not counts.flops:
            return None
        moved = {
            "global": counts.global_read + counts.global_written,
            "sectors": SECTOR_BYTES * counts.sectors,
            "shared": counts.shared_read + counts.shared_written,
        }
        return {name: nbytes / counts.flops for name, nbytes in moved.items()}


def count(kernel: Kernel, config: LaunchConfig, args: Sequence[Any] = ()) -> Profile:
    """Launch ``kernel`` of the emulator and return what every instruction of it did.

    The ``args`` are those of ``kernel.launch``; buffers hold afterwards what the kernel left. Counters
    are exact and depend on the program and its data alone; see ``ptxlab.observe.counters`` for what
    each of them counts, and in which unit. Raises what ``launch`` raises, and PtxlabError for a
    kernel that is on a GPU, which counts with Nsight Compute.
    """
    counting = Counting()
    kernel.watch(counting).run(config, args)
    return _profile(counting, kernel.name, config)


def _profile(counting: Counting, kernel: str, config: LaunchConfig) -> Profile:
    module = counting.module
    tallies = {(t.site.function, t.site.number): t for t in counting.tallies.values()}
    entered = {function for function, _ in tallies}
    bodies = [f for f in module.functions if f.name in entered and f.body is not None]
    return Profile(
        kernel,
        counting.target.name,
        config,
        module.source.path,
        tuple(module.source.text.split("\n")),
        tuple(one for function in bodies for one in _counted(module, function, tallies)),
        counting.barriers,
        tuple(loop for function in bodies for loop in loops(function)),
    )


def loops(function: Function) -> tuple[Loop, ...]:
    """Return the loops of ``function`` by their last instruction, in text order."""
    labels: dict[str, int] = {}
    found = []
    number = 0
    for statement in statements(function):
        if isinstance(statement, Label):
            labels[statement.name] = number
        elif isinstance(statement, Instruction):
            for name in _targets(statement):
                if name in labels:
                    found.append(Loop(function.name, range(labels[name], number + 1)))
            number += 1
    return tuple(found)


def _targets(instruction: Instruction) -> list[str]:
    if instruction.opcode != "bra":
        return []
    return [operand.text for operand in instruction.operands if isinstance(operand, Name)]


def _counted(
    module: Module, function: Function, tallies: Mapping[tuple[str, int], Tally]
) -> Iterator[Counted]:
    """Yield every instruction of ``function``, with nothing counted where it was not executed."""
    places = source_lines(module, function)
    for number, (site, source) in enumerate(zip(instructions(function), places, strict=True)):
        instruction = site.instruction
        tally = tallies.get((function.name, number))
        yield Counted(
            function.name,
            number,
            instruction,
            instruction.position.line,
            source,
            work(instruction).kind,
            Counts() if tally is None else tally.counts,
            None if tally is None else tally.conflict,
        )


_Key = TypeVar("_Key", int, SourceLine)


def _by(
    instructions: Iterable[Counted], key: Callable[[Counted], _Key]
) -> list[tuple[_Key, list[Counted]]]:
    """Group instructions, the least key first."""
    groups: dict[_Key, list[Counted]] = {}
    for one in instructions:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.items(), key=lambda group: group[0])


def _line(number: int, of: Sequence[Counted]) -> Line:
    conflicts = [one.conflict for one in of if one.conflict is not None]
    worst = max(conflicts, key=lambda conflict: conflict.ways, default=None)
    return Line(number, tuple(of), total(one.counts for one in of), worst)
