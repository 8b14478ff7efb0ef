"""vote, match, redux, shfl, activemask and bar.warp.sync: what the lanes of a warp know of each other.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions" and "Data Movement and
Conversion Instructions: shfl.sync".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ptxlab.arrays import Array, some
from ptxlab.emulator.operations.atomic import REDUCTIONS
from ptxlab.emulator.operations.shuffle_native import natively
from ptxlab.emulator.operations.warp import LANE_BITS, MemberMask, lane_read
from ptxlab.emulator.prepare.computation import destinations_of, sources_of
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Integer, Pair

Among = Callable[[Array, Array], Any]
"""From values and which lanes are members, each [warps, 32], to results that broadcast to that.

Like ``compute`` of a row it returns one array per result, alone where there is one.
"""

_row = partial(row, mix="warp", collective=True)


def _members(context: Context, mask: Source) -> MemberMask:
    """Have the lanes that a membermask names arrive together."""
    context.participants = members = MemberMask(mask, context)
    return members


def _together(context: Context, form: RowForm, among: Among) -> Step:
    """Return the step of an operation among the lanes that its last operand, a membermask, names."""
    target, *operands = context.operands(3)
    destinations = destinations_of(context, form, target)
    value, mask = sources_of(context, form, operands)
    members = _members(context, mask)

    def run(frame: Frame, threads: Threads) -> None:
        members.check(frame, threads)
        given = np.broadcast_to(value.read(frame.registers), (frame.wave.width,)).reshape(-1, WARP)
        totals: list[Array] = []
        for team, _ in members.teams(frame, threads):
            results = among(given, team)
            if len(destinations) == 1:
                results = (results,)
            before = totals or results
            totals = [np.where(team, *two) for two in zip(results, before, strict=True)]
        write(frame, threads.merge, destinations, (total.reshape(-1) for total in totals))

    return run


# ---- vote -----------------------------------------------------------------------------------


def ballot(predicate: Array) -> Array:
    """Return the mask of lanes of each warp for which [warps, 32] ``predicate`` holds: [warps, 1]."""
    bits: Array = (predicate * LANE_BITS).sum(axis=1, dtype=np.uint32, keepdims=True)
    return bits


def _all(value: Array, members: Array) -> Array:
    result: Array = np.all(value | ~members, axis=1, keepdims=True)
    return result


def _any(value: Array, members: Array) -> Array:
    result: Array = np.any(value & members, axis=1, keepdims=True)
    return result


def _uniform(value: Array, members: Array) -> Array:
    everyone, someone = _all(value, members), _any(value, members)
    return everyone | ~someone


def _ballot(value: Array, members: Array) -> Array:
    return ballot(value & members)


_VOTES: dict[str, Among] = {"all": _all, "any": _any, "uni": _uniform, "ballot": _ballot}


def vote(context: Context, form: RowForm) -> Step:
    """Ask whether a predicate holds in all lanes, in any, in all or none, or in which."""
    return _together(context, form, _VOTES[form["mode"]])


_row("vote.sync.<mode>.pred", "pred u32 -> pred", step=vote, mode="all any uni")
_row("vote.sync.<mode>.b32", "pred u32 -> b32", step=vote, mode="ballot")


# ---- match ----------------------------------------------------------------------------------


def _match_any(value: Array, members: Array) -> Array:
    same = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
    bits: Array = (same * LANE_BITS).sum(axis=2, dtype=np.uint32)
    return bits


def _match_all(value: Array, members: Array) -> tuple[Array, Array]:
    first = np.take_along_axis(value, members.argmax(axis=1)[:, None], axis=1)
    agree = ((value == first) | ~members).all(axis=1, keepdims=True)
    return np.where(agree, ballot(members), np.uint32(0)), agree


def match(context: Context, form: RowForm) -> Step:
    """Find the lanes with the same value, or whether all have the same one."""
    return _together(context, form, _match_any if form["mode"] == "any" else _match_all)


_match = partial(_row, step=match, T="b32 b64")
_match("match.<mode>.sync.<T>", "T u32 -> u32", mode="any")
_match("match.<mode>.sync.<T>", "T u32 -> u32|pred", mode="all")


# ---- redux ----------------------------------------------------------------------------------


def redux(context: Context, form: RowForm) -> Step:
    """Reduce integers."""
    reduction, dtype = REDUCTIONS[form["op"]], TYPES[form["T"]].dtype
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    neutral = {"min": limits.max, "max": limits.min, "and": -1}.get(form["op"], 0)
    identity = np.array(neutral).astype(dtype)

    def among(value: Array, members: Array) -> Array:
        masked = np.where(members, value, identity)
        total: Array = reduction.reduce(masked, axis=1, keepdims=True, dtype=dtype)
        return total

    return _together(context, form, among)


_redux = partial(_row, step=redux, needs="sm_80 7.0")
_redux("redux.sync.<op>.<T>", "T u32 -> T", op="add min max", T="u32 s32")
_redux("redux.sync.<op>.<T>", "u32 u32 -> u32", op="and or xor", T="b32")


def redux_float(context: Context, form: RowForm) -> Step:
    """Find the least or the largest number: +0 is above -0, and a NaN counts only where the form says so."""
    largest, takes_nan, magnitude = form["op"] == "max", bool(form["NaN"]), bool(form["abs"])

    def among(value: Array, members: Array) -> Array:
        bits = value.view(np.uint32) & np.uint32(0x7FFFFFFF if magnitude else 0xFFFFFFFF)
        is_nan = members & ((bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000))
        # Numbers of which the larger one stands for the larger value.
        sign = np.uint32(1 << 31)
        ordered = np.where(bits & sign, ~bits, bits | sign)
        ordered = np.where(members & ~is_nan, ordered, np.uint32(0 if largest else 0xFFFFFFFF))
        choose = np.max if largest else np.min
        chosen = choose(ordered, axis=1, keepdims=True)
        words = np.where(chosen & sign, chosen ^ sign, ~chosen)
        none = ~(members & ~is_nan).any(axis=1, keepdims=True)
        wrong = none | is_nan.any(axis=1, keepdims=True) if takes_nan else none
        result: Array = np.where(wrong, np.uint32(0x7FFFFFFF), words).view(np.float32)
        return result

    return _together(context, form, among)


_row(
    "redux.sync.<op>{.<abs>}{.<NaN>}.f32",
    "f32 u32 -> f32",
    step=redux_float,
    needs="sm_100f 8.6",
    op="min max",
    abs="abs",
    NaN="NaN",
)


# ---- shfl -----------------------------------------------------------------------------------


def _sources(mode: str, width: int, b: Array, c: Array) -> tuple[Array, Array]:
    """Return which thread each of ``width`` threads reads, and whether that is another lane's place."""
    lane = np.arange(width) % WARP
    source, inside = lane_read(mode, lane, b.astype(np.int64), c.astype(np.int64))
    return source + (np.arange(width) - lane), inside


