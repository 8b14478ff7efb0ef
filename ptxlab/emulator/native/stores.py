"""Stores, behind all loads and arithmetic of a segment: nothing can go wrong any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.value import ModuleFunction, VectorValue, width

NAME = "stores"


@dataclass(frozen=True, slots=True)
class DeferredStore:
    """A store, done behind the loop of the segment: where it finds the addresses and the elements, of type ``kind``.

    ``active`` is where it finds which threads take part, None if all do; ``elements`` are arrays, or values
    that all threads share. An array is a number among those of the segment.
    """

    addresses: int
    active: int | None
    elements: Sequence[int | VectorValue]
    kind: str


def function(stores: Sequence[DeferredStore], word: int) -> ModuleFunction:
    """Return the function that does stores one after the other; a ``word`` of the task says where array 0 is named.

    Threads store in their order, so that of several at one address the last wins.
    """
    f = FunctionBuilder()
    task, begin, end = f.task()
    objects = task.word(word).pointer()
    for deferred in stores:
        addresses, size = objects.array(deferred.addresses), width(deferred.kind) // 8
        active = None if deferred.active is None else objects.array(deferred.active)
        given = [objects.array(x) if isinstance(x, int) else x for x in deferred.elements]
        with f.over_threads(begin, end) as i:
            address = addresses.at(i, 8).load("i64", LANES, align=8)
            chosen = active and active.at(i, 1).load("i8", LANES, align=1).to("trunc", "i1")
            elements = [
                array.at(i, size).load(deferred.kind, LANES, align=1)
                if array.kind == "ptr"
                else replace(array, code=f).splat(LANES)
                for array in given
            ]
            _store(f, address, chosen, elements, size)
    return f.function(NAME)


def _store(
    f: FunctionBuilder,
    addresses: VectorValue,
    active: VectorValue | None,
    elements: Sequence[VectorValue],
    size: int,
) -> None:
    """Store the elements of eight threads, in one piece where their items follow each other."""
    nbytes = size * len(elements)
    row = f.numbers("i64", range(0, LANES * nbytes, nbytes)) + addresses.pick(0)
    together = addresses.is_("eq", row).all()
    with f.branch(together if active is None else together & active.all()) as branch:
        addresses.pick(0).pointer().store(_interleaved(elements), align=1)
        branch.otherwise()
        for lane in range(LANES):
            with f.when(None if active is None else active.pick(lane)):
                item = addresses.pick(lane).pointer()
                for part, element in enumerate(elements):
                    item.at(part, size).store(element.pick(lane), align=1)


def _interleaved(elements: Sequence[VectorValue]) -> VectorValue:
    """Return the elements of each of eight items beside each other."""
    joined = list(elements)
    while len(joined) > 1:
        width = joined[0].lanes
        joined = [
            a.shuffle(range(2 * width), b) for a, b in zip(joined[::2], joined[1::2], strict=True)
        ]
    return joined[0].shuffle(
        [part * LANES + lane for lane in range(LANES) for part in range(len(elements))]
    )
