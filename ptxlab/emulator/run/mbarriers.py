"""mbarrier objects in shared memory: arrivals, bytes that are expected, phases.

An object is its 64-bit word in shared memory, for all programs may know opaque. Here, low bits first:
20 bits of arrivals that are pending, 20 of those that a phase expects, 21 of the transaction count
(signed), 3 of the phase. A phase is complete when no arrival is pending and the count is zero. Whether an
object is of ``.layout::v1`` is kept beside it: no work that is emulated reports to one, so that its
conditional phases end with the others.
Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads

OBJECT_BYTES = 8

COUNT_BITS, TX_BITS = 20, 21
MOST = (1 << COUNT_BITS) - 1
"""The most arrivals of a phase, and the largest transaction count."""
MOST_OF_V1 = (1 << 9) - 1
"""The most arrivals of a phase of an object of ``.layout::v1``."""

PHASES = 8
"""How far an object counts its phases: those asked for are the last two."""

_TX_AT = 2 * COUNT_BITS
_PHASE_AT = _TX_AT + TX_BITS
_ABOVE_TX = 64 - _PHASE_AT


@dataclass(slots=True)
class MbarrierState:
    """The fields of several objects, an entry each; all are int64."""

    pending: Array
    expected: Array
    tx: Array
    phase: Array

    @classmethod
    def of(cls, words: Array) -> MbarrierState:
        bits = words.view(np.int64)
        return cls(
            bits & MOST,
            bits >> COUNT_BITS & MOST,
            bits << _ABOVE_TX >> _ABOVE_TX + _TX_AT,
            bits >> _PHASE_AT & PHASES - 1,
        )

    def words(self) -> Array:
        tx = self.tx & (1 << TX_BITS) - 1
        bits: Array = self.pending | self.expected << COUNT_BITS | tx << _TX_AT
        words: Array = (bits | self.phase << _PHASE_AT).view(np.uint64)
        return words

    def settle(self) -> Array:
        """Let the phases that are complete be followed by the next ones; return which."""
        complete: Array = (self.pending == 0) & (self.tx == 0)
        self.phase = self.phase + complete
        self.pending = np.where(complete, self.expected, self.pending)
        return complete


@dataclass(frozen=True, slots=True)
class Arrive:
    """Arrivals, an entry each: ``counts`` of them after ``tx`` more bytes are expected.

    Those that ``drop`` are expected no more in the phases that follow. Where they ``leave_open`` the
    phase, it must not be complete after them.
    """

    counts: Array
    tx: Array
    drop: bool = False
    leave_open: bool = False


class UndefinedUse(Exception):
    """What PTX leaves undefined, at the entry ``at`` of those given; the text says what it is."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


