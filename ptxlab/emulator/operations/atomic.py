"""atom and red on global, shared and generic addresses.

Threads of one instruction take their turns in the order of their numbers, CTA by CTA, so a result
is the same on every run. A GPU takes any order. Every scope and ordering qualifier is honoured by
this: all threads see one memory. Source: PTX ISA, "Parallel Synchronization and Communication
Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.operations.memory import (
    NEEDS,
    SCOPES,
    memory_operand,
    vector_size,
    without_hint,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import find
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.memory import Access, Part, Region
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.tree import Instruction

Update = Callable[..., Array]
"""The new value from the old one and the instruction's operands."""

Queue = Callable[..., tuple[Array, Array]]
"""From the old value and the operands of threads in their order: what each finds, and what is left."""

# An integer or bitwise update may be accumulated by numpy in one call, in order.
ACCUMULATED = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True, slots=True)
class Change:
    """How a value in memory changes.

    ``in_shared`` is the update in shared memory. ``queue``, where there is one, does many updates of
    one place at once.
    """

    update: Update
    in_shared: Update
    queue: Queue | None = None


@dataclass(frozen=True, slots=True)
class Atomic:
    """Read, update and write places in memory, one thread after the other.

    ``operands`` and ``destinations`` are per element of a vector; ``access`` is to all of it. The
    elements are places of their own (PTX ISA, "atom": atomicity is per element).
    """

    access: Access
    dtype: np.dtype[Any]
    change: Change
    operands: tuple[tuple[Source, ...], ...]
    destinations: tuple[Destination, ...]

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for ``threads``; the destinations get what the thread found there."""
        count, size = threads.size, len(self.operands)
        found = np.empty((size, count), self.dtype)
        for part in parts(self.access, frame, threads):
            where = np.arange(count) if part.where is None else part.where
            self._refuse_local(part, where, frame, threads)
            memory = part.memory.items(self.dtype.itemsize).view(self.dtype)
            index = np.broadcast_to(part.index, where.shape) * size
            change = self.change
            update = change.in_shared if isinstance(part.memory, Region) else change.update
            for element, sources in enumerate(self.operands):
                values = [
                    np.broadcast_to(threads.pick(source.read(frame.registers)), (count,))[where]
                    for source in sources
                ]
                turns = Turns(memory, index + element, update, change.queue, values)
                found[element, where] = turns.take()
        for element, destination in enumerate(self.destinations):
            slot = destination.slot
            frame.registers[slot] = threads.spread(frame.registers[slot], found[element])

    def _refuse_local(self, part: Part, where: Array, frame: Frame, threads: Threads) -> None:
        if part.memory.name == "local":
            wave = frame.wave
            raise LaunchError(
                f"atomic on local memory by {wave.thread(int(threads.index[where[0]]))}",
                location=wave.locate(self.access.line),
                hint="atom and red work on global and shared memory",
            )


@dataclass(frozen=True, slots=True)
class Turns:
    """Threads that update ``memory`` at ``index``, in their order, with their ``values``."""

    memory: Array
    index: Array
    update: Update
    queue: Queue | None
    values: list[Array]

    def take(self) -> Array:
        """Do all updates and return what each thread found."""
        order = np.argsort(self.index, kind="stable")
        places, starts = np.unique(self.index[order], return_index=True)
        lengths = np.diff(starts, append=len(order))
        found = np.empty(len(order), self.memory.dtype)
        if int(lengths.max()) <= len(places):
            for rank in range(int(lengths.max())):
                waiting = lengths > rank
                self._round(places[waiting], order[starts[waiting] + rank], found)
        else:
            for place, start, length in zip(places, starts, lengths, strict=True):
                self._queue(int(place), order[start : start + length], found)
        return found

    def _round(self, places: Array, threads: Array, found: Array) -> None:
        """Let one thread at each of several places go."""
        old = self.memory[places]
        found[threads] = old
        self.memory[places] = self.update(old, *(value[threads] for value in self.values))

    def _queue(self, place: int, threads: Array, found: Array) -> None:
        """Let many threads at one place go one after the other."""
        memory, values = self.memory, [value[threads] for value in self.values]
        if self.queue is not None:
            found[threads], memory[place] = self.queue(memory[place : place + 1], *values)
            return
        old = memory[place : place + 1].copy()
        for position, thread in enumerate(threads):
            found[thread] = old[0]
            old = self.update(old, *(value[position : position + 1] for value in values))
        memory[place] = old[0]


def atomic(context: Context, instruction: Instruction, form: Form) -> Step:
    """Change places in memory, one thread after the other; atom returns what was there."""
    operation, kind = form["op"], TYPES[form["T"]]
    returns = form.opcode == "atom"
    size = vector_size(form)
    operands = without_hint(context, form, 1 + returns + 1 + (operation == "cas"))
    targets = context.elements(operands.pop(0), size) if returns else ()
    destinations = tuple(context.destination(target, kind.name) for target in targets)
    access = memory_operand(
        context, form, operands.pop(0), kind.bytes * size, "atomic", writes=True
    )
    columns = [context.elements(operand, size) for operand in operands]
    sources = tuple(
        tuple(context.source(column[i], kind.name) for column in columns) for i in range(size)
    )
    return Atomic(access, kind.dtype, _change(operation, kind), sources, destinations)


_EXACT = ("bits", "unsigned", "signed")


def _words(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint64).reshape(-1, value.dtype.itemsize // 8)


def _equal(a: Array, b: Array) -> Array:
    same: Array = (_words(a) == _words(b)).all(axis=1) if a.dtype.itemsize == 16 else a == b
    return same


def _compare_and_swap(old: Array, compared: Array, new: Array) -> Array:
    return np.where(_equal(old, compared), new, old)


def _swaps(old: Array, compared: Array, new: Array) -> tuple[Array, Array]:
    """Let many compare and swap: nothing changes up to the first one that finds what it expects."""
    found = np.empty_like(new)
    at = 0
    while at < len(new):
        hits = np.flatnonzero(_equal(compared[at:], np.broadcast_to(old, len(new) - at)))
        if not hits.size:
            break
        hit = at + int(hits[0])
        found[at : hit + 1] = old
        old, at = new[hit : hit + 1], hit + 1
    found[at:] = old
    return found, old[0]


def _exchanges(old: Array, new: Array) -> tuple[Array, Array]:
    return np.concatenate([old, new[:-1]]), new[-1]


QUEUES: dict[str, Queue] = {"exch": _exchanges, "cas": _swaps}


def _accumulated(function: np.ufunc) -> Queue:
    def queue(old: Array, value: Array) -> tuple[Array, Array]:
        line = function.accumulate(np.concatenate([old, value]), dtype=old.dtype)
        return line[:-1], line[-1]

    return queue


SIMPLE: dict[str, Update] = {
    "exch": lambda old, new: new,
    "cas": _compare_and_swap,
    "inc": lambda old, top: np.where(old >= top, np.uint32(0), old + np.uint32(1)),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - np.uint32(1)),
}


def _change(operation: str, kind: ScalarType) -> Change:
    """Return what happens to a value; floats as the operation of that name computes them."""
    if operation in SIMPLE:
        return Change(SIMPLE[operation], SIMPLE[operation], QUEUES.get(operation))
    if kind.kind in _EXACT:
        update = ACCUMULATED[operation]
        return Change(update, update, _accumulated(update))
    # PTX ISA, "atom": add.f32 on global memory flushes subnormals, on shared memory it does not.
    flushing = ("ftz",) if kind.name == "f32" else ()
    in_shared = find(operation, (kind.name,)).compute
    return Change(find(operation, (*flushing, kind.name)).compute, in_shared)


# ---- rows -----------------------------------------------------------------------------------

_NEEDS = {
    **NEEDS,
    "b128": "sm_90 8.3",
    **dict.fromkeys(("bf16", "bf16x2"), "sm_90 7.8"),
    **dict.fromkeys(("v2", "v4", "v8"), "sm_90 8.1"),
}
_HALVES, _PAIRS = "f16 bf16", "f16x2 bf16x2"
_SHARED = "{.<sem>}{.<scope>}.<space>"
_GLOBAL = "{.<sem>}{.<scope>}{.global}"
_SPACES = "shared shared::cta"

_atomic = partial(row, step=atomic, mix="atomic", scope=SCOPES, needs=_NEEDS)
_atom = partial(_atomic, sem="relaxed acquire release acq_rel")
_red = partial(_atomic, sem="relaxed release")

for _op, _noftz, _types in (
    ("and or xor", "", "b32 b64"),
    ("add", "", "u32 s32 u64 f32 f64"),
    ("inc dec", "", "u32"),
    ("min max", "", "u32 s32 u64 s64"),
    ("add", ".noftz", f"{_HALVES} {_PAIRS}"),
):
    _end = f".<op>{_noftz}.<T>"
    _hinted = f".<op>{_noftz}{{.L2::cache_hint}}.<T>"
    _atom("atom" + _SHARED + _end, "[T] T -> T", space=_SPACES, op=_op, T=_types)
    _atom("atom" + _GLOBAL + _hinted, "[T] T b64? -> T", op=_op, T=_types)
    _red("red" + _SHARED + _end, "[T] T", space=_SPACES, op=_op, T=_types)
    _red("red" + _GLOBAL + _hinted, "[T] T b64?", op=_op, T=_types)

_exchange = partial(_atom, op="exch", T="b32 b64 b128")
_exchange("atom" + _SHARED + ".<op>.<T>", "[T] T -> T", space=_SPACES)
_exchange("atom" + _GLOBAL + ".<op>{.L2::cache_hint}.<T>", "[T] T b64? -> T")
_atom(
    "atom{.<sem>}{.<scope>}{.<space>}.<op>.<T>",
    "[T] T T -> T",
    space=f"global {_SPACES}",
    op="cas",
    T="b16 b32 b64 b128",
)

for _op, _noftz, _types, _vectors in (
    ("add", "", "f32", "v2 v4"),
    ("add min max", ".noftz", _HALVES, "v2 v4 v8"),
    ("add min max", ".noftz", _PAIRS, "v2 v4"),
):
    _several = f"{_GLOBAL}.<op>{_noftz}{{.L2::cache_hint}}.<vec>.<T>"
    _atom("atom" + _several, "[T] T*vec b64? -> T*vec", op=_op, vec=_vectors, T=_types)
    _red("red" + _several, "[T] T*vec b64?", op=_op, vec=_vectors, T=_types)
