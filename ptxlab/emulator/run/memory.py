"""Global memory of the emulated GPU: allocations in one address space, far apart from each other.

Every allocation is a numpy byte array with a distance of at least ``GUARD`` bytes to the next one,
so that an access that runs out of its array meets nothing and can be reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.run.registers import Array, Source
from ptxlab.errors import PtxlabError

GUARD = 1 << 20
ALIGNMENT = 512  # cudaMalloc promises 256; 512 keeps every vector type aligned
FIRST_ADDRESS = 0x7F00_0000_0000

# Generic address windows. Global and constant memory are at their own addresses.
SHARED_WINDOW = 0x0100_0000_0000
LOCAL_WINDOW = 0x0200_0000_0000
FUNCTION_WINDOW = 0x0300_0000_0000
PARAM_WINDOW = 0x0400_0000_0000
WINDOW_SIZE = 0x0100_0000_0000

ITEM: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
ITEM |= {16: np.dtype(np.complex128), 32: np.dtype("V32")}
"""The dtype that moves ``size`` bytes as one item; larger ones than 8 are only ever moved."""


@dataclass(slots=True, eq=False)
class Bytes:
    """``size`` bytes that programs may use of ``data``; ``name`` is what error messages call them."""

    name: str
    size: int
    data: npt.NDArray[np.uint8]
    _views: dict[int, npt.NDArray[Any]] = field(default_factory=dict, init=False)

    def items(self, size: int) -> npt.NDArray[Any]:
        """Return the bytes as an array of ``size``-byte items (the last one may be padding)."""
        view = self._views.get(size)
        if view is None:
            view = self._views[size] = self.data.view(ITEM[size])
        return view


@dataclass(slots=True, eq=False)
class Allocation(Bytes):
    """Global memory from ``address`` on."""

    address: int
    writable: bool = True


@dataclass(slots=True, eq=False)
class Region(Bytes):
    """Memory of which every thread sees a part of its own: shared memory (a part a CTA) or local.

    ``start`` is where each thread's part begins in ``data``, ``size`` how many bytes it may use.
    """

    start: npt.NDArray[np.int64]


def pitched(nbytes: int) -> int:
    """Return ``nbytes`` rounded up so that the next part is aligned for every access."""
    return -(-nbytes // 16) * 16


@dataclass(frozen=True, slots=True)
class Access:
    """A memory operand: ``nbytes`` at ``base + offset`` in ``space``, by the instruction on ``line``.

    ``space`` is "global" (also for const), "shared", "local", "param" or "generic"; ``verb`` is how
    messages call it.
    """

    space: str
    base: Source
    offset: int
    nbytes: int
    line: int
    verb: str
    writes: bool = False


@dataclass(slots=True)
class Part:
    """Items of one array for some of the active threads; ``where`` is None when it is all of them.

    ``index`` has one entry per thread of the part, or a single one that all of them use.
    """

    memory: Allocation | Region
    index: Array
    where: Array | None = None


class GlobalMemory:
    """The allocations of one emulated device.

    ``heap`` are the sizes of what device code allocated.
    """

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._allocations: list[Allocation] = []
        self._addresses: list[int] = []
        self.heap: dict[int, int] = {}

    def allocate(self, nbytes: int, name: str = "allocation", *, writable: bool = True) -> int:
        """Reserve ``nbytes`` zeroed bytes and return their address, a multiple of 512.

        Raise PtxlabError when there is no room for them.
        """
        padded = max(32, -(-nbytes // 32) * 32)
        try:
            data = np.zeros(padded, np.uint8)
        except (MemoryError, ValueError, OverflowError):
            raise PtxlabError(
                f"no memory for {name}: {nbytes} bytes",
                hint="the emulator keeps a GPU's memory in the memory of this machine",
            ) from None
        allocation = Allocation(name, nbytes, data, self._next, writable)
        self._allocations.append(allocation)
        self._addresses.append(allocation.address)
        self._next += -(-(padded + GUARD) // ALIGNMENT) * ALIGNMENT
        return allocation.address

    def free(self, address: int) -> None:
        """Release the allocation that begins at ``address``; any later access to it is an error."""
        at = self._addresses.index(address)
        del self._allocations[at], self._addresses[at]

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that begins at or before ``address``, the nearest one below it."""
        at = bisect_right(self._addresses, address) - 1
        return self._allocations[at] if at >= 0 else None

    def split(
        self, addresses: npt.NDArray[np.uint64]
    ) -> Iterator[tuple[Allocation | None, npt.NDArray[np.intp]]]:
        """Return what ``find`` gives for ``addresses``, each with the positions it is given for."""
        begins = np.array(self._addresses, np.uint64)
        number = np.searchsorted(begins, addresses, side="right") - 1
        for at in np.flatnonzero(np.bincount(number + 1)) - 1:
            yield self._allocations[at] if at >= 0 else None, np.flatnonzero(number == at)

    def nearest(self, address: int) -> Allocation | None:
        """Return the allocation closest to ``address``, on either side of it."""

        def distance(allocation: Allocation) -> int:
            return max(allocation.address - address, address - allocation.address - allocation.size)

        return min(self._allocations, key=distance, default=None)

    def write(self, address: int, data: npt.ArrayLike | bytes) -> None:
        """Copy host ``data`` (bytes or an array) to ``address``."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else _bytes(data)
        allocation, start = self._inside(address, raw.size)
        allocation.data[start : start + raw.size] = raw

    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return a copy of ``nbytes`` bytes at ``address``."""
        allocation, start = self._inside(address, nbytes)
        return allocation.data[start : start + nbytes].copy()

    def _inside(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        allocation = self.find(address)
        if allocation is None or address + nbytes > allocation.address + allocation.size:
            raise ValueError(f"{nbytes} bytes at {address:#x} are not inside one allocation")
        return allocation, address - allocation.address


def _bytes(data: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
