"""Functions of the CUDA runtime that are the driver's with their arguments in another order.

A handle of the runtime is one of the driver, and its numbers for attributes, flags and results are the same. Each
function finds the GPU ready without being asked. CuTe DSL calls them with an underscore before the name.

Source: CUDA Runtime API; "Interactions with the CUDA Driver API" for handles, attributes and the primary context.
"""

from __future__ import annotations

import ctypes
import struct
from functools import partial
from typing import Any

import numpy as np

from ptxlab.clients.captures import Graph, GraphNode, NodeKind, Stream, Work
from ptxlab.clients.driver import (
    contexts,
    copies,
    devices,
    graph_nodes,
    graphs,
    launches,
    memory,
    modules,
    occupancy,
    streams,
)
from ptxlab.clients.driver.gpu import EmulatedGpu, MemoryKind
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.results import (
    RUNTIME_WORDS,
    WORDS,
    DriverResult,
    RuntimeResult,
    runtime_name,
)
from ptxlab.clients.driver.table import answers, fetch, store


def _last_error(gpu: EmulatedGpu) -> int:
    error, gpu.thread.error = gpu.thread.error or gpu.fault, 0
    return error


def _reset(gpu: EmulatedGpu) -> int:
    gpu.fault = DriverResult.SUCCESS
    return 0


_TEXTS: dict[str, ctypes.c_char_p] = {}


def _text(text: str) -> int:
    """Return the address of a text in C, which stays."""
    kept = _TEXTS.setdefault(text, ctypes.c_char_p(text.encode()))
    return ctypes.cast(kept, ctypes.c_void_p).value or 0


_RESULTS = {int(result): result for result in (*DriverResult, *RuntimeResult)}
_ALL_WORDS: dict[Any, str] = {**WORDS, **RUNTIME_WORDS}


def error_name(gpu: EmulatedGpu, code: int) -> int:
    known = _RESULTS.get(code)
    return _text("unrecognized error code" if known is None else runtime_name(known))


def _error_words(gpu: EmulatedGpu, code: int) -> int:
    known = _RESULTS.get(code)
    return _text("unrecognized error code" if known is None else _ALL_WORDS[known])


def _allocate(gpu: EmulatedGpu, nbytes: int) -> int:
    return memory.allocate(gpu, nbytes) if nbytes else 0


def _allocate_in_order(gpu: EmulatedGpu, nbytes: int, stream: Stream) -> int:
    return memory.allocate_in_order(gpu, nbytes, stream) if nbytes else 0


def _fill(gpu: EmulatedGpu, address: int, value: int, nbytes: int) -> None:
    copies.fill(gpu, np.uint8, address, value & 0xFF, nbytes)


def _fill_rows(
    gpu: EmulatedGpu, address: int, pitch: int, value: int, width: int, height: int
) -> None:
    for row in range(height):
        _fill(gpu, address + row * pitch, value, width)


def _copy_rows(
    gpu: EmulatedGpu, to: int, to_pitch: int, source: int, pitch: int, width: int, height: int
) -> None:
    for row in range(height):
        copies.copy(gpu, to + row * to_pitch, source + row * pitch, width)


