"""ld and st, and how every instruction reaches memory.

Source: PTX ISA, "Data Movement and Conversion Instructions" and "State Spaces: Parameter State Space".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.move import as_they_are
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access, Action, Lowered
from ptxlab.emulator.prepare.registers import Destination, InWave, Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.prepare.scope import PASSED, Variable
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES, ScalarType, joined, split
from ptxlab.syntax.tree import Address

SPACES = ("global", "shared", "shared::cluster", "local", "const", "param")


def gather(access: Access, frame: Frame, threads: Threads, *, wide: bool = False) -> Array:
    """Return the items at the lanes' addresses: one per active lane, or one for all.

    ``wide`` returns one per thread of the wave, of which those not active have no meaning.
    """
    reached = parts(access, frame, threads, wide=wide)
    # Every index is known to be inside; "wrap" is numpy's fastest way of taking.
    if len(reached) == 1 and reached[0].where is None:
        return reached[0].memory.items(access.nbytes).take(reached[0].index, mode="wrap")
    items = np.empty(threads.width if wide else threads.size, ITEM[access.nbytes])
    for part in reached:
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


_ADDRESS_BITS = {"shared": 32, "shared::cluster": 32}


def memory_operand(
    context: Context, form: RowForm, address: Any, nbytes: int, verb: str, *, writes: bool
) -> Access:
    """Return the access that ``address`` makes in the form's state space, or in its variable's own.

    That is ptxas's reading of a name where an instruction names no space; of those of whole matrices it
    takes the name's offset for a generic address. What a register has beyond the 32 bits of an address of shared
    memory does not count, so that a generic address of it is one too: PTX ISA, "Operands", "Using Addresses,
    Arrays, and Vectors".
    """
    space = state_space(form.modifiers)
    if space == "generic" and not form.row.tabled:
        space = context.space_of(address) or space
    base, offset = context.address(address, _ADDRESS_BITS.get(space, 64))
    if nbytes not in ITEM:
        context.refuse(f"an access of {nbytes} bytes")
    where = {"const": "global"}.get(space, space)
    text = f"{space} {verb}" if space != "generic" else verb
    return Access(where, base, offset, nbytes, context.line, text, writes)


def state_space(modifiers: Sequence[str]) -> str:
    """Return the state space that the modifiers name, "generic" where they name none."""
    names = (name if name in SPACES else name.partition("::")[0] for name in modifiers)
    return next((name for name in names if name in SPACES), "generic")


def load(context: Context, form: RowForm) -> Action:
    """Read global, shared, local, const or param memory, or at a generic address."""
    target, address = without_hint(context, form, 2)
    count, kind = _vector(context, form)
    destinations = context.destinations(target, kind.name)
    static = _static_parameter(context, form, address)
    if static is not None:
        return _load_parameter(context, static, address, destinations, kind)
    access = memory_operand(context, form, address, kind.bytes * count, "load", writes=False)

    def run(frame: Frame, threads: Threads) -> None:
        # Only when the threads are few is one item per active lane read.
        wave = frame.wave
        # In a cluster one thread may read at an address where another may not.
        apart = wave.watched or wave.config.cluster_ctas > 1
        wide = not (threads.everyone or threads.sparse or apart)
        items = gather(access, frame, threads, wide=wide)
        put = threads.merge if wide else threads.spread
        write(frame, put, destinations, split(items, kind.dtype, count))

    return Lowered([access.base], destinations, access=access, step=run)


def store(context: Context, form: RowForm) -> Action:
    """Write global, shared, local or param memory, or at a generic address.

    Of several threads at one address the highest numbered wins.
    """
    address, value = without_hint(context, form, 2)
    count, kind = _vector(context, form)
    sources = context.sources(value, kind.name)
    static = _static_parameter(context, form, address)
    if static is not None:
        if static.space in ("param", "given"):
            context.reject(f"'{static.name}' is a parameter, which is not written", address)
        _require_unguarded(context, static)
        _require_inside(context, static, address, kind.bytes * count)
        return store_argument(static.offset, address.offset, sources)
    if state_space(form.modifiers) == "param":
        context.reject(f"{context.instruction.name} names the parameter it writes", address)
    access = memory_operand(context, form, address, kind.bytes * count, "store", writes=True)

    def run(frame: Frame, threads: Threads) -> None:
        columns = [threads.pick(source.read(frame.registers)) for source in sources]
        scatter(access, frame, threads, joined(*columns, dtype=ITEM[access.nbytes]))

    return Lowered([access.base, *sources], access=access, step=run)


def vector_size(form: RowForm) -> int:
    """Return how many elements a vector has, 1 without ``.v2`` and the like."""
    return int(form["vec"].removeprefix("v") or 1)


def _vector(context: Context, form: RowForm) -> tuple[int, ScalarType]:
    """Return how many elements are moved and their type: of 32 bytes, in global memory only."""
    count, kind = vector_size(form), TYPES[form["T"]]
    if count * kind.bytes > 16 or count == 8:
        if count * kind.bytes != 32 or kind.bits > 64:
            context.reject(f"a vector of {count} .{kind.name} does not exist")
        if state_space(form.modifiers) not in ("global", "generic") or form.opcode == "ldu":
            context.reject(f"{form.name}: 32 bytes are moved in global memory only")
    return count, kind


def without_hint(context: Context, form: RowForm, wanted: int) -> list[Any]:
    """Return the ``wanted`` operands without a cache policy, which is a hint."""
    hinted = bool(form[HINT])
    operands = context.operands(wanted + hinted)
    if hinted:
        context.source(operands.pop(), "b64")
    return operands


# ---- parameters of kernels, and the .param variables of calls ----------------------------------


def _static_parameter(context: Context, form: RowForm, address: Any) -> Variable | None:
    """Return the parameter that ``[name + offset]`` names; None when the base is a register."""
    base = address.base if isinstance(address, Address) else None
    if "param" not in form.modifiers or base is None or context.register(base.text) is not None:
        return None
    variable = context.variable(base.text)
    return variable if variable is not None and variable.space in ("param", *PASSED) else None


def _load_parameter(
    context: Context,
    variable: Variable,
    address: Address,
    destinations: list[Destination],
    kind: ScalarType,
) -> Action:
    _require_inside(context, variable, address, kind.bytes * len(destinations))
    if variable.space == "returned":
        context.reject(f"'{variable.name}' is a result, which is not read", address)
    if variable.space == "call" and variable not in context.returned:
        hint = "st.param writes what a call passes, ld.param reads what a call before it returns"
        context.reject(f"no call before returns '{variable.name}'", address, hint)
    if variable.space in PASSED:
        _require_unguarded(context, variable)
        return load_argument(context, variable, destinations, kind.dtype, address.offset)
    sources = []
    for i in range(len(destinations)):
        offset = variable.offset + address.offset + i * kind.bytes
        value = partial(_given, offset=offset, dtype=kind.dtype)
        slot = context.constant(InWave(value), ("param", offset, kind.name))
        sources.append(Source(slot, kind.dtype))
    return Lowered(sources, destinations, as_they_are)


def _require_inside(context: Context, variable: Variable, address: Address, nbytes: int) -> None:
    """Reject bytes outside of a parameter."""
    end = address.offset + nbytes
    if address.offset < 0 or (end > variable.size and not variable.is_open):
        context.reject(
            f"bytes {address.offset} to {end} are outside parameter '{variable.name}' "
            f"({variable.size} bytes)",
            address,
        )


def _require_unguarded(context: Context, variable: Variable) -> None:
    """Reject what only some threads write to or read from a variable of a call."""
    if variable.space == "call" and context.instruction.guard is not None:
        what = f"{context.instruction.name} of '{variable.name}', which a call passes, has no guard"
        context.reject(what, hint="branch around the call, or select the value before")


def _given(wave: Wave, offset: int, dtype: np.dtype[Any]) -> Array:
    """Return the value at ``offset`` in the parameter block of a launch."""
    return np.frombuffer(wave.parameters, dtype, 1, offset)


def load_argument(
    context: Context,
    variable: Variable,
    destinations: list[Destination],
    dtype: np.dtype[Any],
    offset: int = 0,
) -> Step:
    """Read bytes of a ``.param`` variable of a call, kept as a register of byte rows."""
    end, slot, line = offset + dtype.itemsize * len(destinations), variable.offset, context.line

    def run(frame: Frame, threads: Threads) -> None:
        rows = frame.registers[slot]
        if rows.shape[1] < end:
            raise LaunchError(
                f"bytes {offset} to {end} of '{variable.name}', which has {rows.shape[1]} in this "
                f"call, by {frame.wave.thread(int(threads.index[0]))}",
                location=frame.wave.locate(line),
                kind="bounds",
            )
        raw = rows[:, offset:end].reshape(-1)
        write(frame, threads.merge, destinations, split(raw, dtype, len(destinations)))

    return run


def store_argument(slot: int, offset: int, sources: list[Source]) -> Step:
    """Write bytes of a ``.param`` variable of a call."""
    end = offset + sum(source.dtype.itemsize for source in sources)

    def run(frame: Frame, threads: Threads) -> None:
        registers = frame.registers
        old = registers[slot]
        raw = joined(*(source.read(registers) for source in sources), dtype=np.uint8)
        given = raw.reshape(-1, end - offset)
        new = np.empty((max(len(old), len(given)), old.shape[1]), np.uint8)
        new[:] = old
        new[:, offset:end] = given
        registers[slot] = threads.merge(old, new)

    return run


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
    "b128": "sm_70 8.3",
    "volatile local": "sm_30 9.1",
    "mmio": "sm_70 8.2",
    "mmio acquire": "sm_75 9.3",
    "mmio release": "sm_75 9.3",
    "sys b128": "sm_70 8.4",
    "cluster": "sm_90 7.8",
    "shared::cta": "sm_30 7.8",
    "shared::cluster": "sm_90 7.8",
    HINT: "sm_80 7.4",
    **dict.fromkeys(EVICTIONS.split(), "sm_70 7.4"),
    "L2::64B": "sm_75 7.4",
    "L2::128B": "sm_75 7.4",
    "L2::256B": "sm_80 7.4",
    "v8": "sm_100 8.8",
    "proxy::readonly": "sm_90 9.4",
    **{f"v4 {letter}64": "sm_100 8.8" for letter in "busf"},
}
LOADABLE = " ".join(
    [*(f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)), "f32", "f64", "b128"]
)

_NO_B128 = LOADABLE.removesuffix(" b128")
_SHARED = "shared shared::cta shared::cluster"
_PARAMETERS = "param param::entry param::func"
_END = "{.<vec>}.<T>"
_one = partial(row, wider=True, needs=NEEDS, T=LOADABLE)
_moved = partial(_one, vec="v2 v4")

# ---- ld ----
_FETCHED = "{.L2::cache_hint}{.<prefetch>}" + _END
_load = partial(_moved, operands="[T] b64? -> T*vec", step=load, mix="load")
_far = partial(_load, prefetch=PREFETCHES, vec="v2 v4 v8")
_order = {"order": "relaxed acquire", "scope": SCOPES}
_space = f"{_SHARED} local const {_PARAMETERS}"
_load("ld{.weak}{.<space>}{.<cache>}" + _END, space=_space, cache="ca cg cs lu cv")
_far("ld{.weak}{.global}{.<cache>}" + _FETCHED, cache="ca cg cs lu cv")
_far("ld{.weak}{.global}.<evict>" + _FETCHED, evict=EVICTIONS)
_far("ld.global{.<cache>}.nc" + _FETCHED, cache="ca cg cs")
_far("ld.global.nc.<evict>" + _FETCHED, evict=EVICTIONS)
_load("ld.volatile{.<space>}" + _END, space=f"{_SHARED} local")
_far("ld.volatile{.global}{.<prefetch>}" + _END)
_load("ld.<order>.<scope>{.<space>}" + _END, space=_SHARED, **_order)
_far("ld.<order>.<scope>{.global}{.<evict>}" + _FETCHED, evict=EVICTIONS, **_order)
_load(
    "ld{.global}{.nc}.proxy::readonly{.<vec>}.<T>",
    operands="[T] -> T*vec",
    T=_NO_B128,
    vec="v2 v4 v8",
)
_one("ld.mmio.<order>.sys{.global}.<T>", "[T] -> T", step=load, mix="load", order=_order["order"])
_load("ldu{.global}" + _END)

# ---- st ----
_HINTED = "{.L2::cache_hint}" + _END
_store = partial(_moved, operands="[T] T*vec b64?", step=store, mix="store")
_global = partial(_store, vec="v2 v4 v8")
_order = {"order": "relaxed release", "scope": SCOPES}
_space = f"{_SHARED} local {_PARAMETERS}"
_store("st{.weak}{.<space>}{.<cache>}" + _END, space=_space, cache="wb cg cs wt")
_global("st{.weak}{.global}{.<cache>}" + _HINTED, cache="wb cg cs wt")
_global("st{.weak}{.global}.<evict>" + _HINTED, evict=EVICTIONS)
_store("st.volatile{.<space>}" + _END, space=f"{_SHARED} local")
_global("st.volatile{.global}" + _END)
_store("st.<order>.<scope>{.<space>}" + _END, space=_SHARED, **_order)
_global("st.<order>.<scope>{.global}{.<evict>}" + _HINTED, evict=EVICTIONS, **_order)
_one("st.mmio.<order>.sys{.global}.<T>", "[T] T", step=store, mix="store", order=_order["order"])
# Nothing says when these are done: here they are at once.
_released = partial(
    row,
    operands="[T] T",
    step=store,
    mix="store",
    fidelity="ordering",
    needs="sm_100 8.7",
    T=_NO_B128,
)
_released("st.async.release.<scope>{.global}.<T>", scope="gpu sys")
_released("st.async.mmio.release.sys{.global}.<T>")

# ---- 256 bits, which the L2 cache may be told to keep ----
_KEPT = "L2::evict_normal L2::evict_first L2::evict_last"
_order = {"order": "relaxed acquire", "scope": SCOPES}
for _count, _types in (("v8", "b32 u32 s32 f32"), ("v4", "b64 u64 s64 f64")):
    _filled = partial(_far, vec=_count, T=_types, kept=_KEPT, needs="sm_100 8.8")
    _emptied = partial(_global, vec=_count, T=_types, kept=_KEPT, needs="sm_100 8.8")
    _to, _of = "{.L2::cache_hint}{.<prefetch>}.<vec>.<T>", "{.L2::cache_hint}.<vec>.<T>"
    _filled(f"ld{{.weak}}{{.global}}{{.<evict>}}.<kept>{_to}", evict=EVICTIONS)
    _filled(f"ld.global.nc{{.<evict>}}.<kept>{_to}", evict=EVICTIONS)
    _filled(f"ld.<order>.<scope>{{.global}}{{.<evict>}}.<kept>{_to}", evict=EVICTIONS, **_order)
    _emptied(f"st{{.weak}}{{.global}}{{.<evict>}}.<kept>{_of}", evict=EVICTIONS)
    _emptied(
        f"st.<order>.<scope>{{.global}}{{.<evict>}}.<kept>{_of}",
        evict=EVICTIONS,
        order="relaxed release",
        scope=SCOPES,
    )
