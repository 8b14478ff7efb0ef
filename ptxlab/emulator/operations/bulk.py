"""cp.async.bulk, cp.reduce.async.bulk, st.async and red.async: copies that an engine makes.

The data moves, and its mbarrier is told, some time after the instruction: see ``run.in_flight``.
Source: PTX ISA, "Data Movement and Conversion Instructions: Bulk copies", "st.async", "red.async".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT
from ptxlab.emulator.operations.atomic import NOFTZ_F32, changes, take_turns
from ptxlab.emulator.operations.mbarrier import Objects, given
from ptxlab.emulator.operations.memory import HINT, SCOPES, state_space, vector_size
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import CLUSTER, translate
from ptxlab.emulator.run.background import Span
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM, Part
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess, Put, Transfer
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES, ScalarType, joined
from ptxlab.syntax.tree import Integer, Operand

UNIT = 16
"""Bytes that a bulk copy moves as one; its sizes and addresses are multiples of them."""

_MANY = 1 << 20
"""Units of an instruction that its memory is asked for before they are listed."""

_OFFSET = np.uint64((1 << RANK_SHIFT) - 1)


@dataclass(frozen=True)
class BulkCopies:
    """What the threads of an instruction have had copied: ``thread`` is whose each copy is.

    A thread has one copy, or one for each CTA that its multicast is for: then ``rank`` is that CTA's.
    """

    threads: Threads
    thread: Array
    rank: Array | None

    @classmethod
    def of(cls, frame: Frame, threads: Threads, mask: Source | None) -> BulkCopies:
        """Return a copy for each of the threads, or for each bit of the mask it gives."""
        if mask is None:
            return cls(threads, np.arange(threads.size), None)
        bits = given(mask, frame, threads)[:, None] >> np.arange(32) & 1
        thread, rank = np.nonzero(bits)
        return cls(threads, thread, rank)

    @cached_property
    def owners(self) -> Threads:
        """Whose each copy is."""
        return Threads(self.threads.width, index=self.threads.index[self.thread])

    def address(self, access: Access, frame: Frame) -> Array:
        """Return the address of each copy: of the access, but in the CTA that the copy is for."""
        value = self.threads.pick(access.base.read(frame.registers)).astype(np.uint64)
        address: Array = value.repeat(self.thread.size) if len(value) == 1 else value[self.thread]
        if self.rank is None:
            return address
        at: Array = (address & _OFFSET) | (self.rank.astype(np.uint64) << np.uint64(RANK_SHIFT))
        return at

    def units(self, access: Access, frame: Frame, copy: Array, offset: Array) -> list[Part]:
        """Return where the items at ``offset`` from the address of each ``copy`` are."""
        address = self.address(access, frame)[copy] + offset.astype(np.uint64)
        owners = Threads(self.threads.width, index=self.owners.index[copy])
        return translate(access, frame, owners, address)


class Landing(Protocol):
    """Data on its way."""

    def read(self, chosen: Array | None) -> None:
        """Read it, or that of the threads at the positions ``chosen``, once."""

    def land(self, chosen: Array | None) -> None:
        """Write it, and read it if it has not been."""

    def moved(self) -> list[MemoryAccess]: ...

    @property
    def written(self) -> Span | None:
        """The bytes of shared memory that it writes, None for any."""


def start_in_group(frame: Frame, threads: Threads, data: Landing) -> None:
    """Have data land when its threads wait for the group that it will be in, or read when they wait only for that."""
    if frame.wave.watched:
        frame.wave.watcher.begun(threads, data.moved(), None)
    frame.wave.bulk_copies.start(threads, data.land, data.read)


@dataclass(frozen=True, slots=True)
class Signal:
    """The mbarrier that hears of copies.

    Of a copy for several CTAs it is that of each, or, by ``pairs``, in each pair of CTAs that of the
    one on the side where the address says.
    """

    objects: Objects
    pairs: bool = False

    @classmethod
    def of(
        cls, context: Context, form: RowForm, operand: Operand, *, pairs: bool = False
    ) -> Signal:
        """Take the operand, which is an object of the CTA that the data is for, or one of its pair."""
        objects = Objects.of(context, form, operand)
        return cls(Objects(replace(objects.access, space=CLUSTER)), pairs)

    def _address(self, frame: Frame, copies: BulkCopies) -> Array:
        access = self.objects.access
        if not self.pairs or copies.rank is None:
            return copies.address(access, frame)
        given = replace(copies, rank=None).address(access, frame)
        side = (given >> np.uint64(RANK_SHIFT)).astype(np.int64) & 1
        return replace(copies, rank=(copies.rank & ~1) | side).address(access, frame)

    def start(self, frame: Frame, copies: BulkCopies, transfer: Landing, nbytes: Array) -> None:
        """Have the data land some time, and each copy's mbarrier hear of its ``nbytes`` then."""
        wave, access = frame.wave, self.objects.access
        if not copies.thread.size:
            return  # the mask of a multicast names no CTA
        owners = copies.owners
        [part] = translate(access, frame, owners, self._address(frame, copies))
        index = np.broadcast_to(part.index, nbytes.shape)
        if wave.watched:
            told = CompletionSignal(index, nbytes, copies.thread)
            wave.watcher.begun(copies.threads, transfer.moved(), told)

        def land() -> None:
            transfer.read(None)
            wave.background.about_to_write(transfer.written)
            transfer.land(None)
            if wave.watched:
                wave.watcher.done(index, None)
            self.objects.landed(
                frame, owners.index, lambda barriers: barriers.expect(index, -nbytes)
            )

        wave.signals.start(land)


