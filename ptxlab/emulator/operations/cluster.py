"""mapa, getctarank and barrier.cluster: the CTAs of a cluster, and their shared memory.

Source: PTX ISA, "Data Movement and Conversion Instructions: mapa, getctarank" and "barrier.cluster".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT, SHARED_WINDOW
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES


def _mapped(space: str, T: str) -> Callable[[Array, Array], Array]:
    """Return the address of the same byte in another CTA: the rank is above the bits of the offset."""
    window = 0 if space else SHARED_WINDOW
    kind = TYPES[T].dtype

    def mapa(address: Array, rank: Array) -> Array:
        offset = address.astype(np.uint64) & np.uint64((1 << RANK_SHIFT) - 1)
        at: Array = np.uint64(window) + offset + (rank.astype(np.uint64) << np.uint64(RANK_SHIFT))
        return at.astype(kind)

    return mapa


def _rank(address: Array) -> Array:
    rank: Array = (address >> np.array(RANK_SHIFT, address.dtype)).astype(np.uint32) & np.uint32(
        0xFF
    )
    return rank


_NEEDS = "sm_90 7.8"
_address = partial(row, mix="conversion", needs=_NEEDS, T="u32 u64")
_address("mapa{.<space>}.<T>", "=T u32 -> T", make=_mapped, space="shared::cluster")
_address("getctarank{.<space>}.<T>", "=T -> u32", _rank, space="shared::cluster")


# ---- barrier.cluster ------------------------------------------------------------------------


class Arrived:
    """Who may go on at barrier.cluster.wait: all those whose barrier is complete."""

    where = "at the barrier of the cluster"
    gives_up = False

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of the threads that wait no longer."""
        barriers = frame.wave.clusters
        if not (barriers.arrived | barriers.passed)[threads.index].all():
            return threads.mask  # the step says what is wrong
        mask: Array = threads.mask & barriers.passed
        return mask

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say how many have arrived of the first thread's cluster."""
        wave, barriers = frame.wave, frame.wave.clusters
        size = wave.cta_width * wave.config.cluster_ctas
        first = int(threads.index[0]) // size * size
        expected = alive[first : first + size]
        here = int((barriers.arrived[first : first + size] & expected).sum())
        cta = wave.cta(first // wave.cta_width)
        return f"the cluster of {cta}: {here} of {int(expected.sum())} threads have arrived"


def _barrier(context: Context, form: RowForm) -> Step:
    """Arrive, or wait until all threads of the cluster have."""
    context.operands(0)
    line, name = context.line, context.instruction.name
    waits = form["mode"] == "wait"
    if waits:
        context.participants = Arrived()

    def run(frame: Frame, threads: Threads) -> None:
        barriers = frame.wave.clusters
        between = barriers.arrived | barriers.passed
        wrong = threads.where(~between if waits else between)
        if wrong is not None:
            what = "without an arrival before it" if waits else "before the wait for the one before"
            raise LaunchError(
                f"{name} {what} by {frame.wave.thread(int(wrong.index[0]))}",
                location=frame.wave.locate(line),
                hint="each thread arrives, then waits, then may arrive again",
                kind="barrier",
            )
        if waits:
            barriers.waited(threads)
        else:
            barriers.arrive(threads)

    return run


_meets = Effects(barrier="cluster", meets="<mode>", aligned="<aligned>")
_meet = partial(row, step=_barrier, mix="synchronization", effects=_meets)
_meet(
    "barrier.cluster.<mode>{.<sem>}{.aligned}",
    "",
    needs={"": _NEEDS, "relaxed": "sm_90 8.0", "release": "sm_90 8.0"},
    mode="arrive",
    sem="release relaxed",
)
_meet(
    "barrier.cluster.<mode>{.<sem>}{.aligned}",
    "",
    collective=True,
    needs={"": _NEEDS, "acquire": "sm_90 8.0"},
    mode="wait",
    sem="acquire",
)
