"""Loads of eight threads: at once where they lie side by side, or at one address."""

from __future__ import annotations

from ptxlab.emulator.native.addresses import TranslatedAddress
from ptxlab.native.builder import LANES, FunctionBuilder
from ptxlab.native.value import VectorValue, width


def load(
    code: FunctionBuilder, address: TranslatedAddress, offset: int, kind: str, count: int
) -> list[VectorValue]:
    """Return the ``count`` elements of an item, integers of type ``kind``."""
    if not address.address.lanes:
        with code.before_threads():
            return _item(_chosen(address, offset), kind, count)
    nbytes = width(kind) // 8 * count
    together = address.is_same()
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
    return [
        code.vector([item.pick(part) if lanes else item for item in items]) for part in range(count)
    ]


def _chosen(address: TranslatedAddress, offset: int) -> VectorValue:
    """Return the addresses of items, those of memory that nobody looks at for who is not active."""
    addresses = address.address + offset if offset else address.address
    if address.active is None:
        return addresses
    return address.active.choose(addresses, addresses.code.table("i8", [0] * 64).integer())