def policy(context: Context, form: RowForm, operands: list[Any]) -> None:
    """Take a cache policy, which is a hint, off the end of the operands."""
    if form[HINT]:
        context.source(operands.pop(), "b64")


def multicast(context: Context, form: RowForm, operands: list[Any]) -> Source | None:
    """Take the mask of the CTAs a copy is for off the end of the operands."""
    kind = CASTS.get(form["multicast"])
    return context.source(operands.pop(), kind) if kind else None


def reduction(form: RowForm, kind: ScalarType) -> Put:
    """Return how items are put into memory by an operation, one after the other."""
    change_in = changes(form["op"], kind, keeps=bool(form["noftz"]))

    def put(part: Part, items: Array) -> None:
        memory = part.memory.items(kind.bytes).view(kind.dtype)
        index = np.broadcast_to(part.index, items.shape)
        take_turns(memory, index, change_in(part.memory), [items.view(kind.dtype)])

    return put


# ---- bulk copies ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SingleBytes:
    """Which bytes of a copy move: those of each 16 that a ``mask`` names, or all but some at its ends.

    What a GPU writes for those at the ends is not said; here what was there stays.
    """

    mask: Source | None
    ends: tuple[Source, ...]

    @classmethod
    def of(cls, context: Context, form: RowForm, operands: list[Any]) -> SingleBytes | None:
        """Take what says so out of the operands, None where all bytes move."""
        mask = context.source(operands.pop(), "u16") if form[MASKED] else None
        ends = [context.source(operands.pop(3), "u32") for _ in range(2 * bool(form[BEYOND]))]
        return cls(mask, tuple(ends)) if mask or ends else None

    def move(
        self, frame: Frame, copies: BulkCopies, which: Array, offset: Array, n: Array
    ) -> Array:
        """Say which of the bytes, at ``offset`` of copies of ``n`` bytes, move."""
        per_copy = [
            given(source, frame, copies.threads)[copies.thread][which]
            for source in (self.mask, *self.ends)
            if source is not None
        ]
        if self.mask is not None:
            named: Array = per_copy[0] >> offset % UNIT & 1 == 1
            return named
        left, right = per_copy
        inside: Array = (offset >= left) & (offset < n[which] - right)
        return inside


