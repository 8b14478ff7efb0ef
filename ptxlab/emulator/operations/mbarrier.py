"""mbarrier: barriers in shared memory that threads arrive at and wait for, and asynchronous copies signal.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier" and
"cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.memory import memory_operand
from ptxlab.emulator.prepare.context import SINK, Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.program import Access, Action, Lowered
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import translate
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.mbarriers import (
    OBJECT_BYTES,
    Arrive,
    Mbarriers,
    MbarrierState,
    UndefinedUse,
)
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Address, Integer, Name, Operand, Pair, Symbol

Result = TypeVar("Result")

UNDEFINED = "what a GPU does then is undefined"


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """The mbarrier operand of an instruction."""

    access: Access

    @classmethod
    def of(cls, context: Context, form: RowForm, address: Operand) -> Objects:
        base = address.base if isinstance(address, Address) else None
        variable = context.variable(base.text) if base is not None else None
        if variable is not None and variable.space not in ("shared", "dynamic"):
            context.reject("an mbarrier lies in shared memory", address)
        name = ".".join((form.opcode, *form.modifiers[:1]))
        access = memory_operand(context, form, address, OBJECT_BYTES, "", writes=True)
        return cls(
            Access(access.space, access.base, access.offset, OBJECT_BYTES, access.line, name, True)
        )

    def index(self, frame: Frame, threads: Threads) -> Array:
        """Return which 64-bit words of shared memory the threads' objects are, one for each thread.

        Threads that wait ask for theirs again and again: what is asked for last is kept.
        """
        last, base = frame.wave.mbarriers.last, frame.registers[self.access.base.slot]
        known = last.get(self)
        if known is None or known[0] is not base or known[1] is not threads:
            known = last[self] = base, threads, self._located(frame, threads)
        return known[2]

    def _located(self, frame: Frame, threads: Threads) -> Array:
        index = np.empty(threads.size, np.int64)
        for part in translate(self.access, frame, threads):
            if part.memory.name != "shared":
                where = 0 if part.where is None else int(part.where[0])
                raise self.fault(frame, threads, where, "memory that is not shared")
            index[slice(None) if part.where is None else part.where] = part.index
        return index

    def act(
        self,
        frame: Frame,
        threads: Threads,
        do: Callable[[Mbarriers, Array], Result],
        index: Array | None = None,
    ) -> Result:
        """Return what ``do`` makes of the objects, or of those at ``index``. Raise LaunchError for what PTX leaves undefined."""
        if index is None:
            index = self.index(frame, threads)
        try:
            return do(frame.wave.mbarriers, index)
        except UndefinedUse as refused:
            raise self.fault(frame, threads, refused.at, str(refused)) from None

    def change(
        self,
        frame: Frame,
        threads: Threads,
        do: Callable[[Mbarriers, Array], Result],
        index: Array | None = None,
    ) -> Result:
        """Do the same, and have whoever watches see it."""
        if index is None:
            index = self.index(frame, threads)
        if frame.wave.watched:
            frame.wave.watcher.arrive(threads, index)
        return self.act(frame, threads, do, index)

    def fault(self, frame: Frame, threads: Threads, at: int, what: str) -> LaunchError:
        """Return the error of the thread at position ``at`` of the active ones."""
        access, wave = self.access, frame.wave
        address = np.broadcast_to(threads.pick(access.base.read(frame.registers)), (threads.size,))[
            at
        ]
        return LaunchError(
            f"{access.verb} with {what}, at {int(address) + access.offset:#x} by "
            f"{wave.thread(int(threads.index[at]))}",
            location=wave.locate(access.line),
            hint=UNDEFINED,
            kind="async",
        )

    def landed(self, frame: Frame, owners: Array, do: Callable[[Mbarriers], object]) -> None:
        """Tell objects of work that is done, begun by the threads ``owners``; raise as ``act`` does."""
        access, wave = self.access, frame.wave
        try:
            do(wave.mbarriers)
        except UndefinedUse as refused:
            raise LaunchError(
                f"{access.verb} completes at {refused}, of a copy by "
                f"{wave.thread(int(owners[refused.at]))}",
                location=wave.locate(access.line),
                hint=UNDEFINED,
                kind="async",
            ) from None


def given(source: Source | None, frame: Frame, threads: Threads, default: int = 0) -> Array:
    """Return an operand as an int64 for each active thread, ``default`` where there is none."""
    if source is None:
        return np.full(threads.size, default)
    value = threads.pick(source.read(frame.registers)).astype(np.int64)
    return np.broadcast_to(value, (threads.size,))


# ---- objects, arrivals and bytes ------------------------------------------------------------


def _init(context: Context, form: RowForm) -> Step:
    """Make an mbarrier object that expects so many arrivals in each phase."""
    address, count = context.operands(2)
    objects, counts = Objects.of(context, form, address), context.source(count, "u32")
    v1 = form["layout"] == "layout::v1"

    def run(frame: Frame, threads: Threads) -> None:
        asked = given(counts, frame, threads)
        objects.change(frame, threads, lambda barriers, index: barriers.init(index, asked, v1=v1))

    return run


def _check_layout(context: Context, form: RowForm) -> Step:
    """Say whether an object has a layout."""
    result, address = context.operands(2)
    objects, destination = Objects.of(context, form, address), context.destination(result, "pred")
    v1 = form["layout"] == "layout::v1"

    def run(frame: Frame, threads: Threads) -> None:
        same = objects.act(
            frame, threads, lambda barriers, index: barriers.has_layout(index, v1=v1)
        )
        write(frame, threads.spread, [destination], [same])

    return run


def _invalidate(context: Context, form: RowForm) -> Step:
    """End an mbarrier object, so that its memory may be used for something else."""
    [address] = context.operands(1)
    objects = Objects.of(context, form, address)
    return lambda frame, threads: objects.change(frame, threads, Mbarriers.invalidate)


def _expect(context: Context, form: RowForm) -> Step:
    """Expect more bytes, or have some complete that were expected."""
    address, count = context.operands(2)
    objects, counts = Objects.of(context, form, address), context.source(count, "u32")
    sign = 1 if form["what"] == "expect_tx" else -1

    def run(frame: Frame, threads: Threads) -> None:
        tx = given(counts, frame, threads) * sign
        objects.change(frame, threads, lambda barriers, index: barriers.expect(index, tx))

    return run


def _arrive(context: Context, form: RowForm) -> Step:
    """Arrive, and return the state before that: of another CTA's object there is none to be had."""
    state, address, *rest = context.instruction.operands
    objects = Objects.of(context, form, address)
    is_sink = isinstance(state, Name) and state.text == SINK
    if not is_sink and objects.access.space == "shared::cluster":
        context.reject("the state of an object in shared::cluster is written _", state)
    destination = None if is_sink else context.destination(state, "b64")
    number = context.source(rest[0], "u32") if rest else None
    if form["open"] and isinstance(rest[0], Integer) and rest[0].value < 1:
        context.reject("a count is 1 or more", rest[0])
    expects = bool(form["tx"])
    counts, bytes_ = (None, number) if expects else (number, None)
    drop, leave_open = form["what"] == "arrive_drop", bool(form["open"])

    def run(frame: Frame, threads: Threads) -> None:
        arrive = Arrive(
            given(counts, frame, threads, 1), given(bytes_, frame, threads), drop, leave_open
        )
        before = objects.change(
            frame, threads, lambda barriers, index: barriers.arrive(index, arrive)
        )
        if destination is not None:
            write(frame, threads.spread, [destination], [before])

    return run


