"""Columns of Tensor Memory as machine code takes them and gives them back: by granules, and without waiting.

No PTX does this: ``tcgen05.alloc`` becomes a loop around it, see ``ptxlab.machine.lift``.
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.tensor_memory_allocate import enter
from ptxlab.emulator.prepare.computation import destinations_of
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.tensor_memory import GRANULE, GRANULES
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP


def _first_of_warps(threads: Threads) -> Array:
    """Return the first thread of each warp that is here."""
    _, at = np.unique(threads.index // WARP, return_index=True)
    return np.asarray(threads.index[at])


def find(context: Context, form: RowForm) -> Step:
    """Take so many granules in a row for each warp, if they are free: in its CTA, or in both of its pair."""
    target, count = context.operands(2)
    destinations, asked = destinations_of(context, form, target), context.source(count, "b32")
    group = 2 if "cta_group::2" in form.modifiers else 1
    name, line = form.name, context.line

    def run(frame: Frame, threads: Threads) -> None:
        wave, memory = frame.wave, frame.wave.tensor_memory
        enter(wave, group, name, line)
        first = _first_of_warps(threads)
        counts = np.broadcast_to(asked.read(frame.registers), (wave.width,))[first].astype(np.int64)
        own = wave.cta_of[first]
        ctas = (own[:, None] & ~1) + np.arange(2) if group == 2 else own[:, None]
        starts = memory.find(ctas, counts * GRANULE)
        some = starts >= 0
        memory.take(ctas[some], starts[some], counts[some] * GRANULE, line)
        if wave.watched:
            for pair, start, held in zip(ctas[some], starts[some], counts[some], strict=True):
                for cta in pair.tolist():
                    wave.watcher.columns(cta, int(start), int(held) * GRANULE, taken=True)
        at, taken = np.zeros(wave.warps, np.uint32), np.zeros(wave.warps, bool)
        at[first // WARP], taken[first // WARP] = np.where(some, starts // GRANULE, 0), some
        write(frame, threads.merge, destinations, (at.repeat(WARP), taken.repeat(WARP)))

    return run


def give(context: Context, form: RowForm) -> Step:
    """Give back the granules of a CTA that a mask leaves out, whole allocations of them."""
    [mask] = context.operands(1)
    kept, name, line = context.source(mask, "b32"), form.name, context.line

    def run(frame: Frame, threads: Threads) -> None:
        wave, memory = frame.wave, frame.wave.tensor_memory
        first = _first_of_warps(threads)
        masks = np.broadcast_to(kept.read(frame.registers), (wave.width,))[first]
        if wave.tensor_work.pending(wave.cta_of[first]):
            what = f"{name} while tensor cores are at work that nobody waited for"
            raise LaunchError(what, location=wave.locate(line), kind="async")
        for cta, bits in zip(wave.cta_of[first].tolist(), masks.tolist(), strict=True):
            for start in range(0, GRANULES * GRANULE, GRANULE):
                held = memory.allocated(cta, start)
                if held and not bits >> start // GRANULE & 1:
                    memory.free(cta, start)
                    if wave.watched:
                        wave.watcher.columns(cta, start, held, taken=False)

    return run


row("columns.find.cta_group::1", "b32 -> b32|pred", step=find, mix="synchronization", lifted=True)
row("columns.find.cta_group::2", "b32 -> b32|pred", step=find, mix="synchronization", lifted=True)
row("columns.give", "b32", step=give, mix="synchronization", lifted=True)
