"""Turns of long loops that are not followed: what grows by as much with each turn is what it will be.

Of a loop without another branch in it, of which each turn adds the same to every register that it changes, as many turns come as
its branch is taken by all, which is asked of registers so many turns later; of those in between some are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.values import Array, Where
from ptxlab.prediction.following.execute import Executor

PATIENCE = 2_000
"""So many turns in a row are followed before it is asked how many come."""

_FOLLOWED = 100
"""So many turns before the last are followed again."""

_WORD = 1 << 32
_ASKED = 16
"""So many turns among those that are not followed are asked whether they go on."""

State = Mapping[int, "Array | None"]
"""The words and predicates that a loop writes, by the bits of ``machine.uses``; None for what is not known."""


class LongLoop:
    """The instructions of a loop that are run, ``body``, and the ``branch`` at its end, for the threads ``where``."""

    def __init__(
        self,
        executor: Executor,
        body: Sequence[DecodedInstruction],
        branch: DecodedInstruction,
        where: Where,
    ) -> None:
        self._executor, self._body, self._branch, self._where = executor, body, branch, where
        self._bits = sorted({bit for i in body for bit in uses.each(uses.written(i))})
        self._begun = self._state()
        self._pairs: set[int] = set()
        self._grows = None if any(i.known.space for i in body) else self._growth()
        for bit in self._grows or ():
            if self._carries(bit):
                self._pairs.add(bit)
        self._executor.put(self._begun, where)

    def skip(self, turns: int) -> None:
        """Have registers be what they are so many turns later. Raises Unsupported where that is not known."""
        if self._grows is None:
            raise Unsupported(
                f"what a loop of more than {turns:,} turns asks memory for changes by no steady step",
                hint="a smaller problem",
            )
        self._executor.put(self._later(turns), self._where)

    def coming(self) -> int:
        """Return how many turns need not be followed, 0 where all have to be."""
        if self._grows is None:
            return 0
        last = self._until_equal() or self._until_it_ends()
        asked = np.linspace(1, last, _ASKED).astype(int)
        steady = all(self._is_steady(int(turn)) for turn in asked) and not self._goes_on(last + 1)
        self._executor.put(self._begun, self._where)
        return max(0, last - _FOLLOWED) if steady else 0

    def _until_it_ends(self) -> int:
        """Return the last turn after which all go on, if none that ends comes before one that does not."""
        low, high = 1, 2
        while high < _WORD and self._goes_on(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._goes_on(middle) else (low, middle)
        return low

    def _until_equal(self) -> int:
        """Return the last turn before two words are equal that go on as long as they are not; 0 where it is no such loop."""
        guard = self._branch.guard
        told = [i for i in self._body if guard in i.outs and i.has("NE") and not i.has("EX")]
        if len(told) != 1 or len(told[0].sources) != 2:
            return 0
        apart = []
        for turns in range(2):
            self._goes_on(turns)
            value, other = (self._executor.value(source, self._where) for source in told[0].sources)
            if value is None or other is None:
                return 0
            apart.append(np.atleast_1d(value - other))
        left, step = (
            apart[0].astype(np.int64),
            (apart[1] - apart[0]).view(np.int32).astype(np.int64),
        )
        way = np.where(step < 0, left, (_WORD - left) % _WORD)
        steps = np.maximum(abs(step), 1)
        meet = (step != 0) & (way % steps == 0)
        return int((way // steps)[meet].min()) - 1 if meet.any() else 0

    def _state(self) -> State:
        return self._executor.held(self._bits, self._where)

    def _turn(self) -> bool:
        """Run a turn, and say whether all go on."""
        for i in self._body:
            self._executor.execute(i, self._where)
        return self._executor.holds(self._branch, self._where) is True

    def _growth(self) -> Mapping[int, Array] | None:
        """Return what a turn adds to each word that is known, None where two do not add the same."""
        before, growth = self._begun, []
        for _ in range(2):
            if not self._turn():
                return None
            after = self._state()
            growth.append(self._added(before, after))
            before = after
        first, second = growth
        if first is None or second is None or first.keys() != second.keys():
            return None
        return first if all(np.array_equal(first[bit], second[bit]) for bit in first) else None

    @staticmethod
    def _added(before: State, after: State) -> dict[int, Array] | None:
        """Return what was added to each word; None where a predicate changed, or what is known."""
        added = {}
        for bit, old in before.items():
            new = after[bit]
            if old is None or new is None:
                if old is not new:
                    return None
            elif bit < uses.PREDICATES:
                added[bit] = (new - old).view(np.int32).astype(np.int64)
            elif not np.array_equal(old, new):
                return None
        return added

    def _carries(self, bit: int) -> bool:
        """Say whether a word that goes around has the next one count it: an address is two words."""
        assert self._grows is not None
        growth, word = self._grows[bit], self._begun[bit]
        if bit + 1 not in self._grows or not growth.any() or word is None:
            return False
        room = np.where(growth > 0, _WORD - 1 - word, word) // np.maximum(abs(growth), 1)
        turns = int(room[growth != 0].min())
        before = self._later(turns)
        self._executor.put(before, self._where)
        self._turn()
        added = self._added(before, self._state())
        around = (growth != 0) & (room == turns)
        return added is None or bool((added[bit + 1] != self._grows[bit + 1])[around].any())

    def _later(self, turns: int) -> State:
        """Return the registers so many turns later."""
        assert self._grows is not None
        later = dict(self._begun)
        carried: Array | int = 0
        for bit, growth in self._grows.items():
            word = self._begun[bit]
            assert word is not None
            value = word + turns * growth + (carried if bit - 1 in self._pairs else 0)
            later[bit] = (value % _WORD).astype(np.uint32)
            carried = value // _WORD
        return later

    def _is_steady(self, turns: int) -> bool:
        """Say whether all go on so many turns later, and everything is still what it would be by growing alike."""
        if not self._goes_on(turns):
            return False
        known = [
            (word, now)
            for word, now in zip(
                self._later(turns + 1).values(), self._state().values(), strict=True
            )
            if word is not None
        ]
        return all(np.array_equal(word, now) for word, now in known if now is not None)

    def _goes_on(self, turns: int) -> bool:
        """Say whether all threads would go on after one more turn than so many."""
        self._executor.put(self._later(turns), self._where)
        return self._turn()
