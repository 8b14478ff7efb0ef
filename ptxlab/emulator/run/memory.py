"""Global memory of the emulated GPU: allocations in one address space, and memory of this process.

Every allocation is a numpy byte array with a distance of at least ``GUARD`` bytes to the next one,
so that an access that runs out of its array meets nothing and can be reported. What is mapped keeps
the addresses it has in this process, and all others are where no process of Linux has any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array, Integers, Octets, Words
from ptxlab.emulator.address_map import FIRST_ADDRESS, HOST_END
from ptxlab.errors import PtxlabError

GUARD = 1 << 20
ALIGNMENT = 512  # cudaMalloc promises 256; 512 keeps every vector type aligned
LARGE, PAGE = 1 << 20, 1 << 21
"""So many bytes begin a page of a GPU's memory, as the driver gives them: Taichi counts on it."""
LINE = 32
"""Bytes of the largest access: the memory behind an allocation is a multiple of it, at one."""

ENTRY = 4
"""Words of an allocation in the table that machine code looks addresses up in."""

ITEM: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
ITEM |= {16: np.dtype(np.complex128), 32: np.dtype("V32")}
"""The dtype that moves ``size`` bytes as one item; larger ones than 8 are only ever moved."""


@dataclass(slots=True, eq=False)
class Bytes:
    """``size`` bytes that programs may use of ``data``; ``name`` is what error messages call them."""

    name: str
    size: int
    data: Octets
    _views: dict[int, Array] = field(default_factory=dict, init=False)

    def items(self, size: int) -> Array:
        """Return the bytes as an array of ``size``-byte items (the last one may be padding)."""
        view = self._views.get(size)
        if view is None:
            view = self._views[size] = self.data.view(ITEM[size])
        return view

    @property
    def begin(self) -> int:
        """The address where it begins for programs."""
        return 0

    @property
    def end(self) -> int:
        """The address where it ends for programs."""
        return self.size


@dataclass(frozen=True, slots=True)
class Elements:
    """What a program calls what lies in memory: the tensor ``name``, from ``address`` on.

    Its elements have ``size`` bytes each; ``strides`` of the dimensions are in elements. ``shape`` and ``dtype``, NumPy's
    name of their type, are there where the program has told them.
    """

    name: str
    address: int
    size: int
    strides: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    dtype: str = ""

    def at(self, address: int) -> str:
        """Name the element at an address: ``x[3, 5]``, of one outside the tensor with an index that is too large."""
        left = (address - self.address) // self.size
        index = [0] * len(self.strides)
        for axis in sorted(range(len(index)), key=lambda axis: -self.strides[axis]):
            if self.strides[axis] > 0:
                index[axis], left = divmod(left, self.strides[axis])
        return f"{self.name}[{', '.join(map(str, index))}]" if index else self.name


@dataclass(slots=True, eq=False)
class Allocation(Bytes):
    """Global or, in ``space`` "const", constant memory from ``address`` on.

    The ``first`` bytes are none that programs may use: they are there so that the rest is aligned. ``elements`` is
    what a program calls them, where that is known.
    """

    address: int
    first: int = 0
    space: str = "global"
    writable: bool = True
    elements: Elements | None = None

    @property
    def begin(self) -> int:
        return self.address + self.first

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def entry(self) -> tuple[int, ...]:
        """Return what machine code has to know of it, ``ENTRY`` words: its first address, its size, what
        makes its addresses those of this process, and whether it may be written."""
        distance = (self.data.ctypes.data - self.address) % (1 << 64)
        return self.begin, self.end - self.begin, distance, self.writable

    def near(self, address: int) -> bool:
        """Say whether an address that is none of it is no further from it than it is large."""
        reach = self.end - self.begin
        return self.begin - reach <= address < self.end + reach

    def element(self, byte: int) -> str:
        """Name a byte of it: the element it belongs to where that is known, ``x[3, 5]``."""
        if self.elements is None:
            return f"byte {byte} of {self.name}"
        return self.elements.at(self.address + byte)


