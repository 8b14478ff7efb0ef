"""A GPU as a device. This is the only file that talks to the CUDA driver.

Programs reach the GPU as cubins built by nvJitLink, never as PTX for the driver to compile: a
cubin of any CUDA 13 runs under any CUDA 13 driver, PTX newer than the driver does not (CUDA
Compatibility, "Minor Version Compatibility").
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.base import BaseDevice, BaseKernel, BaseModule, DeviceBuffer
from ptxlab.device.dlpack import CUDA, capsule
from ptxlab.device.dump import launch_rewritten
from ptxlab.device.faults import STICKY, explain
from ptxlab.device.loading import is_text, load_ptx, locate
from ptxlab.device.protocol import Dump, LaunchResult
from ptxlab.device.shapes import Dim3, declared
from ptxlab.errors import DeviceUnavailable, LaunchError, PtxlabError
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.syntax.parameters import Parameter, parameters
from ptxlab.syntax.tree import Function, Module
from ptxlab.toolchain import link_ptx

OLDEST_DRIVER = 13000  # CUDA 13.0, as cuDriverGetVersion counts
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PORTABLE_CLUSTER = 8  # larger clusters need the kernel's consent
_NO_DRIVER = "run on the emulator with --device emulator, or install the NVIDIA driver"


class DriverError(Exception):
    """A call of the driver that did not succeed: its ``code``, and the driver's words for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@cache
def _find_driver() -> tuple[Any, str]:
    """Return the driver's binding and "", or None and why there is none.

    The library is asked for before any call, and once: a call without it can block for ever.
    """
    try:
        from cuda.bindings import driver
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        return None, f"cuda-python does not import: {error}"
    try:
        load_nvidia_dynamic_lib("cuda")
    except DynamicLibNotFoundError:
        return None, "no NVIDIA driver is installed"
    except (RuntimeError, OSError) as error:
        return None, f"the NVIDIA driver does not load: {error}"
    return driver, ""


class Driver:
    """The driver's functions, each returning its value alone and raising DriverError."""

    def __init__(self) -> None:
        self.api, reason = _find_driver()
        if self.api is None:
            raise DeviceUnavailable(f"no GPU can be used: {reason}", hint=_NO_DRIVER)

    def call(self, function: str, *args: Any) -> Any:
        """Call ``function`` of the driver; several results come back as a tuple."""
        status, *values = getattr(self.api, function)(*args)
        if int(status):
            raise DriverError(int(status), self._text(status))
        return values[0] if len(values) == 1 else tuple(values)

    def _text(self, status: Any) -> str:
        found, text = self.api.cuGetErrorString(status)
        name = getattr(status, "name", str(status))
        return str(name) if int(found) or not text else f"{text.decode()} ({name})"


def gpu_count() -> int:
    """Return how many GPUs the driver shows. Raises DeviceUnavailable when it cannot be asked."""
    driver = Driver()
    try:
        driver.call("cuInit", 0)
        version = driver.call("cuDriverGetVersion")
        count = int(driver.call("cuDeviceGetCount"))
    except DriverError as error:
        raise DeviceUnavailable(
            f"the CUDA driver does not start: {error}", hint=_NO_DRIVER
        ) from None
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(
            f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}; ptxlab needs 13.0",
            hint="install a driver of the R580 series or newer, or use --device emulator",
        )
    return count


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


class CudaBuffer(DeviceBuffer):
    """GPU memory holding one array, open to other libraries without a copy."""

    device: CudaDevice

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


class CudaKernel(BaseKernel):
    """A kernel on the GPU."""

    device: CudaDevice

    def __init__(
        self,
        module: CudaModule,
        name: str,
        parameters: tuple[Parameter, ...],
        function: Function | None,
    ) -> None:
        super().__init__(module.device, name, parameters, function)
        self.module = module

    def _run(
        self, grid: Dim3, block: Dim3, parameters: bytes, shared: int, cluster: Dim3 | None
    ) -> LaunchResult:
        return self.device.run(self, grid, block, parameters, shared, cluster)

    def _dumped(
        self,
        dump: Dump,
        function: Function,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        shared: int,
    ) -> LaunchResult:
        assert self.module.tree is not None
        return launch_rewritten(
            self.device, self.module.tree, function, dump, grid, block, args, shared
        )