def _pending_count(context: Context, form: RowForm) -> Action:
    """Return how many arrivals a state still waits for."""
    return _of_state(context, lambda state: state.pending)


def _parity(context: Context, form: RowForm) -> Action:
    """Return the parity of the phase that a state is of."""
    return _of_state(context, lambda state: state.phase & 1)


def _of_state(context: Context, part: Callable[[MbarrierState], Array]) -> Action:
    target, state = context.operands(2)
    return Lowered(
        [_state(context, state)],
        [context.destination(target, "u32")],
        lambda words: part(MbarrierState.of(words)).astype(np.uint32),
    )


def _state(context: Context, operand: Operand) -> Source:
    """Take the state of an object, which an arrival gave."""
    if isinstance(operand, Symbol):
        context.reject("a state is a register", operand)
    return context.source(operand, "b64")


def _copies_arrive(context: Context, form: RowForm) -> Step:
    """Arrive when all copies have landed that the thread has begun with cp.async.

    Without ``.noinc`` the object expects one more arrival for it in this phase.
    """
    [address] = context.operands(1)
    objects = Objects.of(context, form, address)
    more = not form["noinc"]

    def run(frame: Frame, threads: Threads) -> None:
        wave, until = frame.wave, frame.wave.copies.turn
        ones = np.ones(threads.size, np.int64)
        if more:
            added = Arrive(-ones, np.zeros_like(ones))
            objects.act(frame, threads, lambda barriers, index: barriers.arrive(index, added))
        index = objects.index(frame, threads)

        def land() -> None:
            wave.background.finish()
            wave.copies.wait_all(threads, until)
            if wave.watched:
                wave.watcher.done(index, threads)
            arrive = Arrive(ones, np.zeros_like(ones))
            objects.landed(frame, threads.index, lambda barriers: barriers.arrive(index, arrive))

        wave.signals.start(land)

    return run