@dataclass(slots=True, eq=False)
class Region(Bytes):
    """Memory of which every thread sees a part of its own: shared memory (a part a CTA) or local.

    ``start`` is where address 0 of each thread's part would be in ``data``; the thread may use the
    addresses from ``first`` on, below ``size``. The address itself says which part is meant by what is
    added to it, the thread's own by ``base``.
    """

    start: Integers
    base: Integers
    first: int = 0

    @property
    def begin(self) -> int:
        return self.first


def pitched(nbytes: int) -> int:
    """Return ``nbytes`` rounded up so that the next part is aligned for every access."""
    return -(-nbytes // 16) * 16


@dataclass(slots=True)
class Part:
    """Items of one array for some of the active threads; ``where`` is None when it is all of them.

    ``index`` has one entry per thread of the part, or a single one that all of them use.
    """

    memory: Allocation | Region
    index: Array
    where: Array | None = None


class _Span:
    """Memory of this process, which ``owner`` holds, as numpy takes it."""

    def __init__(self, address: int, nbytes: int, owner: object, *, writable: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, not writable), "shape": (nbytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


class GlobalMemory:
    """The allocations of one emulated device, in the order of their addresses.

    ``heap`` are the sizes of what device code allocated.
    """

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._allocations: list[Allocation] = []
        self._begins: list[int] = []
        self.heap: dict[int, int] = {}
        self.table: Words = np.zeros(1, np.uint64)
        """How many allocations there are, and of each what ``Allocation.entry`` is.

        It is one array as long as there is room in it, so that machine code finds it again.
        """

    def allocate(self, nbytes: int, name: str = "allocation", space: str = "global") -> int:
        """Reserve ``nbytes`` zeroed bytes and return their address, a multiple of 512, and of ``PAGE`` for ``LARGE``.

        Raise PtxlabError when there is no room for them.
        """
        padded = max(LINE, _lines(nbytes))
        try:
            data = np.zeros(padded, np.uint8)
        except (MemoryError, ValueError, OverflowError):
            raise PtxlabError(
                f"no memory for {name}: {nbytes} bytes",
                hint="the emulator keeps a GPU's memory in the memory of this machine",
            ) from None
        if nbytes >= LARGE:
            self._next = -(-self._next // PAGE) * PAGE
        address = self._next
        self._insert(Allocation(name, nbytes, data, address, 0, space, space != "const"))
        self._next += -(-(padded + GUARD) // ALIGNMENT) * ALIGNMENT
        return address

    def map(
        self,
        address: int,
        nbytes: int,
        name: str,
        owner: object,
        *,
        writable: bool,
        elements: Elements | None = None,
    ) -> None:
        """Use ``nbytes`` of this process from ``address`` on in place, and keep their ``owner``.

        Whole lines are looked at, which never reach into another page. Raise PtxlabError for memory
        that is mapped already, or that no process has.
        """
        if not 0 < address < address + nbytes <= HOST_END:
            raise PtxlabError(
                f"{nbytes} bytes at {address:#x} are no memory of a process",
                hint="what the device allocated has its address there already",
            )
        at = bisect_right(self._begins, address)
        for other in self._allocations[max(at - 1, 0) : at + 1]:
            if other.begin < address + nbytes and address < other.end:
                raise PtxlabError(
                    f"{name} ({nbytes} bytes at {address:#x}) overlaps {other.name} "
                    f"({other.end - other.begin} bytes at {other.begin:#x}), which is mapped",
                    hint="unmap that first, or map what holds both",
                )
        first = address % LINE
        span = _Span(address - first, _lines(first + nbytes), owner, writable=writable)
        begin, data = address - first, np.asarray(span)
        size = first + nbytes
        self._insert(
            Allocation(name, size, data, begin, first, writable=writable, elements=elements)
        )

    def unmap(self, address: int) -> None:
        """Take back what ``map`` did. Raise PtxlabError where nothing is mapped."""
        if address >= HOST_END or address not in self._begins:
            raise PtxlabError(
                f"nothing is mapped at {address:#x}",
                hint="it is unmapped by the address, or the array, that was mapped",
            )
        self.free(address)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Have all memory as it is now again at the end, whatever is written meanwhile."""
        restore = self.remembered()
        allocations, begins, heap = self._allocations.copy(), self._begins.copy(), self.heap.copy()
        table = self.table.copy()
        try:
            yield
        finally:
            self._allocations, self._begins, self.heap = allocations, begins, heap
            self.table[: table.size] = table
            restore()

    def remembered(self) -> Callable[[], None]:
        """Return a function that has what all memory holds now there again."""
        before = [
            (allocation, allocation.data[allocation.first : allocation.size].copy())
            for allocation in self._allocations
            if allocation.writable
        ]

        def restore() -> None:
            for allocation, data in before:
                allocation.data[allocation.first : allocation.size] = data

        return restore

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """All of them, in the order of their addresses."""
        return tuple(self._allocations)

    def _insert(self, allocation: Allocation) -> None:
        at = bisect_right(self._begins, allocation.begin)
        self._allocations.insert(at, allocation)
        self._begins.insert(at, allocation.begin)
        needed = 1 + ENTRY * len(self._begins)
        if needed > self.table.size:
            self.table = np.concatenate([self.table, np.zeros(2 * needed, np.uint64)])
        entries = self._entries()
        entries[at + 1 :] = entries[at:-1]
        entries[at] = allocation.entry
        self.table[0] = len(self._begins)

    def _entries(self) -> Words:
        """Return the part of the table with an entry an allocation, [allocation, word]."""
        return self.table[1 : 1 + ENTRY * len(self._begins)].reshape(-1, ENTRY)

    def free(self, address: int) -> None:
        """Release the allocation that begins at ``address``; any later access to it is an error."""
        at = self._begins.index(address)
        entries = self._entries()
        entries[at:-1] = entries[at + 1 :]
        del self._allocations[at], self._begins[at]
        self.table[0] = len(self._begins)

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that begins at or before ``address``, the nearest one below it."""
        at = bisect_right(self._begins, address) - 1
        return self._allocations[at] if at >= 0 else None

    def split(self, addresses: Words) -> Iterator[tuple[Allocation | None, npt.NDArray[np.intp]]]:
        """Return what ``find`` gives for ``addresses``, each with the positions it is given for."""
        begins = np.array(self._begins, np.uint64)
        number = np.searchsorted(begins, addresses, side="right") - 1
        for at in np.flatnonzero(np.bincount(number + 1)) - 1:
            yield self._allocations[at] if at >= 0 else None, np.flatnonzero(number == at)

    def nearest(self, address: int) -> Allocation | None:
        """Return the allocation closest to ``address``, on either side of it."""

        def distance(allocation: Allocation) -> int:
            return max(allocation.begin - address, address - allocation.end)

        return min(self._allocations, key=distance, default=None)

    def write(self, address: int, data: npt.ArrayLike | bytes) -> None:
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else _bytes(data)
        allocation, start = self._inside(address, raw.size)
        allocation.data[start : start + raw.size] = raw

    def read(self, address: int, nbytes: int) -> Octets:
        return self.view(address, nbytes).copy()

    def view(self, address: int, nbytes: int) -> Octets:
        """Return what is there, which changes when somebody writes to it, and not by this."""
        allocation, start = self._inside(address, nbytes)
        seen = allocation.data[start : start + nbytes]
        seen.flags.writeable = False
        return seen

    def _inside(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        allocation = self.find(address)
        if allocation is None or address + nbytes > allocation.end:
            raise ValueError(f"{nbytes} bytes at {address:#x} are not inside one allocation")
        return allocation, address - allocation.address


def _lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE


def _bytes(data: npt.ArrayLike) -> Octets:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
