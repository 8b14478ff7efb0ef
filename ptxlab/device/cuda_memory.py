"""Memory of a GPU that other libraries reach without a copy, and memory it has in common with the CPU."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array
from ptxlab.device.cuda_context import CudaContext
from ptxlab.device.dlpack import CUDA, capsule
from ptxlab.device.memory import Buffer

_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL


class CudaBuffer(Buffer):
    """GPU memory holding one array, open to other libraries without a copy."""

    device: CudaContext

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address if self.nbytes else 0, False),
            "version": 3,
            "strides": None,
            "stream": None,  # every launch and copy here has ended when it returns
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.ordinal

    def __dlpack__(self, **requests: Any) -> Any:
        # ``stream`` asks us to wait for our own work, all of which has ended.
        if requests.get("copy"):
            raise BufferError("a ptxlab buffer shares its memory and does not copy")
        return capsule(self, self.address, self.shape, self.dtype, self.__dlpack_device__())


class CommonBuffer(Buffer):
    """An array that the CPU and a GPU both reach: ``array`` for the one, ``address`` for the other.

    Pinned memory is the CPU's, where it stays, and the GPU reaches it through the bus; ``managed``
    memory moves to whoever touches it. CUDA Driver API, "Memory Management": cuMemHostAlloc,
    cuMemAllocManaged. The array is full of zeros, and gone when this is closed.
    """

    def __init__(
        self, device: CudaContext, shape: tuple[int, ...], dtype: npt.DTypeLike, *, managed: bool
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.nbytes = prod(shape) * self.dtype.itemsize
        doing = f"allocate {self.nbytes} bytes of {'managed' if managed else 'pinned'} memory"
        if managed:
            pointer = device.call(doing, "cuMemAllocManaged", self.nbytes, _GLOBAL)
            host = int(pointer)
            self._hold(host, device.release, "cuMemFree", pointer)
        else:
            host = int(device.call(doing, "cuMemHostAlloc", self.nbytes, _MAPPED))
            self._hold(host, device.release, "cuMemFreeHost", host)
            self._address = int(device.call(doing, "cuMemHostGetDevicePointer", host, 0))
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(host))
        self.array: Array = memory.view(self.dtype).reshape(shape)
        self.array[...] = 0

    def numpy(self) -> Array:
        return self.array.copy()
