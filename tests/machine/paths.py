"""Hazards on one path, instruction after instruction, each held against all before it.

This is a second account of what ``ptxlab.machine.hazards`` finds on all paths at once, with nothing but the
registers of an instruction and the latency of a pair in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.latencies import Latencies

Found = tuple[str, int, int]
"""What kind of hazard, and the addresses of its instructions, by number."""

_SHARED = {"LDS", "LDSM", "STS", "ATOMS"}
_SHUFFLES = {"SHFL", "MOVM"}
_DOUBLES = {"DADD", "DMUL", "DFMA", "DSETP"}
_TENSOR_MEMORY = {"LDTM", "STTM"}
_SLOW = {"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "FCHK"}
_SPECIAL = {"S2R", "S2UR"}
_LOADS = {"LDG"}
_MEMORY = _SHARED | _SHUFFLES | _LOADS | {
    "STG", "LDL", "STL", "LD", "ST", "LDGSTS", "ATOM", "ATOMG", "RED", "REDG", "BAR",
}  # fmt: skip
_QUEUES = (_SLOW, _DOUBLES, {"DMMA"}, _TENSOR_MEMORY)
_GENERAL = (1 << 255) - 1
_PREDICATES = 512


def hazards(path: Sequence[DecodedInstruction], latencies: Latencies) -> set[Found]:
    hazards_met = set(_stale(path))
    times = np.concatenate([[0], np.cumsum([max(i.control.stall, 1) for i in path])])
    used = [(uses.read(i), uses.written(i)) if i.row else (0, 0) for i in path]
    surely = [writes if i.guard is None else 0 for i, (_, writes) in zip(path, used, strict=True)]
    for at, i in enumerate(path):
        reads, writes = used[at]
        gone = 0  # written again between the two, whatever happens
        for before in reversed(range(at)):
            earlier = path[before]
            taken, given = used[before]
            made = given & ~gone
            gone |= surely[before]
            touching = given & (reads | writes) or taken & writes
            if not touching or _never_both(path, before, at):
                continue
            since = int(times[at] - times[before])
            if latencies.is_variable(earlier):
                done = _done(path, times, before, at, reading=False)
                if made & reads and not done:
                    hazards_met.add(("RAW", earlier.number, i.number))
                if made & writes and not done and not _in_order(earlier, i):
                    hazards_met.add(("WAW", earlier.number, i.number))
                quick = earlier.sass.opcode in _SLOW and earlier.control.stall >= 8
                overwritten = (
                    taken & _GENERAL & writes and not quick and not _takes_first(earlier, i)
                )
                if overwritten and not _done(path, times, before, at, reading=True):
                    hazards_met.add(("WAR", earlier.number, i.number))
            else:
                if made & reads and since < latencies.between(earlier, i, made & reads):
                    hazards_met.add(("RAW", earlier.number, i.number))
                if made & writes and since < latencies.overtaking(earlier, i):
                    hazards_met.add(("WAW", earlier.number, i.number))
    return hazards_met


def _stale(path: Sequence[DecodedInstruction]) -> Iterator[Found]:
    """Yield who reads in a slot what another keeps there, though the register was written meanwhile."""
    for at, keeper in enumerate(path):
        for slot in keeper.control.reuse:
            kept = _in_slot(keeper, slot)
            following = (
                n for n in range(at + 1, min(at + 3, len(path))) if _in_slot(path[n], slot)
            )
            reader = next(following, at)
            written = any(i.row and uses.written(i) & kept for i in path[at:reader])
            if written and kept & _in_slot(path[reader], slot):
                yield "REUSE", keeper.number, path[reader].number


def _in_slot(i: DecodedInstruction, slot: int) -> int:
    return uses.slots(i).get(slot, 0) if i.row else 0


def _done(
    path: Sequence[DecodedInstruction], times: np.ndarray, before: int, at: int, *, reading: bool
) -> bool:
    """Say whether something on the path waits for a scoreboard that tells of an instruction's end."""
    telling: set[int | None] = set()
    for number in range(before, at + 1):
        i = path[number]
        c = i.control
        if set(c.waits) & telling and times[number] - times[before] >= 2:
            return True
        if (
            reading
            and i.sass.text.startswith("BAR.SYNC 0x")
            and path[before].sass.opcode in _SHARED
        ):
            return True
        same = number == before
        if i.row is not None and (same or _in_order(path[before], i)):
            telling |= {c.writes} - {None}
        if i.row is not None and reading and (same or _takes_in_order(path[before], i)):
            telling |= {c.writes, c.reads} - {None}
    return False


def _in_order(first: DecodedInstruction, later: DecodedInstruction) -> bool:
    names = {first.sass.opcode, later.sass.opcode}
    return any(names <= family for family in (_SHARED | _SHUFFLES, _SPECIAL, {"REDUX"}, *_QUEUES))


def _takes_in_order(first: DecodedInstruction, later: DecodedInstruction) -> bool:
    names = {first.sass.opcode, later.sass.opcode}
    return names <= _MEMORY or any(names <= queue for queue in _QUEUES)


def _takes_first(first: DecodedInstruction, later: DecodedInstruction) -> bool:
    names = {first.sass.opcode, later.sass.opcode}
    return (
        names <= _LOADS or names == {"SYNCS"} or any(names <= queue for queue in _QUEUES)
        or (first.sass.opcode in _MEMORY and later.sass.opcode in _SHARED | _SHUFFLES | {"LDL"})
    )  # fmt: skip


def _never_both(path: Sequence[DecodedInstruction], before: int, at: int) -> bool:
    """Say whether an instruction runs only where the other does not, or never."""
    first, later = path[before].guard, path[at].guard
    never = any(g is not None and (g.number, g.negated) == (7, True) for g in (first, later))
    if never or first is None or later is None:
        return never
    rewritten = any(
        i.row is not None and uses.written(i) >> _PREDICATES + first.number & 1
        for i in path[before:at]
    )
    return first.number == later.number and first.negated != later.negated and not rewritten


def every_path(code: Sequence[DecodedInstruction], most: int) -> Iterator[list[DecodedInstruction]]:
    """Yield all paths of code without loops and calls. Raises AssertionError where there are more than ``most``."""
    waiting = [[0]]
    for _ in range(most):
        if not waiting:
            return
        numbers = waiting.pop()
        while True:
            following = _following(code, numbers[-1])
            assert all(number > numbers[-1] for number in following), "a loop"
            if not following:
                yield [code[number] for number in numbers]
                break
            waiting += [[*numbers, number] for number in following[1:]]
            numbers.append(following[0])
    raise AssertionError(f"more than {most} paths")


def a_path(
    code: Sequence[DecodedInstruction], random: np.random.Generator, most: int
) -> list[DecodedInstruction]:
    """Return a path, by chance, of so many instructions ``most``."""
    numbers = [0]
    while len(numbers) < most and (following := _following(code, numbers[-1])):
        numbers.append(int(random.choice(following)))
    return [code[number] for number in numbers]


def _following(code: Sequence[DecodedInstruction], number: int) -> list[int]:
    i = code[number]
    assert i.does not in ("call", "return")
    conditional = i.guard is not None or len(i.operands) > 1
    if i.does == "exit":
        return [number + 1] if i.guard is not None else []
    if i.does == "branch":
        assert i.target is not None
        return [i.target, number + 1] if conditional else [i.target]
    return [number + 1] if number + 1 < len(code) else []