class Mbarriers:
    """The objects of a wave of ``width`` threads: ``words`` are all 64-bit words of its shared memory.

    ``changes`` grows where phases end, which may end somebody's wait. Who is among the ``hurried`` gets an
    answer though the phase is not complete; ``told`` counts how often somebody did since an object changed.
    If somebody watches, ``tell`` gets the words whose phases complete. For each operand that names
    objects ``last`` has a register, threads, and which objects the register named for them.
    """

    tell: Callable[[Array], None] | None = None

    def __init__(self, words: Array, width: int) -> None:
        self._words = words
        self.valid = np.zeros(words.shape, bool)
        self.v1 = np.zeros(words.shape, bool)
        self.changes = self.told = 0
        self.hurried = np.zeros(width, bool)
        self.last: dict[object, tuple[Array, Threads, Array]] = {}

    def init(self, index: Array, counts: Array, *, v1: bool = False) -> None:
        """Make objects that expect ``counts`` arrivals in each phase."""
        most = MOST_OF_V1 if v1 else MOST
        self._require((counts < 1) | (counts > most), counts, f"a count of {{}}, not 1 to {most}")
        zero = np.zeros_like(counts)
        self._words[index] = MbarrierState(counts, counts, zero, zero).words()
        self.valid[index], self.v1[index] = True, v1

    def invalidate(self, index: Array) -> None:
        """Unmake objects; their memory holds nothing then."""
        self.state(index)
        self._words[index] = np.uint64((1 << 64) - 1)
        self.valid[index] = False

    def state(self, index: Array) -> MbarrierState:
        return MbarrierState.of(self._held(index))

    def has_layout(self, index: Array, *, v1: bool) -> Array:
        """Return of each object whether it has that layout."""
        self._held(index)
        same: Array = self.v1[index] == v1
        return same

    def _held(self, index: Array) -> Array:
        """Return the words of objects."""
        valid = self.valid[index]
        if not valid.all():
            self._require(~valid, index, "memory that holds no mbarrier")
        words: Array = self._words[index]
        return words

    def among(self, words: slice) -> tuple[Array, MbarrierState]:
        """Return which of some words are objects, by number, and their states."""
        objects = np.flatnonzero(self.valid[words])
        return objects, MbarrierState.of(self._words[words][objects])

    def passed(self, index: Array, phases: Array) -> Array:
        """Return whether the phases (of each the lowest bit counts) are complete."""
        passed: Array = (self._held(index).view(np.int64) >> _PHASE_AT & 1) != (phases & 1)
        return passed

    def expect(self, index: Array, tx: Array) -> None:
        """Expect more bytes in the current phases, or have some arrive that ``tx`` is less than 0 for."""
        self._change(index, Arrive(np.zeros_like(tx), tx))

    def arrive(self, index: Array, arrive: Arrive) -> Array:
        """Arrive, entry by entry. Return the words before each arrival."""
        return self._change(index, arrive)

    def _change(self, index: Array, arrive: Arrive) -> Array:
        """Change objects in the order of the entries, all at once where no phase ends in between."""
        self.told = 0
        words = self._held(index)  # of the entries, so that one of them is at fault
        before = MbarrierState.of(words)
        if (index[1:] > index[:-1]).all():
            self._apply(index, before, arrive, None)
            return words
        order = index.argsort(kind="stable")
        ordered = index[order]
        begins = np.append(True, ordered[1:] != ordered[:-1])
        first, which = np.flatnonzero(begins), begins.cumsum() - 1
        objects = ordered[first]
        counts, tx = (np.add.reduceat(x[order], first) for x in (arrive.counts, arrive.tx))
        each = self.state(objects)
        # No phase ends before the last entry, if that is an arrival, or bytes come as all do.
        few = counts < each.pending + arrive.counts.all()
        if (arrive.tx < 0).all():
            few = few | (each.tx + tx >= 0) & (counts == 0)
        if few.all() and not (arrive.drop or arrive.leave_open):
            earlier = np.cumsum(arrive.counts[order]) - arrive.counts[order]
            earlier -= earlier[first][which]
            before.pending[order] -= earlier
            words = before.words()
            self._apply(objects, each, Arrive(counts, tx), None)
            return words
        turn = np.empty(len(index), np.int64)
        turn[order] = np.arange(len(index)) - first[which]
        for number in range(int(turn.max()) + 1):
            at = np.flatnonzero(turn == number)
            words[at] = self._change_each(index[at], arrive, at)
        return words

    def _change_each(self, index: Array, arrive: Arrive, at: Array) -> Array:
        """Change different objects by the entries ``at``; return their words before."""
        words = self._words[index]
        own = replace(arrive, counts=arrive.counts[at], tx=arrive.tx[at])
        self._apply(index, MbarrierState.of(words), own, at)
        return words

    def _apply(self, index: Array, state: MbarrierState, arrive: Arrive, at: Array | None) -> None:
        state.tx = state.tx + arrive.tx
        self._require(np.abs(state.tx) > MOST, state.tx, "a transaction count of {}", at)
        state.pending = state.pending - arrive.counts
        wrong = (state.pending < 0) | (state.pending > MOST)
        self._require(wrong, state.pending, "{} arrivals pending after it", at)
        if arrive.drop:
            state.expected = state.expected - arrive.counts
        if arrive.leave_open:
            done = (state.pending == 0) & (state.tx == 0)
            self._require(done, arrive.counts, "{} arrivals that complete the phase", at)
        complete = state.settle()
        self._words[index] = state.words()
        if complete.any():
            self.changes += 1
            if self.tell is not None:
                self.tell(index[complete])

    def _require(self, wrong: Array, values: Array, what: str, at: Array | None = None) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            raise UndefinedUse(first if at is None else int(at[first]), what.format(values[first]))
