"""Asynchronous work as a trace sees it: what it moves, until when, who reads what it brought, and its tiles.

What copies waited for together fill side by side is one tile, such as a stage of a pipeline. Tiles that
overlap are the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.run.memory import Bytes
from ptxlab.emulator.run.tensor_memory import CELL_BYTES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import MemoryAccess
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.observe.timeline import FilledTile, Flight, SharedSpan, TileFill, Warps, united
from ptxlab.observe.trace_context import NO_FLIGHT, TraceContext
from ptxlab.observe.trace_tensor_memory import TensorMemoryTrace

GRANULE = 16
"""Bytes of shared memory of which is known what copy filled them last."""


class Flights:
    """The asynchronous work that the followed warps have begun, in order.

    ``beginning`` is what the instruction at hand begins, None where it begins nothing.
    """

    def __init__(self, context: TraceContext) -> None:
        wave = context.wave
        self._context = context
        self.traced: list[Flight] = []
        self.beginning: Flight | None = None
        self._aloft: dict[tuple[str, int], tuple[Flight, Array]] = {}
        self._groups: dict[tuple[str, int], int] = {}
        self.tensor_memory = TensorMemoryTrace(context)
        self._filled = np.full(wave.ctas * wave.shared_pitch // GRANULE, NO_FLIGHT)

    def begin(self, queue: Queue, work: str, threads: Threads, warps: Warps) -> None:
        """Begin work that comes next in a queue of the wave."""
        self._begin(queue, work, warps, threads.mask[self._context.inside].copy())

    def _begin(self, queue: Queue, work: str, warps: Warps, waiting: Array) -> Flight:
        flight = self.beginning = Flight(queue, work, self._context.step, warps)
        turn = getattr(self._context.wave, queue).turn + 1
        self._aloft[queue, turn] = flight, waiting
        self.traced.append(flight)
        return flight

    def issue(self, work: str, threads: Threads, access: TensorCoreAccess) -> None:
        """Begin what threads have tensor cores do, if some of them are followed."""
        context = self._context
        mine = context.follows(threads.index)
        if not mine.any():
            return
        warps = tuple(np.unique(context.warp_of(threads)[mine]).tolist())
        ctas = context.wave.cta_of[threads.index[mine]]
        waiting = np.isin(context.first + np.arange(context.count), ctas - ctas % access.group)
        flight = self._begin("tensor_work", work, warps, waiting)
        chosen = mine.repeat(access.group)
        for first in access.shared.values():
            flight.reads.extend(context.spans(first[chosen], UNIT_BYTES))
        memory = self.tensor_memory
        for cells in access.read.values():
            flight.cells_read.extend(memory.spans(cells))
            self._read_cells(cells)
        for cells in access.written.values():
            memory.write(flight, len(self.traced) - 1, cells)
        if access.problem is None:
            flight.nbytes = CELL_BYTES * sum(
                context.cells(cells).size for cells in access.written.values()
            )
        else:
            flight.shape = str(access.problem)
            flight.adds = access.adds is not None and bool(access.adds.any())
        self._feed(flight)

    def cells(self, cells: Array, *, writes: bool) -> None:
        """See warps load cells of Tensor Memory, store to them, or give them back."""
        memory, flight = self.tensor_memory, self.beginning
        if not writes:
            self._read_cells(cells)
        elif flight is None:
            memory.forget(cells)
        else:
            memory.write(flight, len(self.traced) - 1, cells)
            flight.nbytes += CELL_BYTES * self._context.cells(cells).size

    def _read_cells(self, cells: Array) -> None:
        for number in self.tensor_memory.readers(cells):
            self.traced[number].read.append(self._context.step)

    def move(self, memory: Bytes, first: Array, size: int, *, writes: bool) -> None:
        """Say that what begins moves items of a size from or to memory, ``first`` their first bytes."""
        flight = self.beginning
        if flight is None or not first.size:
            return
        if memory.name != "shared":
            flight.far, flight.low = memory.name, int(first.min())
            flight.high = int(first.max()) + size
        else:
            spans = flight.writes if writes else flight.reads
            spans.extend(self._context.spans(first, size))
        if writes:
            flight.nbytes += first.size * size
            if memory.name == "shared":
                self._filled[first // GRANULE] = len(self.traced) - 1

    def begun(self, threads: Threads, moved: list[MemoryAccess]) -> None:
        for access in moved:
            mine = self._context.follows(threads.index[access.owner])
            self.move(access.memory, access.first[mine], access.size, writes=access.writes)
        if self.beginning is not None and self.beginning.queue == "products":
            self._feed(self.beginning)

    def landed(self, queue: str, turn: int, threads: Threads | None) -> None:
        """See work land, for some of the threads or for all."""
        known = self._aloft.get((queue, turn))
        if known is None:
            return
        flight, left = known
        left &= False if threads is None else ~threads.mask[self._inside(queue)]
        if left.any():
            return
        del self._aloft[queue, turn]
        flight.landed = self._context.now
        if queue in ("products", "tensor_work"):
            self._feed(flight)

    def _inside(self, queue: str) -> slice:
        """Return which threads of a queue are followed: in that of tensor cores they are CTAs."""
        context = self._context
        ctas = slice(context.first, context.first + context.count)
        return ctas if queue == "tensor_work" else context.inside

    def commit(self, queue: Queue, warps: Warps) -> None:
        """Put what the warps have begun in a queue into their next group."""
        group = self._groups[queue, warps[0]] = self._groups.get((queue, warps[0]), -1) + 1
        for flight, _ in self._aloft.values():
            mine = flight.queue == queue and flight.group is None
            if mine and not set(warps).isdisjoint(flight.warps):
                flight.group, flight.committed = group, self._context.now

    def access(self, first: Array, *, writes: bool) -> None:
        """See threads read what copies may have brought to shared memory, or write over it."""
        granules = first // GRANULE
        if writes:
            self._filled[granules] = NO_FLIGHT
            return
        for number in np.unique(self._filled[granules]).tolist():
            if number != NO_FLIGHT:
                self.traced[number].read.append(self._context.step)

    def _feed(self, product: Flight) -> None:
        for span in product.reads:
            start = (self._context.first + span.cta) * self._context.wave.shared_pitch
            self.access(np.arange(start + span.start, start + span.end, GRANULE), writes=False)


# ---- tiles of shared memory ---------------------------------------------------------------------


Together = dict[tuple[object, ...], list[int]]


def tiles(flights: Sequence[Flight], name: Callable[[SharedSpan], str]) -> tuple[FilledTile, ...]:
    """Return the tiles that copies fill or read, in the order of their addresses."""
    together: Together = defaultdict(list)
    for number, flight in enumerate(flights):
        if flight.queue not in ("products", "tensor_work"):
            together[_waited_for(flight)].append(number)
    parts = [(numbers, _touched(flights, numbers)) for numbers in together.values()]
    places = united((span for _, spans in parts for span in spans), gap=1)
    fills: dict[SharedSpan, list[TileFill]] = {span: [] for span in places}
    for turn, (numbers, spans) in enumerate(parts):
        for tile in places:
            if any(span.overlaps(tile) for span in spans):
                here = [n for n in numbers if any(s.overlaps(tile) for s in _of(flights[n]))]
                fills[tile].append(_fill(turn, flights, here, tile))
    return tuple(FilledTile(span, name(span), tuple(fill)) for span, fill in fills.items())


def _waited_for(flight: Flight) -> tuple[object, ...]:
    return (flight.queue, bool(flight.writes), flight.group, *flight.mbarriers)


def _of(flight: Flight) -> list[SharedSpan]:
    return flight.writes or flight.reads


def _touched(flights: Sequence[Flight], numbers: Sequence[int]) -> list[SharedSpan]:
    return united(span for number in numbers for span in _of(flights[number]))


def _fill(
    turn: int, flights: Sequence[Flight], numbers: Sequence[int], tile: SharedSpan
) -> TileFill:
    inside = [s for number in numbers for s in _of(flights[number]) if s.overlaps(tile)]
    return TileFill.of(turn, flights, numbers, sum(s.end - s.start for s in inside))
