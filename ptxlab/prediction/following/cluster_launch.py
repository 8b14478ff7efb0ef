"""clusterlaunchcontrol: CTAs that stay take over the work of clusters that then never begin.

Which cluster an answer names depends on who asked before. All SMs are taken to be as fast as the one that is
followed: everyone who runs asks once before anyone asks again, so that each goes on as many CTAs later as run at a time.

The answer is what ptxas makes ``query_cancel`` read: x of the first CTA, y and z in the halves of a word, and a bit
that says whether there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.machine.launch import Launch
from ptxlab.prediction.sm.mbarriers import Key
from ptxlab.prediction.sm.tma import Copy

_ANSWER_BYTES = 16
_HALF_BITS = 16


@dataclass(frozen=True, slots=True)
class Answer(Copy):
    """What is written to shared memory of the CTA of ``key`` at ``address``: ``words``, of which an mbarrier is told."""

    address: int = 0
    words: tuple[int, ...] = ()

    @property
    def cta(self) -> int:
        assert self.key is not None
        return self.key[0]


class WaitingClusters:
    """The clusters of a launch that have not begun, as some ``ctas`` that run are told of them."""

    def __init__(self, launch: Launch, ctas: Sequence[int]) -> None:
        self._launch, self._ctas = launch, ctas
        self._asked: dict[int, int] = defaultdict(int)

    def next(self, address: int, key: Key) -> Answer:
        """Return what a CTA will be told that asks now."""
        launch, cta = self._launch, key[0]
        x, y, z = launch.config.grid
        number = self._ctas[cta] + (self._asked[cta] + 1) * (launch.running or x * y * z)
        words = (0, 0, 0, 0)
        if number < x * y * z:
            x, y, z = launch.ctaid(number)
            words = (x, y | z << _HALF_BITS, 1, 0)
        return Answer(key, _ANSWER_BYTES, (), address=address, words=words)

    def told(self, answer: Answer) -> None:
        self._asked[answer.cta] += 1
