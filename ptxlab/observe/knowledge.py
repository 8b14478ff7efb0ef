"""Up to when somebody has heard of each agent: rows of times, in two layers (``clocks``)."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import WARP

HEARD, FENCED = 0, 1


class VectorClocks:
    """Knowledge, a row each: [layers, rows, columns of agents]."""

    def __init__(self, layers: int, rows: int) -> None:
        self.data: Array = np.zeros((layers, rows, 0), np.int32)

    def fit(self, columns: int) -> None:
        layers, rows, now = self.data.shape
        if now < columns:
            grown = np.zeros((layers, rows, -(-columns // 64) * 64), np.int32)
            grown[:, :, :now] = self.data
            self.data = grown

    def more(self, rows: int) -> None:
        layers, _, columns = self.data.shape
        self.data = np.concatenate([self.data, np.zeros((layers, rows, columns), np.int32)], axis=1)

    def learn(self, who: Array, rows: Array) -> None:
        """Let the rows ``who``, each named once, know what ``rows`` do, too."""
        columns = rows.shape[2]
        self.fit(columns)
        known = self.data[:, who, :columns]
        self.data[:, who, :columns] = np.maximum(known, rows, out=known)


class WaveKnowledge:
    """What the threads of a wave know, and warpgroups that began a product, whose rows are behind.

    What all of a CTA know is in its ``floor``, what all of a warp do in the row of the ``warps``, and the
    rest apart: a row's knowledge is the most of the three. ``alone`` are warps of which some thread knows
    something apart; the last is that of the warpgroups.
    """

    def __init__(self, layers: int, cta_of: Array, warpgroups: Array) -> None:
        self.layers, self.ctas = layers, int(cta_of[-1]) + 1
        self.count = cta_of.size // WARP
        self._cta_of_warp = cta_of[::WARP]
        self._cta_of = np.concatenate([cta_of, warpgroups])
        self._warp_of = np.append(
            np.arange(cta_of.size) // WARP, np.full(warpgroups.size, self.count)
        )
        self.floor = VectorClocks(layers, self.ctas)
        self._warps: VectorClocks | None = None
        self._apart: VectorClocks | None = None
        self.alone = np.zeros(self.count + 1, bool)
        self._differ = np.zeros(self.ctas, bool)
        self._columns = 0

    def fit(self, columns: int) -> None:
        self._columns = columns
        for table in (self.floor, self._warps, self._apart):
            if table is not None:
                table.fit(columns)

    @property
    def warps(self) -> VectorClocks:
        if self._warps is None:
            self._warps = VectorClocks(self.layers, self.count + 1)
            self._warps.fit(self._columns)
        return self._warps

    @property
    def apart(self) -> VectorClocks:
        if self._apart is None:
            self._apart = VectorClocks(self.layers, self._cta_of.size)
            self._apart.fit(self._columns)
        return self._apart

    # ---- what is known ----

    def at(self, layer: int, by: Array, columns: Array) -> Array:
        """Return for pairs of a row and a column up to when the row has heard of it."""
        times: Array = self.floor.data[layer, self._cta_of[by], columns]
        if self._warps is not None:
            times = np.maximum(times, self._warps.data[layer, self._warp_of[by], columns])
        if self._apart is not None:
            times = np.maximum(times, self._apart.data[layer, by, columns])
        return times

    def of_rows(self, who: Array) -> Array:
        """Return what rows know: [layers, rows, columns]."""
        known: Array = self.floor.data[:, self._cta_of[who]]
        if self._warps is not None:
            np.maximum(known, self._warps.data[:, self._warp_of[who]], out=known)
        if self._apart is not None:
            np.maximum(known, self._apart.data[:, who], out=known)
        return known

    def of_warps(self, warps: Array, threads: Array) -> Array:
        """Return what those of the mask ``threads`` know together in each of ``warps``."""
        known: Array = self.floor.data[:, self._cta_of_warp[warps]]
        if self._warps is not None:
            np.maximum(known, self._warps.data[:, warps], out=known)
        alone = np.flatnonzero(self.alone[warps])
        if self._apart is not None and alone.size:
            lanes = in_warps(warps[alone])
            apart = self._apart.data[:, lanes]
            if not threads[lanes].all():
                apart *= threads[lanes][:, :, None]
            known[:, alone] = np.maximum(known[:, alone], apart.max(axis=2))
        return known

    def of_ctas(self, ctas: Array) -> Array:
        known: Array = self.floor.data[:, ctas]
        differ = np.flatnonzero(self._differ[ctas])
        if differ.size:
            warps = np.arange(self.count).reshape(self.ctas, -1)[ctas[differ]]
            together = self.of_warps(warps.reshape(-1), np.ones(self._cta_of.size, bool))
            together = together.reshape(self.layers, *warps.shape, -1).max(axis=2)
            known[:, differ] = np.maximum(known[:, differ], together)
        return known

    # ---- what is learnt ----

    def learn(self, who: Array, rows: Array) -> None:
        """Let rows know more, each for itself."""
        self.apart.learn(who, rows)
        self.alone[self._warp_of[who]] = True
        self._differ[self._cta_of[who]] = True

    def learn_warps(self, warps: Array, rows: Array) -> None:
        self.warps.learn(warps, rows)
        self._differ[self._cta_of_warp[warps]] = True

    def hear(self, who: Array, columns: Array, times: Array | int) -> None:
        known = self.apart.data
        known[HEARD, who, columns] = np.maximum(known[HEARD, who, columns], times)
        self.alone[self._warp_of[who]] = True
        self._differ[self._cta_of[who]] = True

    def hear_in_warps(self, warps: Array, columns: Array, times: Array | int) -> None:
        known = self.warps.data
        known[HEARD, warps, columns] = np.maximum(known[HEARD, warps, columns], times)
        self._differ[self._cta_of_warp[np.ravel(warps)]] = True

    def fence_warps(self, warps: Array) -> None:
        """Let what the threads of warps have heard of be fenced, for each of them."""
        known, floor = self.warps.data, self.floor.data
        heard = np.maximum(known[HEARD, warps], floor[HEARD, self._cta_of_warp[warps]])
        known[FENCED, warps] = np.maximum(known[FENCED, warps], heard)
        alone = in_warps(warps[self.alone[warps]])
        if alone.size:
            apart = self.apart.data
            apart[FENCED, alone] = np.maximum(apart[FENCED, alone], apart[HEARD, alone])
        self._differ[self._cta_of_warp[warps]] = True

    def level(self, ctas: Array) -> None:
        """Note that threads of CTAs know nothing but what is in the floor."""
        self._differ[ctas] = False
        self.alone[: self.count].reshape(self.ctas, -1)[ctas] = False


def in_warps(warps: Array) -> Array:
    """Return the threads of warps: [warps, 32]."""
    threads: Array = warps[:, None] * WARP + np.arange(WARP)
    return threads
