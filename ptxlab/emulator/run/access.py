"""From addresses to items of memory: which array, which index, and every way it can be wrong.

All active threads are checked at once; only when one of them is out of line is it looked for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_SIZE,
)
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import ITEM, Allocation, Part, Region
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError, WrongAccess
from ptxlab.numbers.formats import alone

LARGEST = 16
"""Bytes of the largest item outside of global memory."""

SHIFT = {size: alone(size.bit_length() - 1, np.int64) for size in ITEM}
"""How far to shift the offset of an item of so many bytes to its number."""

CLUSTER = "shared::cluster"
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
"""Where the generic addresses of a space begin, the shared memory of all CTAs of a cluster in one."""


def parts(
    access: Access,
    frame: Frame,
    threads: Threads,
    *,
    wide: bool = False,
    stored: Array | None = None,
) -> list[Part]:
    """Return where the active threads' items are. Raise LaunchError for a wrong address.

    ``wide`` gives an entry to every thread of the wave, those not active at the first active one's
    address: less work than to compress and spread, when most threads are active. A watcher is shown
    the items that are about to be ``stored``.
    """
    wave = frame.wave
    if not wave.watched:
        return _parts(access, frame, threads, wide=wide)
    wave.watcher.access(access, frame, threads)
    reached = _parts(access, frame, threads, wide=wide)
    wave.watcher.touch(access, threads, reached, stored)
    return reached


def _parts(access: Access, frame: Frame, threads: Threads, *, wide: bool) -> list[Part]:
    wave = frame.wave
    value = access.base.read(frame.registers)
    if wide and not threads.everyone:
        everyone = Threads(threads.width)
        try:
            return _in_space(access, access.space, _u64(threads.fill(value)), wave, everyone, None)
        except LaunchError:
            pass  # now for the active threads alone, whom the message is about
    return _in_space(access, access.space, _u64(threads.pick(value)), wave, threads, None)


def translate(
    access: Access, frame: Frame, threads: Threads, address: Array | None = None
) -> list[Part]:
    """Return where the active threads' items are, or those at an ``address`` each, without accessing them.

    Raise LaunchError for a wrong address.
    """
    if address is None:
        address = threads.pick(access.base.read(frame.registers))
    if not address.size:
        return []
    return _in_space(access, access.space, _u64(address), frame.wave, threads, None)


def _u64(address: Array) -> Array:
    return address if address.dtype == np.uint64 else address.astype(np.uint64)


def _in_space(
    access: Access, space: str, address: Array, wave: Wave, threads: Threads, where: Array | None
) -> list[Part]:
    """Find the items at ``address + access.offset``."""
    if space == "global":
        return _global(access, address, wave, threads, where)
    address = _offset(address, access.offset)
    if space == "generic":
        return _by_window(_without_offset(access), address, wave, threads)
    region = wave.regions["shared" if space == CLUSTER else space]
    if (access.writes and space == "param") or access.nbytes > LARGEST:
        raise LaunchError(
            f"{access.verb} of {access.nbytes} bytes in {region.name} memory by "
            f"{wave.thread(int(threads.index[0]))}",
            location=wave.locate(access.line),
            hint="kernel parameters cannot be written, and 32 bytes are moved in global memory only",
            kind="bounds",
        )
    start = threads.pick(region.start)
    if where is not None and start.shape[0] > 1:
        start = start[where]
    if region.name == "shared" and wave.config.cluster_ctas > 1:
        start, address = _in_cluster(access, space, start, address, wave, threads, where)
    if not _fit(address, access.nbytes, region.size, region.first):
        wrong = _wrong(address, access.nbytes, region.size, region.first)
        raise _fault(access, address, wrong, wave, threads, where, region)
    return [Part(region, (address.view(np.int64) + start) >> SHIFT[access.nbytes], where)]


@lru_cache(maxsize=1024)
def _without_offset(access: Access) -> Access:
    return replace(access, offset=0)


def _in_cluster(
    access: Access,
    space: str,
    start: Array,
    address: Array,
    wave: Wave,
    threads: Threads,
    where: Array | None,
) -> tuple[Array, Array]:
    """Return where the shared memory of the CTA that each address names begins, and the rest of it."""
    asked = (address >> np.uint64(RANK_SHIFT)).view(np.int64)
    rest: Array = address & np.uint64((1 << RANK_SHIFT) - 1)
    if space == CLUSTER and where is None and asked.item(asked.argmax()) < wave.config.cluster_ctas:
        return threads.pick(wave.cluster_start) + asked * wave.shared_pitch, rest
    own = threads.pick(wave.rank_of)
    if where is not None:
        own = own[where]
    wrong = asked >= wave.config.cluster_ctas if space == CLUSTER else asked != own
    if wrong.any():
        first = int(np.argmax(np.broadcast_to(wrong, own.shape)))
        thread = int(threads.index[first if where is None else int(where[first])])
        value = int(np.broadcast_to(address, own.shape)[first])
        raise LaunchError(
            f"{access.verb} of {access.nbytes} bytes at {value:#x} by {wave.thread(thread)}, which is CTA "
            f"{int(own[first])} of a cluster of {wave.config.cluster_ctas}, names the shared memory of CTA "
            f"{value >> RANK_SHIFT}",
            location=wave.locate(access.line),
            hint=None if space == CLUSTER else "another CTA's is reached by .shared::cluster",
            kind="bounds",
        )
    return start + (asked - own) * wave.shared_pitch, rest


def _offset(address: Array, offset: int) -> Array:
    return address + np.array(offset % (1 << 64), np.uint64) if offset else address


def _fit(offset: Array, nbytes: int, size: int, first: int) -> bool:
    """Say whether all items are aligned, begin at ``first`` or later and end within ``size`` bytes."""
    bits = int(np.bitwise_or.reduce(offset))  # aligned if they all are, and none is larger
    if bits & (nbytes - 1) or (first and offset.item(offset.argmin()) < first):
        return False
    return bits + nbytes <= size or offset.item(offset.argmax()) + nbytes <= size


def _global(
    access: Access, address: Array, wave: Wave, threads: Threads, where: Array | None
) -> list[Part]:
    allocation = wave.memory.find((address.item(0) + access.offset) % (1 << 64))
    if allocation is not None and (allocation.writable or not access.writes):
        offset = _offset(address, access.offset - allocation.address)
        if _fit(offset, access.nbytes, allocation.size, allocation.first):
            return [Part(allocation, offset.view(np.int64) >> SHIFT[access.nbytes], where)]
    address = _offset(address, access.offset)
    return _several_allocations(access, address, wave, threads, where)


def _wrong(offset: Array, nbytes: int, size: int, first: int) -> Array:
    """Return which items are not aligned, begin before ``first``, or do not end within ``size`` bytes."""
    end = offset + np.uint64(nbytes)  # of an offset below zero, a large number, it may be small
    outside = (offset < first) | (offset >= size) | (end > size)
    wrong: Array = outside | (offset % np.uint64(nbytes) != 0)
    return wrong


def _several_allocations(
    access: Access, address: Array, wave: Wave, threads: Threads, where: Array | None
) -> list[Part]:
    """Split the threads by allocation; a thread that is in none of them is at fault."""
    parts: list[Part] = []
    everyone = np.arange(address.shape[0]) if where is None else where
    wrong = np.ones(address.shape[0], bool)
    for allocation, here in wave.memory.split(address):
        if allocation is not None and (allocation.writable or not access.writes):
            offset = address[here] - np.uint64(allocation.address)
            wrong[here] = _wrong(offset, access.nbytes, allocation.size, allocation.first)
            index = offset.view(np.int64) >> SHIFT[access.nbytes]
            parts.append(Part(allocation, index, everyone[here]))
    if wrong.any():
        nearest = wave.memory.find(int(address[np.argmax(wrong)]))
        raise _fault(access, address, wrong, wave, threads, where, nearest)
    return parts


def _by_window(access: Access, address: Array, wave: Wave, threads: Threads) -> list[Part]:
    """Sort generic addresses into shared, local and global memory."""
    if address.shape[0] == 1 and threads.size > 1:
        address = np.repeat(address, threads.size)
    parts: list[Part] = []
    left = np.ones(address.shape[0], bool)
    for space, base in WINDOWS.items():
        inside = (address >= np.uint64(base)) & (address < np.uint64(base + WINDOW_SIZE))
        if inside.any():
            where = None if inside.all() else np.flatnonzero(inside)
            offset = (address if where is None else address[where]) - np.uint64(base)
            reached = CLUSTER if space == "shared" else space
            parts += _in_space(access, reached, offset, wave, threads, where)
            left &= ~inside
    if left.all():
        return _global(access, address, wave, threads, None)
    if left.any():
        where = np.flatnonzero(left)
        parts += _several_allocations(access, address[where], wave, threads, where)
    return parts


def _fault(
    access: Access,
    address: Array,
    wrong: Array,
    wave: Wave,
    threads: Threads,
    where: Array | None,
    memory: Allocation | Region | None,
) -> LaunchError:
    """Describe the first thread whose address is ``wrong``, and what is wrong with it there."""
    first = int(np.argmax(wrong))
    value = int(address[first])
    lane = int(threads.index[first if where is None else int(where[first])])
    shared = address.shape[0] == 1 and where is None  # by all threads
    others = (threads.size if shared else int(np.count_nonzero(wrong))) - 1
    more = f" (and {others} more thread{'s' * (others > 1)})" if others > 0 else ""
    kind, where_to = "bounds", f"{value:#x}"
    if memory is None or not memory.begin <= value <= memory.end - access.nbytes:
        reason, hint = _outside(access, value, wave, memory)
        nearest = None if isinstance(memory, Region) else wave.memory.nearest(value)
        if nearest is not None and nearest.elements and nearest.near(value):
            where_to = nearest.elements.at(value)
    elif isinstance(memory, Allocation) and access.writes and not memory.writable:
        reason, hint = f"writes to constant memory '{memory.name}'", "constant memory is read-only"
        if memory.space != "const":
            reason, hint = f"writes to {memory.name}", "the array that is mapped there is read-only"
    else:
        kind = "alignment"
        reason, hint = "is misaligned", f"the address must be a multiple of {access.nbytes}"
        if isinstance(memory, Allocation):
            hint += f"; it lies in {memory.name}"
    return LaunchError(
        f"{access.verb} of {access.nbytes} bytes at {where_to} by {wave.thread(lane)}{more} {reason}",
        location=wave.locate(access.line),
        hint=hint,
        kind=kind,
        access=WrongAccess(*wave.numbered(lane), value),
    )


def _outside(
    access: Access, value: int, wave: Wave, memory: Allocation | Region | None
) -> tuple[str, str]:
    if isinstance(memory, Region):
        return (
            f"is outside {memory.name} memory, which has {memory.size - memory.first} bytes "
            + (f"from {memory.first:#x} on here" if memory.first else "here"),
            "static and dynamic shared memory together are what the launch may use"
            if memory.name == "shared"
            else f"check the {memory.name} variable's size",
        )
    nearest = wave.memory.nearest(value)
    if nearest is None:
        return "is outside every allocation", "no global memory is allocated"
    if value < nearest.begin:
        distance = f"{nearest.begin - value} bytes before"
    else:
        distance = f"{value - nearest.end} bytes past the end of"
    return (
        "is out of bounds",
        f"it is {distance} the nearest allocation, {nearest.name} "
        f"({nearest.end - nearest.begin} bytes at {nearest.begin:#x})",
    )
