"""Races in shared memory: accesses by two threads of a CTA, one a write, and nothing orders them.

Strong accesses, which are atomic or say how they are ordered (atom, red, volatile, relaxed, acquire,
release), do not race with each other. Source: PTX ISA, "Memory Consistency Model: Races". What is
reported, and how severe it is, follows Compute Sanitizer's racecheck: a race between warps is an
error, one inside a warp a warning, and writes of the same value are information.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.isa.targets import WARP
from ptxlab.observe.check_context import CheckContext, Wording
from ptxlab.observe.check_report import SEVERITIES
from ptxlab.observe.history import History
from ptxlab.observe.ordering import AccessKind, EarlierAccesses, Touch

_ERROR, _WARNING, _INFO = range(len(SEVERITIES))
_NAMES = {(False, True): "RAW", (True, False): "WAR", (True, True): "WAW"}


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store writes: ``rows`` of bytes, one for each of the ``threads``; ``memory`` was there.

    ``memory`` has a row for each granule of the wave.
    """

    threads: Array
    rows: Array
    memory: Array


class Races:
    """Reports what ``order`` does not order."""

    def __init__(self, context: CheckContext, order: History) -> None:
        self._context = context
        self._order = order

    def see(self, touch: Touch, stored: Stored | None = None) -> None:
        """See accesses that take place now: hold them against each other and those before."""
        past = None
        if stored is not None and touch.kind in self._order.kinds:
            past = self._order.earlier(touch, touch.kind)
        self.remember(touch)
        self.compare(touch, stored, past)

    def remember(self, touch: Touch) -> None:
        self._order.note(touch)

    def forget(self, kind: AccessKind, before: Array) -> None:
        self._order.forget(kind, before)

    def compare(
        self, touch: Touch, stored: Stored | None = None, past: EarlierAccesses | None = None
    ) -> None:
        """Report the accesses that race with these; ``past`` are stores alike before these."""
        for kind in self._order.kinds:
            earlier = self._order.earlier(touch, kind) if _conflict(touch.kind, kind) else None
            if earlier is None:
                continue
            same = np.zeros(earlier.at.size, bool)
            if stored is not None and kind.writes:
                now = np.full(touch.granules.size, kind == touch.kind)
                if past is not None:
                    now[past.at] = False
                same = _same_value(touch, earlier, stored, now[earlier.at])
            self._report(touch, kind, earlier, same)

    def _report(
        self, touch: Touch, kind: AccessKind, earlier: EarlierAccesses, same: Array
    ) -> None:
        """Report races, of which some are between stores of the ``same`` value."""
        what = _NAMES[touch.kind.writes, kind.writes]
        agents = touch.by if touch.kind.mbarrier else touch.threads
        threads = agents[earlier.at]
        engines = touch.kind.engine or kind.engine
        in_warp = (threads // WARP == earlier.threads // WARP) & (not engines)
        severities = np.where(in_warp, _WARNING, _ERROR)
        severities[same] = _INFO
        severities[earlier.partly] = _WARNING
        groups = (earlier.places * 2 + earlier.unfenced) * len(SEVERITIES) + severities
        for first, count in zip(
            *np.unique(groups, return_index=True, return_counts=True)[1:], strict=True
        ):
            context, site = self._context, self._context.numbered(touch.instruction)
            other = context.numbered(int(earlier.places[first]))
            granule = int(touch.granules[earlier.at[first]])
            pair = int(threads[first]), int(earlier.threads[first])
            kinds = touch.kind, kind
            check, rule, severity = "async", what, SEVERITIES[severities[first]]
            if earlier.unfenced[first]:
                severity, rule, words = unfenced(context, kinds, granule, pair[1], other)
            elif kind.mbarrier and not (kind.strong or touch.kind.proxied):
                severity, rule, words = unready(context, granule, pair[0], other)
            elif engines:
                partly = bool(earlier.partly[first])
                severity, rule, words = race(context, what, kinds, granule, pair, other, partly)
            elif what == "RAW" and effects_of(other.instruction).begins == "copies":
                words = _copied(context, granule, *pair)
            else:
                check, words = "race", _raced(context, what, severity, granule, *pair)
            amount = int(count) * context.shadow.size
            lane = None if context.engine(pair[0]) else pair[0]
            context.find(check, severity, rule, amount, words, other, site, thread=lane)


def _raced(
    context: CheckContext, what: str, severity: str, granule: int, thread: int, other: int
) -> Wording:
    did = "reads" if what == "RAW" else "overwrites"
    had = "read" if what == "WAR" else "wrote"
    message = (
        f"{what}: {context.thread(thread)} {did} {context.shared(granule)}, which "
        f"{context.thread(other)} {had}, and nothing orders the two"
    )
    if severity == "info":
        return f"{message}; both write the same value", "one of the threads is enough"
    if severity == "warning":
        return message, (
            "threads of a warp do not run in step: a bar.warp.sync, __syncwarp(), between the "
            "two orders them"
        )
    return message, "a barrier of both threads between the two, as __syncthreads(), orders them"


def _copied(context: CheckContext, granule: int, thread: int, other: int) -> Wording:
    return (
        f"{context.thread(thread)} reads {context.shared(granule)}, which "
        f"{context.thread(other)} copied and waited for, and no barrier comes after that wait"
    ), "a wait is for the copies of the thread itself; those of others need a barrier after it"


def _conflict(kind: AccessKind, other: AccessKind) -> bool:
    return (kind.writes or other.writes) and not (kind.strong and other.strong)


def _same_value(touch: Touch, earlier: EarlierAccesses, stored: Stored, now: Array) -> Array:
    """Say which entries store what the other thread has: just ``now``, in this touch, or before it."""
    count = touch.granules.size // stored.threads.size
    size = stored.memory.shape[1]
    pieces = np.broadcast_to(stored.rows, (stored.threads.size, count * size)).reshape(-1, size)
    granules = touch.granules[earlier.at]
    # The granules of one thread lie together, and with them what it stores.
    thread = (
        np.searchsorted(stored.threads, earlier.threads).clip(max=stored.threads.size - 1) * count
    )
    theirs = np.where(now, thread + granules - touch.granules[thread], 0)
    values = np.where(now[:, None], pieces[theirs], stored.memory[granules])
    same: Array = (pieces[earlier.at] == values).all(axis=1)
    return same


# ---- asynchronous work that races, and mbarriers that are not ready -----------------------------


Said = tuple[str, str, Wording]
"""A severity, a rule and the words."""

_WAITS = {
    "signals": "wait for the phase of the mbarrier that hears of it (mbarrier.try_wait) in the same "
    "thread, or before a barrier of both; a relaxed wait needs a fence after it",
    "bulk_copies": "cp.async.bulk.wait_group.read by the thread that began it, then a barrier of both; a wait "
    "by another thread waits for nothing",
    "tensor_work": "tcgen05.commit behind it in the thread that issued it, then a wait for the phase of the mbarrier "
    "that it names (mbarrier.try_wait), in the same thread or before a barrier of both",
    "products": "wgmma.wait_group for its group, then, for threads of other warpgroups, a barrier or an "
    "arrival that they wait for",
}
_FENCE = (
    "fence.proxy.async.shared::cta between the two: in the thread that accessed it first, before the "
    "barrier that tells of it"
)
_EACH_WARP = (
    "a barrier of the warpgroup between wgmma.wait_group, by which a warp waits for itself alone, and what "
    "overwrites operands; or an arrival at an mbarrier, which is taken to be for all of it"
)
_BOTH = "a barrier or mbarrier that both meet at between the two orders them"


def race(
    context: CheckContext,
    what: str,
    kinds: tuple[AccessKind, AccessKind],
    granule: int,
    pair: tuple[int, int],
    other: Site,
    partly: bool,
) -> Said:
    """Describe accesses in the order in which they were made, one of them by an engine.

    ``kinds`` and ``pair`` are of the later access, and of the ``other`` one before it, which a warp of a
    warpgroup may have waited for, and so been ordered ``partly``.
    """
    (now, before), where = kinds, context.shared(granule)
    does = "writes" if now.writes else "reads"
    did = "writes" if before.writes else "reads"
    who = (
        f"this {effects_of(context.site.instruction).work}"
        if now.engine
        else context.agent(pair[0])
    )
    if not before.engine:
        had = "wrote" if before.writes else "read"
        message = f"{what}: {who} {does} {where}, which {context.agent(pair[1])} {had}"
        return "error", what, (f"{message}, and nothing orders the two", _BOTH)
    engine = context.engine(pair[1])
    assert engine is not None
    work = f"the {effects_of(other.instruction).work} of line {other.line}"
    message = f"{what}: {who} {does} {where}, which {work} {did} until it is waited for"
    if before.mbarrier:
        message = f"{what}: {who} {does} {where}, an mbarrier that {work} tells when it is done"
    if partly:  # programs that run right on H100 leave the barrier out
        return "warning", what, (f"{message} by each warp of its warpgroup", _EACH_WARP)
    return "error", what, (message, _WAITS[engine[0]])


def unfenced(
    context: CheckContext,
    kinds: tuple[AccessKind, AccessKind],
    granule: int,
    thread: int,
    other: Site,
) -> Said:
    """Describe work by an engine on what a thread accessed before, with no fence of the proxies."""
    now, before = kinds
    does = "writes" if now.writes else "reads"
    had = "wrote" if before.writes else "read"
    message = (
        f"this {effects_of(context.site.instruction).work} {does} {context.shared(granule)}, which {context.agent(thread)} {had}, and no "
        "fence.proxy.async lies between the two"
    )
    severity = "error"
    if not before.writes:
        severity = "info"  # most programs leave it out there
    elif now.writes or effects_of(other.instruction).begins:
        severity = "warning"
    return severity, "proxy", (message, _FENCE)


def unready(context: CheckContext, granule: int, thread: int, other: Site) -> Said:
    """Describe the use of an mbarrier of whose beginning or end a thread has not heard."""
    what = "makes" if effects_of(other.instruction).mbarrier == "init" else "unmakes"
    message = (
        f"{context.agent(thread)} uses the mbarrier {context.shared(granule)}, and nothing orders that with "
        f"line {other.line}, which {what} it"
    )
    hint = (
        "after mbarrier.init a barrier of the CTA; where another CTA uses it, barrier.cluster, with "
        "fence.mbarrier_init before an arrival that is relaxed"
    )
    return "error", what, (message, hint)
