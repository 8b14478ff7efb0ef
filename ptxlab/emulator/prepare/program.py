"""A program prepared for the emulator: functions cut into blocks of steps over numbered registers.

Every name is resolved once. Registers, constants, special registers and addresses of variables all
live in one list per activation of a function, and a step knows them by their number in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ptxlab.errors import Location
from ptxlab.isa.targets import Target
from ptxlab.syntax.tree import Declaration, Module

if TYPE_CHECKING:
    from ptxlab.emulator.run.group import Group
    from ptxlab.emulator.run.lanes import Lanes
    from ptxlab.emulator.run.machine import Machine
    from ptxlab.emulator.run.wave import Frame

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an operand's value comes from: a register number and the dtype to see it as.

    ``convert`` is set where the register's bits are not the operand's bits as they stand.
    """

    slot: int
    dtype: np.dtype[Any]
    convert: Callable[[Array], Array] | None = None

    def read(self, registers: list[Array]) -> Array:
        """Return the operand's value: one element per thread, or one for all."""
        value = registers[self.slot]
        if self.convert is not None:
            return self.convert(value)
        return value if value.dtype is self.dtype else value.view(self.dtype)


@dataclass(frozen=True, slots=True)
class Destination:
    """A register to write; ``widen`` is the dtype to extend to when the register is wider."""

    slot: int
    widen: np.dtype[Any] | None = None

    def extended(self, value: Array) -> Array:
        """Return ``value`` extended to the register's width, by the sign of its own type."""
        return value if self.widen is None else value.astype(self.widen)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A register filled when a wave or frame starts: ``kind`` says from what.

    "special": special register ``name``. "param": the value at ``offset`` in the kernel's parameter
    block. "symbol": the address of module variable ``name`` plus ``offset``. "dynamic": ``offset``
    in dynamic shared memory. "local": ``offset`` in the frame's part of local memory.
    """

    kind: str
    name: str = ""
    offset: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint64))


class Step(Protocol):
    """One instruction, ready to run for the given lanes of a frame."""

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Run for ``lanes``. Raise LaunchError for what would be a fault."""
        ...


class Exit(Protocol):
    """What ends a block: it moves the group's threads on, splits them or ends them."""

    def leave(self, machine: Machine, group: Group) -> Group | None:
        """Return the group to go on with, or None if it waits, ended or was split."""
        ...


@dataclass(slots=True)
class Block:
    """Steps that run one after another, then an exit.

    ``participants`` is set where the first step needs threads of a warp to arrive together: given
    the frame, the lanes that stand here and the mask of threads that live, it returns the mask of
    lanes that need not wait for others. ``polls`` says that threads may look here for what other
    threads do. ``instructions`` counts them as PTX does. ``ends`` says that threads only end here.
    """

    steps: list[Step]
    exit: Exit
    first_line: int
    participants: Callable[[Frame, Lanes, Array], Array] | None = None
    polls: bool = False
    instructions: int = 0
    ends: bool = False


@dataclass(slots=True)
class Function:
    """A prepared kernel or device function.

    ``initial`` holds a value or a ``Deferred`` per register. ``parameters`` and ``results`` are the
    register numbers through which calls pass values. ``local_bytes`` is one activation's stack,
    ``shared_bytes`` static shared memory.
    """

    name: str
    is_entry: bool
    blocks: list[Block]
    initial: list[Array | Deferred]
    parameters: tuple[int, ...]
    results: tuple[int, ...]
    local_bytes: int
    shared_bytes: int
    parameter_bytes: int


@dataclass(slots=True, eq=False, weakref_slot=True)
class Program:
    """All functions of a module, and its global and constant variables, for one target.

    A ``watched`` program reports to a ``watch.Watcher``, which each launch of it must have.
    """

    module: Module
    target: Target
    functions: dict[str, Function]
    function_addresses: dict[str, int]
    variables: dict[str, Declaration]
    watched: bool = False

    def locate(self, line: int) -> Location:
        """Return the place of ``line`` in the PTX text, for error messages."""
        source = self.module.source
        text = source.line(line)
        return Location(source.path, line, len(text) - len(text.lstrip()) + 1, text)
