"""What a segment loads and stores, for eight threads: at once where items lie side by side, or at one address.

Stores are behind all loads and arithmetic: nothing can go wrong any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptxlab.emulator.native.addresses import TranslatedAddress
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.text import ModuleFunction, width
from ptxlab.native.value import VectorValue, joined, numbers, table, vector

STORES = "stores"
"""What the function that stores is called."""


def load(
    code: FunctionBuilder, address: TranslatedAddress, offset: int, kind: str, count: int
) -> list[VectorValue]:
    """Return the ``count`` elements of an item, integers of type ``kind``."""
    if not address.address.lanes:
        with code.before_threads():
            return _item(_chosen(address, offset), kind, count)
    nbytes = width(kind) // 8 * count
    together = address.is_same
    with code.branch(address.is_apart(nbytes)) as branch:
        row = (address.first + offset).pointer().load(kind, LANES * count, align=1)
        apart = [row.shuffle(range(part, LANES * count, count)) for part in range(count)]
        branch.otherwise()
        with code.branch(together) as inner:
            item = _item(address.first + offset, kind, count)
            same = [element.splat(LANES) for element in item]
            inner.otherwise()
            each = _each(code, _chosen(address, offset), kind, count)
        others = [inner.merged(*sides) for sides in zip(same, each, strict=True)]
    return [branch.merged(*sides) for sides in zip(apart, others, strict=True)]


def _item(address: VectorValue, kind: str, count: int) -> list[VectorValue]:
    """Load from one address."""
    size = width(kind) // 8
    item = address.pointer()
    return [item.at(part, size).load(kind, align=1) for part in range(count)]


def _each(
    code: FunctionBuilder, addresses: VectorValue, kind: str, count: int
) -> list[VectorValue]:
    """Load for one thread after the other."""
    lanes = count if count > 1 else 0
    items = [addresses.pick(lane).pointer().load(kind, lanes, align=1) for lane in range(LANES)]
    return [vector([item.pick(part) if lanes else item for item in items]) for part in range(count)]


def _chosen(address: TranslatedAddress, offset: int) -> VectorValue:
    """Return the addresses of items, those of memory that nobody looks at for who is not active."""
    addresses = address.address + offset if offset else address.address
    if address.active is None:
        return addresses
    return address.active.choose(addresses, table(addresses.code, "i8", [0] * 64).integer())


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


def stores(deferred_stores: Sequence[DeferredStore], word: int) -> ModuleFunction:
    """Return the function that does stores one after the other; a ``word`` of the task says where array 0 is named.

    Threads store in their order, so that of several at one address the last wins.
    """
    f = FunctionBuilder()
    task, begin, end = f.task()
    objects = task.word(word).pointer()
    for deferred in deferred_stores:
        addresses, size = objects.array(deferred.addresses), width(deferred.kind) // 8
        active = None if deferred.active is None else objects.array(deferred.active)
        given = [objects.array(x) if isinstance(x, int) else x for x in deferred.elements]
        with f.thread_loop(begin, end) as i:
            address = addresses.at(i, 8).load("i64", LANES, align=8)
            chosen = active and active.at(i, 1).load("i8", LANES, align=1).to("trunc", "i1")
            elements = [
                array.at(i, size).load(deferred.kind, LANES, align=1)
                if array.kind == "ptr"
                else replace(array, code=f).splat(LANES)
                for array in given
            ]
            _store(f, address, chosen, elements, size)
    return f.function(STORES)


def _store(
    f: FunctionBuilder,
    addresses: VectorValue,
    active: VectorValue | None,
    elements: Sequence[VectorValue],
    size: int,
) -> None:
    """Store the elements of eight threads, in one piece where their items follow each other."""
    nbytes = size * len(elements)
    row = numbers(f, "i64", range(0, LANES * nbytes, nbytes)) + addresses.pick(0)
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
    picks = [part * LANES + lane for lane in range(LANES) for part in range(len(elements))]
    return joined(elements).shuffle(picks)
