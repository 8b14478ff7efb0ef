"""A program prepared for the emulator: functions cut into blocks of steps over numbered registers.

Every name is resolved once. Threads stand at the beginning of a block of an activation of a function;
those that stand at the same one have converged and run together. The exit at the end of the block
says what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.scope import Declared, SharedLayout, Site, Variable
from ptxlab.emulator.run.memory import FUNCTION_WINDOW, Access
from ptxlab.emulator.run.registers import CallResult, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, FrameLayout, Wave
from ptxlab.isa.targets import Target
from ptxlab.syntax.tree import Declaration, Function, PtxModule

Step = Callable[[Frame, Threads], None]
"""One instruction, ready to run for threads of a frame; it raises LaunchError for what would be a fault."""


class Participants(Protocol):
    """Who goes on at an operation that threads may have to wait at, and what the others wait for."""

    @property
    def place(self) -> str:
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


@dataclass(frozen=True, slots=True)
class Lowered:
    """What an instruction does, for whoever makes machine code of it.

    Either it makes its results of its sources with ``compute``, a function of arrays, or it is an ``access``
    to memory whose first source is the address; what else a load or a store has are the elements moved.
    """

    sources: Sequence[Source]
    destinations: Sequence[Destination] = ()
    compute: Callable[..., Any] | None = None
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One instruction of a block: where it stands, its guard, and the steps it is made of.

    One that ``leaves`` is the block's exit, whose steps come before it. ``lowered`` is set where machine
    code can be made of it.
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


@dataclass(slots=True)
class BasicBlock:
    """Steps that run one after another, then an exit.

    ``watched`` are the steps of a launch that somebody watches: they tell of each instruction, and
    drop no register, so that each can be looked at wherever its name is known.
    ``participants`` is set where the first step needs threads to arrive together. ``polls`` says that
    threads may look here for what other threads do. ``instructions`` counts them as PTX does.
    ``ends`` says that threads only end here. ``lasting`` gives, for each instruction, the registers
    whose values matter after it, ``needed`` those that do before the first.
    """

    steps: Sequence[Step]
    watched: Sequence[Bound]
    exit: Exit
    first_line: int
    participants: Participants | None = None
    polls: bool = False
    instructions: int = 0
    ends: bool = False
    lasting: Callable[[], list[set[int]]] = list
    needed: Callable[[], set[int]] = set


@dataclass(slots=True, eq=False)
class Routine:
    """A prepared kernel or device function.

    Of the lines ``unverified`` nobody has measured the bits. In ``engine`` an engine keeps what it makes of it.
    """

    name: str
    blocks: list[BasicBlock]
    frame: FrameLayout
    unverified: frozenset[int] = frozenset()
    engine: object = None


@dataclass(slots=True, eq=False)
class Program:
    """What a launch of the kernel ``entry`` can reach of a module, for one target.

    ``declared`` are all functions of the module. Those ``reached`` by name are prepared, as ``functions``;
    ``by_address`` says that any whose address is known may be called too. ``named`` are the variables in
    shared memory that they declare or name, which have their places once there is a ``shared`` layout;
    ``variables`` are those in global and constant memory, of one that a function declares the name is
    ``function.name``. ``most_registers`` are what a thread asks for with setmaxnreg, 0 if it does not.
    """

    module: PtxModule
    target: Target
    entry: str
    declared: Mapping[str, Function]
    prepare: Callable[[Program, str], None]
    functions: dict[str, Routine] = field(default_factory=dict)
    reached: dict[str, None] = field(default_factory=dict)
    by_address: bool = False
    variables: dict[str, Declared] = field(default_factory=dict)
    named: dict[Variable, None] = field(default_factory=dict)
    shared: SharedLayout | None = None
    most_registers: int = 0

    @property
    def reachable(self) -> tuple[Function, ...]:
        """What a launch can enter: all that is declared where it calls by address."""
        names = self.declared if self.by_address else self.functions
        return tuple(self.declared[name] for name in names)

    def routine(self, name: str) -> Routine:
        """Return a function, prepared now where only an address that another kernel left leads to it."""
        if name not in self.functions:
            self.prepare(self, name)
        return self.functions[name]


def declared_functions(module: PtxModule) -> dict[str, Function]:
    """Return the functions of a module by name; of several declarations of one, that with the body."""
    bodies = {f.name: f for f in module.functions if f.body is not None}
    return {f.name: f for f in module.functions} | bodies


def declaration_order(module: PtxModule) -> tuple[dict[str, int], dict[str, int]]:
    """Return by name after how many other items a module declares things, and has bodies of functions."""
    declared: dict[str, int] = {}
    bodies: dict[str, int] = {}
    for number, item in enumerate(module.items):
        if isinstance(item, Function):
            declared.setdefault(item.name, number)
            if item.body is not None:
                bodies[item.name] = number
        elif isinstance(item, Declaration):
            for declarator in item.names:
                declared.setdefault(declarator.name, number)
    return declared, bodies


def function_addresses(declared: Iterable[str]) -> dict[str, int]:
    """Return the addresses that stand for the functions of a module, in a window that holds no data."""
    return {name: FUNCTION_WINDOW + 16 * index for index, name in enumerate(declared)}


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Where a call returns to: a block of an activation, and its registers for the results."""

    activation: Activation
    following: int
    results: tuple[CallResult, ...]


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True)
class Ended:
    """Threads that are no more."""

    threads: Threads


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