# ---- waiting --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of an mbarrier: ``state`` is the parity of the one waited for, or a state from it."""

    objects: Objects
    state: Source
    by_parity: bool

    where = "for a phase of an mbarrier"
    gives_up = True

    def passed(self, frame: Frame, threads: Threads) -> Array:
        """Return for each active thread whether the phase is complete."""
        asked = threads.pick(self.state.read(frame.registers))
        if not self.by_parity:
            asked = MbarrierState.of(asked).phase
        return self.objects.act(
            frame, threads, lambda barriers, index: barriers.passed(index, asked)
        )

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of the threads that get their answer now."""
        passed = self.passed(frame, threads)
        if passed.all():
            return threads.mask
        mask: Array = frame.wave.mbarriers.hurried.copy()
        mask[threads.index] |= passed
        return mask

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Describe the object that the first thread waits for."""
        state = self.objects.act(frame, threads, lambda barriers, index: barriers.state(index[:1]))
        wave, access = frame.wave, self.objects.access
        at = int(threads.pick(access.base.read(frame.registers))[0]) + access.offset
        cta = wave.cta(int(wave.cta_of[threads.index[0]]))
        return (
            f"the one at {at:#x} of {cta}: in phase {int(state.phase[0])} "
            f"{int(state.pending[0])} of {int(state.expected[0])} arrivals and {int(state.tx[0])} bytes "
            "are missing"
        )


def _wait(context: Context, form: RowForm) -> Step:
    """Wait for a phase to be complete, and say whether it is.

    An answer that it is not is given only when nobody else can run: how long test_wait and try_wait
    wait is not for a program to know. What no work reports is zero.
    """
    result, *rest = context.instruction.operands
    results: list[Any] = [result.first, result.second] if isinstance(result, Pair) else [result]
    kinds = ["pred"] * len(results)
    if not isinstance(rest[0], Address):
        results.append(rest.pop(0))
        kinds.append("b8")
    destinations = list(map(context.destination, results, kinds))
    address, state, *hint = rest
    by_parity = bool(form["parity"])
    source = context.source(state, "u32") if by_parity else _state(context, state)
    for time in hint:
        context.source(time, "u32")
    phase = context.participants = Phase(Objects.of(context, form, address), source, by_parity)
    # Where a report is asked for, ptxas looks at another operand.
    looked_at = by_parity and "b8" not in kinds
    if looked_at and isinstance(state, Integer) and state.value not in (0, 1):
        context.reject("a parity is 0 or 1", state)

    def run(frame: Frame, threads: Threads) -> None:
        passed = phase.passed(frame, threads)
        wave = frame.wave
        wave.mbarriers.hurried[threads.index] = False
        if wave.watched and passed.any():
            through = Threads(threads.width, index=threads.index[passed])
            wave.watcher.waited(through, phase.objects.index(frame, threads)[passed])
        reports = [np.zeros(passed.shape, TYPES[kind].dtype) for kind in kinds[1:]]
        write(frame, threads.spread, destinations, [passed, *reports])

    return run


# ---- rows -----------------------------------------------------------------------------------

