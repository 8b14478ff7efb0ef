"""Registers and memory that are used before they are written: they hold whatever was there before.

PTX ISA, "State Spaces" and "Register State Space", gives them no initial value. To move a register is no
use of it: what mov copies, st.local stores and ld.local loads is as unwritten as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ptxlab.emulator import Site
from ptxlab.emulator.prepare.scope import Scope
from ptxlab.emulator.run.memory import Region
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.observe.check_scene import Scene
from ptxlab.observe.ordering import Touch
from ptxlab.syntax.tree import Address, Name, Operand, Vector

Array = npt.NDArray[Any]

_HINT = "a register or local variable has no initial value: write it first on every path"

State = bool | Array
"""Which threads have written a register: all that live, none, or those of a mask."""


class SharedMemory:
    """Which granules of shared memory have been written; to read another one is an error."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._written = scene.shadow.table(np.bool_)

    def write(self, granules: Array) -> None:
        self._written.data[granules] = True

    def read(self, touch: Touch) -> None:
        written = self._written.data.take(touch.granules)
        if written.all():
            return
        at = np.flatnonzero(~written)
        thread, granule = int(touch.threads[at[0]]), int(touch.granules[at[0]])
        message = (
            f"{self._scene.thread(thread)} reads {self._scene.shared(granule)}, which nobody has "
            "written"
        )
        hint = "shared memory holds what was there before: every byte is to be written first"
        count = at.size * self._scene.shadow.size
        self._scene.find("uninitialized", "error", "shared", count, (message, hint))


