"""A GPU as a device.

Programs reach the GPU as cubins built by nvJitLink, never as PTX for the driver to compile: a
cubin of any CUDA 13 runs under any CUDA 13 driver, PTX newer than the driver does not (CUDA
Compatibility, "Minor Version Compatibility").
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ptxlab.arrays import Array, Octets
from ptxlab.device.cuda_context import CudaContext
from ptxlab.device.cuda_memory import CudaBuffer
from ptxlab.device.cuda_module import CudaModule
from ptxlab.device.loading import Loadable, find_file, is_cubin, load_assembled
from ptxlab.errors import PtxlabError
from ptxlab.tensormap.tensor_map import (
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
    Im2col,
    TensorMap,
)


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """A GPU's SMs, the highest ``clock`` of these in MHz, its caches and memory, and its PCI bus."""

    multiprocessors: int
    clock: float
    l2_bytes: int
    memory_bytes: int
    bus: str


class CudaDevice(CudaContext):
    """One GPU, whose every operation has ended when its method returns."""

    kind = "cuda"
    buffer_type = CudaBuffer

    @cached_property
    def properties(self) -> GpuProperties:
        """What the driver says of the GPU."""
        bus = self.driver.call("cuDeviceGetPCIBusId", 32, self._device)
        return GpuProperties(
            multiprocessors=self.attribute("MULTIPROCESSOR_COUNT"),
            clock=self.attribute("CLOCK_RATE") / 1e3,
            l2_bytes=self.attribute("L2_CACHE_SIZE"),
            memory_bytes=int(self.driver.call("cuDeviceTotalMem", self._device)),
            bus=bus.split(b"\0")[0].decode(),
        )

    @property
    def free_bytes(self) -> int:
        """The memory of the GPU that nobody has now."""
        return int(self.call("ask how much memory is free", "cuMemGetInfo")[0])

    @property
    def name(self) -> str:
        """The GPU's name: ``NVIDIA H200``."""
        return self._name

    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> CudaModule:
        """Load a ``.ptx``, ``.cu`` or ``.cubin`` file, or PTX.

        See ``ptxlab.device.protocol.Device``. The parameters of a cubin's kernels have no types:
        ``#0`` of 4 bytes takes an integer or a float. Raises PtxlabError for options beside a cubin.
        """
        self.require_open()
        if is_cubin(source):
            if options:
                raise PtxlabError("options are for compiling CUDA C; a .cubin is compiled already")
            return CudaModule(self, os.fspath(source), find_file(source).read_bytes(), None)
        tree, cubin = load_assembled(source, self.target, options)
        path = tree.source.path
        return CudaModule(self, path, cubin.image, tree)

    def lend(self, to: str) -> int:
        """Return the stream for another library's work, in this GPU's context, with nothing on it."""
        self.call(f"lend the GPU to {to}", "cuStreamSynchronize", self.stream)
        return int(self.stream)

    def allocate(self, nbytes: int, name: str) -> int:
        doing = f"allocate {name} of {nbytes} bytes"
        return int(self.call(doing, "cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        self.release("cuMemFree", address)

    def write(self, address: int, data: Array) -> None:
        doing = f"copy {data.nbytes} bytes to the GPU"
        self._copy(doing, "cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes)

    def fill_zero(self, address: int, nbytes: int) -> None:
        self.fill(address, nbytes, 0)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set every byte of GPU memory; with 0xff all floating-point numbers are NaN."""
        self._copy(f"fill {nbytes} bytes", "cuMemsetD8Async", address, byte, nbytes)

    def read(self, address: int, nbytes: int) -> Octets:
        data = np.empty(nbytes, np.uint8)
        if nbytes:
            self.read_into(address, data)
        return data

    def read_into(self, address: int, data: Array) -> None:
        """Copy GPU memory to an array of any shape and type that is contiguous."""
        doing = f"copy {data.nbytes} bytes from the GPU"
        self._copy(doing, "cuMemcpyDtoHAsync", data.ctypes.data, address, data.nbytes)

    def encode_tensor_map(self, tensor_map: TensorMap) -> bytes:
        """Return the 128 bytes of a tensor map as the driver makes them."""
        api, box, doing = self.driver.api, tensor_map.box, "encode a tensor map"

        def sizes(values: tuple[int, ...]) -> list[Any]:
            return [api.cuuint32_t(value) for value in values]

        tensor = (
            api.CUtensorMapDataType(tensor_map.element.driver),
            tensor_map.rank,
            tensor_map.address,
            [api.cuuint64_t(size) for size in tensor_map.dims],
            [api.cuuint64_t(stride) for stride in tensor_map.strides or (0,)],
        )
        modes = (
            sizes(tensor_map.element_strides),
            api.CUtensorMapInterleave(INTERLEAVES.index(tensor_map.interleave)),
            api.CUtensorMapSwizzle(SWIZZLES.index(tensor_map.swizzle)),
            api.CUtensorMapL2promotion(L2_PROMOTIONS.index(tensor_map.l2_promotion)),
            api.CUtensorMapFloatOOBfill(FILLS.index(tensor_map.fill)),
        )
        if isinstance(box, Im2col) and box.wide:
            line = (*box.lower, *box.upper, box.channels, box.pixels, *modes[:2])
            of_w = api.CUtensorMapIm2ColWideMode.CU_TENSOR_MAP_IM2COL_WIDE_MODE_W
            made = self.call(doing, "cuTensorMapEncodeIm2colWide", *tensor, *line, of_w, *modes[2:])
        elif isinstance(box, Im2col):
            window = (list(box.lower), list(box.upper), box.channels, box.pixels)
            made = self.call(doing, "cuTensorMapEncodeIm2col", *tensor, *window, *modes)
        else:
            made = self.call(doing, "cuTensorMapEncodeTiled", *tensor, sizes(box), *modes)
        return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)

    def _copy(self, doing: str, function: str, *args: Any) -> None:
        self.call(doing, function, *args, self.stream)
        self.call(doing, "cuStreamSynchronize", self.stream)
