"""Tiles of shared memory, found by what is copied into them: the stages of a pipeline.

What copies waited for together fill side by side is one tile. Tiles that overlap are the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ptxlab.observe.timeline import FilledTile, Flight, SharedSpan, TileFill, united

Together = dict[tuple[object, ...], list[int]]


def tiles(flights: Sequence[Flight], name: Callable[[SharedSpan], str]) -> tuple[FilledTile, ...]:
    """Return the tiles that copies fill or read, in the order of their addresses."""
    together: Together = defaultdict(list)
    for number, flight in enumerate(flights):
        if flight.queue != "products":
            together[_waited_for(flight)].append(number)
    parts = [(numbers, _touched(flights, numbers)) for numbers in together.values()]
    places = united((span for _, spans in parts for span in spans), gap=1)
    fills: dict[SharedSpan, list[TileFill]] = {place: [] for place in places}
    for turn, (numbers, spans) in enumerate(parts):
        for place in places:
            if any(span.overlaps(place) for span in spans):
                here = [n for n in numbers if any(s.overlaps(place) for s in _of(flights[n]))]
                fills[place].append(_fill(turn, flights, here, place))
    return tuple(FilledTile(place, name(place), tuple(found)) for place, found in fills.items())


def _waited_for(flight: Flight) -> tuple[object, ...]:
    """Return what copies have in common that are waited for together."""
    return (flight.queue, bool(flight.writes), flight.group, *flight.mbarriers)


def _of(flight: Flight) -> list[SharedSpan]:
    return flight.writes or flight.reads


def _touched(flights: Sequence[Flight], numbers: Sequence[int]) -> list[SharedSpan]:
    return united(span for number in numbers for span in _of(flights[number]))


def _fill(
    turn: int, flights: Sequence[Flight], numbers: Sequence[int], place: SharedSpan
) -> TileFill:
    chosen = [flights[number] for number in numbers]
    landed = [flight.landed for flight in chosen]
    return TileFill(
        turn,
        tuple(numbers),
        min(flight.step for flight in chosen),
        None if None in landed else max(one for one in landed if one is not None),
        sum(s.end - s.start for flight in chosen for s in _of(flight) if s.overlaps(place)),
        tuple(sorted({step for flight in chosen for step in flight.read})),
    )
