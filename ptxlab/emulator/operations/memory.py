"""ld, st and address conversion. Source: PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.operations.parameter import StoreArgument, load_parameter, static_parameter
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.memory import ITEM, Access
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Instruction, Operand

SPACES = ("global", "shared", "local", "const", "param")


class Load:
    """Read one item, or a vector of two or four, into registers."""

    __slots__ = ("_access", "_destinations", "_dtype")

    def __init__(
        self, access: Access, destinations: list[Destination], dtype: np.dtype[Any]
    ) -> None:
        self._access = access
        self._destinations = destinations
        self._dtype = dtype

    def run(self, frame: Frame, threads: Threads) -> None:
        """Load for ``threads``; only when they are few is one item per active lane read."""
        wide = not (threads.everyone or threads.sparse or frame.wave.watched)
        items = gather(self._access, frame, threads, wide=wide)
        registers = frame.registers
        count = len(self._destinations)
        if count == 1:
            columns = [items.view(self._dtype)]
        else:
            table = items.view(self._dtype).reshape(-1, count)
            columns = [np.ascontiguousarray(table[:, i]) for i in range(count)]
        put = threads.merge if wide else threads.spread
        for destination, column in zip(self._destinations, columns, strict=True):
            slot = destination.slot
            registers[slot] = put(registers[slot], destination.extended(column))


class Store:
    """Write one item, or a vector of two or four, from registers."""

    __slots__ = ("_access", "_sources")

    def __init__(self, access: Access, sources: list[Source]) -> None:
        self._access = access
        self._sources = sources

    def run(self, frame: Frame, threads: Threads) -> None:
        """Store for ``threads``; of several threads at one address the highest numbered wins."""
        columns = [threads.pick(source.read(frame.registers)) for source in self._sources]
        if len(columns) == 1:
            items = columns[0].view(ITEM[self._access.nbytes])
        else:
            rows = max(column.shape[0] for column in columns)
            table = np.empty((rows, len(columns)), columns[0].dtype)
            for i, column in enumerate(columns):
                table[:, i] = column
            items = table.reshape(-1).view(ITEM[self._access.nbytes])
        scatter(self._access, frame, threads, items)


def gather(access: Access, frame: Frame, threads: Threads, *, wide: bool = False) -> Array:
    """Return the items at the lanes' addresses: one per active lane, or one for all.

    ``wide`` returns one per thread of the wave, of which those not active have no meaning.
    """
    found = parts(access, frame, threads, wide=wide)
    # Every index is known to be inside; "wrap" is numpy's fastest way of taking.
    if len(found) == 1 and found[0].where is None:
        return found[0].memory.items(access.nbytes).take(found[0].index, mode="wrap")
    items = np.empty(threads.width if wide else threads.size, ITEM[access.nbytes])
    for part in found:
        items[part.where] = part.memory.items(access.nbytes).take(part.index, mode="wrap")
    return items


def scatter(access: Access, frame: Frame, threads: Threads, items: Array) -> None:
    """Write one item per active lane (or one for all) to the lanes' addresses."""
    for part in parts(access, frame, threads, stored=items):
        chosen = items
        if part.where is not None and items.shape[0] > 1:
            chosen = items[part.where]
        if part.index.shape[0] == 1:
            chosen = chosen[-1:]
        part.memory.items(access.nbytes)[part.index] = chosen


def memory_operand(
    context: Context, form: Form, address: Any, nbytes: int, verb: str, *, writes: bool
) -> Access:
    """Return the access that ``address`` makes in the form's state space."""
    space = state_space(form.modifiers)
    base, offset = context.address(address)
    if nbytes not in ITEM:
        context.refuse(f"an access of {nbytes} bytes")
    where = {"const": "global"}.get(space, space)
    text = f"{space} {verb}" if space != "generic" else verb
    return Access(where, base, offset, nbytes, context.line, text, writes)


def state_space(modifiers: Sequence[str]) -> str:
    """Return the state space that the modifiers name, "generic" where they name none."""
    names = (name.partition("::")[0] for name in modifiers)
    return next((name for name in names if name in SPACES), "generic")


def load(context: Context, instruction: Instruction, form: Form) -> Step:
    """Read global, shared, local, const or param memory, or at a generic address."""
    target, address = _without_policy(context, form)
    count, kind = vector_size(form), TYPES[form["T"]]
    destinations = [
        context.destination(e, kind.name, wider=form.row.wider)
        for e in context.elements(target, count)
    ]
    static = static_parameter(context, address) if "param" in form.modifiers else None
    if static is not None:
        return load_parameter(context, static, address, destinations, kind)
    access = memory_operand(context, form, address, kind.bytes * count, "load", writes=False)
    return Load(access, destinations, kind.dtype)


def store(context: Context, instruction: Instruction, form: Form) -> Step:
    """Write global, shared, local or param memory, or at a generic address."""
    address, value = _without_policy(context, form)
    count, kind = vector_size(form), TYPES[form["T"]]
    sources = [
        context.source(e, kind.name, wider=form.row.wider) for e in context.elements(value, count)
    ]
    static = static_parameter(context, address) if "param" in form.modifiers else None
    if static is not None:
        if static.space != "call":
            context.reject("kernel parameters cannot be written")
        return StoreArgument(static.offset, address.offset, sources, kind.dtype)
    access = memory_operand(context, form, address, kind.bytes * count, "store", writes=True)
    return Store(access, sources)


