"""Programs on a GPU: cubins loaded by the driver, and their kernels.

Source: CUDA Driver API, "Module Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ptxlab.device.cuda_context import CudaContext
from ptxlab.device.cuda_driver import DriverError
from ptxlab.device.dump import launch_rewritten
from ptxlab.device.protocol import Dump, Kernel, LaunchResult, Module
from ptxlab.device.shapes import clusters
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.launch_config import PORTABLE_CLUSTER_CTAS, LaunchConfig
from ptxlab.syntax import tree as ptx
from ptxlab.syntax.functions import Parameter, parameters
from ptxlab.syntax.names import called


class KernelArguments:
    """Arguments as the driver takes them: an array of pointers into the block they are packed in."""

    def __init__(self, parameters: Sequence[Parameter], packed: bytes) -> None:
        self._storage = ctypes.create_string_buffer(packed, max(len(packed), 1))
        base = ctypes.addressof(self._storage)
        addresses = [base + parameter.offset for parameter in parameters]
        self._pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)

    @property
    def address(self) -> int:
        """Where the array of pointers is, as long as this object is."""
        return ctypes.addressof(self._pointers)


class CudaKernel(Kernel):
    """A kernel on the GPU."""

    device: CudaContext

    def __init__(
        self,
        module: CudaModule,
        name: str,
        parameters: tuple[Parameter, ...],
        function: ptx.Function | None,
    ) -> None:
        super().__init__(module.device, name, parameters, function)
        self.module = module

    @property
    def doing(self) -> str:
        """What an error calls the launch."""
        return f"run kernel {called(self.name)} of {self.module.path}"

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        self._require_launchable(config)
        return self._queueing(config, self.packed(args))

    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult:
        return self.device.timed(self.doing, self._queueing(config, parameters))

    def _queueing(self, config: LaunchConfig, parameters: bytes) -> Callable[[], None]:
        """Return what puts one launch on the GPU's stream, each time it is called."""
        gpu, doing = self.device, self.doing
        handle = gpu.call(doing, "cuModuleGetFunction", self.module.handle, self.name.encode())
        self._allow(handle, config)
        arguments = KernelArguments(self.parameters, parameters)

        def launch() -> None:
            given = (arguments.address, 0)
            attributes = self._attributes(config)
            if attributes:
                described = self._described(config, attributes)
                gpu.call(doing, "cuLaunchKernelEx", described, handle, *given)
            else:
                shape = (*config.grid, *config.block, config.shared, gpu.stream)
                gpu.call(doing, "cuLaunchKernel", handle, *shape, *given)

        return launch

    def _attributes(self, config: LaunchConfig) -> list[Any]:
        """Return what a launch has beside its shape, as the driver takes it."""
        api, attributes = self.device.driver.api, []
        if config.cluster is not None:
            cluster = api.CUlaunchAttribute()
            cluster.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = cluster.value.clusterDim
            size.x, size.y, size.z = config.cluster
            attributes.append(cluster)
        if config.cooperative:
            cooperative = api.CUlaunchAttribute()
            cooperative.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            cooperative.value.cooperative = 1
            attributes.append(cooperative)
        return attributes

    def _described(self, config: LaunchConfig, attributes: list[Any]) -> Any:
        """Return a launch with attributes as the driver takes it. The grid counts CTAs here too."""
        described = self.device.driver.api.CUlaunchConfig()
        described.gridDimX, described.gridDimY, described.gridDimZ = config.grid
        described.blockDimX, described.blockDimY, described.blockDimZ = config.block
        described.sharedMemBytes = config.shared
        described.hStream = self.device.stream
        described.attrs, described.numAttrs = attributes, len(attributes)
        return described

    def _allow(self, handle: Any, config: LaunchConfig) -> None:
        """Ask for what a kernel may not use by default: more shared memory, larger clusters."""
        attribute = self.device.driver.api.CUfunction_attribute
        if config.shared:
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            doing = (
                f"give kernel {called(self.name)} {config.shared} bytes of dynamic shared memory"
            )
            try:
                self.device.call(doing, "cuFuncSetAttribute", handle, name, config.shared)
            except LaunchError as error:
                if self.device.lost:
                    raise
                raise LaunchError(error.message, hint=self._most_shared()) from None
        cluster = clusters(self.function, config)
        if cluster and prod(cluster) > PORTABLE_CLUSTER_CTAS:  # these need the kernel's consent
            name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self.device.call(
                f"allow the clusters of {called(self.name)}", "cuFuncSetAttribute", handle, name, 1
            )

    def _most_shared(self) -> str:
        most = self.device.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        return f"a CTA on this GPU has {most} bytes of shared memory, static and dynamic together"

    def _dumped(self, dump: Dump, config: LaunchConfig, parameters: bytes) -> LaunchResult:
        if self.function is None:
            raise Unsupported(
                f"kernel {called(self.name)} is machine code, whose registers cannot be dumped",
                hint="load its .ptx or .cu",
            )
        return launch_rewritten(self.module, self.function, dump, config, parameters)


class CudaModule(Module):
    """A cubin loaded by the driver, unloaded when neither it nor a kernel of it is reachable."""

    device: CudaContext

    def __init__(
        self, device: CudaContext, path: str, image: bytes, tree: ptx.PtxModule | None
    ) -> None:
        self.device = device
        self.handle = device.call(f"load {path}", "cuModuleLoadData", image)
        self._unload = weakref.finalize(self, device.release, "cuModuleUnload", self.handle)
        self._unload.atexit = False
        self._functions = {} if tree is None else {f.name: f for f in tree.entries}
        self._parameters = dict(self._in_cubin(path)) if tree is None else {}
        super().__init__(device, path, tree, self._functions or self._parameters)

    def _make(self, name: str) -> CudaKernel:
        if self.tree is None:
            return CudaKernel(self, name, self._parameters[name], None)
        function = self._functions[name]
        return CudaKernel(self, name, parameters(function, self.tree.source), function)

    def _located(self, name: str) -> tuple[int, int]:
        doing = f"find the variable {name} of {self.path}"
        address, nbytes = self.device.call(doing, "cuModuleGetGlobal", self.handle, name.encode())
        return int(address), int(nbytes)

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
        parameters: list[Parameter] = []
        while True:
            try:
                offset, size = self.device.driver.call(
                    "cuFuncGetParamInfo", handle, len(parameters)
                )
            except DriverError:  # past the last one: the driver has no count to ask for
                return tuple(parameters)
            index, scalar = len(parameters), size in (1, 2, 4, 8)
            kind, count = (f"b{8 * size}", 1) if scalar else ("b8", size)
            alignment = size if scalar else 1
            parameters.append(
                Parameter(index, f"#{index}", kind, count, size, alignment, offset, False)
            )
