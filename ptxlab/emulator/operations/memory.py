"""ld, st and address conversion. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.emulator.operations.parameter import StoreArgument, load_parameter, static_parameter
from ptxlab.emulator.operations.qualifiers import take_qualifiers
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Modifiers, step
from ptxlab.emulator.prepare.program import Array, Destination, Source, Step
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.emulator.run.access import Access, parts
from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.types import ScalarType
from ptxlab.syntax.tree import Instruction

SPACES = ("global", "shared", "local", "const", "param")

LOADABLE = frozenset(f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)) | {
    "f32",
    "f64",
    "b128",
}


class Load:
    """Read one item, or a vector of two or four, into registers."""

    __slots__ = ("_access", "_destinations", "_dtype")

    def __init__(
        self, access: Access, destinations: list[Destination], dtype: np.dtype[Any]
    ) -> None:
        self._access = access
        self._destinations = destinations
        self._dtype = dtype

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Load for ``lanes``; only when they are few is one item per active lane read."""
        wide = not (lanes.everyone or lanes.sparse or frame.wave.watched)
        items = gather(self._access, frame, lanes, wide=wide)
        registers = frame.registers
        count = len(self._destinations)
        if count == 1:
            columns = [items.view(self._dtype)]
        else:
            table = items.view(self._dtype).reshape(-1, count)
            columns = [np.ascontiguousarray(table[:, i]) for i in range(count)]
        put = lanes.merge if wide else lanes.spread
        for destination, column in zip(self._destinations, columns, strict=True):
            slot = destination.slot
            registers[slot] = put(registers[slot], destination.extended(column))


class Store:
    """Write one item, or a vector of two or four, from registers."""

    __slots__ = ("_access", "_sources")

    def __init__(self, access: Access, sources: list[Source]) -> None:
        self._access = access
        self._sources = sources

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Store for ``lanes``; of several threads at one address the highest numbered wins."""
        columns = [lanes.pick(source.read(frame.registers)) for source in self._sources]
        if len(columns) == 1:
            items = columns[0].view(ITEM[self._access.nbytes])
        else:
            rows = max(column.shape[0] for column in columns)
            table = np.empty((rows, len(columns)), columns[0].dtype)
            for i, column in enumerate(columns):
                table[:, i] = column
            items = table.reshape(-1).view(ITEM[self._access.nbytes])
        scatter(self._access, frame, lanes, items)


def gather(access: Access, frame: Frame, lanes: Lanes, *, wide: bool = False) -> Array:
    """Return the items at the lanes' addresses: one per active lane, or one for all.

    ``wide`` returns one per thread of the wave, of which those not active have no meaning.
    """
    found = parts(access, frame, lanes, wide=wide)
    # Every index is known to be inside; "wrap" is numpy's fastest way of taking.
    if len(found) == 1 and found[0].where is None:
        return found[0].memory.items(access.nbytes).take(found[0].index, mode="wrap")
    items = np.empty(lanes.width if wide else lanes.size, ITEM[access.nbytes])
    for part in found:
        items[part.where] = part.memory.items(access.nbytes).take(part.index, mode="wrap")
    return items


def scatter(access: Access, frame: Frame, lanes: Lanes, items: Array) -> None:
    """Write one item per active lane (or one for all) to the lanes' addresses."""
    for part in parts(access, frame, lanes, stored=items):
        chosen = items
        if part.where is not None and items.shape[0] > 1:
            chosen = items[part.where]
        if part.index.shape[0] == 1:
            chosen = chosen[-1:]
        part.memory.items(access.nbytes)[part.index] = chosen


def memory_operand(
    context: Context, modifiers: Modifiers, address: Any, nbytes: int, verb: str, *, writes: bool
) -> Access:
    """Take the state space from the modifiers and return the access it makes with ``address``."""
    space = take_space(modifiers)
    base, offset = context.address(address)
    if nbytes not in ITEM:
        context.refuse(f"an access of {nbytes} bytes")
    where = {"const": "global"}.get(space, space)
    text = f"{space} {verb}" if space != "generic" else verb
    return Access(where, base, offset, nbytes, context.line, text, writes)


def take_space(modifiers: Modifiers) -> str:
    """Take the state space, "generic" when none is named."""
    for space in SPACES:
        for name in (space, f"{space}::cta", f"{space}::entry", f"{space}::func"):
            if modifiers.take(name):
                return space
    return "generic"


def _element(modifiers: Modifiers) -> tuple[int, ScalarType]:
    """Take the vector size and the type."""
    if modifiers.take("v8"):
        raise UnknownForm("vectors of eight are not modelled")
    count = 4 if modifiers.take("v4") else 2 if modifiers.take("v2") else 1
    return count, modifiers.type(*LOADABLE)


@step("ld", "ldu")
def load(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """ld: from global, shared, local, const or param memory, or a generic address."""
    target, address = take_qualifiers(context, modifiers)
    count, kind = _element(modifiers)
    destinations = [
        context.destination(e, kind.name, wider=True) for e in context.elements(target, count)
    ]
    static = static_parameter(context, address) if "param" in modifiers.rest() else None
    if static is not None:
        take_space(modifiers)
        return load_parameter(context, static, address, destinations, kind)
    access = memory_operand(context, modifiers, address, kind.bytes * count, "load", writes=False)
    return Load(access, destinations, kind.dtype)


@step("st")
def store(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """st: to global, shared, local or param memory, or a generic address."""
    address, value = take_qualifiers(context, modifiers)
    count, kind = _element(modifiers)
    sources = [context.source(e, kind.name, wider=True) for e in context.elements(value, count)]
    static = static_parameter(context, address) if "param" in modifiers.rest() else None
    if static is not None:
        take_space(modifiers)
        if static.space != "call":
            context.reject("kernel parameters cannot be written")
        return StoreArgument(static.offset, address.offset, sources, kind.dtype)
    access = memory_operand(context, modifiers, address, kind.bytes * count, "store", writes=True)
    return Store(access, sources)


def two_operands(context: Context, instruction: Instruction) -> tuple[Any, Any]:
    """Return the two operands that the instruction must have."""
    if len(instruction.operands) != 2:
        context.reject(f"{instruction.name} takes 2 operands, found {len(instruction.operands)}")
    return instruction.operands[0], instruction.operands[1]
