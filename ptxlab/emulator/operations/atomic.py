"""atom and red on global, shared and generic addresses.

Threads of one instruction take their turns in the order of their numbers, CTA by CTA, so a result
is the same on every run. A GPU takes any order. Every scope and ordering qualifier is honoured by
this: all threads see one memory. Source: PTX ISA, "Parallel Synchronization and Communication
Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.access import Access, Part, parts
from ptxlab.emulator.context import Context
from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.operation import ALU, Modifiers, UnknownForm, step
from ptxlab.emulator.operations.memory import ORDERINGS, SCOPES, memory_operand
from ptxlab.emulator.program import Array, Destination, Source, Step
from ptxlab.emulator.wave import Frame
from ptxlab.syntax.tree import Instruction

Update = Callable[..., Array]
"""The new value from the old one and the instruction's operands."""

INTEGERS = ("u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
TYPES_OF = {
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
    "add": ("u32", "s32", "u64", *FLOATS),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": (*INTEGERS, "f16", "f16x2", "bf16", "bf16x2"),
    "max": (*INTEGERS, "f16", "f16x2", "bf16", "bf16x2"),
}
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
class Atomic:
    """Read, update and write a place in memory, one thread after the other."""

    access: Access
    dtype: np.dtype[Any]
    update: Update
    accumulate: np.ufunc | None
    operands: tuple[Source, ...]
    destination: Destination | None

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Run for ``lanes``; the destination gets what the thread found there."""
        count = lanes.size
        values = [
            np.broadcast_to(lanes.pick(source.read(frame.registers)), (count,))
            for source in self.operands
        ]
        found = np.empty(count, self.dtype)
        for part in parts(self.access, frame, lanes):
            where = np.arange(count) if part.where is None else part.where
            found[where] = self._in_turn(part, where, [value[where] for value in values])
        if self.destination is not None:
            slot = self.destination.slot
            frame.registers[slot] = lanes.spread(frame.registers[slot], found)

    def _in_turn(self, part: Part, where: Array, values: list[Array]) -> Array:
        """Update one array in thread order and return what each thread found."""
        memory = part.memory.items(self.access.nbytes).view(self.dtype)
        index = np.broadcast_to(part.index, where.shape)
        order = np.argsort(index, kind="stable")
        places, starts = np.unique(index[order], return_index=True)
        lengths = np.diff(starts, append=len(order))
        found = np.empty(len(order), self.dtype)
        if int(lengths.max()) <= len(places):
            self._by_rank(memory, places, starts, lengths, order, values, found)
        else:
            for place, start, length in zip(places, starts, lengths, strict=True):
                turn = order[start : start + length]
                self._queue(memory, int(place), turn, [value[turn] for value in values], found)
        return found

    def _by_rank(
        self,
        memory: Array,
        places: Array,
        starts: Array,
        lengths: Array,
        order: Array,
        values: list[Array],
        found: Array,
    ) -> None:
        """Let the first thread at every place go, then the second, and so on."""
        for rank in range(int(lengths.max())):
            waiting = lengths > rank
            threads = order[starts[waiting] + rank]
            old = memory[places[waiting]]
            found[threads] = old
            memory[places[waiting]] = self.update(old, *(value[threads] for value in values))

    def _queue(
        self, memory: Array, place: int, turn: Array, values: list[Array], found: Array
    ) -> None:
        """Let many threads at one place go one after the other."""
        if self.accumulate is not None:
            line = np.concatenate([memory[place : place + 1], values[0]])
            line = self.accumulate.accumulate(line, dtype=self.dtype)
            found[turn], memory[place] = line[:-1], line[-1]
            return
        old = memory[place : place + 1].copy()
        for position, thread in enumerate(turn):
            found[thread] = old[0]
            old = self.update(old, *(value[position : position + 1] for value in values))
        memory[place] = old[0]


@step("atom", "red")
def atomic(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """atom and red, with every operation and type but vectors and 128 bits."""
    for name in (*ORDERINGS, *SCOPES):
        modifiers.take(name)
    operation = modifiers.one_of(*TYPES_OF)
    returns = instruction.opcode == "atom"
    if not returns and operation in ("exch", "cas"):
        raise UnknownForm(f"red has no .{operation}")
    space = next((name for name in modifiers.rest() if name.startswith(("shared", "global"))), "")
    update = _update(operation, modifiers, space)
    kind = modifiers.type(*TYPES_OF[operation])
    operands = list(instruction.operands)
    destination = context.destination(operands.pop(0), kind.name) if returns else None
    wanted = 3 if operation == "cas" else 2
    if len(operands) != wanted:
        context.reject(f"{instruction.name} takes {wanted + returns} operands")
    access = memory_operand(context, modifiers, operands[0], kind.bytes, "atomic", writes=True)
    if access.space not in ("global", "shared", "generic"):
        raise UnknownForm(f"cannot be in .{access.space}")
    sources = tuple(context.source(operand, kind.name) for operand in operands[1:])
    accumulate = ACCUMULATED.get(operation) if kind.kind in _EXACT else None
    return Atomic(access, kind.dtype, update, accumulate, sources, destination)


_EXACT = ("bits", "unsigned", "signed")


def _compare_and_swap(old: Array, compared: Array, new: Array) -> Array:
    return np.where(old == compared, new, old)


def _update(operation: str, modifiers: Modifiers, space: str) -> Update:
    """Return the update; floating-point ones are those of the arithmetic instruction."""
    kind = next((name for name in modifiers.rest() if name in TYPES_OF[operation]), None)
    if kind is None:
        raise UnknownForm(f".{operation} does not take this type")
    simple: dict[str, Update] = {
        "exch": lambda old, new: new,
        "cas": _compare_and_swap,
        "inc": lambda old, top: np.where(old >= top, np.uint32(0), old + np.uint32(1)),
        "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - np.uint32(1)),
    }
    if operation in simple:
        return simple[operation]
    if kind not in FLOATS:
        return ACCUMULATED[operation]
    half = kind not in ("f32", "f64")
    if half != modifiers.take("noftz"):
        raise UnknownForm(f".{operation}.{kind} {'needs' if half else 'has no'} .noftz")
    # PTX ISA, "atom": add.f32 on global memory flushes subnormals, on shared memory it does not.
    flush = ("ftz",) if kind == "f32" and not space.startswith("shared") else ()
    compute: Update = ALU[operation](Modifiers((*flush, kind), modifiers.target)).compute
    return compute