def copy(context: Context, form: RowForm) -> Step:
    """Copy or reduce as many bytes as each thread says between shared and global memory."""
    operands = list(context.instruction.operands)
    single = SingleBytes.of(context, form, operands)
    policy(context, form, operands)
    mask = multicast(context, form, operands)
    target, origin, size, *barrier = operands
    kind = TYPES[form["T"]] if form["T"] else None
    unit = 1 if single else kind.bytes if kind else UNIT
    name = form.name.split(".bulk")[0] + ".bulk"
    write = Access(
        state_space([form["to"]]),
        *context.address(target),
        unit,
        context.line,
        f"{name} write",
        True,
    )
    read = Access(
        state_space([form["from"]]), *context.address(origin), unit, context.line, f"{name} read"
    )
    sizes = context.source(size, "u32")
    signal = Signal.of(context, form, barrier[0]) if barrier else None
    put = reduction(form, kind) if kind else None

    def run(frame: Frame, threads: Threads) -> None:
        copies = BulkCopies.of(frame, threads, mask)
        nbytes = given(sizes, frame, threads)[copies.thread]
        _require_multiples(frame, copies, nbytes, (write, read))
        counts = (nbytes // unit).astype(np.intp)  # as numpy's repeat wants them
        own = replace(copies, rank=None)
        if counts.sum() > _MANY and not single:
            # What leaves its memory is refused by its end, before a list of all its units fills ours.
            some = np.flatnonzero(counts)
            end = (counts[some] - 1) * unit
            own.units(read, frame, some, end)
            copies.units(write, frame, some, end)
        which = np.repeat(np.arange(len(counts)), counts)
        offset = (np.arange(len(which)) - np.repeat(counts.cumsum() - counts, counts)) * unit
        if single:
            moves = single.move(frame, copies, which, offset, nbytes)
            which, offset = which[moves], offset[moves]
        transfer = Transfer(
            own.units(read, frame, which, offset),
            copies.units(write, frame, which, offset),
            copies.thread[which],
            unit,
            put,
        )
        if signal is None:
            start_in_group(frame, threads, transfer)
        else:
            signal.start(frame, copies, transfer, nbytes)

    return run


def _require_multiples(
    frame: Frame, copies: BulkCopies, nbytes: Array, accesses: tuple[Access, ...]
) -> None:
    """Raise LaunchError for a size or an address that is no multiple of 16."""
    numbers = {"size": nbytes}
    for access in accesses:
        address = copies.address(access, frame).astype(np.int64) + access.offset
        numbers[f"address ({access.verb.rpartition(' ')[2]})"] = address
    for what, values in numbers.items():
        wrong = values % UNIT != 0
        if wrong.any():
            at = int(np.argmax(wrong))
            thread = frame.wave.thread(int(copies.threads.index[copies.thread[at]]))
            raise LaunchError(
                f"{accesses[0].verb.rpartition(' ')[0]} with {what} {int(values[at]):#x} by {thread}",
                location=frame.wave.locate(accesses[0].line),
                hint=f"sizes and addresses of bulk copies are multiples of {UNIT}",
                kind="alignment",
            )


def prefetch(context: Context, form: RowForm) -> Step:
    """Take a hint; only its operands are checked."""
    operands = list(context.instruction.operands)
    policy(context, form, operands)
    context.address(operands[0])
    context.source(operands[1], "u32")
    return nothing


def commit_group(context: Context, form: RowForm) -> Step:
    """Close the group of bulk copies."""
    return lambda frame, threads: frame.wave.bulk_copies.commit(threads)


def wait_group(context: Context, form: RowForm) -> Step:
    """Wait for all groups of bulk copies but the latest ones, or until they have read their sources."""
    [allowed] = context.operands(1)
    if not isinstance(allowed, Integer):
        context.reject("cp.async.bulk.wait_group takes an integer constant", allowed)
    count, read_only = allowed.value, bool(form["read"])
    return lambda frame, threads: frame.wave.bulk_copies.wait(threads, count, read_only=read_only)


# ---- stores and reductions by single threads ------------------------------------------------


def store(context: Context, form: RowForm) -> Step:
    """Write registers to the shared memory of another CTA of the cluster, or reduce them into it."""
    target, value, barrier = context.operands(3)
    kind, count = TYPES[form["T"]], vector_size(form)
    sources = context.sources(value, kind.name)
    unit = kind.bytes * count
    write = Access(CLUSTER, *context.address(target), unit, context.line, form.opcode, True)
    signal = Signal.of(context, form, barrier)
    put = reduction(form, kind) if form["op"] else None

    def run(frame: Frame, threads: Threads) -> None:
        copies = BulkCopies.of(frame, threads, None)
        columns = [threads.pick(source.read(frame.registers)) for source in sources]
        items = np.resize(joined(*columns, dtype=ITEM[unit]), threads.size)
        targets = copies.units(write, frame, copies.thread, np.zeros(threads.size))
        transfer = Transfer([], targets, copies.thread, unit, put, items)
        signal.start(frame, copies, transfer, np.full(threads.size, unit))

    return run


# ---- rows -----------------------------------------------------------------------------------

EVICTED_LAST, EVICTED_LAST_SINCE = "L2::evict_last", "sm_107f 9.4"
CASTS = {
    "multicast::cluster": "u16",
    "multicast::cluster::16b": "u16",
    "multicast::cluster::32b": "u32",
}
"""What a multicast is called, and the type of its mask of CTAs."""
CASTS_SINCE = {"multicast::cluster::16b": "sm_90 9.4", "multicast::cluster::32b": "sm_107f 9.4"}


def casts() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield for the rows of copies to no other CTA, and to several: a slot, an operand, and what fills the slot."""
    yield "", "", {}
    for kind in ("u16", "u32"):
        names = " ".join(name for name, of in CASTS.items() if of == kind)
        yield ".<multicast>", f" {kind}", {"multicast": names}


MASKED, BEYOND = "cp_mask", "ignore_oob"
SIGNAL = "mbarrier::complete_tx::bytes"
_row = partial(row, mix="asynchronous copy", needs="sm_90 8.0")
_SIZED = "[b8@to] [b8@from] u32<1048561/16"

SIGNALS = Effects(begins="signals", work="copy")
GROUPED = Effects(begins="bulk_copies", work="copy")
_FROM_GLOBAL = {"to": "shared::cluster", "from": "global"}
_TO_OWN = {"to": "shared::cta", "from": "global"}
_TO_GLOBAL = {"to": "global", "from": "shared::cta"}
_TO_OTHERS = {"to": "shared::cluster", "from": "shared::cta"}

_copy = partial(_row, step=copy, effects=SIGNALS)
_grouped = partial(_row, step=copy, effects=GROUPED)
_ORDERED = {"": "sm_90 8.0", "weak": "sm_90 9.3", "relaxed": "sm_90 9.3"}
_NAMED = {"relaxed": "sm_90a sm_100f sm_110f 9.3", **CASTS_SINCE}
# Whatever is said of order, all threads see a copy when its mbarrier is told.
for _order, _kind, _scopes, _near in (
    ("{.weak}", "", {}, {}),
    (".relaxed.<scope>", ".b128", {"scope": SCOPES}, {"scope": "cta cluster"}),
):
    _start = f"cp.async.bulk{_order}.<to>.<from>"
    _copy(
        f"{_start}.{SIGNAL}{_kind}",
        f"{_SIZED} [b64@to]",
        needs=_ORDERED,
        **_near,
        **_TO_OTHERS,
    )
    for _hint, _policy in (("", ""), (f".{HINT}", " b64")):
        for _cast, _mask, _casts in casts():
            _copy(
                f"{_start}.{SIGNAL}{_cast}{_hint}{_kind}",
                f"{_SIZED} [b64@to]{_mask}{_policy}",
                needs=_ORDERED | _NAMED,
                **_scopes,
                **_casts,
                **_FROM_GLOBAL,
            )
        for _beyond, _ends in (("", ""), (f".{BEYOND}", " u32<16 u32<16")):
            _copy(
                f"{_start}.{SIGNAL}{_hint}{_beyond}{_kind}",
                f"{_SIZED}{_ends} [b64@to]{_policy}",
                needs=_ORDERED | {"": "sm_90 8.6", BEYOND: "sm_90 9.2"},
                **_scopes,
                **_TO_OWN,
            )
        for _masked, _bytes in (("", ""), (f".{MASKED}", " u16")):
            _grouped(
                f"{_start}.bulk_group{_hint}{_masked}{_kind}",
                f"{_SIZED}{_policy}{_bytes}",
                needs=_ORDERED | {MASKED: "sm_100 8.6"},
                **_scopes,
                **_TO_GLOBAL,
            )
for _hint, _policy in (("", ""), (f".{HINT}", " b64")):
    _row(f"cp.async.bulk.prefetch.L2.global{_hint}", "[b8] u32<1048561/16" + _policy, step=prefetch)
_row(
    f"cp.async.bulk.prefetch.L2.global.{EVICTED_LAST}",
    "[b8] u32<1048561/16",
    step=prefetch,
    needs={"": "sm_90 8.0", EVICTED_LAST: EVICTED_LAST_SINCE},
)
_row(
    "applypriority.async.bulk{.global}.bulk_group.L2::evict_normal",
    "[b8] u32<1048561/16",
    step=prefetch,
    needs="sm_107f 9.4",
)
_group = partial(_row, operands="")
_group("cp.async.bulk.commit_group", step=commit_group, effects=Effects(commits="bulk_copies"))
_row(
    "cp.async.bulk.wait_group{.<read>}",
    "#u32",
    step=wait_group,
    effects=Effects(waits="bulk_copies", until="<read>"),
    read="read",
)

_IN_SHARED = (
    ("add", "u32 s32 u64"),
    ("inc dec", "u32"),
    ("min max", "u32 s32"),
    ("and or xor", "b32"),
)
REDUCED = (
    ("add", "", "u32 s32 u64 f32 f64"),
    ("inc dec", "", "u32"),
    ("min max", "", "u32 s32 u64 s64 f16 bf16"),
    ("and or xor", "", "b32 b64"),
    ("add", ".noftz", "f16 bf16 f32"),
)
for _order, _scopes, _near in (
    ("", {}, {}),
    (".relaxed.<scope>", {"scope": SCOPES}, {"scope": "cta cluster"}),
):
    _since = _ORDERED | NOFTZ_F32
    for _op, _types in _IN_SHARED:
        _copy(
            f"cp.reduce.async.bulk{_order}.<to>.<from>.{SIGNAL}.<op>.<T>",
            f"{_SIZED} [b64@to]",
            effects=replace(SIGNALS, atomic=True),
            needs=_since,
            op=_op,
            T=_types,
            **_near,
            **_TO_OTHERS,
        )
    for _op, _noftz, _types in REDUCED:
        for _hint, _policy in (("", ""), (f".{HINT}", " b64")):
            _grouped(
                f"cp.reduce.async.bulk{_order}.<to>.<from>.bulk_group{_hint}.<op>{_noftz}.<T>",
                _SIZED + _policy,
                effects=replace(GROUPED, atomic=True),
                needs=_since,
                op=_op,
                T=_types,
                **_scopes,
                **_TO_GLOBAL,
            )
for _op, _types in _IN_SHARED:
    _row(
        f"red.async.relaxed.cluster{{.shared::cluster}}.{SIGNAL}.<op>.<T>",
        "[T] T [b64]",
        step=store,
        needs="sm_90 8.1",
        effects=replace(SIGNALS, atomic=True),
        op=_op,
        T=_types.replace("u64", "u64 s64"),
    )
_WORDS, _DOUBLES = "b32 u32 s32 f32", "b64 u64 s64 f64"
_store = partial(_row, step=store, effects=replace(SIGNALS, work="store"))
_elsewhere = f"st.async{{.weak}}{{.shared::cluster}}.{SIGNAL}"
for _vec, _types in (("v2", f"{_WORDS} {_DOUBLES}"), ("v4", _WORDS)):
    _several = partial(_store, needs="sm_90 8.1", vec=_vec, T=_types)
    _several(_elsewhere + "{.<vec>}.<T>", "[T] T*vec [b64]")
_store(_elsewhere + ".<T>", "[T] T [b64]", needs="sm_90 9.2", T="b128")