@lru_cache(maxsize=64)
def _sources_alike(mode: str, width: int, b: int, c: int) -> tuple[Array, Array]:
    """Return the same where all threads give the same numbers, as compilers have them do."""
    return _sources(mode, width, np.array([b]), np.array([c]))


def shuffle(context: Context, form: RowForm) -> Step:
    """Read a register of another lane of the warp; its own where that lane is out of range.

    Of a lane that has ended, or that the membermask does not name, the value is the watcher's poison.
    """
    if not form["sync"]:
        context.refuse("shfl without .sync", hint="write shfl.sync; shfl was removed from sm_70 on")
    target, *operands = context.operands(5)
    destinations = destinations_of(context, form, target)
    *sources, mask = sources_of(context, form, operands)
    members, mode = _members(context, mask), form["mode"]

    def run(frame: Frame, threads: Threads) -> None:
        members.check(frame, threads)
        a, b, c = (source.read(frame.registers) for source in sources)
        if len(b) == len(c) == 1:
            source, inside = _sources_alike(mode, frame.wave.width, int(b[0]), int(c[0]))
        else:
            source, inside = _sources(mode, frame.wave.width, b, c)
        value = a if a.shape[0] == 1 else a[source]
        taking_part = members.taking_part(frame, threads, source)
        if some(~taking_part):
            value = np.where(taking_part, value, np.uint32(0x01010101 * frame.wave.watcher.poison))
        if frame.wave.watched:
            frame.wave.watcher.exchange(frame, threads, source, taking_part)
        write(frame, threads.merge, destinations, (value, inside))

    given = [
        int(context.immediate(operand, "b32")[0]) if isinstance(operand, Integer) else None
        for operand in operands[1:]
    ]
    return natively(run, mode, [*sources, mask], given, destinations)


