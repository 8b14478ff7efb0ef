"""From a store back along the values of one launch, as far as the other launch of the same program does not have them.

What the machine code of a program does with its registers nobody can know from names. So values are compared, not
registers: a value that a warp has in one launch is matched when the other has it in any register at any time, in all
lanes that are active in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import is_collective
from ptxlab.isa.targets import WARP
from ptxlab.observe.value_flow import RegisterNames, slots
from ptxlab.observe.value_trace import Step, ValueTrace
from ptxlab.syntax.tree import Address

Point = tuple[int, int]
"""A step and a thread of the CTA that takes part in it."""

MOST_POINTS = 4096
_HALF = 0xFFFF


class WarpValues:
    """The values that the warp of a thread has in any register, by the words of 32 bits that the thread has."""

    def __init__(self, trace: ValueTrace, thread: int) -> None:
        first = thread - thread % WARP
        self._warp, self._lane = slice(first, first + WARP), thread % WARP
        self._words: dict[int, list[tuple[Array, Array]]] = {}
        self._halves: dict[int, list[tuple[Array, Array]]] = {}
        seen: set[int] = set()
        for step in trace.steps:
            if step.mask[thread]:
                for value in (*step.reads.values(), *step.writes.values()):
                    if id(value) not in seen and value.dtype != bool:
                        seen.add(id(value))
                        self._add(value, step.mask[self._warp])

    def _add(self, value: Array, mask: Array) -> None:
        for part in _parts(value, self._warp):
            if part.dtype == np.uint32:
                self._words.setdefault(int(part[self._lane]), []).append((part, mask))
                halves = [part & _HALF, part >> 16]
            else:
                halves = [part.astype(np.uint32)]
                self._words.setdefault(int(part[self._lane]), []).append((halves[0], mask))
            for half in halves:
                self._halves.setdefault(int(half[self._lane]), []).append((half, mask))

    def has(self, value: Array, mask: Array, *, by_all: bool = False) -> bool:
        """Say whether the warp has a value in the lanes of a mask of the CTA's threads, in parts or whole.

        With ``by_all`` it must have it in all of these lanes, and not only in those that are active where it has it.
        """
        lanes = mask[self._warp]
        return all(self._has(part, lanes, by_all) for part in _parts(value, self._warp))

    def apart(self, value: Array, mask: Array) -> list[int]:
        """Return in which threads of the warp a value is another than what is most like it, of what has that of the thread."""
        lanes, first = mask[self._warp], self._warp.start
        apart = [self._lane]
        for part in _parts(value, self._warp):
            known = self._words if part.dtype == np.uint32 else self._halves
            others = known.get(int(part[self._lane]), ())
            differing = [
                np.flatnonzero(lanes & ~(seen & (other == part))) for other, seen in others
            ]
            apart += min(differing, key=len, default=np.zeros(0, int)).tolist()
        return [first + lane for lane in sorted(set(apart))]

    def lane_has(self, word: int, size: int) -> bool:
        """Say whether the thread has a value of ``size`` bytes, whatever other lanes have."""
        known = self._words if size >= 4 else self._halves
        return all(word >> low & 0xFFFFFFFF in known for low in range(0, 8 * size, 32))

    def _has(self, part: Array, lanes: Array, by_all: bool) -> bool:
        known = self._words if part.dtype == np.uint32 else self._halves
        for other, mask in known.get(int(part[self._lane]), ()):
            counted = lanes if by_all else lanes & mask
            if bool((~counted | mask & (other == part)).all()):
                return True
        return False


def _parts(value: Array, warp: slice) -> Iterator[Array]:
    """Yield a value of a warp in words of 32 bits, or of 16 bits where it is smaller."""
    whole = np.repeat(value, WARP, axis=0) if len(value) == 1 else value[warp]
    if whole.dtype.itemsize < 4:
        yield whole.view(f"u{whole.dtype.itemsize}").astype(np.uint16).reshape(WARP)
        return
    yield from np.ascontiguousarray(whole).view(np.uint32).reshape(WARP, -1).T


class Unmatched:
    """The ``points`` of a trace from a store on back whose values the other launch has not.

    Behind a bulk copy in ``stored`` stands what stored its source.
    """

    def __init__(
        self, trace: ValueTrace, stored: Sequence[Point], other: Callable[[int], WarpValues]
    ) -> None:
        self._trace = trace
        self._other = other
        self._conditions: dict[tuple[int, int, int], bool] = {}
        self.points: list[Point] = []
        self.unwritten: set[Point] = set()
        self._passed = {*stored[:-1]}  # bulk copies, which change nothing
        waiting, seen = [*stored], {*stored}
        while waiting and len(self.points) < MOST_POINTS:
            point = waiting.pop()
            self.points.append(point)
            for behind in self._behind(point, is_start=point == stored[-1]):
                if behind not in seen:
                    seen.add(behind)
                    waiting.append(behind)
        self.points.sort()

    def _behind(self, point: Point, *, is_start: bool) -> Iterator[Point]:
        """Yield what a value that is not matched comes from, where that is not matched either."""
        number, thread = point
        step = self._trace.steps[number]
        if point in self._passed:
            return
        chains = [] if is_start else self._trace.storers(number, thread)
        if chains:
            differing = (chain for chain in chains if not self._stores_what_agrees(chain[-1]))
            chain = next(differing, chains[0])
            self._passed.update(chain[:-1])
            yield from chain
            return
        sources = self._sources(step)
        conditions = {slot for slot in sources if step.reads[slot].dtype == bool}
        apart = {slot for slot in sources if not self._agrees(number, slot, thread)}
        # Where all else agrees, and the result does not, a condition was met otherwise.
        for slot in sorted(apart or (set() if is_start else conditions)):
            for teller in self._tellers(number, slot, thread):
                writer = self._trace.writer(number, slot, teller)
                if writer is not None:
                    yield writer, teller
        if any(self._is_unwritten(number, slot, thread) for slot in sources):
            self.unwritten.add(point)

    def _stores_what_agrees(self, point: Point) -> bool:
        """Say whether the other launch has all that a thread stores in a step."""
        number, thread = point
        sources = self._sources(self._trace.steps[number])
        return all(self._agrees(number, slot, thread) for slot in sources)

    def _sources(self, step: Step) -> frozenset[int]:
        """Return the registers that a step's result is made of: of a store what it stores, of a bulk copy all."""
        stores = any(access.offset is None for access in step.accesses) and not step.writes
        return _sources(step.site, to_memory=stores)

    def _tellers(self, number: int, slot: int, thread: int) -> list[int]:
        """Return the threads whose register a thread is told in a step: its own, and those of lanes that differ."""
        step = self._trace.steps[number]
        if step.reads[slot].dtype == bool or not is_collective(step.site.instruction):
            return [thread]
        return self._other(thread).apart(step.reads[slot], step.mask)

    def _is_unwritten(self, number: int, slot: int, thread: int) -> bool:
        """Say whether a kernel reads a register that it has not written; functions are given theirs."""
        step, first = self._trace.steps[number], self._trace.steps[0]
        inside = step.frame == first.frame and _is_register(step.site, slot)
        return inside and self._trace.writer(number, slot, thread) is None

    def _agrees(self, number: int, slot: int, thread: int) -> bool:
        """Say whether the other launch has a register as a thread reads it; a condition if it has what that is made of."""
        step = self._trace.steps[number]
        value = step.reads[slot]
        writer = self._trace.writer(number, slot, thread)
        if writer is None and not _is_register(step.site, slot):
            return True
        if value.dtype != bool:
            # What a lane tells others counts too: a register that is right where one lane is left is not enough.
            by_all = is_collective(step.site.instruction)
            return self._other(thread).has(value, step.mask, by_all=by_all)
        if writer is None:
            return True
        key = (writer, slot, thread)
        if key not in self._conditions:
            self._conditions[key] = True  # of a loop, whose other turns say it
            made = self._trace.steps[writer].reads
            self._conditions[key] = all(self._agrees(writer, other, thread) for other in made)
        return self._conditions[key]


def _is_register(site: Site, slot: int) -> bool:
    return any(
        register.slot == slot
        for scope in site.scope.outward()
        for register in scope.registers.values()
    )


def _sources(site: Site, *, to_memory: bool) -> frozenset[int]:
    """Return the registers that a step's result is made of: of a store what it stores."""
    if not to_memory:
        return site.reads
    addresses = {
        slot
        for operand in site.instruction.operands
        if isinstance(operand, Address)
        for slot in slots(site, operand)
    }
    return site.reads - addresses


def result(step: Step, thread: int, names: RegisterNames) -> dict[str, str]:
    """Return the bits of what a thread wrote in a step, by the names of registers."""
    named = names.seen_from(step.site.scope)
    told = {}
    for slot in sorted(step.writes.keys() & named.keys()):
        value = step.writes[slot]
        own = value[0 if len(value) == 1 else thread]
        told[named[slot]] = (
            str(bool(own)).lower() if value.dtype == bool else f"0x{own.tobytes()[::-1].hex()}"
        )
    return told