class CudaModule(BaseModule[CudaKernel]):
    """A cubin loaded by the driver, unloaded when neither it nor a kernel of it is reachable."""

    def __init__(self, device: CudaDevice, path: str, image: bytes, tree: Module | None) -> None:
        self.device = device
        self.tree = tree
        self.handle = device.call(f"load {path}", "cuModuleLoadData", image)
        self._unload = weakref.finalize(self, device.unload, self.handle)
        self._unload.atexit = False
        if tree is None:
            kernels = [CudaKernel(self, *found, None) for found in self._in_cubin(path)]
        else:
            kernels = [CudaKernel(self, f.name, parameters(f), f) for f in tree.entries]
        super().__init__(path, kernels)

    def _in_cubin(self, path: str) -> list[tuple[str, tuple[Parameter, ...]]]:
        """Ask the driver for the kernels of a cubin, whose parameters have sizes but no types."""

        def ask(function: str, *args: Any) -> Any:
            return self.device.call(f"read the kernels of {path}", function, *args)

        count = ask("cuModuleGetFunctionCount", self.handle)
        handles = ask("cuModuleEnumerateFunctions", count, self.handle) if count else []
        return [
            (ask("cuFuncGetName", handle).decode(), self._untyped(handle)) for handle in handles
        ]

    def _untyped(self, handle: Any) -> tuple[Parameter, ...]:
        found: list[Parameter] = []
        while True:
            try:
                offset, size = self.device.driver.call("cuFuncGetParamInfo", handle, len(found))
            except DriverError:  # past the last one: the driver has no count to ask for
                return tuple(found)
            index, scalar = len(found), size in (1, 2, 4, 8)
            kind, count = (f"b{8 * size}", 1) if scalar else ("b8", size)
            alignment = size if scalar else 1
            found.append(Parameter(index, f"#{index}", kind, count, size, alignment, offset, False))


