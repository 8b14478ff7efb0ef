"""CTAs that differ, placed on SMs: the next in order goes where one has ended, and shares the SM with who is there."""

from __future__ import annotations

from heapq import heapify, heapreplace

from ptxlab.machine.values import Array

_PLACED = 1 << 14
"""So many CTAs are placed one by one; of more the first are taken to keep all SMs busy."""

_ENDED = 1e-9


def makespan(costs: Array, alone: Array, sms: int, together: int) -> float:
    """Return after how many cycles the last of a grid's CTAs ends.

    ``costs`` [ctas] are the cycles of an SM that each takes where SMs are full, of ``together`` CTAs each, and
    ``alone`` [ctas] the cycles until it ends if it has an SM to itself. Of n that share one, each goes on as if alone,
    or at an n-th of the SM if that is less.
    """
    before = max(len(costs) - _PLACED, 0)
    waiting = list(zip(costs[before:].tolist(), alone[before:].tolist(), strict=True))[::-1]
    every: list[_Sm] = [_Sm() for _ in range(sms)]
    for _ in range(together):
        for sm in every:
            if waiting:
                sm.begin(*waiting.pop())
    queue = [(sm.next_end(), number) for number, sm in enumerate(every) if sm.ctas]
    heapify(queue)
    end = 0.0
    while queue and queue[0][0] < float("inf"):
        end, number = queue[0]
        sm = every[number]
        for _ in range(sm.advance(end)):
            if waiting:
                sm.begin(*waiting.pop())
        heapreplace(queue, (sm.next_end(), number))
    return end + float(costs[:before].sum()) / sms


class _Sm:
    """The CTAs on an SM: of each the part that is left, what it takes of a full SM, and what it takes alone."""

    def __init__(self) -> None:
        self.ctas: list[list[float]] = []
        self._now = 0.0

    def begin(self, cost: float, alone: float) -> None:
        self.ctas.append([1.0, cost, alone])

    def next_end(self) -> float:
        """Return when the next CTA ends, never if there is none."""
        sharing = len(self.ctas)
        ends = (left * max(alone, cost * sharing) for left, cost, alone in self.ctas)
        return self._now + min(ends, default=float("inf"))

    def advance(self, now: float) -> int:
        """Go on until ``now`` and return how many CTAs have ended then."""
        sharing, passed = len(self.ctas), now - self._now
        for cta in self.ctas:
            cta[0] -= passed / max(cta[2], cta[1] * sharing)
        self.ctas = [cta for cta in self.ctas if cta[0] > _ENDED]
        self._now = now
        return sharing - len(self.ctas)
