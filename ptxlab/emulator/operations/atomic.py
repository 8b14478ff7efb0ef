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

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.memory import (
    NEEDS,
    SCOPES,
    memory_operand,
    vector_size,
    without_hint,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import find
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import Bytes, Part, Region
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES, ScalarType

Update = Callable[..., Array]
"""The new value from the old one and the instruction's operands."""

Queue = Callable[..., tuple[Array, Array]]
"""From the old value and the operands of threads in their order: what each finds, and what is left."""

REDUCTIONS = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
}
"""Of integers and bits: by numpy in one call, in order."""


@dataclass(frozen=True, slots=True)
class AtomicChange:
    """How a value in memory changes: once at many places, or many times at one."""

    update: Update
    queue: Queue


def atomic(context: Context, form: RowForm) -> Step:
    """Change places in memory, one thread after the other; atom returns what was there.

    The elements of a vector are places of their own (PTX ISA, "atom": atomicity is per element).
    """
    operation, kind = form["op"], TYPES[form["T"]]
    returns = form.opcode == "atom"
    size = vector_size(form)
    operands = without_hint(context, form, 1 + returns + 1 + (operation == "cas"))
    destinations = context.destinations(operands.pop(0), kind.name) if returns else []
    access = memory_operand(
        context, form, operands.pop(0), kind.bytes * size, "atomic", writes=True
    )
    columns = [context.sources(operand, kind.name) for operand in operands]
    change_in = changes(operation, kind, keeps=bool(form["noftz"]))

    def run(frame: Frame, threads: Threads) -> None:
        count = threads.size
        before = np.empty((size, count), kind.dtype)
        for part in parts(access, frame, threads):
            where = np.arange(count) if part.where is None else part.where
            _refuse_local(part, access, frame, int(threads.index[where[0]]))
            memory = part.memory.items(kind.bytes).view(kind.dtype)
            index = np.broadcast_to(part.index, where.shape) * size
            change = change_in(part.memory)
            for element, own in enumerate(zip(*columns, strict=True)):
                given = [threads.pick(source.read(frame.registers)) for source in own]
                values = [np.broadcast_to(value, (count,))[where] for value in given]
                before[element, where] = take_turns(memory, index + element, change, values)
        if destinations:
            write(frame, threads.spread, destinations, before)

    return run


def _refuse_local(part: Part, access: Access, frame: Frame, thread: int) -> None:
    if part.memory.name == "local":
        raise LaunchError(
            f"atomic on local memory by {frame.wave.thread(thread)}",
            location=frame.wave.locate(access.line),
            hint="atom and red work on global and shared memory",
        )


def take_turns(memory: Array, index: Array, change: AtomicChange, values: list[Array]) -> Array:
    """Let threads change ``memory`` at ``index`` in their order; return what each thread found."""
    order = np.argsort(index, kind="stable")
    places, starts = np.unique(index[order], return_index=True)
    lengths = np.diff(starts, append=len(order))
    before = np.empty(len(order), memory.dtype)
    if int(lengths.max()) <= len(places):
        for rank in range(int(lengths.max())):
            waiting = lengths > rank
            at, threads = places[waiting], order[starts[waiting] + rank]
            old = before[threads] = memory[at]
            memory[at] = change.update(old, *(value[threads] for value in values))
        return before
    for word, start, length in zip(places, starts, lengths, strict=True):
        threads = order[start : start + length]
        given = [value[threads] for value in values]
        before[threads], memory[word] = change.queue(memory[word : word + 1], *given)
    return before


def _in_turn(update: Update) -> AtomicChange:
    def queue(old: Array, *values: Array) -> tuple[Array, Array]:
        before = np.empty(len(values[0]), old.dtype)
        for turn in range(len(before)):
            before[turn] = old[0]
            old = update(old, *(value[turn : turn + 1] for value in values))
        return before, old[0]

    return AtomicChange(update, queue)


def _accumulated(reduction: np.ufunc) -> AtomicChange:
    def queue(old: Array, value: Array) -> tuple[Array, Array]:
        line = reduction.accumulate(np.concatenate([old, value]), dtype=old.dtype)
        return line[:-1], line[-1]

    return AtomicChange(reduction, queue)