class CudaDevice(BaseDevice):
    """One GPU, through its primary context and one stream of ptxlab's own.

    Every operation has ended when its method returns. After a fault in a kernel the GPU's context
    is lost for this process, and each later operation says so.
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
        self._lost = ""
        self._name = ""
        try:
            self._open()
        except DriverError as error:
            raise DeviceUnavailable(
                f"GPU {ordinal} does not open: {error}",
                hint="nvidia-smi says whether another process holds it",
            ) from None

    def _open(self) -> None:
        call, attribute = self.driver.call, self.driver.api.CUdevice_attribute
        self._device = call("cuDeviceGet", self.ordinal)
        self._name = call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode()
        major, minor = (
            call("cuDeviceGetAttribute", getattr(attribute, name), self._device)
            for name in (
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
                "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
            )
        )
        self.target = target_of(10 * major + minor)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        call("cuCtxSetCurrent", self._context)
        self._stream = call("cuStreamCreate", _NON_BLOCKING)
        self._began, self._ended = call("cuEventCreate", 0), call("cuEventCreate", 0)

    @property
    def kind(self) -> str:
        """``cuda``."""
        return "cuda"

    @property
    def name(self) -> str:
        """The GPU's name: ``NVIDIA H200``."""
        return self._name

    def load(self, source: str | os.PathLike[str], *, options: Sequence[str] = ()) -> CudaModule:
        """Load a ``.ptx``, ``.cu`` or ``.cubin`` file, or PTX text.

        See ``ptxlab.device.protocol.Device``. The parameters of a cubin's kernels have no types:
        ``#0`` of 4 bytes takes an integer or a float.
        """
        self.require_open()
        if not is_text(source) and os.fspath(source).endswith(".cubin"):
            if options:
                raise PtxlabError("options are for compiling CUDA C; a .cubin is compiled already")
            return CudaModule(self, os.fspath(source), locate(source).read_bytes(), None)
        tree = load_ptx(source, self.target, options)
        path = tree.source.path
        cubin = link_ptx(tree.source.text, arch=self.target.name, path=path)
        return CudaModule(self, path, cubin.image, tree)

    def call(self, doing: str, function: str, *args: Any) -> Any:
        """Call the driver in this GPU's context; a failure becomes a LaunchError."""
        if self._lost:
            raise LaunchError(
                f"cannot {doing}: the GPU's context was lost when {self._lost}",
                hint="no later work in this process can use the GPU; start a new one",
            )
        try:
            self.driver.call("cuCtxSetCurrent", self._context)
            return self.driver.call(function, *args)
        except DriverError as error:
            if error.code in STICKY:
                self._lost = f"it was to {doing}: {error}"
            message, hint = explain(error.code, str(error))
            raise LaunchError(f"cannot {doing}: {message}", hint=hint) from None

    def run(
        self,
        kernel: CudaKernel,
        grid: Dim3,
        block: Dim3,
        parameters: bytes,
        shared: int,
        cluster: Dim3 | None = None,
    ) -> LaunchResult:
        """Launch a kernel, wait for its end, and time it between two events."""
        doing = f"run kernel {kernel.name} of {kernel.module.path}"
        handle = self.call(doing, "cuModuleGetFunction", kernel.module.handle, kernel.name.encode())
        self._allow(kernel, handle, shared, cluster)
        # kernelParams: an array of pointers, here into the block that arguments were packed in.
        storage = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        base = ctypes.addressof(storage)
        addresses = [base + parameter.offset for parameter in kernel.parameters]
        pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        self.call(doing, "cuEventRecord", self._began, self._stream)
        given = (ctypes.addressof(pointers), 0)
        if cluster is None:
            shape = (*grid, *block, shared, self._stream)
            self.call(doing, "cuLaunchKernel", handle, *shape, *given)
        else:
            config = self._clustered(grid, block, shared, cluster)
            self.call(doing, "cuLaunchKernelEx", config, handle, *given)
        self.call(doing, "cuEventRecord", self._ended, self._stream)
        self.call(doing, "cuStreamSynchronize", self._stream)
        milliseconds = self.call(doing, "cuEventElapsedTime", self._began, self._ended)
        return LaunchResult(float(milliseconds) / 1e3)

    def _clustered(self, grid: Dim3, block: Dim3, shared: int, cluster: Dim3) -> Any:
        """Describe a launch in clusters. The grid counts CTAs here too."""
        api = self.driver.api
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = attribute.value.clusterDim
        size.x, size.y, size.z = cluster
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        config.hStream = self._stream
        config.attrs, config.numAttrs = [attribute], 1
        return config

    def _allow(
        self, kernel: CudaKernel, handle: Any, shared: int, cluster: Dim3 | None
    ) -> None:
        """Ask for what a kernel may not use by default: more shared memory, larger clusters."""
        attribute = self.driver.api.CUfunction_attribute
        if shared:
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = f"give kernel {kernel.name} {shared} bytes of dynamic shared memory"
            try:
                self.call(doing, "cuFuncSetAttribute", handle, name, shared)
            except LaunchError as error:
                if self._lost:
                    raise
                raise LaunchError(error.message, hint=self._most_shared()) from None
        if cluster is None and kernel.function is not None:
            cluster = declared(kernel.function, "reqnctapercluster")
        if cluster and prod(cluster) > _PORTABLE_CLUSTER:
            name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self.call(f"allow the clusters of {kernel.name}", "cuFuncSetAttribute", handle, name, 1)

    def _most_shared(self) -> str:
        attribute = self.driver.api.CUdevice_attribute
        name = attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        most = self.driver.call("cuDeviceGetAttribute", name, self._device)
        return f"a CTA on this GPU has {most} bytes of shared memory, static and dynamic together"

    def allocate(self, nbytes: int, name: str) -> int:
        """Reserve memory and return its address; ``name`` is what errors call it."""
        doing = f"allocate {name} of {nbytes} bytes"
        return int(self.call(doing, "cuMemAlloc", max(nbytes, 1)))

    def free(self, address: int) -> None:
        """Release what ``allocate`` returned."""
        self._quietly("cuMemFree", address)

    def unload(self, handle: Any) -> None:
        """Unload a module."""
        self._quietly("cuModuleUnload", handle)

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to the GPU."""
        doing = f"copy {data.nbytes} bytes to the GPU"
        self._copy(doing, "cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes)

    def fill_zero(self, address: int, nbytes: int) -> None:
        """Set GPU memory to zero."""
        self._copy(f"clear {nbytes} bytes", "cuMemsetD8Async", address, 0, nbytes)

    def read(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Copy GPU memory to a new array of bytes."""
        data = np.empty(nbytes, np.uint8)
        if nbytes:
            doing = f"copy {nbytes} bytes from the GPU"
            self._copy(doing, "cuMemcpyDtoHAsync", data.ctypes.data, address, nbytes)
        return data

    def _copy(self, doing: str, function: str, *args: Any) -> None:
        self.call(doing, function, *args, self._stream)
        self.call(doing, "cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Release the stream, the events and the context. Closing twice is fine."""
        if not self.is_open:
            return
        for function, handle in (
            ("cuEventDestroy", self._began),
            ("cuEventDestroy", self._ended),
            ("cuStreamDestroy", self._stream),
            ("cuDevicePrimaryCtxRelease", self._device),
        ):
            self._quietly(function, handle)
        super().close()

    def _quietly(self, function: str, handle: Any) -> None:
        """Give something back. In a closed or lost context it is gone already."""
        if self.is_open and not self._lost:
            try:
                self.driver.call("cuCtxSetCurrent", self._context)
                self.driver.call(function, handle)
            except DriverError as error:
                if error.code in STICKY:
                    self._lost = f"{function} was called: {error}"
