"""A program prepared for the emulator: functions cut into basic blocks of instructions over numbered registers.

Every name is resolved once, and nothing of a block changes any more. What only a launch can call (steps,
exits, participants) is made by the rows of operations, and is what it is for ``run.code`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxlab.emulator.address_map import FUNCTION_WINDOW
from ptxlab.emulator.prepare.liveness import Liveness
from ptxlab.emulator.prepare.registers import Destination, FrameLayout, Source
from ptxlab.emulator.prepare.scope import Declared, SharedLayout, Site, Variable
from ptxlab.garbage import record
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import Target
from ptxlab.syntax.tree import Declaration, Function, PtxModule


@record(frozen=True, slots=True)
class Access:
    """A memory operand: ``nbytes`` at ``base + offset`` in ``space``, by the instruction on ``line``.

    ``space`` is "global" (also for const), "shared" (of one's own CTA), "shared::cluster", "local",
    "param" or "generic"; ``verb`` is how messages call it.
    """

    space: str
    base: Source
    offset: int
    nbytes: int
    line: int
    verb: str
    writes: bool = False


@record(frozen=True, slots=True)
class Lowered:
    """What an instruction does, also for whoever makes machine code of it.

    Either it makes its results of its sources with ``compute``, a function of arrays, or it is an ``access``
    to memory whose first source is the address, and has a ``step`` (``run.code.Step``); what else a load or
    a store has are the elements moved.
    """

    sources: Sequence[Source]
    destinations: Sequence[Destination] = ()
    compute: Callable[..., Any] | None = None
    access: Access | None = None
    step: Callable[..., None] | None = None


@record(frozen=True, slots=True)
class ReadClock:
    """Put into register ``slot`` how many instructions have been executed, from bit ``lowest`` on.

    ``before`` of its block are among them.
    """

    slot: int
    dtype: np.dtype[Any]
    lowest: int
    before: int


Action = Lowered | ReadClock | Callable[..., None]
"""What is done to the registers and the memory of threads: as data, or as a ``run.code.Step``."""


@record(frozen=True, slots=True)
class BoundInstruction:
    """One instruction of a block: where it stands, its guard, and what it does.

    ``first`` comes before its ``action``. ``participants`` (``run.code.Participants``) are set where threads
    must arrive together. One that ends its block has an ``exit`` (``run.code.Exit``) in place of an action.
    Products that are under way to the registers ``awaited`` are done before it.
    """

    site: Site
    guard: Source | None
    first: Sequence[Action]
    action: Action | None
    participants: Any = None
    exit: Callable[..., Any] | None = None
    awaited: frozenset[int] = frozenset()

    @property
    def lowered(self) -> Lowered | None:
        """What machine code can be made of: nothing where more than the instruction itself is to be done."""
        alone = not (self.first or self.participants or self.awaited)
        return self.action if alone and isinstance(self.action, Lowered) else None


@record(frozen=True, slots=True, eq=False)
class BoundBlock:
    """Instructions that run one after another; the last one may be an exit.

    Otherwise threads go on to the block ``following``, which is None at the end of a function.
    ``successors`` are all blocks that may follow.
    """

    instructions: Sequence[BoundInstruction]
    following: int | None
    successors: tuple[int, ...]


@record(frozen=True, slots=True, eq=False)
class BoundFunction:
    """A kernel or device function, the layout of its frames, and which registers matter in its blocks.

    Of the lines ``unverified`` nobody has measured the bits.
    """

    name: str
    is_entry: bool
    blocks: Sequence[BoundBlock]
    liveness: Sequence[Liveness]
    frame: FrameLayout
    unverified: frozenset[int]


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
    functions: dict[str, BoundFunction] = field(default_factory=dict)
    reached: dict[str, None] = field(default_factory=dict)
    by_address: bool = False
    variables: dict[str, Declared] = field(default_factory=dict)
    named: dict[Variable, None] = field(default_factory=dict)
    shared: SharedLayout | None = None
    most_registers: int = 0

    @property
    def reserved(self) -> int:
        """How many bytes before its own a CTA's shared memory has: machine code uses what is reserved there."""
        return MULTIPROCESSORS[self.target.capability].shared_base if self.module.lifted else 0

    @property
    def most_shared(self) -> int:
        return self.target.shared_bytes + self.reserved

    @property
    def reachable(self) -> tuple[Function, ...]:
        """What a launch can enter: all that is declared where it calls by address."""
        names = self.declared if self.by_address else self.functions
        return tuple(self.declared[name] for name in names)

    def function(self, name: str) -> BoundFunction:
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
