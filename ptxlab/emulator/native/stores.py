"""Stores in LLVM's assembly, behind all loads and arithmetic of a segment: nothing can go wrong any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptxlab.native.builder import FunctionBuilder, VectorValue
from ptxlab.native.code import LANES, Value

NAME = "stores"


@dataclass(frozen=True, slots=True)
class DeferredStore:
    """A store, done behind the loop of the segment: where it finds the addresses and the elements.

    ``active`` is where it finds which threads take part, None if all do; ``elements`` are arrays, or values
    that all threads share. An array is a number among those of the segment.
    """

    addresses: int
    active: int | None
    elements: tuple[tuple[int | None, Value], ...]


def texts(stores: Sequence[DeferredStore], first: int) -> Iterable[str]:
    """Return the function that does stores one after the other, and what it declares.

    ``first`` is the task's word for array 0. Threads store in their order, so that of several at one address the last wins.
    """
    f = FunctionBuilder()
    task, begin, end = f.task()
    for deferred in stores:
        addresses = task.array(first + deferred.addresses)
        active = None if deferred.active is None else task.array(first + deferred.active)
        given = [None if at is None else task.array(first + at) for at, _ in deferred.elements]
        kinds = [value.type for _, value in deferred.elements]
        size = int(kinds[0][1:]) // 8
        with f.for_range(begin, end, LANES) as i:
            address = addresses.at(i, 8).load("i64", LANES, align=8)
            chosen = (
                None
                if active is None
                else active.at(i, 1).load("i8", LANES, align=1).to("trunc", "i1")
            )
            elements = [
                f.number(kind, int(value.text)).splat(LANES) if array is None
                else array.at(i, size).load(kind, LANES, align=1)
                for array, (_, value), kind in zip(given, deferred.elements, kinds, strict=True)
            ]  # fmt: skip
            _store(f, address, chosen, elements, size)
    return f.function(NAME).used.values()


def _store(
    f: FunctionBuilder,
    addresses: VectorValue,
    active: VectorValue | None,
    elements: Sequence[VectorValue],
    size: int,
) -> None:
    """Store the elements of eight threads, in one piece where their items follow each other."""
    nbytes = size * len(elements)
    row = f.numbers("i64", range(0, LANES * nbytes, nbytes)) + addresses.pick(0).splat(LANES)
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
