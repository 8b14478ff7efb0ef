"""Tensor Memory as a trace sees it: who allocates columns, which work fills them, and who reads that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS, LANES
from ptxlab.observe.timeline import AllocatedColumns, FilledColumns, Flight, TensorSpan, TileFill
from ptxlab.observe.trace_context import NO_FLIGHT, TraceContext


class TensorMemoryTrace:
    """The Tensor Memory of the followed CTAs: of each cell the flight that last wrote it, by number."""

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self.allocations: list[AllocatedColumns] = []

    @cached_property
    def _filled(self) -> Array:
        return np.full(self._context.count * CTA_CELLS, NO_FLIGHT)

    def columns(self, cta: int, start: int, count: int, *, taken: bool) -> None:
        """See columns allocated in a CTA of the wave, or given back."""
        context = self._context
        own = cta - context.first
        if not 0 <= own < context.count:
            return
        if taken:
            self.allocations.append(AllocatedColumns(own, start, start + count, context.now))
            return
        for allocation in self.allocations:
            if (allocation.cta, allocation.start, allocation.until) == (own, start, None):
                allocation.until = context.now

    def write(self, flight: Flight, number: int, cells: Array) -> None:
        """Have a flight, by its number, write cells of the wave."""
        mine = self._context.cells(cells)
        flight.cells_written.extend(_spans(mine))
        self._filled[mine] = number

    def forget(self, cells: Array) -> None:
        """Have cells of the wave given back: what is there is nobody's."""
        self._filled[self._context.cells(cells)] = NO_FLIGHT

    def readers(self, cells: Array) -> Iterator[int]:
        """Yield the numbers of the flights that filled cells of the wave, which are read."""
        for number in np.unique(self._filled[self._context.cells(cells)]).tolist():
            if number != NO_FLIGHT:
                yield number

    def spans(self, cells: Array) -> list[TensorSpan]:
        return _spans(self._context.cells(cells))


def _spans(cells: Array) -> list[TensorSpan]:
    """Return of each CTA the columns that some of its cells lie in, for lanes that follow each other."""
    spans = []
    row, column = np.divmod(np.unique(cells), COLUMNS)
    for part in np.split(np.arange(row.size), np.flatnonzero(np.diff(row) > 1) + 1):
        for cta in np.unique(row[part] // LANES).tolist():
            own = part[row[part] // LANES == cta]
            lanes = int(row[own[0]]) % LANES, int(row[own[-1]]) % LANES + 1
            columns = column[own]
            spans.append(TensorSpan(cta, int(columns.min()), int(columns.max()) + 1, lanes))
    return spans


def filled_columns(flights: Sequence[Flight]) -> tuple[FilledColumns, ...]:
    """Return the columns that flights fill, in their order."""
    written = [
        (number, span) for number, flight in enumerate(flights) for span in flight.cells_written
    ]
    return tuple(
        FilledColumns(tile, tuple(_fills(flights, tile, written)))
        for tile in _united([span for _, span in written])
    )


def _united(spans: Sequence[TensorSpan]) -> list[TensorSpan]:
    """Return spans with those joined that have columns in common."""
    united: list[TensorSpan] = []
    for span in sorted(spans):
        last = united[-1] if united else None
        if last is None or not last.overlaps(span):
            united.append(span)
            continue
        lanes = min(last.lanes[0], span.lanes[0]), max(last.lanes[1], span.lanes[1])
        united[-1] = TensorSpan(last.cta, last.start, max(last.end, span.end), lanes)
    return united


def _fills(
    flights: Sequence[Flight], tile: TensorSpan, written: Sequence[tuple[int, TensorSpan]]
) -> Iterator[TileFill]:
    """Yield what fills a place: work goes on with the fill before it until that has been read."""
    together: list[int] = []
    number = 0
    for at, span in written:
        if not span.overlaps(tile):
            continue
        begun = flights[at].step
        if any(step < begun for before in together for step in flights[before].read):
            yield _fill(number, flights, together)
            together, number = [], number + 1
        together.append(at)
    yield _fill(number, flights, together)


def _fill(number: int, flights: Sequence[Flight], together: Sequence[int]) -> TileFill:
    return TileFill.of(number, flights, together, sum(flights[at].nbytes for at in together))