def _words(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint64).reshape(-1, value.dtype.itemsize // 8)


def _equal(a: Array, b: Array) -> Array:
    same: Array = (_words(a) == _words(b)).all(axis=1) if a.dtype.itemsize == 16 else a == b
    return same


def _compare_and_swap(old: Array, compared: Array, new: Array) -> Array:
    return np.where(_equal(old, compared), new, old)


def _swaps(old: Array, compared: Array, new: Array) -> tuple[Array, Array]:
    """Let many compare and swap: nothing changes up to the first one that finds what it expects."""
    swapped = np.empty_like(new)
    at = 0
    while at < len(new):
        hits = np.flatnonzero(_equal(compared[at:], np.broadcast_to(old, len(new) - at)))
        if not hits.size:
            break
        hit = at + int(hits[0])
        swapped[at : hit + 1] = old
        old, at = new[hit : hit + 1], hit + 1
    swapped[at:] = old
    return swapped, old[0]


def _exchanges(old: Array, new: Array) -> tuple[Array, Array]:
    return np.concatenate([old, new[:-1]]), new[-1]


_PHASE, _ONCE = np.uint64(1 << 63), np.uint64(1 << 32)
_COUNTED = _PHASE - _ONCE


def _arrived(old: Array, _: Array) -> Array:
    """Count an arrival as sm_80 does: in the upper word up to its highest bit, which is the phase.

    Where that changes, what is missing begins anew: the lower word tells how many are expected, from 2**30 down.
    """
    counted = old + _ONCE
    again = (old + np.uint64(1 << 30)) << np.uint64(32)
    return np.where(counted & _COUNTED, counted, counted + again)


_CHANGES = {
    "arrive": _in_turn(_arrived),
    "exch": AtomicChange(lambda old, new: new, _exchanges),
    "cas": AtomicChange(_compare_and_swap, _swaps),
    "inc": _in_turn(lambda old, top: np.where(old >= top, np.uint32(0), old + np.uint32(1))),
    "dec": _in_turn(
        lambda old, top: np.where((old == 0) | (old > top), top, old - np.uint32(1)),
    ),
}


def changes(
    operation: str, kind: ScalarType, *, keeps: bool = False
) -> Callable[[Bytes], AtomicChange]:
    """Return what happens to a value, by the memory that it is in, unless it ``keeps`` subnormals in any."""
    in_shared = _change(operation, kind, flushes=False)
    # PTX ISA, "atom": add.f32 on global memory flushes subnormals, on shared memory it does not.
    elsewhere = _change(operation, kind, flushes=kind.name == "f32" and not keeps)
    return lambda memory: in_shared if isinstance(memory, Region) else elsewhere


def _change(operation: str, kind: ScalarType, *, flushes: bool) -> AtomicChange:
    """Return what happens to a value; floats as the operation of that name computes them."""
    if operation in _CHANGES:
        return _CHANGES[operation]
    if kind.is_integer:
        return _accumulated(REDUCTIONS[operation])
    modifiers = ("ftz", kind.name) if flushes else (kind.name,)
    return _in_turn(find(operation, modifiers).compute)


# ---- rows -----------------------------------------------------------------------------------

NOFTZ_F32 = {"noftz f32": "sm_90 9.4"}
"""Sums of f32 that keep subnormals wherever they are."""
_NEEDS = {
    **NEEDS,
    "b128": "sm_90 8.3",
    **dict.fromkeys(("bf16", "bf16x2"), "sm_90 7.8"),
    **dict.fromkeys(("v2", "v4", "v8"), "sm_90 8.1"),
    **NOFTZ_F32,
}
_HALVES, _PAIRS = "f16 bf16", "f16x2 bf16x2"
_SHARED = "{.<sem>}{.<scope>}.<space>"
_GLOBAL = "{.<sem>}{.<scope>}{.global}"
_SPACES = "shared shared::cta shared::cluster"

_atomic = partial(
    row, step=atomic, mix="atomic", effects=Effects(atomic=True), scope=SCOPES, needs=_NEEDS
)
_atom = partial(_atomic, sem="relaxed acquire release acq_rel")
_red = partial(_atomic, sem="relaxed release")

for _op, _noftz, _types in (
    ("and or xor", "", "b32 b64"),
    ("add", "", "u32 s32 u64 f32 f64"),
    ("inc dec", "", "u32"),
    ("min max", "", "u32 s32 u64 s64"),
    ("add", ".noftz", f"{_HALVES} {_PAIRS} f32"),
):
    _end = f".<op>{_noftz}.<T>"
    _hinted = f".<op>{_noftz}{{.L2::cache_hint}}.<T>"
    _atom("atom" + _SHARED + _end, "[T] T -> T?", space=_SPACES, op=_op, T=_types)
    _atom("atom" + _GLOBAL + _hinted, "[T] T b64? -> T?", op=_op, T=_types)
    _red("red" + _SHARED + _end, "[T] T", space=_SPACES, op=_op, T=_types)
    _red("red" + _GLOBAL + _hinted, "[T] T b64?", op=_op, T=_types)

# Nothing says when it is done: here it is at once.
for _op, _types in (
    ("add", "u32 s32 u64 s64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32"),
    ("and or xor", "b32"),
):
    _later = partial(
        row,
        operands="[T] T",
        step=atomic,
        mix="atomic",
        effects=Effects(atomic=True),
        fidelity="ordering",
        needs="sm_100 8.7",
        op=_op,
        T=_types,
    )
    _later("red.async.<sem>.<scope>{.global}.<op>.<T>", sem="relaxed release", scope="gpu sys")
    _later("red.async.mmio.release.sys{.global}.<op>.<T>")

_exchange = partial(_atom, op="exch", T="b32 b64 b128")
_exchange("atom" + _SHARED + ".<op>.<T>", "[T] T -> T?", space=_SPACES)
_exchange("atom" + _GLOBAL + ".<op>{.L2::cache_hint}.<T>", "[T] T b64? -> T?")
_atom(
    "atom{.<sem>}{.<scope>}{.<space>}.<op>.<T>",
    "[T] T T -> T?",
    space=f"global {_SPACES}",
    op="cas",
    T="b16 b32 b64 b128",
)

_atom(f"atom{_SHARED}.<op>.<T>", "[T] T -> T?", space=_SPACES, op="arrive", T="b64", lifted=True)

for _op, _noftz, _types, _vectors in (
    ("add", "", "f32", "v2 v4"),
    ("add", ".noftz", "f32", "v2 v4"),
    ("add min max", ".noftz", _HALVES, "v2 v4 v8"),
    ("add min max", ".noftz", _PAIRS, "v2 v4"),
):
    _several = f"{_GLOBAL}.<op>{_noftz}{{.L2::cache_hint}}.<vec>.<T>"
    _atom("atom" + _several, "[T] T*vec b64? -> T*vec?", op=_op, vec=_vectors, T=_types)
    _red("red" + _several, "[T] T*vec b64?", op=_op, vec=_vectors, T=_types)
