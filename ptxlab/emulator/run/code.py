"""What runs: functions as blocks of steps, threads that stand at them, and what becomes of threads that leave one.

Threads stand at the beginning of a block of an activation of a function; those that stand at the same one
have converged and run together. The exit at the end of the block says what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.program import Lowered
from ptxlab.emulator.prepare.registers import CallResult, Destination, FrameLayout, Source
from ptxlab.emulator.prepare.scope import Site
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.garbage import record

Step = Callable[[Frame, Threads], None]
"""One instruction, ready to run for threads of a frame; it raises LaunchError for what would be a fault."""


class Participants(Protocol):
    """Who goes on at an operation that threads may have to wait at, and what the others wait for."""

    @property
    def where(self) -> str:
        """Where they wait, in words."""
        ...

    @property
    def gives_up(self) -> bool:
        """Whether the operation also has an answer for those who would wait still."""
        ...

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of those of ``threads``, which stand here, that wait for nobody."""
        ...

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say what the first of the waiting ``threads`` lacks."""
        ...


@record(frozen=True, slots=True)
class InstructionSteps:
    """One instruction of a block and the steps that it is made of; one that ``leaves`` has those before the exit.

    ``lowered`` is set where machine code can be made of it.
    """

    site: Site
    guard: Source | None
    steps: Sequence[Step]
    leaves: bool
    lowered: Lowered | None = None

    @property
    def reads(self) -> set[int]:
        """The registers that it reads, the carry flag among them, which no instruction names."""
        lowered = () if self.lowered is None else self.lowered.sources
        return {*self.site.reads, *(source.slot for source in lowered)}

    @property
    def writes(self) -> set[int]:
        lowered = () if self.lowered is None else self.lowered.destinations
        return {*self.site.writes, *(destination.slot for destination in lowered)}

    def __call__(self, frame: Frame, threads: Threads) -> None:
        """Run the steps, and tell the wave's watcher before and after them."""
        watcher = frame.wave.watcher
        guard = self.guard
        passing = threads if guard is None else threads.where(guard.read(frame.registers))
        watcher.before(self.site, frame, threads, passing)
        for step in self.steps:
            step(frame, threads)
        if not self.leaves:
            watcher.after(self.site, frame, threads, passing)


@dataclass(slots=True, eq=False)
class BasicBlock:
    """Steps that run one after another, then an exit, which leads to some of the ``successors``.

    ``watched`` are the steps of a launch that somebody watches: they tell of each instruction, and
    drop no register, so that each can be looked at wherever its name is known.
    ``participants`` is set where the first step needs threads to arrive together. ``polls`` says that
    threads may look here for what other threads do. ``instructions`` counts them as PTX does, ``accesses`` those to memory.
    ``ends`` says that threads only end here, ``beside`` that all of it may run beside products that are under way in
    the ``background``. ``lasting`` gives, for each instruction, the registers
    whose values matter after it, ``needed`` those that do before the first.
    """

    steps: Sequence[Step]
    watched: Sequence[InstructionSteps]
    exit: Exit
    successors: Sequence[int]
    lasting: Callable[[], list[set[int]]]
    needed: Callable[[], set[int]]
    first_line: int
    participants: Participants | None
    polls: bool
    instructions: int
    accesses: int
    ends: bool
    beside: Callable[[], bool]


@dataclass(slots=True, eq=False)
class Routine:
    """A kernel or device function as code; ``called`` gives the code of one that it calls.

    In ``engine`` an engine keeps what it makes of it.
    """

    name: str
    blocks: list[BasicBlock]
    frame: FrameLayout
    called: Callable[[str], Routine]
    engine: object = None


@record(frozen=True, slots=True, eq=False)
class Caller:
    """Where a call returns to: a block of an activation, and its registers for the results."""

    activation: Activation
    following: int
    results: tuple[CallResult, ...]


@record(frozen=True, slots=True, eq=False)
class Activation:
    """A function that threads are in, ``depth`` calls deep; ``caller`` is None in a kernel."""

    function: Routine
    frame: Frame
    caller: Caller | None = None
    depth: int = 0

    @classmethod
    def of(
        cls, function: Routine, wave: Wave, local_base: int = 0, caller: Caller | None = None
    ) -> Activation:
        """Enter ``function``, whose local memory begins at ``local_base``."""
        depth = 0 if caller is None else caller.activation.depth + 1
        return cls(function, Frame.begin(wave, function.frame, local_base), caller, depth)


class Converged:
    """Threads that stand at the beginning of the same block of the same activation.

    ``ran`` is when they, or what they split from, had their last turn.
    """

    __slots__ = ("activation", "block", "frame", "ran", "threads")

    def __init__(self, activation: Activation, block: int, threads: Threads, ran: int) -> None:
        self.activation = activation
        self.frame = activation.frame
        self.block = block
        self.threads = threads
        self.ran = ran

    @property
    def first(self) -> int:
        """The position of the first thread in the wave."""
        return int(self.threads.index[0])

    def stands_at(self) -> BasicBlock:
        return self.activation.function.blocks[self.block]

    def at(self, other: Converged) -> bool:
        """Say whether the others stand at the same place."""
        return self.frame is other.frame and self.block == other.block

    def part(self, threads: Threads, block: int | None = None) -> Converged:
        """Return some of the threads, at another block where one is given."""
        return Converged(self.activation, self.block if block is None else block, threads, self.ran)

    @property
    def priority(self) -> tuple[int, int]:
        """Order in which groups run, smallest first: the deepest call, then the order of the text.

        Threads with nothing left to do end at once, and are nobody's concern any more.
        """
        if self.activation.function.blocks[self.block].ends:
            return -(1 << 30), 0
        return -self.activation.depth, self.block


@record(frozen=True, slots=True)
class Ended:
    """Threads that are no more."""

    threads: Threads


@record(frozen=True, slots=True)
class Reduction:
    """What bar.red makes of the arriving threads' predicates: popc, and, or."""

    operation: str
    predicate: Source
    destination: Destination

    def result(self, arrived: Array, holding: Array) -> Array:
        """Return the result per CTA from how many arrived, and for how many the predicate held."""
        if self.operation == "and":
            return np.equal(holding, arrived)
        if self.operation == "or":
            return np.greater(holding, 0)
        return holding.astype(np.uint32)


@record(frozen=True, slots=True)
class Arrival:
    """Threads that have arrived at barrier ``number``, which is for ``count`` threads of a CTA.

    ``count`` None means all of them. ``waits`` is False for bar.arrive, whose threads have gone on;
    the others are at the block where they go on.
    """

    group: Converged
    number: int
    count: int | None
    line: int
    waits: bool = True
    reduction: Reduction | None = None

    @property
    def kind(self) -> tuple[int | None, str | None]:
        """What all arrivals at one barrier have in common."""
        return self.count, None if self.reduction is None else self.reduction.operation


Onward = Converged | Ended | Arrival
"""What becomes of threads that leave a block."""

Exit = Callable[[Converged], Sequence[Onward]]
"""What ends a block: it moves threads on, which may be the group itself, splits, ends or holds them."""