_NEEDS = {
    "": "sm_80 7.0",
    "shared::cta": "sm_80 7.8",
    "shared::cluster": "sm_90 8.0",
    "expect_tx": "sm_90 8.0",
    "complete_tx": "sm_90 8.0",
    "cluster": "sm_90 8.0",
    "cta": "sm_80 8.0",
    "arrive relaxed": "sm_90 8.6",
    "arrive_drop relaxed": "sm_90 8.6",
    "test_wait relaxed": "sm_90 8.6",
    "try_wait relaxed": "sm_90 8.6",
    "parity": "sm_80 7.1",
    "try_wait": "sm_90 7.8",
    "layout::v0": "sm_90 9.3",
    "layout::v1": "sm_90 9.3",
    "phase_type::primary": "sm_90 9.3",
    "phase_type::conditional": "sm_90 9.3",
}
_OWN, _ANY = "shared shared::cta", "shared shared::cta shared::cluster"
_row = partial(row, mix="synchronization", needs=_NEEDS)
_order = {"scope": "cta cluster"}

_makes, _unmakes = Effects(mbarrier="init"), Effects(mbarrier="inval")
_LAYOUTS = "layout::v0 layout::v1"
_made = partial(_row, operands="[b64] u32<1048576", step=_init, effects=_makes, space=_OWN)
_made("mbarrier.init{.<layout>}{.<space>}.b64", layout=_LAYOUTS)
_asks = partial(_row, operands="[b64] -> pred", step=_check_layout, space=_OWN)
_asks("mbarrier.check_layout.<layout>{.<space>}.b64", layout=_LAYOUTS, needs="sm_90 9.3")
_row("mbarrier.inval{.<space>}.b64", "[b64]", step=_invalidate, effects=_unmakes, space=_OWN)
_does = Effects(mbarrier="<what>", tx="<tx>")
for _ordered, _sems in (("", {}), (".<sem>.<scope>", {"sem": "relaxed", **_order})):
    _expects = partial(_row, step=_expect, effects=_does, what="expect_tx complete_tx", space=_ANY)
    _expects(f"mbarrier.<what>{_ordered}{{.<space>}}.b64", "[b64] u32", **_sems)
for _ordered, _sems in (("", {}), (".<sem>.<scope>", {"sem": "release relaxed", **_order})):
    _arrives = partial(_row, step=_arrive, effects=_does, what="arrive arrive_drop", **_sems)
    _rest = f"{_ordered}{{.<space>}}.b64"
    _arrives(f"mbarrier.<what>{_rest}", "[b64] u32? -> u64?", space=_ANY)
    _arrives(f"mbarrier.<what>.<tx>{_rest}", "[b64] u32 -> u64?", tx="expect_tx", space=_ANY)
for _ordered in ("", ".release.cta"):
    _row(
        f"mbarrier.<what>.<open>{_ordered}{{.<space>}}.b64",
        "[b64] u32 -> u64?",
        step=_arrive,
        effects=_does,
        what="arrive arrive_drop",
        open="noComplete",
        space=_OWN,
    )
_row("mbarrier.pending_count{.layout::v0}.b64", "u64 -> u32", step=_pending_count)
_row("mbarrier.parity.b64", "u64 -> u32", step=_parity, lifted=True)
_waiting = partial(_row, step=_wait, collective=True, effects=Effects(mbarrier="wait"), space=_OWN)
for _ordered, _sems in (("", {}), (".<sem>.<scope>", {"sem": "acquire relaxed", **_order})):
    _rest = f"{_ordered}{{.<space>}}.b64"
    for _name, _time in (("test_wait", ""), ("try_wait", " u32?")):
        _waiting(f"mbarrier.{_name}{_rest}", f"[b64] u64{_time} -> pred", **_sems)
        _by_parity = partial(_waiting, parity="parity", **_sems)
        _operands = f"[b64] u32{_time} -> pred"
        _by_parity(f"mbarrier.{_name}.<parity>{_rest}", _operands)
        _by_parity(f"mbarrier.{_name}.<parity>.phase_type::conditional{_rest}", _operands)
        _primary = f"phase_type::primary{_rest}"
        _reported = " -> pred|pred b8"
        _waiting(f"mbarrier.{_name}.{_primary}", f"[b64] u64{_time}{_reported}", **_sems)
        _by_parity(f"mbarrier.{_name}.<parity>.{_primary}", f"[b64] u32{_time}{_reported}")
row(
    "cp.async.mbarrier.arrive{.<noinc>}{.<space>}.b64",
    "[b64]",
    step=_copies_arrive,
    mix="asynchronous copy",
    needs=_NEEDS,
    effects=Effects(mbarrier="arrive", behind="copies"),
    noinc="noinc",
    space=_OWN,
)
