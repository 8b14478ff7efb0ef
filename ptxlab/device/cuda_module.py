"""Programs on a GPU: cubins loaded by the driver, and their kernels."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptxlab.device.base import BaseKernel, BaseModule
from ptxlab.device.cuda_driver import DriverError
from ptxlab.device.dump import launch_rewritten
from ptxlab.device.protocol import Dump, LaunchResult
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.functions import Parameter, parameters
from ptxlab.syntax.tree import Function, Module

if TYPE_CHECKING:
    from ptxlab.device.cuda import CudaDevice


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

    @property
    def doing(self) -> str:
        """What an error calls the launch."""
        return f"run kernel {self.name} of {self.module.path}"

    def prepare(self, config: LaunchConfig, args: Sequence[Any] = ()) -> Callable[[], None]:
        """Return what puts one launch on the GPU's stream; see ``ptxlab.device.protocol.Kernel``."""
        return self.device.queueing(self, config, self.bound(config, args))

    def _run(self, config: LaunchConfig, parameters: bytes) -> LaunchResult:
        return self.device.timed(self.doing, self.device.queueing(self, config, parameters))

    def _dumped(
        self, dump: Dump, function: Function, config: LaunchConfig, args: Sequence[Any]
    ) -> LaunchResult:
        assert self.module.tree is not None
        return launch_rewritten(self.device, self.module.tree, function, dump, config, args)


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
