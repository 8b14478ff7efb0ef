"""cuda.bindings.runtime without NVIDIA's runtime: its functions answered by those of cuda.bindings.driver.

The binding brings a runtime of its own, which asks the driver for tables that NVIDIA does not document. What programs
call of it is the driver's under another name: results, handles and enumerations have the same numbers.

Source: CUDA Runtime API, "Interactions with the CUDA Driver API".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MODULE = "cuda.bindings.runtime"

_AS_THE_DRIVER = {
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaEventCreateWithFlags": "cuEventCreate",
    "cudaEventDestroy": "cuEventDestroy",
    "cudaEventElapsedTime": "cuEventElapsedTime",
    "cudaEventQuery": "cuEventQuery",
    "cudaEventRecord": "cuEventRecord",
    "cudaEventSynchronize": "cuEventSynchronize",
    "cudaFree": "cuMemFree",
    "cudaFreeAsync": "cuMemFreeAsync",
    "cudaFreeHost": "cuMemFreeHost",
    "cudaGetDevice": "cuCtxGetDevice",
    "cudaGetDeviceCount": "cuDeviceGetCount",
    "cudaGraphClone": "cuGraphClone",
    "cudaGraphCreate": "cuGraphCreate",
    "cudaGraphDestroy": "cuGraphDestroy",
    "cudaGraphExecDestroy": "cuGraphExecDestroy",
    "cudaGraphGetNodes": "cuGraphGetNodes",
    "cudaGraphGetRootNodes": "cuGraphGetRootNodes",
    "cudaGraphInstantiate": "cuGraphInstantiate",
    "cudaGraphInstantiateWithFlags": "cuGraphInstantiate",
    "cudaGraphLaunch": "cuGraphLaunch",
    "cudaGraphUpload": "cuGraphUpload",
    "cudaLibraryUnload": "cuLibraryUnload",
    "cudaMalloc": "cuMemAlloc",
    "cudaMallocAsync": "cuMemAllocAsync",
    "cudaMallocHost": "cuMemAllocHost",
    "cudaMemGetInfo": "cuMemGetInfo",
    "cudaMemset": "cuMemsetD8",
    "cudaMemsetAsync": "cuMemsetD8Async",
    "cudaStreamCreateWithFlags": "cuStreamCreate",
    "cudaStreamDestroy": "cuStreamDestroy",
    "cudaStreamEndCapture": "cuStreamEndCapture",
    "cudaStreamQuery": "cuStreamQuery",
    "cudaStreamIsCapturing": "cuStreamIsCapturing",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaStreamWaitEvent": "cuStreamWaitEvent",
}

_Call = Callable[..., tuple[Any, ...]]


def answer(runtime: Any) -> None:
    """Have the binding's functions answered by the driver of this process."""
    from cuda.bindings import driver

    for name, of_driver in _AS_THE_DRIVER.items():
        setattr(runtime, name, _ready(runtime, driver, getattr(driver, of_driver)))
    for name, function in _others(driver).items():
        setattr(runtime, name, _ready(runtime, driver, function))
    done = runtime.cudaError_t.cudaSuccess
    runtime.cudaGetErrorName = lambda error: (done, error.name.encode())
    runtime.cudaGetErrorString = lambda error: (done, _words(driver, error))


def _words(driver: Any, error: Any) -> bytes:
    """Return what the driver says of a result of the same number, or its name."""
    numbers = {int(result): result for result in driver.CUresult}
    if int(error) not in numbers:
        return bytes(error.name.encode())
    _, words = driver.cuGetErrorString(numbers[int(error)])
    return bytes(words or error.name.encode())


def _others(driver: Any) -> dict[str, _Call]:
    """Return the functions whose arguments are others than those of the driver's."""
    done = (driver.CUresult.CUDA_SUCCESS,)

    def attribute(which: Any, device: int) -> tuple[Any, ...]:
        asked = driver.CUdevice_attribute(int(which))
        return tuple(driver.cuDeviceGetAttribute(asked, device))

    return {
        "cudaDeviceGetAttribute": attribute,
        "cudaEventCreate": lambda: driver.cuEventCreate(0),
        "cudaGetLastError": lambda: done,
        "cudaMemcpy": lambda to, of, nbytes, kind: driver.cuMemcpy(to, of, nbytes),
        "cudaMemcpyAsync": lambda to, of, nbytes, kind, stream: driver.cuMemcpyAsync(
            to, of, nbytes, stream
        ),
        "cudaPeekAtLastError": lambda: done,
        "cudaSetDevice": lambda device: driver.cuDeviceGet(device)[:1],
        "cudaStreamBeginCapture": lambda stream, mode: driver.cuStreamBeginCapture(
            stream, driver.CUstreamCaptureMode(int(mode))
        ),
        "cudaStreamCreate": lambda: driver.cuStreamCreate(0),
    }


def _ready(runtime: Any, driver: Any, function: _Call) -> _Call:
    """Return the function for a process that has asked for nothing before, with results of the runtime's kinds."""
    from ptxlab.clients.driver.contexts import be_ready
    from ptxlab.clients.driver.library import loaded

    kind_of = {
        driver.CUdeviceptr: int,
        driver.CUstream: runtime.cudaStream_t,
        driver.CUevent: runtime.cudaEvent_t,
        driver.CUgraph: runtime.cudaGraph_t,
        driver.CUgraphExec: runtime.cudaGraphExec_t,
        driver.CUstreamCaptureStatus: runtime.cudaStreamCaptureStatus,
    }

    def call(*values: Any) -> tuple[Any, ...]:
        be_ready(loaded().gpu)
        result, *returned = function(*values)
        kinds = [kind_of.get(type(value)) for value in returned]
        given = (
            kind(int(value)) if kind else value for kind, value in zip(kinds, returned, strict=True)
        )
        return runtime.cudaError_t(int(result)), *given

    return call
