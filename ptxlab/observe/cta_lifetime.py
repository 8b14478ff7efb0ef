"""CTAs that end while others still access their shared memory, or before these have begun.

PTX ISA, "Asynchronous copy" and "mapa": shared memory is there from the beginning of its CTA to its end.
The end of a CTA comes after an access if one of its threads has heard of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.observe.agents import Agents
from ptxlab.observe.check_context import CheckContext, Wording
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import VectorClocks

_TIME, _PLACE = range(2)
_BEGIN = "barrier.cluster.arrive and .wait, before the first access to the memory of another CTA"
_END = "barrier.cluster.arrive and .wait at the end of the kernel, in all threads"


class CtaLifetime:
    """The last access of each agent from outside to the shared memory of each CTA of a wave.

    Engines that work for a CTA count as outside.
    """

    def __init__(self, context: CheckContext, clocks: Clocks) -> None:
        self._context = context
        self._clocks = clocks
        self._last = VectorClocks(2, context.wave.ctas)
        self._over = np.zeros(context.wave.ctas, bool)

    def note(self, ctas: Array, agents: Array) -> None:
        clocks, context = self._clocks, self._context
        columns = clocks.agents.column(agents)
        self._last.fit(clocks.agents.columns)
        self._last.data[_TIME, ctas, columns] = clocks.now
        self._last.data[_PLACE, ctas, columns] = context.number(context.site)
        gone = np.flatnonzero(self._over[ctas])
        if gone.size:
            what = f"accesses the shared memory of {context.wave.cta(int(ctas[gone[0]]))}, which has ended"
            self._find(
                self._context.agent(int(agents[gone[0]])), what, np.unique(agents[gone]).size
            )

    def reach(self, threads: Array, ctas: Array, started: Array) -> None:
        """See threads access the memory of other CTAs; only some know that these have ``started``."""
        early = np.flatnonzero(~started)
        if early.size:
            what = (
                f"accesses the shared memory of {self._context.wave.cta(int(ctas[early[0]]))}, which "
                "need not have started"
            )
            who = self._context.thread(int(threads[early[0]]))
            self._context.find(
                "async",
                "error",
                "not started",
                early.size,
                (f"{who} {what}", _BEGIN),
                unit="threads",
            )

    def _find(self, who: str, what: str, count: int) -> None:
        words = f"{who} {what}", _END
        self._context.find("async", "error", "ended", count, words, unit="threads")

    def end(self, ctas: Array, known_in: Callable[[Array], Array]) -> None:
        """See CTAs end; ``known_in`` each of some is, of each column's agent, up to when."""
        self._over[ctas] = True
        times, places = self._last.data[:, ctas]
        if not times.any():
            return
        known = known_in(ctas)
        columns = min(known.shape[1], times.shape[1])
        left = (times > 0)[:, :columns] & (times[:, :columns] >= known[:, :columns])
        for at in np.flatnonzero(left.any(axis=1)).tolist():
            cta, late = int(ctas[at]), np.flatnonzero(left[at])
            for number in np.unique(places[at, late]).tolist():
                column = late[places[at, late] == number]
                agents = self._clocks.agents.of(np.full(column.shape, cta), column)
                self._tell(cta, number, agents, self._clocks.agents)

    def _tell(self, cta: int, number: int, agents: Array, known: Agents) -> None:
        site = self._context.numbered(number)
        engine = known.engine(int(agents[0]))
        name = self._context.wave.cta(cta)
        words: Wording
        severity = "error"
        if engine is None:
            who = self._context.thread(int(agents[0]))
            words = f"{name} can end before {who} has accessed its shared memory", _END
        else:
            if engine[0] == "bulk_copies":
                severity = "warning"  # programs that run right on H100 leave out the last wait
            reads = engine[0] != "signals"
            doing = "read" if reads else "written to"
            words = (
                f"{name} can end while its shared memory is still {doing} by the work begun here",
                _WAITS[engine[0]],
            )
        self._context.find("async", severity, "end", agents.size, words, site=site, unit="threads")


_WAITS = {
    "signals": "wait for the phase of the mbarrier that hears of the copy",
    "bulk_copies": "cp.async.bulk.wait_group.read 0 by the threads that began the copies",
    "tensor_work": "tcgen05.commit behind it, then wait for the phase of the mbarrier that it names",
    "products": "wgmma.commit_group, then wgmma.wait_group 0",
}
"""What threads wait with for each kind of engine."""
