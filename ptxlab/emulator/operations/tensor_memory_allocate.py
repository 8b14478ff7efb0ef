"""tcgen05.alloc, tcgen05.dealloc and tcgen05.relinquish_alloc_permit: columns of Tensor Memory.

Source: PTX ISA, "Tensorcore 5th Generation Instructions: tcgen05.alloc, tcgen05.dealloc,
tcgen05.relinquish_alloc_permit".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.memory import memory_operand, scatter
from ptxlab.emulator.operations.warp import ALIGNED, WholeWarps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import matrix_form, require
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS, GRANULE, LANES
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError
from ptxlab.isa.legality import parse_needs
from ptxlab.isa.targets import WARP

_EXCLUSIVE = "exclusive"
_NEEDS_EXCLUSIVE = parse_needs("sm_100f sm_110f 9.5")


class TensorWarps(WholeWarps):
    """The whole warps that an instruction on Tensor Memory acts on, and what all lanes of each give."""

    @property
    def first(self) -> Array:
        """The positions of the warps' first threads."""
        return self.threads.index[::WARP]

    @property
    def cta(self) -> Array:
        """The CTA of each warp."""
        return self.wave.cta_of[self.first]

    def agreed(self, source: Source, what: str) -> Array:
        """Return an operand that all threads of a warp agree on, [warps] of int64."""
        values = self.read(source)
        differ = values != values[:, :1]
        if differ.any():
            warp, lane = divmod(int(differ.argmax()), WARP)
            first, other = (f"{int(values[warp, at]):#x} in lane {at}" for at in (0, lane))
            raise self.fault_of(
                warp,
                f"{what} differs between the threads: {first}, {other}",
                hint="all threads of a warp give the same; an address names the warp's first lane",
            )
        return values[:, 0].astype(np.int64)

    def fault_of(
        self, warp: int, what: str, *, hint: str | None = None, kind: str = "bounds"
    ) -> LaunchError:
        """Return the error of the warp at a position."""
        thread = self.wave.thread(self.first_thread(warp))
        return self.fault(f"{self.name}: {what}, in the warp of {thread}", hint=hint, kind=kind)


def enter(wave: Wave, group: int, name: str, line: int) -> None:
    """Hold the cta_group of an instruction against that of those before it, and against the cluster."""
    memory, hint = wave.tensor_memory, None
    if memory.group not in (0, group):
        what = f"after instructions of cta_group::{memory.group}"
        hint = "all tcgen05 instructions of a kernel have the same cta_group"
    elif wave.config.cluster_ctas % group:
        what = f"of cta_group::2 in a cluster of {wave.config.cluster_ctas} CTA"
        hint = "it is for the pairs of a cluster: launch clusters of 2, 4 or more CTAs"
    if hint is not None:
        raise LaunchError(f"{name} {what}", location=wave.locate(line), hint=hint, kind="async")
    memory.group = group


@dataclass(frozen=True, slots=True)
class _Request:
    """Warps that ask for ``columns``, of every CTA one, or one of each CTA of a pair."""

    columns: Source
    group: int
    exclusive: bool
    line: int
    name: str

    where = "for columns of Tensor Memory"
    gives_up = False

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the mask of the warps that get their columns now."""
        mask = ALIGNED(frame, threads, alive)
        some = threads.where(mask)
        if some is None or (some.mask.reshape(-1, WARP).sum(axis=1) % WARP).any():
            return mask  # a partial warp, which the step refuses
        warps = self.warps(frame, some)
        chosen, starts = self.find(warps)
        going = np.zeros(threads.width // WARP, bool)
        going[warps.first[chosen[starts >= 0]] // WARP] = True
        return mask & going.repeat(WARP)

    def warps(self, frame: Frame, threads: Threads) -> TensorWarps:
        warps = TensorWarps(frame, threads, self.name, self.line)
        enter(frame.wave, self.group, self.name, self.line)
        return warps

    def find(self, warps: TensorWarps) -> tuple[Array, Array]:
        """Return for each request the warps that make it [requests, group], and where it finds room.

        Raise LaunchError for one that nobody may make.
        """
        counts = warps.agreed(self.columns, "nCols")
        self._check(warps, counts)
        together = _pairs(warps.cta) if self.group > 1 else np.arange(warps.count)[:, np.newaxis]
        return together, warps.wave.tensor_memory.find(warps.cta[together], counts[together[:, 0]])

    def _check(self, warps: TensorWarps, counts: Array) -> None:
        memory = warps.wave.tensor_memory
        wrong = (counts < GRANULE) | (counts > COLUMNS) | (counts % GRANULE != 0)
        if not self.exclusive:
            wrong |= counts & (counts - 1) != 0
        if wrong.any():
            at = int(wrong.argmax())
            hint = "it is a multiple of 32" if self.exclusive else "it is 32, 64, 128, 256 or 512"
            raise warps.fault_of(at, f"nCols is {int(counts[at])}", hint=hint)
        late = memory.relinquished[warps.cta]
        if late.any():
            what = "an allocation after tcgen05.relinquish_alloc_permit"
            raise warps.fault_of(int(late.argmax()), what, kind="async")
        grown = counts > memory.most[warps.cta]
        if grown.any():
            at = int(grown.argmax())
            raise warps.fault_of(
                at,
                f"{int(counts[at])} columns after an allocation of {int(memory.most[warps.cta[at]])}",
                hint="a CTA allocates no more columns than it did the time before",
                kind="async",
            )

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say what the first warp asks for, and how little there is."""
        wave = frame.wave
        cta = int(wave.cta_of[threads.index[0]])
        count = int(threads.pick(self.columns.read(frame.registers))[0])
        rest = COLUMNS - wave.tensor_memory.held(cta)
        peer = " in both CTAs of the pair" if self.group > 1 else ""
        return f"{wave.cta(cta)} asks for {count} columns{peer}, {rest} of {COLUMNS} are free"


