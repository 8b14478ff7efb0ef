"""A CUDA driver made of host memory: it records every call and holds it to the real binding.

A call must name a function of ``cuda.bindings.driver`` and give it as many arguments as that takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from cuda.bindings import driver as real


def _takes(function: str) -> int:
    """Count the parameters of a binding from the signature its documentation begins with."""
    signature = (getattr(real, function).__doc__ or "").splitlines()[0]
    inside = signature[signature.index("(") + 1 : signature.rindex(")")]
    depth, count = 0, 1 if inside.strip() else 0
    for character in inside:
        depth += (character in "[(") - (character in "])")
        count += character == "," and depth == 0
    return count


class LaunchConfig:
    """Takes the fields of ``CUlaunchConfig``, with a stream that is none of the driver's."""

    def __setattr__(self, name: str, value: Any) -> None:
        assert hasattr(real.CUlaunchConfig(), name), f"CUlaunchConfig has no {name}"
        object.__setattr__(self, name, value)


class Function(str):
    """A kernel in a graph, whose handle is not 0."""

    def __int__(self) -> int:
        return 1


class FakeDriver:
    """Stands in for the module ``cuda.bindings.driver``.

    ``fail`` makes a function return an error code; ``on_launch`` plays the kernel and is given the
    pointers of ``kernelParams``. Launches in a stream that is being captured are played when the graph
    is launched; ``graphs`` holds the (kernel, pointers) of each. A kernel in ``unnamed`` has no
    function in a graph's nodes, as one that a library loaded. ``variables`` are (address, size).
    """

    CUdevice_attribute = real.CUdevice_attribute
    CUfunction_attribute = real.CUfunction_attribute
    CUgraphNodeType = real.CUgraphNodeType
    CUstreamCaptureMode = real.CUstreamCaptureMode
    CUlaunchAttribute = real.CUlaunchAttribute
    CUlaunchAttributeID = real.CUlaunchAttributeID
    CUlaunchConfig = LaunchConfig
    CUtensorMapDataType = real.CUtensorMapDataType
    CUtensorMapInterleave = real.CUtensorMapInterleave
    CUtensorMapSwizzle = real.CUtensorMapSwizzle
    CUtensorMapL2promotion = real.CUtensorMapL2promotion
    CUtensorMapFloatOOBfill = real.CUtensorMapFloatOOBfill
    CUtensorMapIm2ColWideMode = real.CUtensorMapIm2ColWideMode
    cuuint32_t = real.cuuint32_t
    cuuint64_t = real.cuuint64_t

    def __init__(
        self, capability: tuple[int, int] = (9, 0), version: int = 13000, count: int = 1
    ) -> None:
        self.capability = capability
        self.version = version
        self.count = count
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fail: dict[str, int] = {}
        self.on_launch: Callable[[int], None] = lambda pointers: None
        self.memory: dict[int, Any] = {}
        self.images: list[bytes] = []
        self.variables: dict[str, tuple[int, int]] = {}
        self.kernels_in_cubin: dict[str, list[tuple[int, int]]] = {}
        self.capturing: list[tuple[str, Any]] | None = None
        self.graphs: dict[str, list[tuple[str, Any]]] = {}
        self.unnamed: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            assert len(args) == _takes(name), f"{name} takes {_takes(name)} arguments: {args}"
            self.calls.append((name, args))
            if self.fail.get(name):
                return (real.CUresult(self.fail[name]), None)
            value = getattr(self, f"_{name}", lambda *_: ())(*args)
            return (real.CUresult.CUDA_SUCCESS, *(value if isinstance(value, tuple) else (value,)))

        return call

    def named(self, function: str) -> list[tuple[Any, ...]]:
        """Return the arguments of every call of ``function``."""
        return [args for name, args in self.calls if name == function]

    def _cuGetErrorString(self, status: Any) -> bytes:
        return f"words for {int(status)}".encode()

    def _cuDriverGetVersion(self) -> int:
        return self.version

    def _cuDeviceGetCount(self) -> int:
        return self.count

    def _cuDeviceGet(self, ordinal: int) -> int:
        return 100 + ordinal

    def _cuDeviceGetName(self, length: int, device: int) -> bytes:
        return b"Fake GPU\0\0\0"

    def _cuDeviceGetAttribute(self, attribute: Any, device: int) -> int:
        names = real.CUdevice_attribute
        return {
            int(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR): self.capability[0],
            int(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR): self.capability[1],
            int(names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN): 232448,
            int(names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT): 132,
            int(names.CU_DEVICE_ATTRIBUTE_CLOCK_RATE): 1980_000,
            int(names.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE): 1024,
        }[int(attribute)]

    def _cuDeviceGetPCIBusId(self, length: int, device: int) -> bytes:
        return b"0000:0F:00.0\0\0"

    def _cuDeviceTotalMem(self, device: int) -> int:
        return 1 << 34

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return 1 << 33, 1 << 34

    def _cuDevicePrimaryCtxRetain(self, device: int) -> str:
        return "context"

    def _cuStreamCreate(self, flags: int) -> str:
        return "stream"

    def _cuEventCreate(self, flags: int) -> str:
        return f"event {len(self.named('cuEventCreate'))}"

    def _cuEventElapsedTime(self, began: Any, ended: Any) -> float:
        return 2.5

    def _cuMemAlloc(self, nbytes: int) -> int:
        assert nbytes > 0, "the driver refuses to allocate nothing"
        block = ctypes.create_string_buffer(b"\xa5" * nbytes, nbytes)
        self.memory[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def _cuMemAllocManaged(self, nbytes: int, flags: int) -> int:
        assert flags == 1, "CU_MEM_ATTACH_GLOBAL"
        return self._cuMemAlloc(nbytes)

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        assert flags == 2, "CU_MEMHOSTALLOC_DEVICEMAP"
        return self._cuMemAlloc(nbytes)

    def _cuMemHostGetDevicePointer(self, address: int, flags: int) -> int:
        assert address in self.memory
        return address

    def _cuMemFreeHost(self, address: int) -> tuple[()]:
        return self._cuMemFree(address)

    def _cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: Any) -> tuple[()]:
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: Any) -> tuple[()]:
        ctypes.memmove(to, source, nbytes)
        return ()

    def _cuMemsetD8Async(self, to: int, value: int, nbytes: int, stream: Any) -> tuple[()]:
        ctypes.memset(to, value, nbytes)
        return ()

    def _cuModuleLoadData(self, image: bytes) -> str:
        self.images.append(image)
        return f"module {len(self.images)}"

    def _cuModuleGetFunction(self, module: str, name: bytes) -> str:
        return f"{module} {name.decode()}"

    def _cuModuleGetGlobal(self, module: str, name: bytes) -> tuple[int, int]:
        return self.variables[name.decode()]

    def _cuModuleGetFunctionCount(self, module: str) -> int:
        return len(self.kernels_in_cubin)

    def _cuModuleEnumerateFunctions(self, count: int, module: str) -> list[str]:
        return list(self.kernels_in_cubin)

    def _cuFuncGetName(self, function: str) -> bytes:
        return function.encode()

    def cuFuncGetParamInfo(self, function: str, index: int) -> tuple[Any, ...]:
        parameters = self.kernels_in_cubin[function]
        if index >= len(parameters):
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE, None, None)
        return (real.CUresult.CUDA_SUCCESS, *parameters[index])

    def _cuLaunchKernel(self, *args: Any) -> tuple[()]:
        self._play(args[0], args[9])
        return ()

    def _cuLaunchKernelEx(self, config: Any, *args: Any) -> tuple[()]:
        self._play(args[0], args[1])
        return ()

    def _play(self, function: str, pointers: Any) -> None:
        if self.capturing is None:
            self.on_launch(pointers)
        else:
            self.capturing.append((function, pointers))

    def _cuTensorMapEncodeTiled(self, *args: Any) -> Any:
        """Make a map whose words are 1 to 16."""
        made = real.CUtensorMap()
        made.opaque = [real.cuuint64_t(word) for word in range(1, 17)]
        return made

    _cuTensorMapEncodeIm2col = _cuTensorMapEncodeIm2colWide = _cuTensorMapEncodeTiled

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[()]:
        assert isinstance(mode, real.CUstreamCaptureMode)
        assert self.capturing is None
        self.capturing = []
        return ()

    def _cuStreamEndCapture(self, stream: Any) -> str:
        assert self.capturing is not None
        name = f"graph {len(self.graphs)}"
        self.graphs[name], self.capturing = self.capturing, None
        return name

    def _cuGraphInstantiate(self, graph: str, flags: int) -> str:
        return f"runnable {graph}"

    def _cuGraphLaunch(self, runnable: str, stream: Any) -> tuple[()]:
        for _, pointers in self.graphs[runnable.removeprefix("runnable ")]:
            self.on_launch(pointers)
        return ()

    def _cuGraphGetNodes(self, graph: str, count: int) -> tuple[list[Any], int]:
        launches = self.graphs[graph]
        nodes = [*(name for name, _ in launches), "a memset"]
        return nodes[:count], len(nodes)

    def _cuGraphNodeGetType(self, node: str) -> Any:
        kinds = real.CUgraphNodeType
        memset = node == "a memset"
        return kinds.CU_GRAPH_NODE_TYPE_MEMSET if memset else kinds.CU_GRAPH_NODE_TYPE_KERNEL

    def _cuGraphKernelNodeGetParams(self, node: str) -> Any:
        if node in self.unnamed:
            return SimpleNamespace(func=0, kern=node)
        return SimpleNamespace(func=Function(node), kern=None)

    def _cuKernelGetName(self, kernel: str) -> bytes:
        return kernel.encode()
