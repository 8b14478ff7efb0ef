"""Memory of this process, as a device that uses it in place is told of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.shapes import dtype_of
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import integer


class HostMemory(NamedTuple):
    """``nbytes`` from ``address`` on; ``name`` is what errors call them."""

    address: int
    nbytes: int
    name: str
    writable: bool


def host_memory(memory: Array | int, nbytes: int | None) -> HostMemory:
    """Return where a contiguous array of any shape and type is, or the ``nbytes`` at an address.

    Raises PtxlabError for an array whose elements do not lie together, or are not plain numbers.
    """
    if not isinstance(memory, np.ndarray):
        address = address_of(memory)
        if nbytes is None:
            raise PtxlabError(f"how many bytes are at {address:#x}?", hint="give nbytes")
        return HostMemory(address, _size(nbytes), "memory of this process", writable=True)
    name = f"array {dtype_of(memory.dtype)}{list(memory.shape)}"
    if not memory.flags.forc or not memory.dtype.isnative:
        what = (
            "has gaps between its elements" if memory.dtype.isnative else "is in another byte order"
        )
        raise PtxlabError(
            f"{name} {what}, so a device cannot use it in place",
            hint="map a copy, np.ascontiguousarray(array), or device.upload(array)",
        )
    size = memory.nbytes if nbytes is None else _size(nbytes)
    if not 0 < size <= memory.nbytes:
        raise PtxlabError(f"{name} has {memory.nbytes} bytes, of which {size} cannot be mapped")
    return HostMemory(address_of(memory), size, name, memory.flags.writeable)


def address_of(memory: Array | int) -> int:
    """Return the address of an array of any shape and type, or the one that is given.

    Raises PtxlabError for neither.
    """
    if isinstance(memory, np.ndarray):
        return int(memory.ctypes.data)
    if isinstance(memory, int | np.integer) and not isinstance(memory, bool):
        return int(memory)
    raise PtxlabError(
        f"a {type(memory).__name__} is no memory to map: an array of numpy is, or an address",
        hint="of a tensor on the CPU give data_ptr() and its bytes, or tensor.numpy()",
    )


def _size(nbytes: int) -> int:
    size = integer("nbytes", nbytes)
    if size < 1:
        raise PtxlabError(f"nbytes is a number of bytes to map, not {size}")
    return size
