"""Arrays in the memory of a device: buffers, and what a device does with bytes."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array, Octets
from ptxlab.device.shapes import dtype_of, host_array, shape_of
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import Dim


class Closing(ABC):
    """What holds something on a device until it is closed, at the latest at the end of a ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Release it. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Buffer(Closing):
    """Device memory holding one array, released by ``close``, by ``with``, or when unreachable.

    ``shape`` and ``dtype`` are the array's, ``nbytes`` is its size in bytes.
    """

    def __init__(self, device: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        device.require_open()
        address = device.allocate(self.nbytes, f"buffer {dtype}{list(shape)}")
        self._hold(address, device.free, address)

    def _hold(self, address: int, free: Callable[..., None], *given: Any) -> None:
        """Be the memory at ``address`` until ``free`` is called with what it is ``given``."""
        self._address = address
        self._release = weakref.finalize(self, free, *given)
        self._release.atexit = False  # the process takes its memory with it

    @property
    def address(self) -> int:
        """Where it begins, in the device's address space."""
        self.require_open()
        return self._address

    def require_open(self) -> None:
        """Raise PtxlabError once the buffer is closed."""
        if not self._release.alive:
            raise PtxlabError("this buffer is closed")

    def numpy(self) -> Array:
        """Return a copy of the contents on the host, after all work on the device is done.

        It has the buffer's shape and dtype. Raises PtxlabError once the buffer or the device is closed.
        """
        self.device.require_open()
        raw = self.device.read(self.address, self.nbytes)
        return raw.view(self.dtype).reshape(self.shape)

    def close(self) -> None:
        """Release the memory. Closing twice is fine."""
        self._release()

    def __repr__(self) -> str:
        state = f"at {self._address:#x}" if self._release.alive else "closed"
        return f"<{self.device.kind} buffer {self.dtype}{list(self.shape)} {state}>"


class Memory(Closing):
    """Arrays in device memory, over four operations on bytes.

    ``kind`` says whose memory it is, ``emulator`` or ``cuda``.
    """

    kind: str
    buffer_type: type[Buffer] = Buffer
    is_open = True

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call the device."""

    @abstractmethod
    def allocate(self, nbytes: int, name: str) -> int:
        """Reserve memory and return its address; ``name`` is what errors call it."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Release what ``allocate`` returned."""

    @abstractmethod
    def write(self, address: int, data: Array) -> None:
        """Copy a contiguous array, whose shape and type do not count, to device memory."""

    @abstractmethod
    def fill_zero(self, address: int, nbytes: int) -> None:
        """Set what was just allocated to zero."""

    @abstractmethod
    def read(self, address: int, nbytes: int) -> Octets:
        """Copy device memory to a new array of bytes, after all work on the device is done."""

    def close(self) -> None:
        """Release the device and what it holds. Closing twice is fine."""
        self.is_open = False

    def require_open(self) -> None:
        """Raise PtxlabError once the device is closed."""
        if not self.is_open:
            raise PtxlabError(f"this device ({self.name}) is closed")

    def upload(self, array: npt.ArrayLike) -> Buffer:
        """Copy an array to the device; shape and type stay with the buffer.

        Raises PtxlabError for what is no array of plain numbers.
        """
        data = host_array(array)
        buffer = self.buffer_type(self, data.shape, data.dtype)
        if data.nbytes:
            self.write(buffer.address, data)
        return buffer

    def zeros(self, shape: Dim, dtype: str | npt.DTypeLike) -> Buffer:
        """Return a buffer of zeros; ``dtype`` is a PTX type name or anything numpy takes."""
        buffer = self.buffer_type(self, shape_of(shape), dtype_of(dtype))
        if buffer.nbytes:
            self.fill_zero(buffer.address, buffer.nbytes)
        return buffer