def vector_size(form: Form) -> int:
    """Return how many elements a vector has, 1 without ``.v2`` and the like."""
    return int(form["vec"].removeprefix("v") or 1)


def without_hint(context: Context, form: Form, wanted: int) -> list[Operand]:
    """Return the ``wanted`` operands without a cache policy, which is a hint."""
    operands = list(context.instruction.operands)
    hinted = bool(form[HINT])
    if len(operands) != wanted + hinted:
        context.reject(
            f"{context.instruction.name} takes {wanted + hinted} operands, found {len(operands)}"
        )
    if hinted:
        context.source(operands.pop(), "b64")
    return operands


def _without_policy(context: Context, form: Form) -> tuple[Any, Any]:
    first, second = without_hint(context, form, 2)
    return first, second


def two_operands(context: Context, instruction: Instruction) -> tuple[Any, Any]:
    """Return the two operands that the instruction must have."""
    if len(instruction.operands) != 2:
        context.reject(f"{instruction.name} takes 2 operands, found {len(instruction.operands)}")
    return instruction.operands[0], instruction.operands[1]


# ---- what ld and st may say -----------------------------------------------------------------

# Every access is seen by all threads at once, so each ordering in each scope is kept; caches and
# evictions are hints, which have nothing to do outside global memory.
HINT = "L2::cache_hint"
SCOPES = "cta cluster gpu sys"
EVICTIONS = " ".join(
    f"L1::{name}"
    for name in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
)
PREFETCHES = "L2::64B L2::128B L2::256B"
NEEDS = {
    "b128": "sm_75 8.3",
    "mmio": "sm_75 8.2",
    "sys b128": "sm_75 8.4",
    "cluster": "sm_90 7.8",
    "shared::cta": "sm_75 7.8",
    HINT: "sm_80 7.4",
    **dict.fromkeys(EVICTIONS.split(), "sm_75 7.4"),
    "L2::64B": "sm_75 7.4",
    "L2::128B": "sm_75 7.4",
    "L2::256B": "sm_80 7.4",
}
LOADABLE = " ".join(
    [*(f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)), "f32", "f64", "b128"]
)

_SHARED = "shared shared::cta"
_PARAMETERS = "param param::entry param::func"
_END = "{.<vec>}.<T>"
_one = partial(row, wider=True, needs=NEEDS, T=LOADABLE)
_moved = partial(_one, vec="v2 v4")

# ---- ld ----
_FETCHED = "{.L2::cache_hint}{.<prefetch>}" + _END
_load = partial(_moved, operands="[T] b64? -> T*vec", step=load, mix="load")
_far = partial(_load, prefetch=PREFETCHES)
_ordered = partial(_load, order="relaxed acquire", scope=SCOPES)
_space = f"{_SHARED} local const {_PARAMETERS}"
_load("ld{.weak}{.<space>}{.<cache>}" + _END, space=_space, cache="ca cg cs lu cv")
_far("ld{.weak}{.global}{.<cache>}" + _FETCHED, cache="ca cg cs lu cv")
_far("ld{.weak}{.global}.<evict>" + _FETCHED, evict=EVICTIONS)
_far("ld.global{.<cache>}.nc" + _FETCHED, cache="ca cg cs")
_far("ld.global.nc.<evict>" + _FETCHED, evict=EVICTIONS)
_load("ld.volatile{.<space>}" + _END, space=_SHARED)
_far("ld.volatile{.global}{.<prefetch>}" + _END)
_ordered("ld.<order>.<scope>{.<space>}" + _END, space=_SHARED)
_far(
    "ld.<order>.<scope>{.global}{.<evict>}" + _FETCHED,
    order="relaxed acquire",
    scope=SCOPES,
    evict=EVICTIONS,
)
_one("ld.mmio.relaxed.sys{.global}.<T>", "[T] -> T", step=load, mix="load")
_load("ldu{.global}" + _END)

# ---- st ----
_HINTED = "{.L2::cache_hint}" + _END
_store = partial(_moved, operands="[T] T*vec b64?", step=store, mix="store")
_ordered = partial(_store, order="relaxed release", scope=SCOPES)
_space = f"{_SHARED} local {_PARAMETERS}"
_store("st{.weak}{.<space>}{.<cache>}" + _END, space=_space, cache="wb cg cs wt")
_store("st{.weak}{.global}{.<cache>}" + _HINTED, cache="wb cg cs wt")
_store("st{.weak}{.global}.<evict>" + _HINTED, evict=EVICTIONS)
_store("st.volatile{.<space>}" + _END, space=f"{_SHARED} global")
_ordered("st.<order>.<scope>{.<space>}" + _END, space=_SHARED)
_ordered("st.<order>.<scope>{.global}{.<evict>}" + _HINTED, evict=EVICTIONS)
_one("st.mmio.relaxed.sys{.global}.<T>", "[T] T", step=store, mix="store")
