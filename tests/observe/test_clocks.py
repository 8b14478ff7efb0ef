"""Vector clocks, that share what threads know alike, beside a model that counts for each thread by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxlab.emulator.run.threads import Threads
from ptxlab.observe.agents import Agents
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import FENCED, HEARD
from ptxlab.observe.releases import Releases
from tests.together import in_one_test

CTAS, WIDTH, OBJECTS = 2, 96, 3
ALL = CTAS * WIDTH


class Model:
    """How many accesses of each thread every thread has heard of, and how many are fenced for it."""

    def __init__(self) -> None:
        self.known = np.zeros((2, ALL, ALL), int)
        self.coming, self.told = (np.zeros((2, CTAS * OBJECTS, ALL), int) for _ in range(2))
        self.times: list[int] = []

    def row(self, thread: int) -> Any:
        row = self.known[:, thread].copy()
        row[HEARD, thread] = len(self.times)
        return row

    def release(self, threads: Any, objects: Any) -> None:
        for thread, number in zip(threads.tolist(), objects.tolist(), strict=True):
            self.coming[:, number] = np.maximum(self.coming[:, number], self.row(thread))

    def acquire(self, threads: Any, objects: Any) -> None:
        self.known[:, threads] = np.maximum(self.known[:, threads], self.told[:, objects])

    def meet(self, threads: Any) -> None:
        joined = np.maximum.reduce([self.row(thread) for thread in threads.tolist()])
        self.known[:, threads] = np.maximum(self.known[:, threads], joined[:, None])

    def fence(self, threads: Any) -> None:
        for thread in threads.tolist():
            row = self.row(thread)
            self.known[FENCED, thread] = np.maximum(row[HEARD], row[FENCED])


def some(random: np.random.Generator, alive: Any) -> Any:
    """Return threads: of whole warps, or of parts of them, or one."""
    warps = np.repeat(random.random(ALL // 32) < 0.5, 32)
    kind = random.integers(4)
    if kind == 1:
        warps &= random.random(ALL) < 0.5
    if kind == 2:
        warps &= np.arange(ALL) % 32 == random.integers(32)
    return np.flatnonzero(warps & alive)


def step(
    random: np.random.Generator, model: Model, clocks: Clocks, objects: Releases, alive: Any
) -> None:
    """Let something happen to both."""
    what, threads = random.integers(6), some(random, alive)
    if not threads.size:
        return
    mask = np.zeros(ALL, bool)
    mask[threads] = True
    if what in (0, 1):
        which = np.repeat(random.integers(OBJECTS, size=ALL // 32), 32)[threads]
        if random.random() < 0.2:
            which = random.integers(OBJECTS, size=threads.size)
        which += OBJECTS * (threads // clocks.agents.threads)
        if what:
            objects.acquire(Threads(ALL, mask=mask), which)
            model.acquire(threads, which)
            return
        objects.release(Threads(ALL, mask=mask), which)
        model.release(threads, which)
        done = np.unique(which)
        objects.complete(done)
        model.told[:, done] = model.coming[:, done]
    elif what == 2:
        clocks.synchronize_warps(mask)
        for warp in np.unique(threads // 32):
            model.meet(threads[threads // 32 == warp])
    elif what == 3:
        clocks.fence(threads)
        model.fence(threads)
    else:
        if what == 5 and random.random() < 0.5:
            mask = np.repeat(random.random(CTAS) < 0.5, WIDTH) & alive
        clocks.synchronize(mask, counted=False)
        for cta in np.unique(np.flatnonzero(mask) // WIDTH):
            model.meet(np.flatnonzero(mask & (np.arange(ALL) // WIDTH == cta)))


def clocks_of(alive: Any, cluster: int = 1) -> Clocks:
    wave: Any = SimpleNamespace(
        ctas=CTAS, cta_width=WIDTH, width=ALL, warps=ALL // 32, shared_pitch=1024,
        cta_of=np.arange(ALL) // WIDTH, alive=Threads(ALL, mask=alive),
        config=SimpleNamespace(cluster_ctas=cluster),
    )  # fmt: skip
    return Clocks(wave, Agents(wave), layers=2)


def threads(*index: int) -> Threads:
    return Threads(ALL, index=np.array(index))


def test_a_thread_that_has_ended_tells_nothing() -> None:
    clocks = clocks_of(np.ones(ALL, bool))
    objects = Releases(clocks, 2)
    objects.release(threads(40), np.zeros(1, int))
    objects.complete(np.zeros(1, int))
    objects.acquire(threads(1), np.zeros(1, int))
    clocks.end(threads(1))
    others = threads(0, *range(2, 32))
    objects.release(others, np.ones(31, int))
    objects.complete(np.ones(1, int))
    objects.acquire(threads(64), np.ones(1, int))
    heard = clocks.of(np.array([40, 1, 0]), np.full(3, 64))
    assert (heard[:2].tolist(), heard[2] > 1) == ([0, 0], True)


@in_one_test("cluster", [1, 2])
@in_one_test("seed", range(4))
def test_threads_know_what_each_would_by_itself(cluster: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    alive = np.arange(ALL) % WIDTH < (WIDTH if seed % 2 else 90)
    clocks = clocks_of(alive, cluster)
    objects, model = Releases(clocks, CTAS * OBJECTS), Model()
    who = np.flatnonzero(alive)
    by, heard = (axis.reshape(-1) for axis in np.meshgrid(who, who, indexing="ij"))
    met = by // (WIDTH * cluster) == heard // (WIDTH * cluster)
    by, heard = by[met], heard[met]
    for _ in range(60):
        model.times.append(clocks.now)
        step(random, model, clocks, objects, alive)
        times = np.array([-1, *model.times])
        for layer in (HEARD, FENCED):
            heard_at = np.searchsorted(times, clocks.of(heard, by, layer)) - 1
            of_others = (heard != by) | (layer == FENCED)
            np.testing.assert_array_equal(
                heard_at[of_others], model.known[layer, by, heard][of_others]
            )