def _pairs(ctas: Array) -> Array:
    """Return [pairs, 2]: which warps of ``ctas``, in ascending order, stand for both CTAs of a pair.

    The first of one meets the first of the other, and so on; who meets nobody is left out.
    """
    number = np.arange(len(ctas)) - np.searchsorted(ctas, ctas)
    key = ctas // 2 * len(ctas) + number
    even, odd = np.flatnonzero(ctas % 2 == 0), np.flatnonzero(ctas % 2)
    _, left, right = np.intersect1d(key[even], key[odd], return_indices=True)
    return np.stack([even[left], odd[right]], axis=1)


def allocate(context: Context, asked: RowForm) -> Step:
    """Allocate columns, and write the address of the first to shared memory; wait while there are none."""
    address, columns = context.operands(2)
    group = _group(context, asked)
    exclusive = _EXCLUSIVE in asked.modifiers
    if exclusive:
        require(context, asked.name, _NEEDS_EXCLUSIVE)
    written = memory_operand(context, asked, address, 4, "write", writes=True)
    source, name, line = context.source(columns, "u32"), f"{asked.opcode}.alloc", context.line
    request = context.participants = _Request(source, group, exclusive, line, name)

    def run(frame: Frame, threads: Threads) -> None:
        warps = request.warps(frame, threads)
        together, starts = request.find(warps)
        memory = frame.wave.tensor_memory
        counts = warps.agreed(request.columns, "nCols")[together[:, 0]]
        memory.take(warps.cta[together], starts, counts, line)
        if frame.wave.watched:
            for ctas, start, count in zip(warps.cta[together], starts, counts, strict=True):
                for cta in ctas.tolist():
                    frame.wave.watcher.columns(cta, int(start), int(count), taken=True)
        order = np.argsort(together.reshape(-1))
        columns = np.repeat(starts, group)[order].astype(np.uint32)
        scatter(written, frame, Threads(threads.width, index=warps.first), columns)

    return run


def deallocate(context: Context, asked: RowForm) -> Step:
    """Give back the columns of an allocation, all of them."""
    address, columns = context.operands(2)
    group = _group(context, asked)
    first, count = context.source(address, "u32"), context.source(columns, "u32")
    name, line = f"{asked.opcode}.dealloc", context.line
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = TensorWarps(frame, threads, name, line)
        enter(frame.wave, group, name, line)
        memory, work = frame.wave.tensor_memory, frame.wave.tensor_work
        starts, counts = warps.agreed(first, "taddr"), warps.agreed(count, "nCols")
        if frame.wave.watched:
            _tell(warps, starts, counts)
        if work.pending(warps.cta):
            raise warps.fault(
                f"{name} while tensor cores are at work that nobody has waited for",
                hint="wait for the mbarrier of a tcgen05.commit behind it",
                kind="async",
            )
        for warp, (cta, start, asked_for) in enumerate(
            zip(warps.cta.tolist(), starts.tolist(), counts.tolist(), strict=True)
        ):
            held = memory.allocated(cta, start)
            if not held or held != asked_for:
                what = f"{held} columns begin there" if held else "no allocation begins there"
                raise warps.fault_of(
                    warp,
                    f"{asked_for} columns at {start:#x} are given back, {what}",
                    hint="it takes the address that tcgen05.alloc wrote, and as many columns",
                    kind="async",
                )
            memory.free(cta, start)
            if frame.wave.watched:
                frame.wave.watcher.columns(cta, start, held, taken=False)

    return run


def _tell(warps: TensorWarps, starts: Array, counts: Array) -> None:
    """Tell who watches of the cells that each warp gives back."""
    lanes = np.arange(LANES)[:, np.newaxis] * COLUMNS
    for first, cta, start, count in zip(warps.first, warps.cta, starts, counts, strict=True):
        if start + count <= COLUMNS:  # others end the launch
            cells = cta * CTA_CELLS + lanes + np.arange(start, start + count)
            warp = Threads(warps.threads.width, index=first + np.arange(WARP))
            warps.wave.watcher.tensor_memory(warp, cells[np.newaxis], writes=True)


def relinquish(context: Context, asked: RowForm) -> Step:
    """Promise that the CTA will allocate no more."""
    group = _group(context, asked)
    name, line = f"{asked.opcode}.relinquish_alloc_permit", context.line
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = TensorWarps(frame, threads, name, line)
        enter(frame.wave, group, name, line)
        frame.wave.tensor_memory.relinquish(warps.cta)

    return run


def _group(context: Context, asked: RowForm) -> int:
    """Return how many CTAs execute the instruction together."""
    matrix_form(context, asked)
    return 2 if "cta_group::2" in asked.modifiers else 1


_row = partial(row, operands="", mix="synchronization", collective=True)
_row("tcgen05.alloc.*", step=allocate)
_row("tcgen05.dealloc.*", step=deallocate)
_row("tcgen05.relinquish_alloc_permit.*", step=relinquish)
