"""A GPU as a device.

Programs reach the GPU as cubins built by nvJitLink, never as PTX for the driver to compile: a
cubin of any CUDA 13 runs under any CUDA 13 driver, PTX newer than the driver does not (CUDA
Compatibility, "Minor Version Compatibility").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.base import BaseDevice
from ptxlab.device.cuda_driver import Driver, DriverError, gpu_count
from ptxlab.device.cuda_memory import CudaBuffer
from ptxlab.device.cuda_module import CudaKernel, CudaModule, KernelArguments
from ptxlab.device.faults import STICKY, explain
from ptxlab.device.loading import is_cubin, load_assembled, locate
from ptxlab.device.protocol import LaunchResult, Source
from ptxlab.device.shapes import clusters
from ptxlab.errors import DeviceUnavailable, LaunchError, PtxlabError
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.launch_config import LaunchConfig

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PORTABLE_CLUSTER = 8  # larger clusters need the kernel's consent


def target_of(capability: int) -> Target:
    """Return the target of a GPU's compute capability (90): with its own features where it has any.

    Architecture-specific targets (``sm_90a``) begin with capability 9.0.
    """
    suffix = "a" if capability >= 90 else ""
    known = TARGETS.get(f"sm_{capability}{suffix}")
    if known is not None:
        return known
    # A GPU outside the table runs the same; only its emulation is not described by it.
    older = [target for target in TARGETS.values() if target.capability <= capability]
    if not older:
        raise DeviceUnavailable(
            f"the GPU's compute capability {capability // 10}.{capability % 10} is too old",
            hint="ptxlab runs on compute capability 7.5 and newer, or with --device emulator",
        )
    nearest = max(older, key=lambda target: target.capability)
    return replace(nearest, name=f"sm_{capability}{suffix}", capability=capability, suffix=suffix)


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """A GPU's SMs, the highest ``clock`` of these in MHz, its caches and memory, and its PCI bus."""

    multiprocessors: int
    clock: float
    l2_bytes: int
    memory_bytes: int
    bus: str