_row(
    "shfl{.sync}.<mode>.b32",
    "b32 b32 b32 u32 -> b32|pred",
    step=shuffle,
    effects=Effects(passes="lane"),
    mode="up down bfly idx",
)


# ---- elect ----------------------------------------------------------------------------------


def elect(context: Context, form: RowForm) -> Step:
    """Choose one lane, which the ISA leaves open: the first that the membermask names and that is here."""
    target, given = context.operands(2)
    if not isinstance(target, Pair):
        context.reject("elect.sync has a predicate as its second result: d|p", target)
    destinations = destinations_of(context, form, target)
    [mask] = sources_of(context, form, [given])
    members = _members(context, mask)

    def run(frame: Frame, threads: Threads) -> None:
        members.check(frame, threads)
        leader = np.zeros((frame.wave.warps, WARP), np.uint32)
        for team, _ in members.teams(frame, threads):
            leader = np.where(team, team.argmax(axis=1)[:, None].astype(np.uint32), leader)
        chosen = leader == np.arange(WARP)
        results = (leader.reshape(-1), chosen.reshape(-1))
        write(frame, threads.merge, destinations, results)

    return run


_row("elect.sync", "b32 -> b32?|pred", step=elect, needs="sm_90 8.0")


# ---- activemask, bar.warp.sync --------------------------------------------------------------


def active_mask(context: Context, form: RowForm) -> Step:
    """Find the lanes of the warp that stand at this instruction together."""
    [target] = context.operands(1)
    destination = context.destination(target, "b32")

    def run(frame: Frame, threads: Threads) -> None:
        bits = np.repeat(ballot(threads.mask.reshape(-1, WARP)), WARP)
        write(frame, threads.merge, [destination], [bits])

    return run


row("activemask.b32", "-> b32", step=active_mask, mix="warp")


def _tell_met(members: MemberMask, frame: Frame, threads: Threads) -> None:
    """Tell who watches which lanes have waited for each other."""
    if frame.wave.watched:
        for team, _ in members.teams(frame, threads):
            frame.wave.watcher.synchronize_warps(team.reshape(-1))


def warp_barrier(context: Context, form: RowForm) -> Step:
    """Wait for the lanes of a membermask. Barriers of a CTA end a block: see ``barrier``."""
    [mask] = context.operands(1)
    members = _members(context, context.source(mask, "b32"))

    def run(frame: Frame, threads: Threads) -> None:
        members.check(frame, threads)  # all threads see the same memory at all times
        _tell_met(members, frame, threads)

    return run


row(
    "bar.warp.sync",
    "u32",
    step=warp_barrier,
    mix="synchronization",
    collective=True,
    effects=Effects(barrier="warp", meets="sync"),
)


# ---- convergence barriers of machine code ---------------------------------------------------


class ConvergenceMask(MemberMask):
    """The lanes that a lane has on its mask, and that have themselves on theirs: who left has not.

    No PTX waits like that: machine code does, see ``ptxlab.machine.lift``.
    """

    __slots__ = ()

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the lanes whose fellows all stand here, have left, or have ended."""
        if threads.everyone:
            return threads.mask
        own = np.broadcast_to(self.source.read(frame.registers), (frame.wave.width,))
        masks, here = own.reshape(-1, WARP), threads.mask.reshape(-1, WARP)
        staying = (masks & LANE_BITS).astype(bool) & alive.reshape(-1, WARP)
        missing = np.bitwise_or.reduce(np.where(staying & ~here, LANE_BITS, np.uint32(0)), axis=1)
        ready: Array = here & ((masks & missing[:, None]) == 0)
        return ready.reshape(-1)


def converge(context: Context, form: RowForm) -> Step:
    """Wait for the lanes that a convergence barrier holds."""
    [mask] = context.operands(1)
    members = context.participants = ConvergenceMask(context.source(mask, "b32"), context)

    def run(frame: Frame, threads: Threads) -> None:
        _tell_met(members, frame, threads)

    return run


row(
    "converge.sync",
    "u32",
    step=converge,
    mix="synchronization",
    collective=True,
    lifted=True,
    effects=Effects(barrier="warp", meets="sync"),
)