def _box_copy(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the copy that a ``cudaMemcpy3DParms`` is of, as it is now."""
    values = fetch(parameters, "<19Q")
    source, to = (
        copies.side(array, x, y, z, base, pitch, rows)
        for array, x, y, z, base, pitch, _, rows in (values[:8], values[8:16])
    )
    return partial(copies.copy_between, gpu, to, source, *values[16:])


def _copy_box(gpu: EmulatedGpu, parameters: int, stream: Stream | None = None) -> None:
    (stream or gpu.legacy_stream).put(NodeKind.MEMCPY, _box_copy(gpu, parameters))


def _add_copy(
    gpu: EmulatedGpu, graph: Graph, after: int, number: int, to: int, source: int, nbytes: int
) -> int:
    def make(gpu: EmulatedGpu, _: int) -> Work:
        return partial(copies.copy, gpu, to, source, nbytes)

    return graph_nodes.add(NodeKind.MEMCPY, make, gpu, graph, after, number, 0)


def _change_copy(
    gpu: EmulatedGpu,
    executable: graphs.Executable,
    node: GraphNode,
    to: int,
    source: int,
    nbytes: int,
) -> None:
    executable.change(node, NodeKind.MEMCPY, partial(copies.copy, gpu, to, source, nbytes))


_UNREGISTERED, _KINDS = 0, {MemoryKind.DEVICE: 2, MemoryKind.MANAGED: 3}


def _pointer_attributes(gpu: EmulatedGpu, at: int, address: int) -> None:
    block = memory.block_of(gpu, address)
    kind = _KINDS.get(block.kind, 1) if block else _UNREGISTERED
    device = 0 if block else -2  # cudaInvalidDeviceId
    on_host = address if kind != _KINDS[MemoryKind.DEVICE] else 0
    store(at, struct.pack("<iiQQ", kind, device, address if block else 0, on_host))


def _function_attributes(gpu: EmulatedGpu, at: int, function: DriverFunction) -> None:
    """Write a ``cudaFuncAttributes``, whose members are those of CUfunction_attribute."""
    values = [modules.get_attribute(gpu, which, function) for which in range(16)]
    shared, constant, local = values[1:4]
    store(
        at,
        struct.pack(
            "<3Q13i", shared, constant, local, values[0], *values[4:14], values[15], values[14]
        ),
    )


def _driver_entry(gpu: EmulatedGpu, name: bytes, at: int, version: int, status: int) -> None:
    entry = gpu.address_of(name.decode(), version)
    store(at, entry.to_bytes(8, "little"))
    if status:
        store(status, (0 if entry else 1).to_bytes(4, "little"))


def _entry(gpu: EmulatedGpu, name: bytes, at: int, status: int) -> None:
    _driver_entry(gpu, name, at, devices.CUDA_RELEASE, status)


_ROWS: dict[str, tuple[str, Any]] = {
    "CtxResetPersistingL2Cache": ("", contexts.nothing),
    "DeviceCanAccessPeer": ("out:i32 device device", devices.can_access_peer),
    "DeviceGetAttribute": ("out:i32 i32 device", devices.attribute),
    "DeviceGetCacheConfig": ("out:i32", contexts.no_preference),
    "DeviceGetDefaultMemPool": ("out:u64 device", memory.default_pool),
    "DeviceGetLimit": ("out:u64 i32", contexts.limit),
    "DeviceGetPCIBusId": ("u64 i32 device", devices.bus_id),
    "DeviceGetStreamPriorityRange": ("out?:i32 out?:i32", contexts.priorities),
    "DeviceSetCacheConfig": ("i32", contexts.preference),
    "DeviceSetLimit": ("i32 u64", contexts.set_limit),
    "DeviceSynchronize": ("", contexts.nothing),
    "DriverGetVersion": ("out:i32", devices.version),
    "EventCreate": ("out:u64", lambda gpu: streams.create_event(gpu, 0)),
    "EventCreateWithFlags": ("out:u64 u32", streams.create_event),
    "EventDestroy": ("u64", streams.destroy_event),
    "EventElapsedTime": ("out:f32 event event", streams.elapsed),
    "EventElapsedTime_v2": ("out:f32 event event", streams.elapsed),
    "EventQuery": ("event", streams.synchronize_event),
    "EventRecord": ("event stream", streams.record),
    "EventRecordWithFlags": ("event stream u32", streams.record),
    "EventSynchronize": ("event", streams.synchronize_event),
    "Free": ("u64", memory.free),
    "FreeAsync": ("u64 queue:mem_free", memory.free),
    "FreeHost": ("u64", memory.free_host),
    "FuncGetAttributes": ("u64 function", _function_attributes),
    "FuncSetAttribute": ("function i32 i32", modules.set_attribute),
    "FuncSetCacheConfig": ("function -i32", modules.prefer),
    "GetDevice": ("out:i32", contexts.device_of_current),
    "GetDeviceCount": ("out:i32", devices.device_count),
    "GetDeviceFlags": ("out:u32", contexts.flags),
    "GetDriverEntryPoint": ("text u64 -u64 u64", _entry),
    "GetDriverEntryPointByVersion": ("text u64 u32 -u64 u64", _driver_entry),
    "GraphAddEmptyNode": ("out:u64 graph u64 u64", graph_nodes.add_empty),
    "GraphAddMemcpyNode1D": ("out:u64 graph u64 u64 u64 u64 u64 -i32", _add_copy),
    "GraphClone": ("out:u64 graph", graphs.clone),
    "GraphCreate": ("out:u64 -u32", graphs.create),
    "GraphDestroy": ("u64", graphs.destroy),
    "GraphExecDestroy": ("u64", graphs.destroy_executable),
    "GraphExecMemcpyNodeSetParams1D": ("executable node u64 u64 u64 -i32", _change_copy),
    "GraphExecUpdate": ("executable graph u64", graphs.update),
    "GraphGetNodes": ("graph u64 u64", graphs.nodes),
    "GraphGetRootNodes": ("graph u64 u64", graphs.roots),
    "GraphInstantiate": ("out:u64 graph -u64", graphs.instantiate),
    "GraphInstantiateWithFlags": ("out:u64 graph -u64", graphs.instantiate),
    "GraphInstantiateWithParams": ("out:u64 graph u64", graphs.instantiate_with),
    "GraphLaunch": ("executable stream", graphs.launch),
    "GraphNodeGetType": ("node out:i32", graph_nodes.kind_of),
    "GraphNodeSetEnabled": ("executable node u32", graph_nodes.enable),
    "GraphUpload": ("executable -u64", graphs.upload),
    "HostAlloc": ("out:u64 u64 u32", memory.allocate_host),
    "HostGetDevicePointer": ("out:u64 u64 -u32", memory.device_pointer),
    "HostGetFlags": ("out:u32 u64", memory.host_flags),
    "HostRegister": ("u64 u64 u32", memory.register),
    "HostUnregister": ("u64", memory.unregister),
    "KernelSetAttributeForDevice": ("function i32 i32 -i32", modules.set_attribute),
    "LaunchHostFunc": ("queue:host u64 u64", launches.call_host),
    "LibraryGetGlobal": ("out?:u64 out?:u64 module text", modules.variable),
    "LibraryGetKernel": ("out:u64 module text", modules.function),
    "LibraryGetKernelCount": ("out:u32 module", modules.function_count),
    "LibraryLoadData": ("out:u64 u64 -u64 -u64 -u32 -u64 -u64 -u32", modules.load),
    "LibraryLoadFromFile": ("out:u64 text -u64 -u64 -u32 -u64 -u64 -u32", modules.load_file),
    "LibraryUnload": ("u64", modules.unload),
    "Malloc": ("out:u64 u64", _allocate),
    "MallocAsync": ("out:u64 u64 stream", _allocate_in_order),
    "MallocHost": ("out:u64 u64", memory.allocate_host),
    "MallocManaged": ("out:u64 u64 u32", memory.allocate_managed),
    "MallocPitch": (
        "out:u64 out:u64 u64 u64",
        lambda gpu, *size: memory.allocate_pitched(gpu, *size),
    ),
    "MemAdvise": ("u64 -u64 -i32 -u64", memory.advise),
    "MemGetInfo": ("out:u64 out:u64", memory.info),
    "MemPrefetchAsync": ("u64 -u64 -u64 -u32 -u64", memory.advise),
    "Memcpy": ("u64 u64 u64 -i32", copies.copy),
    "Memcpy3D": ("u64", _copy_box),
    "Memcpy3DAsync": ("u64 stream", _copy_box),
    "Memcpy2D": ("u64 u64 u64 u64 u64 u64 -i32", _copy_rows),
    "Memcpy2DAsync": ("u64 u64 u64 u64 u64 u64 -i32 queue:memcpy", _copy_rows),
    "MemcpyAsync": ("u64 u64 u64 -i32 queue:memcpy", copies.copy),
    "Memset": ("u64 i32 u64", _fill),
    "Memset2D": ("u64 u64 i32 u64 u64", _fill_rows),
    "Memset2DAsync": ("u64 u64 i32 u64 u64 queue:memset", _fill_rows),
    "MemsetAsync": ("u64 i32 u64 queue:memset", _fill),
    "OccupancyMaxActiveBlocksPerMultiprocessor": (
        "out:i32 function i32 u64",
        occupancy.active_blocks,
    ),
    "OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        "out:i32 function i32 u64 -u32",
        occupancy.active_blocks,
    ),
    "OccupancyMaxActiveClusters": ("out:i32 function u64", launches.active_clusters),
    "PointerGetAttributes": ("u64 u64", _pointer_attributes),
    "ProfilerStart": ("", contexts.nothing),
    "ProfilerStop": ("", contexts.nothing),
    "RuntimeGetVersion": ("out:i32", devices.version),
    "SetDevice": ("device", contexts.nothing),
    "SetDeviceFlags": ("u32", contexts.set_flags),
    "StreamAddCallback": ("u64 u64 u64 -u32", streams.add_callback),
    "StreamBeginCapture": ("stream i32", streams.begin_capture),
    "StreamCreate": ("out:u64", lambda gpu: streams.create(gpu, 0)),
    "StreamCreateWithFlags": ("out:u64 u32", streams.create),
    "StreamCreateWithPriority": ("out:u64 u32 -i32", streams.create),
    "StreamDestroy": ("u64", streams.destroy),
    "StreamEndCapture": ("stream out:u64", streams.end_capture),
    "StreamGetFlags": ("stream out:u32", streams.flags),
    "StreamGetPriority": ("stream out:i32", streams.zero),
    "StreamIsCapturing": ("stream out:i32", streams.capture_status),
    "StreamQuery": ("stream", streams.synchronize),
    "StreamSynchronize": ("stream", streams.synchronize),
    "StreamWaitEvent": ("stream event u32", streams.wait_for_event),
    "ThreadExchangeStreamCaptureMode": ("u64", streams.exchange_capture_mode),
    **graph_nodes.SHARED,
    **graph_nodes.node_functions("Memcpy", NodeKind.MEMCPY, _box_copy),
    **graph_nodes.node_functions("Memset", NodeKind.MEMSET, copies.box_fill),
}
_WAITING = frozenset(
    {"DeviceSynchronize", "Free", "Malloc", "MallocPitch", "Memcpy", "Memcpy2D", "Memcpy3D", "Memset", "Memset2D"}
)  # fmt: skip
"""What is refused while a stream is captured, as the functions of the driver are."""

_IN_PLACE_OF_A_RESULT: dict[str, tuple[str, str, Any]] = {
    "DeviceReset": ("i32", "", _reset),
    "GetErrorName": ("u64", "i32", error_name),
    "GetErrorString": ("u64", "i32", _error_words),
    "GetLastError": ("i32", "", _last_error),
    "PeekAtLastError": ("i32", "", lambda gpu: gpu.thread.error or gpu.fault),
}
"""What returns something else, its type first, or is answered after a fault too."""

for _name, (_types, _function) in _ROWS.items():
    answers(f"cuda{_name}", _types, needs="runtime", waits=_name in _WAITING)(_function)
for _name, (_returns, _types, _function) in _IN_PLACE_OF_A_RESULT.items():
    answers(f"cuda{_name}", _types, needs="runtime", returns=_returns)(_function)
