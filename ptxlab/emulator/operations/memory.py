"""ld, st and address conversion. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.emulator.access import Access, parts
from ptxlab.emulator.context import Context
from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.memory import ITEM
from ptxlab.emulator.operation import Modifiers, UnknownForm, step
from ptxlab.emulator.operations.parameter import StoreArgument, load_parameter, static_parameter
from ptxlab.emulator.program import Array, Destination, Source, Step
from ptxlab.emulator.wave import Frame
from ptxlab.isa.types import ScalarType
from ptxlab.syntax.tree import Instruction

SPACES = ("global", "shared", "local", "const", "param")

# Hints and orderings that change nothing where every access is seen by all threads at once.
ORDERINGS = ("weak", "volatile", "relaxed", "acquire", "release", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")
CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")
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
        """Load for ``lanes``."""
        items = gather(self._access, frame, lanes)
        registers = frame.registers
        count = len(self._destinations)
        if count == 1:
            columns = [items.view(self._dtype)]
        else:
            table = items.view(self._dtype).reshape(-1, count)
            columns = [np.ascontiguousarray(table[:, i]) for i in range(count)]
        for destination, column in zip(self._destinations, columns, strict=True):
            slot = destination.slot
            registers[slot] = lanes.spread(registers[slot], destination.extended(column))


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


def gather(access: Access, frame: Frame, lanes: Lanes) -> Array:
    """Return the items at the lanes' addresses: one per active lane, or one for all."""
    found = parts(access, frame, lanes)
    if len(found) == 1 and found[0].where is None:
        return found[0].memory.items(access.nbytes).take(found[0].index)
    items = np.empty(lanes.size, ITEM[access.nbytes])
    for part in found:
        items[part.where] = part.memory.items(access.nbytes).take(part.index)
    return items


def scatter(access: Access, frame: Frame, lanes: Lanes, items: Array) -> None:
    """Write one item per active lane (or one for all) to the lanes' addresses."""
    for part in parts(access, frame, lanes):
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


def _qualifiers(modifiers: Modifiers) -> tuple[int, ScalarType]:
    """Take everything but the state space: hints, then vector size and type."""
    for name in (*ORDERINGS, *SCOPES, *CACHE):
        modifiers.take(name)
    for name in modifiers.rest():
        if name.startswith(("L1::", "L2::")):
            if name == "L2::cache_hint":
                raise UnknownForm("modifier .L2::cache_hint is not modelled")
            modifiers.take(name)
    count = 4 if modifiers.take("v4") else 2 if modifiers.take("v2") else 1
    return count, modifiers.type(*LOADABLE)


@step("ld", "ldu")
def load(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """ld: from global, shared, local, const or param memory, or a generic address."""
    count, kind = _qualifiers(modifiers)
    target, address = two_operands(context, instruction)
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
    count, kind = _qualifiers(modifiers)
    address, value = two_operands(context, instruction)
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