class LocalMemory:
    """Which bytes of its local memory each thread has written, in the function it is in.

    To read another one is no error yet: compilers copy structs with the holes in them. What it is
    read into is as unwritten.
    """

    def __init__(self, scene: Scene) -> None:
        self._written = np.zeros((scene.wave.width, 0), bool)

    def write(self, region: Region, first: Array, nbytes: int, written: Array) -> None:
        """See ``nbytes`` from each of the bytes ``first`` on stored, of values ``written`` or not.

        ``written`` is [first, values], of values that are equally large.
        """
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        self._written.reshape(-1)[at] = np.repeat(written, nbytes // written.shape[1], axis=1)

    def read(self, region: Region, first: Array, nbytes: int) -> Array:
        """Return which of ``nbytes`` from each of the bytes ``first`` on are written: [first, nbytes]."""
        self._grow(region)
        at = first[:, None] + np.arange(nbytes)
        found: Array = self._written.reshape(-1)[at]
        return found

    def enter(self, frame: Frame, threads: Threads) -> None:
        """Begin an activation of a function: its part of local memory is new."""
        inside = slice(frame.local_base, frame.local_base + frame.layout.local_bytes)
        self._written[threads.index, inside] = False

    def _grow(self, region: Region) -> None:
        """Follow the local memory of the wave, which grows with the depth of calls."""
        width = self._written.shape[0]
        if self._written.size < region.data.size:
            grown = np.zeros((width, region.data.size // width), bool)
            grown[:, : self._written.shape[1]] = self._written
            self._written = grown


# ---- registers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Uses:
    """The registers of an instruction, as (number, name): its guard, those it uses, those it moves.

    ``writes`` are the numbers of those it writes, ``loads`` those of a load. What is loaded and moved
    is in order; None is no register.
    """

    guard: tuple[tuple[int, str], ...]
    reads: tuple[tuple[int, str], ...]
    moves: tuple[tuple[int | None, str], ...]
    writes: tuple[int, ...]
    loads: tuple[int | None, ...]


class Registers:
    """Which threads have written each register of each activation of a function."""

    def __init__(self, scene: Scene, local: LocalMemory) -> None:
        self._scene = scene
        self._local = local
        self._uses: dict[Site, _Uses] = {}
        self._names: dict[int, dict[int, str]] = {}
        self._states: WeakKeyDictionary[Frame, list[State]] = WeakKeyDictionary()
        self._stored: list[tuple[str, State]] = []
        self._loaded: list[tuple[Array, Array]] = []

    def see(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        uses = self._uses.get(site)
        if uses is None:
            uses = self._uses[site] = self._uses_of(site)
        states = self._states.get(frame)
        if states is None:
            states = self._states[frame] = [False] * len(frame.registers)
            for slot in frame.layout.parameters:
                states[slot] = True
            self._local.enter(frame, threads)
        for slot, name in uses.guard:
            self._use(name, states[slot], threads)
        self._stored.clear()
        if passing is None:
            return
        for slot, name in uses.reads:
            self._use(name, states[slot], passing)
        moved: State = True
        for moving, name in uses.moves:
            state = True if moving is None else states[moving]
            moved = moved & state
            self._stored.append((name, state))
        if moved is True:
            self._stored.clear()
        for slot in uses.writes:
            if moved is True and (passing.full or passing.everyone):
                states[slot] = True
            elif states[slot] is not True or moved is not True:
                states[slot] = np.where(passing.mask, moved, states[slot])

    def stored(self, threads: Array) -> Array:
        """Return which of ``threads`` have written what they store: [threads, registers].

        It is [threads, 1] where they have written all of it.
        """
        states = [state for _, state in self._stored] or [True]
        width = self._scene.wave.width
        return np.stack([np.broadcast_to(state, width)[threads] for state in states], axis=1)

    def use_stored(self, threads: Threads) -> None:
        """See what the instruction at hand stores used: it goes to where others read it."""
        for name, state in self._stored:
            self._use(name, state, threads)

    def load(self, threads: Array, written: Array) -> None:
        """See ``threads`` load bytes of which some are not ``written``: [threads, bytes]."""
        if self._uses[self._scene.site].loads:
            self._loaded.append((threads, written))
        elif not written.all():  # by a function that the host provides, which uses what it reads
            thread = int(threads[np.argmin(written.all(axis=1))])
            who = self._scene.thread(thread)
            words = f"{who} passes local memory on that it has not written", _HINT
            count = int(written.size - written.sum())
            self._scene.find("uninitialized", "error", "local", count, words)

    def settle(self, site: Site, frame: Frame) -> None:
        """End an instruction: what it has loaded is as unwritten as it was in memory."""
        if not self._loaded:
            return
        slots, states = self._uses[site].loads, self._states[frame]
        for threads, written in self._loaded:
            by_register = np.logical_and.reduce(
                written.reshape(threads.size, len(slots), -1), axis=2
            )
            for slot, column in zip(slots, by_register.T, strict=True):
                if slot is not None and not column.all():
                    state = np.array(np.broadcast_to(states[slot], self._scene.wave.width))
                    state[threads] = column
                    states[slot] = state
        self._loaded.clear()

    def _use(self, name: str, state: State, threads: Threads) -> None:
        if state is True:
            return
        missing = threads.mask & ~np.asarray(state)
        if not missing.any():
            return
        who = self._scene.thread(int(missing.argmax()))
        words = f"{who} uses register {name}, which holds nothing it has written", _HINT
        count = int(missing.sum())
        self._scene.find("uninitialized", "error", name, count, words, unit="threads")

    # ---- what an instruction uses ----

    def _uses_of(self, site: Site) -> _Uses:
        instruction = site.instruction
        operands, guard = instruction.operands, instruction.guard
        guards = set() if guard is None else {*_slots(site, Name(guard.name))}
        moves: tuple[int | None, ...] = ()
        if instruction.opcode in ("mov", "st"):
            moves = _slots(site, operands[1])
        address = _slots(site, operands[0]) if instruction.opcode == "st" else ()
        names = self._registers_of(site.scope)

        def named(slots: Iterable[int]) -> tuple[tuple[int, str], ...]:
            """Return the registers among ``slots``, which may be constants and addresses too."""
            return tuple((slot, names[slot]) for slot in sorted(slots) if slot in names)

        return _Uses(
            named(site.reads & guards),
            named(site.reads - (set(moves) - set(address)) - guards),
            tuple((slot, "" if slot is None else names.get(slot, "")) for slot in moves),
            tuple(slot for slot, _ in named(site.writes)),
            _slots(site, operands[0]) if instruction.opcode in ("ld", "ldu") else (),
        )

    def _registers_of(self, scope: Scope) -> dict[int, str]:
        """Return the names of the registers that ``scope`` sees, by number."""
        names = self._names.get(id(scope))
        if names is None:
            names = dict(self._registers_of(scope.parent)) if scope.parent is not None else {}
            names |= {register.slot: name for name, register in scope.registers.items()}
            self._names[id(scope)] = names
        return names


def _slots(site: Site, operand: Operand) -> tuple[int | None, ...]:
    """Return the numbers of the registers of an operand, None for each that is no register."""
    if isinstance(operand, Vector):
        return tuple(slot for element in operand.elements for slot in _slots(site, element))
    if isinstance(operand, Address) and operand.base is not None:
        operand = operand.base
    register = site.register(operand.text) if isinstance(operand, Name) else None
    return (None if register is None else register.slot,)
