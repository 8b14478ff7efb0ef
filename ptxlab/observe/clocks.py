"""What the threads of a wave have heard of what others do: vector clocks.

A time counts what releases (barriers, arrivals, asynchronous work begun). What an agent did before
time t is ordered before what a thread does now if the thread has heard of the agent up to t.
Knowledge has two layers: what is ordered at all (``HEARD``), and what is ordered for the
asynchronous proxy too (``FENCED``), as fence.proxy.async makes it. Source: PTX ISA, "Memory Consistency
Model: Causality order" and "Proxies".
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.observe.agents import PARTS, Agents
from ptxlab.observe.knowledge import FENCED, HEARD, VectorClocks, WaveKnowledge, in_warps

_MOST_BYTES = 1 << 30
"""What the clocks of a wave may take."""


class Clocks:
    """What each thread of a wave knows, and each warpgroup when it began a product.

    Most threads tell and are told together, warp by warp, and so their knowledge is kept (``WaveKnowledge``).
    Warps whose threads know each other since a time, and nothing else apart, have that time in ``_met``;
    ``_news`` are warps of which a thread has fenced what it did (up to ``_fenced``) since they met.
    Up to the time ``settled`` for a layer and CTA all threads of its cluster have heard of each other.
    """

    def __init__(self, wave: Wave, agents: Agents, layers: int = 1) -> None:
        if 4 * layers * wave.width * agents.threads > _MOST_BYTES:
            raise Unsupported(f"check does not follow clusters of {agents.threads} threads")
        self._wave = wave
        self.agents = agents
        self.layers = layers
        self.now = 1
        self.cta_of = wave.cta_of
        self._groups = -(-wave.cta_width // WARPGROUP)
        groups = np.arange(wave.ctas * self._groups) // self._groups
        self._known = WaveKnowledge(layers, wave.cta_of, groups)
        self._met = np.zeros(wave.warps, np.int32)
        self._fenced = np.zeros(wave.width, np.int32)
        self._news = np.zeros(wave.warps, bool)
        self._ended = ~wave.alive.mask
        self.settled = np.zeros((layers, wave.ctas), np.int64)
        self._fit()

    # ---- what is known ----

    def of(self, heard: Array, by: Array, layer: int = HEARD, *, part: bool = False) -> Array:
        """Return for pairs of an agent and a row up to when the row has heard of it.

        Of products that is all their warps, or a ``part`` of them.
        """
        columns = self.agents.column(heard)
        self._fit()
        times = self._known.at(layer, by, columns)
        if self.agents.products and not part:
            at = np.flatnonzero(self.agents.of_products(columns))
            parts = [self._known.at(layer, by[at], columns[at] + 1 + warp) for warp in range(PARTS)]
            times[at] = np.minimum.reduce(parts)
        if layer == HEARD and self._met.any():
            near = (heard // WARP == by // WARP) & (by < self._wave.width)
            times = np.where(near, np.maximum(times, self._met[by * near // WARP]), times)
        if layer == FENCED:
            own = heard == by  # a thread: no engine has the number of a row
            times = np.where(own, np.maximum(times, self._fenced[by * own]), times)
        return times

    def alike(self, by: Array, layer: int) -> Array:
        """Return numbers of rows, below twice as many, that are the same for rows which have heard the same of all others.

        Threads of a warp have that know nothing apart; of what is fenced each has what it did itself.
        """
        warps = self._wave.warps
        of_warp = np.minimum(by // WARP, warps)
        together = ~self._known.alone[of_warp] & (of_warp < warps) & (layer == HEARD)
        return np.where(together, of_warp, warps + by)

    def common(self) -> Array:
        """Return up to when all of a cluster have heard of an agent: [layers, clusters, columns]."""
        floor, size = self._known.floor.data, self._wave.config.cluster_ctas
        known: Array = floor.reshape(self.layers, -1, size, floor.shape[2]).min(axis=2)
        for column in self.agents.products:
            known[:, :, column] = known[:, :, column + 1 : column + 1 + PARTS].min(axis=2)
        return known

    # ---- what is told ----

    def tick(self) -> int:
        """Begin a new time, and return it."""
        self.now += 1
        return self.now

    def released(self, threads: Array) -> Array:
        """Return what threads tell with all they did till now: [layers, threads, columns]."""
        self.tick()
        self._spread()
        rows = self._known.of_rows(threads)
        self._themselves(rows, threads)
        return rows

    def released_by_warps(self, warps: Array, threads: Array) -> Array:
        """Return what those of the mask ``threads`` tell together, a row for each of ``warps``."""
        self.tick()
        self._spread()
        rows = self._known.of_warps(warps, threads)
        row, lane = np.nonzero(threads[in_warps(warps)])
        self._themselves(rows, warps[row] * WARP + lane, row)
        return rows

    def by_warps(self, threads: Array, which: Array) -> tuple[Array, Array]:
        """Take threads that do alike, of each ``which`` (0 and more), as warps as far as they are whole.

        Threads that have ended are not missed. Return the warps, and the mask of the others by position.
        """
        done = np.full(self._wave.width, -1)
        done[threads] = which
        of_warp = done.reshape(-1, WARP).max(axis=1, keepdims=True)
        alike = (done.reshape(-1, WARP) == of_warp) | self._ended.reshape(-1, WARP) & (
            done.reshape(-1, WARP) < 0
        )
        whole = alike.all(axis=1) & (of_warp[:, 0] >= 0)
        return np.flatnonzero(whole), ~whole[threads // WARP]

    def whole(self, threads: Threads, objects: Array) -> Array | None:
        """Return the CTAs of ``threads`` if all that live there are among them, with one object a CTA."""
        ctas, first = np.unique(self._wave.cta_of[threads.index], return_index=True)
        missing = ~(threads.mask | self._ended).reshape(self._wave.ctas, -1)[ctas]
        same = objects[first].repeat(np.diff(first, append=threads.size)) == objects
        return None if missing.any() or not same.all() else ctas

    def released_all(self, ctas: Array) -> Array:
        """Return what all threads of CTAs tell with all they did till now, a row a CTA."""
        self.tick()
        return self._together(ctas)

    def learn_all(self, ctas: Array, rows: Array) -> None:
        self._fit()
        self._known.floor.learn(ctas, rows)
        self._settle()

    def learn(self, threads: Array, rows: Array, which: Array) -> None:
        """Let each of ``threads`` know what the one of ``rows`` does that ``which`` says."""
        self._fit()
        warps, others = self.by_warps(threads, which)
        if warps.size:
            of_warp = np.zeros(self._wave.warps, np.int64)
            of_warp[threads // WARP] = which
            self._known.learn_warps(warps, rows[:, of_warp[warps]])
        if others.any():
            self._known.learn(threads[others], rows[:, which[others]])

    def hear(self, threads: Array, agents: Array, time: int) -> None:
        self._fit()
        columns = self.agents.column(agents)
        warps, others = self.by_warps(threads, columns)
        if warps.size:
            of_warp = np.zeros(self._wave.warps, np.int64)
            of_warp[threads // WARP] = columns
            self._known.hear_in_warps(warps, of_warp[warps], time)
        if others.any():
            self._known.hear(threads[others], columns[others], time)

    def fence(self, threads: Array) -> None:
        """Order for the asynchronous proxy all that threads know, and did."""
        if self.layers > FENCED:
            self.tick()
            self._spread()
            warps, others = self.by_warps(threads, np.zeros_like(threads))
            if warps.size:
                self._known.fence_warps(warps)
            if others.any():
                rows = self._known.of_rows(threads[others])
                rows[FENCED] = rows[HEARD]
                self._known.learn(threads[others], rows)
            self._fenced[threads] = self.now
            self._news[threads // WARP] = True

    def hear_of_products(self, threads: Array, engines: Array, time: int) -> None:
        """Have threads that waited for a product hear of it: of the part of their warp."""
        self.hear(threads, engines, time)
        self.hear(threads, engines + 1 + threads // WARP % PARTS, time)

    def tell_of_products(self, rows: Array) -> None:
        """Let rows that know of one warp's part of a product know of it all."""
        for column in self.agents.products:
            parts = rows[HEARD, :, column + 1 : column + 1 + PARTS]
            np.maximum(parts, rows[HEARD, :, column, None], out=parts)

    def issue(self, threads: Array) -> tuple[Array, Array]:
        """Have whole warpgroups begin a product, which comes after what each of their warps knows.

        A warp is taken to know what one of its threads does: they stand there together. Return the rows
        of the warpgroups, and what is known where the product is waited for: all that one of them knows.
        """
        first = threads[::WARPGROUP]
        groups = first // self._wave.cta_width * self._groups
        groups += first % self._wave.cta_width // WARPGROUP
        here = np.ones(self._wave.width, bool)
        rows = self.released_by_warps(threads[::WARP] // WARP, here)
        of_warps = rows.reshape(self.layers, groups.size, WARPGROUP // WARP, -1)
        places: Array = self._wave.width + groups
        self._known.apart.data[:, places] = of_warps.min(axis=2)
        return places, of_warps.max(axis=2)

    # ---- barriers ----

    def synchronize(self, met: Array, *, counted: bool) -> None:
        """Let all that have ``met`` at a barrier know what one of them knows, in each CTA.

        The barrier is for a number of threads if it is ``counted``, else for all of the CTA: those
        that have ended count as arrived.
        """
        self.tick()
        wave = self._wave
        by_cta = met.reshape(wave.ctas, -1)
        here: Array = np.logical_or.reduce(by_cta, axis=1)
        come: Array = met | (~wave.alive.mask if counted else self._ended)
        whole = here & come.reshape(by_cta.shape).all(axis=1)
        self._level(np.flatnonzero(whole))
        part = np.flatnonzero(here & ~whole)
        if part.size:
            self._join(wave.cta_width, part, met)

    def synchronize_warps(self, together: Array) -> None:
        """Order what threads of a warp did before what the others of it do from now on."""
        self.tick()
        here: Array = np.logical_or.reduce(together.reshape(-1, WARP), axis=1)
        whole = np.logical_and.reduce((together | self._ended).reshape(-1, WARP), axis=1)
        alike = here & whole & ~self._known.alone[:-1] & ~self._news
        self._met[alike] = self.now
        self._news[here & whole] = False
        rest = np.flatnonzero(here & ~alike)
        if rest.size:
            self._join(WARP, rest, together)

    def end(self, threads: Threads) -> Array:
        """Take threads off: who waits for all threads does not wait for them. Return which CTAs are over."""
        before = self._over()
        self._ended |= threads.mask
        return np.flatnonzero(self._over() & ~before)

    def known_in(self, ctas: Array) -> Array:
        """Return what the threads of each CTA know together."""
        self._spread()
        known: Array = self._known.of_ctas(ctas)[HEARD]
        return known

    def _over(self) -> Array:
        over: Array = np.logical_and.reduce(self._ended.reshape(self._wave.ctas, -1), axis=1)
        return over

    def _level(self, ctas: Array) -> None:
        """Let all threads of CTAs know what one of them knows."""
        if ctas.size:
            self.learn_all(ctas, self._together(ctas))
            self._known.level(ctas)

    def _together(self, ctas: Array) -> Array:
        """Return what the threads of CTAs know together, and did till now: [layers, CTAs, columns]."""
        self._fit()
        known = self._known.of_ctas(ctas)
        threads = ctas[:, None] * self._wave.cta_width + np.arange(self._wave.cta_width)
        self._themselves(known, threads, np.arange(ctas.size)[:, None])
        return known

    def _themselves(self, rows: Array, threads: Array, row: Array | None = None) -> None:
        """Let rows, one a thread or the one that ``row`` says, know what the threads did till now."""
        columns = threads % self.agents.threads
        row = np.arange(len(threads)) if row is None else row
        rows[HEARD, row, columns] = self.now
        if self.layers > FENCED:
            rows[FENCED, row, columns] = np.maximum(
                rows[FENCED, row, columns], self._fenced[threads]
            )

    def _settle(self) -> None:
        known = self.common()[:, :, : self.agents.threads].min(axis=2)
        self.settled = np.repeat(known, self._wave.config.cluster_ctas, axis=1).astype(np.int64)

    def _spread(self) -> None:
        """Write down what the threads of warps know by having met."""
        self._fit()
        warps = np.flatnonzero(self._met)
        if warps.size:
            columns = in_warps(warps) % self.agents.threads
            self._known.hear_in_warps(warps[:, None], columns, self._met[warps][:, None])
            self._met[warps] = 0

    def _join(self, size: int, groups: Array, met: Array) -> None:
        """Let those that have ``met`` know what one of them knows, in each of the ``groups`` of a ``size``."""
        come = np.flatnonzero(met & np.isin(np.arange(self._wave.width) // size, groups))
        warps, others = self.by_warps(come, come // size)
        some = np.unique(come // size)
        rows = VectorClocks(self.layers, some.size)
        if warps.size:
            _into(
                rows,
                np.searchsorted(some, warps * WARP // size),
                self.released_by_warps(warps, met),
            )
        if others.any():
            alone = come[others]
            _into(rows, np.searchsorted(some, alone // size), self.released(alone))
        self.learn(come, rows.data, np.searchsorted(some, come // size))
        self._known.alone[warps] = False

    def _fit(self) -> None:
        self._known.fit(self.agents.columns)


def _into(into: VectorClocks, at: Array, rows: Array) -> None:
    """Join rows into those that ``at`` says, ascending."""
    first = np.flatnonzero(np.diff(at, prepend=-1))
    into.learn(at[first], np.maximum.reduceat(rows, first, axis=1))
