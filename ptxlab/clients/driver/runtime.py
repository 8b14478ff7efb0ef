"""Functions of the CUDA runtime, as the code of the host that CuTe DSL compiles calls them.

Their names begin with an underscore there, and a handle of the runtime is one of the driver: so each is a
function of the driver with its arguments in another order, that finds the GPU ready without being asked.

Source: CUDA Runtime API; "Interactions with the CUDA Driver API" for handles, attributes and the primary context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxlab.clients.driver import (
    contexts,
    copies,
    devices,
    launches,
    memory,
    modules,
    streams,
    tensor_maps,
)
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.table import ROWS, answers

_AS_IN_THE_DRIVER = {
    devices: "cuDeviceGet",
    modules: "cuKernelGetAttribute cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount "
    "cuLibraryGetModule cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload",
    tensor_maps: "cuTensorMapEncodeTiled",
}
"""Functions of the driver, by the file that has them, that are called with no more than an underscore before them."""

_OTHERS: dict[str, tuple[str, Any]] = {
    "DeviceGetAttribute": ("out:i32 i32 device", devices.attribute),
    "DeviceSynchronize": ("", contexts.nothing),
    "EventCreate": ("out:u64", lambda gpu: streams.create_event(gpu, 0)),
    "EventDestroy": ("u64", streams.destroy_event),
    "EventElapsedTime": ("out:f32 event event", streams.elapsed),
    "EventRecord": ("event stream", streams.record),
    "Free": ("u64", memory.free),
    "FreeAsync": ("u64 -u64", memory.free),
    "FreeHost": ("u64", memory.free_host),
    "FuncSetAttribute": ("function i32 i32", modules.set_attribute),
    "GetDevice": ("out:i32", contexts.device_of_current),
    "GetDeviceCount": ("out:i32", devices.device_count),
    "KernelSetAttributeForDevice": ("function i32 i32 -i32", modules.set_attribute),
    "LibraryGetGlobal": ("out?:u64 out?:u64 module text", modules.variable),
    "LibraryGetKernel": ("out:u64 module text", modules.function),
    "LibraryGetKernelCount": ("out:u32 module", modules.function_count),
    "LibraryLoadData": ("out:u64 u64 -u64 -u64 -u32 -u64 -u64 -u32", modules.load),
    "LibraryLoadFromFile": ("out:u64 text -u64 -u64 -u32 -u64 -u64 -u32", modules.load_file),
    "LibraryUnload": ("u64", modules.unload),
    "Malloc": ("out:u64 u64", memory.allocate),
    "MallocAsync": ("out:u64 u64 -u64", memory.allocate),
    "MallocHost": ("out:u64 u64", memory.allocate_host),
    "MallocManaged": ("out:u64 u64 u32", memory.allocate_managed),
    "Memcpy": ("u64 u64 u64 -i32", copies.copy),
    "MemcpyAsync": ("u64 u64 u64 -i32 -u64", copies.copy),
    "SetDevice": ("device", contexts.nothing),
    "StreamCreate": ("out:u64", lambda gpu: streams.create(gpu, 0)),
    "StreamDestroy": ("u64", streams.destroy),
    "StreamSynchronize": ("stream", streams.synchronize),
    "StreamWaitEvent": ("stream event -u32", streams.wait_for_event),
}


def launch(gpu: EmulatedGpu, config: int, function: DriverFunction, pointers: int) -> None:
    launches.launch_with_attributes(gpu, config, function, pointers, 0)


for _name in " ".join(_AS_IN_THE_DRIVER.values()).split():
    ROWS[f"_{_name}"] = replace(ROWS[_name], name=f"_{_name}", needs="runtime")
for _name, (_types, _function) in _OTHERS.items():
    answers(f"_cuda{_name}", _types, needs="runtime")(_function)
answers("_cudaLaunchKernelEx", "u64 function u64", needs="runtime")(launch)