class CudaDevice(BaseDevice):
    """One GPU, through its primary context and one stream of ptxlab's own.

    Every operation has ended when its method returns. After a fault in a kernel the GPU's context
    is ``lost`` for this process, which says when, and so does each later operation.
    """

    buffer_type = CudaBuffer
    note = ""

    def __init__(self, ordinal: int = 0) -> None:
        count = gpu_count()
        if not 0 <= ordinal < count:
            shown = "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
            raise DeviceUnavailable(
                f"there is no GPU {ordinal}: the driver shows {shown}",
                hint="CUDA_VISIBLE_DEVICES hides GPUs; --device emulator needs none",
            )
        self.driver = Driver()
        self.ordinal = ordinal
        self.lost = ""
        self._name = ""
        try:
            self._open()
        except DriverError as error:
            raise DeviceUnavailable(
                f"GPU {ordinal} does not open: {error}",
                hint="nvidia-smi says whether another process holds it",
            ) from None

    def _open(self) -> None:
        call = self.driver.call
        self._device = call("cuDeviceGet", self.ordinal)
        self._name = call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode()
        major, minor = map(
            self._attribute, ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
        )
        self.target = target_of(10 * major + minor)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        call("cuCtxSetCurrent", self._context)
        self.stream = call("cuStreamCreate", _NON_BLOCKING)
        self._began, self._ended = call("cuEventCreate", 0), call("cuEventCreate", 0)

    def _attribute(self, name: str) -> int:
        attribute = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", attribute, self._device))

    @cached_property
    def properties(self) -> GpuProperties:
        """What the driver says of the GPU."""
        bus = self.driver.call("cuDeviceGetPCIBusId", 32, self._device)
        return GpuProperties(
            multiprocessors=self._attribute("MULTIPROCESSOR_COUNT"),
            clock=self._attribute("CLOCK_RATE") / 1e3,
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            memory_bytes=int(self.driver.call("cuDeviceTotalMem", self._device)),
            bus=bus.split(b"\0")[0].decode(),
        )

    @property
    def free_bytes(self) -> int:
        """The memory of the GPU that nobody has now."""
        return int(self.call("ask how much memory is free", "cuMemGetInfo")[0])

    @property
    def kind(self) -> str:
        """``cuda``."""
        return "cuda"

    @property
    def name(self) -> str:
        """The GPU's name: ``NVIDIA H200``."""
        return self._name

    def load(self, source: Source, *, options: Sequence[str] = ()) -> CudaModule:
        """Load a ``.ptx``, ``.cu`` or ``.cubin`` file, or PTX.

        See ``ptxlab.device.protocol.Device``. The parameters of a cubin's kernels have no types:
        ``#0`` of 4 bytes takes an integer or a float.
        """
        self.require_open()
        if is_cubin(source):
            if options:
                raise PtxlabError("options are for compiling CUDA C; a .cubin is compiled already")
            return CudaModule(self, os.fspath(source), locate(source).read_bytes(), None)
        tree, cubin = load_assembled(source, self.target, options)
        path = tree.source.path
        return CudaModule(self, path, cubin.image, tree)

    def call(self, doing: str, function: str, *args: Any) -> Any:
        """Call the driver in this GPU's context; a failure becomes a LaunchError."""
        if self.lost:
            raise LaunchError(
                f"cannot {doing}: the GPU's context was lost when {self.lost}",
                hint="no later work in this process can use the GPU; start a new one",
            )
        try:
            self.driver.call("cuCtxSetCurrent", self._context)
            return self.driver.call(function, *args)
        except DriverError as error:
            if error.code in STICKY:
                self.lost = f"it was to {doing}: {error}"
            message, hint = explain(error.code, str(error))
            raise LaunchError(f"cannot {doing}: {message}", hint=hint) from None

    def queueing(
        self, kernel: CudaKernel, config: LaunchConfig, parameters: bytes
    ) -> Callable[[], None]:
        """Return what puts one launch of a kernel on this GPU's stream, each time it is called."""
        doing = kernel.doing
        handle = self.call(doing, "cuModuleGetFunction", kernel.module.handle, kernel.name.encode())
        self._allow(kernel, handle, config)
        arguments = KernelArguments(kernel.parameters, parameters)

        def launch() -> None:
            given = (arguments.address, 0)
            attributes = self._attributes(config)
            if attributes:
                described = self._described(config, attributes)
                self.call(doing, "cuLaunchKernelEx", described, handle, *given)
            else:
                shape = (*config.grid, *config.block, config.shared, self.stream)
                self.call(doing, "cuLaunchKernel", handle, *shape, *given)

        return launch

    def timed(self, doing: str, work: Callable[[], None]) -> LaunchResult:
        """Have ``work`` put work on this GPU's stream, wait for its end, and time it by events."""
        self.call(doing, "cuEventRecord", self._began, self.stream)
        work()
        self.call(doing, "cuEventRecord", self._ended, self.stream)
        self.call(doing, "cuStreamSynchronize", self.stream)
        milliseconds = self.call(doing, "cuEventElapsedTime", self._began, self._ended)
        return LaunchResult(float(milliseconds) / 1e3)

    def lend(self, to: str) -> int:
        """Return the stream for another library's work, in this GPU's context, with nothing on it."""
        self.call(f"lend the GPU to {to}", "cuStreamSynchronize", self.stream)
        return int(self.stream)

    def _attributes(self, config: LaunchConfig) -> list[Any]:
        """Return what a launch has beside its shape, as the driver takes it."""
        api, found = self.driver.api, []
        if config.cluster is not None:
            cluster = api.CUlaunchAttribute()
            cluster.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = cluster.value.clusterDim
            size.x, size.y, size.z = config.cluster
            found.append(cluster)
        if config.cooperative:
            cooperative = api.CUlaunchAttribute()
            cooperative.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            cooperative.value.cooperative = 1
            found.append(cooperative)
        return found

    def _described(self, config: LaunchConfig, attributes: list[Any]) -> Any:
        """Return a launch with attributes as the driver takes it. The grid counts CTAs here too."""
        described = self.driver.api.CUlaunchConfig()
        described.gridDimX, described.gridDimY, described.gridDimZ = config.grid
        described.blockDimX, described.blockDimY, described.blockDimZ = config.block
        described.sharedMemBytes = config.shared
        described.hStream = self.stream
        described.attrs, described.numAttrs = attributes, len(attributes)
        return described

    def _allow(self, kernel: CudaKernel, handle: Any, config: LaunchConfig) -> None:
        """Ask for what a kernel may not use by default: more shared memory, larger clusters."""
        attribute = self.driver.api.CUfunction_attribute
        if config.shared:
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = f"give kernel {kernel.name} {config.shared} bytes of dynamic shared memory"
            try:
                self.call(doing, "cuFuncSetAttribute", handle, name, config.shared)
            except LaunchError as error:
                if self.lost:
                    raise
                raise LaunchError(error.message, hint=self._most_shared()) from None
        cluster = clusters(kernel.function, config)
        if cluster and prod(cluster) > _PORTABLE_CLUSTER:
            name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self.call(f"allow the clusters of {kernel.name}", "cuFuncSetAttribute", handle, name, 1)

    def _most_shared(self) -> str:
        most = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        return f"a CTA on this GPU has {most} bytes of shared memory, static and dynamic together"

    def allocate(self, nbytes: int, name: str) -> int:
        """Reserve memory and return its address; ``name`` is what errors call it."""
        doing = f"allocate {name} of {nbytes} bytes"
        return int(self.call(doing, "cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        """Release what ``allocate`` returned."""
        self.release("cuMemFree", address)

    def unload(self, handle: Any) -> None:
        """Unload a module."""
        self.release("cuModuleUnload", handle)

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to the GPU."""
        doing = f"copy {data.nbytes} bytes to the GPU"
        self._copy(doing, "cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes)

    def fill_zero(self, address: int, nbytes: int) -> None:
        """Set GPU memory to zero."""
        self.fill(address, nbytes, 0)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        """Set every byte of GPU memory; with 0xff all floating-point numbers are NaN."""
        self._copy(f"fill {nbytes} bytes", "cuMemsetD8Async", address, byte, nbytes)

    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Copy GPU memory to a new array of bytes."""
        data = np.empty(nbytes, np.uint8)
        if nbytes:
            self.read_into(address, data)
        return data

    def read_into(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy GPU memory to a contiguous array."""
        doing = f"copy {data.nbytes} bytes from the GPU"
        self._copy(doing, "cuMemcpyDtoHAsync", data.ctypes.data, address, data.nbytes)

    def _copy(self, doing: str, function: str, *args: Any) -> None:
        self.call(doing, function, *args, self.stream)
        self.call(doing, "cuStreamSynchronize", self.stream)

    def close(self) -> None:
        """Release the stream, the events and the context. Closing twice is fine."""
        if not self.is_open:
            return
        for function, handle in (
            ("cuEventDestroy", self._began),
            ("cuEventDestroy", self._ended),
            ("cuStreamDestroy", self.stream),
            ("cuDevicePrimaryCtxRelease", self._device),
        ):
            self.release(function, handle)
        super().close()

    def release(self, function: str, handle: Any) -> None:
        """Give something back. In a closed or lost context it is gone already."""
        if self.is_open and not self.lost:
            try:
                self.driver.call("cuCtxSetCurrent", self._context)
                self.driver.call(function, handle)
            except DriverError as error:
                if error.code in STICKY:
                    self.lost = f"{function} was called: {error}"
