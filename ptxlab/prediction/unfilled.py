"""A device for kernels that are predicted: arrays are not copied there, and mostly nobody asks for their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Octets
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.memory import Buffer
from ptxlab.device.shapes import dtype_of, host_array
from ptxlab.isa.targets import Target


class Shaped:
    """What is told of an array in place of its numbers."""

    def __init__(self, shape: Sequence[int], dtype: str) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)


class UnfilledDevice(EmulatorDevice):
    """The emulator, whose buffers read what was uploaded where it was; what is an array tells its shape and type."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._uploaded: dict[int, Any] = {}

    def upload(self, array: npt.ArrayLike | Shaped) -> Buffer:
        told: Any = (
            array if hasattr(array, "shape") and hasattr(array, "dtype") else host_array(array)
        )
        buffer = self.buffer_type(self, told.shape, dtype_of(told.dtype))
        self._uploaded[buffer.address] = told
        return buffer

    def read(self, address: int, nbytes: int) -> Octets:
        if address not in self._uploaded:
            return super().read(address, nbytes)
        return host_array(self._uploaded[address]).reshape(-1).view(np.uint8)[:nbytes]

    def knows(self, address: int) -> bool:
        """Say whether the numbers of what was uploaded to an address are known."""
        return not isinstance(self._uploaded.get(address), Shaped)

    def free(self, address: int) -> None:
        self._uploaded.pop(address, None)
        super().free(address)
