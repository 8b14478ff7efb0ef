"""A launch counted: every instruction with its counters, by line of PTX and of CUDA C, and in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from ptxlab.device.protocol import Arguments, Kernel
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.instrument.sites import instructions, sources
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.counters import Counts, total
from ptxlab.observe.counting import Counting, Tally
from ptxlab.observe.traffic import SECTOR_BYTES, Conflict
from ptxlab.observe.work import work
from ptxlab.pictured import Readable
from ptxlab.syntax.functions import SourceLine, statements
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function, Instruction, Label, Name

_NEVER = dict.fromkeys(("executed", "threads", "threads_on", "partial"), 0)
MAIN_SHARE = 0.5
"""The part of all executed instructions that the main loop has at least."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One instruction of ``function``, on ``line`` of the PTX.

    ``kind`` is its class in the instruction mix. ``source`` is the line of CUDA C it comes from, where
    the PTX says so. ``conflict`` is the worst bank conflict, None where there was none.
    """

    function: str
    instruction: Instruction
    line: int
    source: SourceLine | None
    kind: str
    counts: Counts
    conflict: Conflict | None


@dataclass(frozen=True, slots=True)
class ProfiledLine:
    """The instructions of one line of PTX (``number``) or CUDA C, and their sum."""

    number: int
    instructions: tuple[Counted, ...]
    counts: Counts
    conflict: Conflict | None


@dataclass(frozen=True)
class Profile(Readable):
    """What a launch of ``kernel`` did on ``target``.

    ``instructions`` are all those of the functions it entered, executed or not, in text order.
    ``barriers`` counts every barrier once for each CTA. ``path`` and ``text`` are the PTX. Each of the
    ``loops`` is its instructions, inner loops included. Of the lines ``unverified`` nobody has measured the bits.
    Where ``machine_code`` ran, ``text`` is its listing, and a line of that is one instruction.
    """

    kernel: str
    target: str
    config: LaunchConfig
    path: str
    text: tuple[str, ...]
    instructions: tuple[Counted, ...]
    barriers: int
    loops: tuple[tuple[Counted, ...], ...]
    unverified: tuple[int, ...]
    machine_code: bool

    def __repr__(self) -> str:
        executed = f"{self.totals.executed} instructions of warps"
        return f"<profile of {called(self.kernel)} on {self.target}: {executed}, {self.config!r}>"

    @property
    def ctas(self) -> int:
        return self.config.ctas

    @property
    def threads(self) -> int:
        return self.config.threads

    @cached_property
    def totals(self) -> Counts:
        return total(instruction.counts for instruction in self.instructions)

    @cached_property
    def mix(self) -> dict[str, int]:
        """How many instructions of each class warps executed, the most first."""
        mix: Counter[str] = Counter()
        for instruction in self.instructions:
            mix[instruction.kind] += instruction.counts.executed
        return {kind: count for kind, count in mix.most_common() if count}

    @cached_property
    def lines(self) -> Sequence[ProfiledLine]:
        placed = (
            (SourceLine(self.path, instruction.line), instruction)
            for instruction in self.instructions
            if instruction.line
        )
        return _by_file(placed).get(self.path, ())

    @cached_property
    def sources(self) -> dict[str, Sequence[ProfiledLine]]:
        """The lines of every file of CUDA C that instructions come from, the busiest file first."""
        files = _by_file(
            (instruction.source, instruction)
            for instruction in self.instructions
            if instruction.source is not None
        )
        busy = {path: sum(line.counts.executed for line in files[path]) for path in files}
        return {path: files[path] for path in sorted(files, key=lambda path: -busy[path])}

    @cached_property
    def main_loop(self) -> tuple[Counted, ...]:
        """The instructions of the innermost loop that has half of all executions; none if none has."""
        least = MAIN_SHARE * self.totals.executed
        for body in sorted(self.loops, key=len):
            if sum(instruction.counts.executed for instruction in body) >= least:
                return body
        return ()

    @cached_property
    def main_loop_totals(self) -> Counts:
        return total(instruction.counts for instruction in self.main_loop)

    @property
    def bytes_per_flop(self) -> dict[str, float] | None:
        """Bytes moved for each FLOP, by where; None when nothing was computed.

        ``global`` and ``shared`` are the bytes that threads, the copy engine and tensor cores asked for;
        ``sectors`` those that caches fetch for the former, 32 for each sector of a thread's, and
        ``tensor_memory`` those that warps and tensor cores moved there.
        """
        counts = self.totals
        if not counts.flops:
            return None
        of_units = counts.engine_shared + counts.tensor_shared
        moved = {
            "global": counts.global_read + counts.global_written + counts.engine_global,
            "sectors": SECTOR_BYTES * counts.sectors + counts.engine_global,
            "shared": counts.shared_read + counts.shared_written + of_units,
            "tensor_memory": counts.tmem_moved,
        }
        return {name: nbytes / counts.flops for name, nbytes in moved.items()}


def count(kernel: Kernel, config: LaunchConfig, args: Arguments = ()) -> Profile:
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
    tallies = {(site.function, site.number): tally for site, tally in counting.tallies.items()}
    entered = {function for function, _ in tallies}
    functions = [f for f in module.functions if f.name in entered and f.body is not None]
    places = sources(module, functions)
    bodies = [_counted(function, places, tallies) for function in functions]
    if module.lifted:
        bodies = list(map(_by_machine_instruction, bodies))
    return Profile(
        kernel,
        counting.target.name,
        config,
        module.source.path,
        tuple(module.source.text.split("\n")),
        tuple(instruction for body in bodies for instruction in body),
        counting.barriers,
        tuple(loop for pair in zip(functions, bodies, strict=True) for loop in _loops(*pair)),
        counting.unverified,
        module.lifted,
    )


def _loops(function: Function, body: Sequence[Counted]) -> Iterator[tuple[Counted, ...]]:
    """Yield the loops of ``function`` by their last instruction, in text order."""
    labels: dict[str, int] = {}
    number = 0
    for statement in statements(function):
        if isinstance(statement, Label):
            labels[statement.name] = number
        elif isinstance(statement, Instruction):
            number += 1
            leads = effects_of(statement).leads == "label"
            for operand in statement.operands if leads else ():
                if isinstance(operand, Name) and operand.text in labels:
                    yield tuple(body[labels[operand.text] : number])


def _counted(
    function: Function, places: Mapping[int, SourceLine], tallies: Mapping[tuple[str, int], Tally]
) -> list[Counted]:
    """Return every instruction of ``function``, with nothing counted where it was not executed."""
    counted = []
    for number, site in enumerate(instructions(function)):
        tally = tallies.get((function.name, number)) or Tally(work(site.instruction))
        line = site.instruction.position.line
        counted.append(
            Counted(
                function.name,
                site.instruction,
                line,
                places.get(line),
                tally.work.kind,
                tally.counts,
                tally.conflict,
            )
        )
    return counted


def _by_machine_instruction(body: Sequence[Counted]) -> list[Counted]:
    """Have what a line of machine code was lifted into be executed once, and what stands on no line never."""
    counted: list[Counted] = []
    for line, each in groupby(body, lambda instruction: instruction.line):
        first, *others = each
        on = (others[-1] if others else first).counts.threads_on  # its guard, if it has one
        executed = {} if line else _NEVER
        counted.append(
            replace(first, counts=replace(first.counts, **{"threads_on": on, **executed}))
        )
        counted += (replace(other, counts=replace(other.counts, **_NEVER)) for other in others)
    return counted


def _by_file(placed: Iterable[tuple[SourceLine, Counted]]) -> dict[str, Sequence[ProfiledLine]]:
    """Return the lines of each file in order, of instructions and where they are."""
    groups: dict[SourceLine, list[Counted]] = defaultdict(list)
    for line_of_source, instruction in placed:
        groups[line_of_source].append(instruction)
    files: dict[str, list[ProfiledLine]] = defaultdict(list)
    for line_of_source, of in sorted(groups.items(), key=lambda group: group[0]):
        conflicts = [instruction.conflict for instruction in of if instruction.conflict is not None]
        worst = max(conflicts, key=lambda conflict: conflict.ways, default=None)
        line = ProfiledLine(
            line_of_source.line, tuple(of), total(instruction.counts for instruction in of), worst
        )
        files[line_of_source.path].append(line)
    return {**files}
