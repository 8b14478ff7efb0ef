"""vote.sync, match.sync, redux.sync and activemask: what the lanes of a warp know of each other.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.emulator.operations.warp import LANE_BITS, MemberMask
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Instruction, Operand, Pair

Among = Callable[[Array, Array], tuple[Array, ...]]
"""From values and which lanes are members, each [warps, 32], to results that broadcast to that."""


def ballot(predicate: Array) -> Array:
    """Return the mask of lanes of each warp for which [warps, 32] ``predicate`` holds: [warps, 1]."""
    bits: Array = (predicate * LANE_BITS).sum(axis=1, dtype=np.uint32, keepdims=True)
    return bits


class Together:
    """An operation among the lanes of a warp that a membermask names."""

    __slots__ = ("_among", "_destinations", "_value", "participants")

    def __init__(
        self, among: Among, destinations: list[Destination], value: Source, mask: MemberMask
    ) -> None:
        self._among = among
        self._destinations = destinations
        self._value = value
        self.participants = mask

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for ``threads``; those with the same membermask are among themselves."""
        self.participants.check(frame, threads)
        registers = frame.registers
        given = self._value.read(registers)
        value = np.broadcast_to(given, (frame.wave.width,)).reshape(-1, WARP)
        totals: list[Array | None] = [None] * len(self._destinations)
        for team, _ in self.participants.teams(frame, threads):
            for i, result in enumerate(self._among(value, team)):
                before = totals[i]
                totals[i] = result if before is None else np.where(team, result, before)
        for destination, total in zip(self._destinations, totals, strict=True):
            assert total is not None
            slot = destination.slot
            full = np.broadcast_to(total, value.shape).reshape(-1)
            registers[slot] = threads.merge(registers[slot], full)


# ---- vote -----------------------------------------------------------------------------------


def _all(value: Array, members: Array) -> tuple[Array, ...]:
    return (np.all(value | ~members, axis=1, keepdims=True),)


def _any(value: Array, members: Array) -> tuple[Array, ...]:
    return (np.any(value & members, axis=1, keepdims=True),)


def _uniform(value: Array, members: Array) -> tuple[Array, ...]:
    (everyone,), (someone,) = _all(value, members), _any(value, members)
    return (everyone | ~someone,)


def _ballot(value: Array, members: Array) -> tuple[Array, ...]:
    return (ballot(value & members),)


_VOTES: dict[str, Among] = {"all": _all, "any": _any, "uni": _uniform, "ballot": _ballot}


def vote(context: Context, instruction: Instruction, form: Form) -> Step:
    """Ask whether a predicate holds in all lanes, in any, in all or none, or in which."""
    target, value, mask = _three(context, instruction)
    return Together(
        _VOTES[form["mode"]],
        [context.destination(target, form.results[0])],
        context.source(value, "pred"),
        MemberMask(context.source(mask, "b32"), context),
    )


warp = partial(row, mix="warp", collective=True)
warp("vote.sync.<mode>.pred", "pred b32 -> pred", step=vote, mode="all any uni")
warp("vote.sync.<mode>.b32", "pred b32 -> b32", step=vote, mode="ballot")


# ---- match ----------------------------------------------------------------------------------


def _match_any(value: Array, members: Array) -> tuple[Array, ...]:
    same = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
    return ((same * LANE_BITS).sum(axis=2, dtype=np.uint32),)


def _match_all(value: Array, members: Array) -> tuple[Array, ...]:
    first = np.take_along_axis(value, members.argmax(axis=1)[:, None], axis=1)
    agree = ((value == first) | ~members).all(axis=1, keepdims=True)
    return np.where(agree, ballot(members), np.uint32(0)), agree


def match(context: Context, instruction: Instruction, form: Form) -> Step:
    """Find the lanes with the same value, or whether all have the same one."""
    mode = form["mode"]
    target, value, mask = _three(context, instruction)
    second: Operand | None = None
    if mode == "all" and isinstance(target, Pair):
        second = target.second
        target = target.first
    destinations = [context.destination(target, "b32")]
    if mode == "all":
        unused = context.constant(np.zeros(1, bool), ("unused", "pred"))
        destinations.append(
            Destination(unused) if second is None else context.destination(second, "pred")
        )
    among = _match_any if mode == "any" else _match_all
    return Together(
        among,
        destinations,
        context.source(value, form["T"]),
        MemberMask(context.source(mask, "b32"), context),
    )


_match = partial(warp, step=match, T="b32 b64")
_match("match.<mode>.sync.<T>", "T b32 -> b32", mode="any")
_match("match.<mode>.sync.<T>", "T b32 -> b32|pred", mode="all")


# ---- redux ----------------------------------------------------------------------------------

_REDUCTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _reduction(operation: str, dtype: np.dtype[np.generic]) -> Among:
    ufunc = _REDUCTIONS[operation]
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    neutral = {"min": limits.max, "max": limits.min, "and": -1}.get(operation, 0)
    identity = np.array(neutral).astype(dtype)

    def among(value: Array, members: Array) -> tuple[Array, ...]:
        masked = np.where(members, value, identity)
        return (ufunc.reduce(masked, axis=1, keepdims=True, dtype=dtype),)

    return among


def redux(context: Context, instruction: Instruction, form: Form) -> Step:
    """Reduce integers; the floating-point forms of sm_100a are not modelled."""
    kind = TYPES[form["T"]]
    target, value, mask = _three(context, instruction)
    return Together(
        _reduction(form["op"], kind.dtype),
        [context.destination(target, kind.name)],
        context.source(value, kind.name),
        MemberMask(context.source(mask, "b32"), context),
    )


_redux = partial(warp, step=redux, needs="sm_80 7.0")
_redux("redux.sync.<op>.<T>", "T b32 -> T", op="add min max", T="u32 s32")
_redux("redux.sync.<op>.<T>", "T b32 -> T", op="and or xor", T="b32")


# ---- activemask -----------------------------------------------------------------------------


class ActiveMask:
    """activemask: the lanes of the warp that stand at this instruction together."""

    __slots__ = ("_destination",)

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for ``threads``."""
        slot = self._destination.slot
        bits = np.repeat(ballot(threads.mask.reshape(-1, WARP)), WARP)
        frame.registers[slot] = threads.merge(frame.registers[slot], bits)


def activemask(context: Context, instruction: Instruction, form: Form) -> Step:
    """Find the lanes that stand at this instruction together."""
    [target] = instruction.operands
    return ActiveMask(context.destination(target, "b32"))


row("activemask.b32", "-> b32", step=activemask, mix="warp")


def _three(context: Context, instruction: Instruction) -> tuple[Operand, ...]:
    if len(instruction.operands) != 3:
        context.reject(f"{instruction.name} takes 3 operands, found {len(instruction.operands)}")
    return instruction.operands
