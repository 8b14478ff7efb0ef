"""Streams and events. Work has ended when the call that asks for it returns.

Source: CUDA Driver API, "Stream Management" and "Event Management".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ptxlab.clients.driver.gpu import DriverStream, EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers


@dataclass(slots=True, eq=False)
class DriverEvent:
    """An event: the seconds of emulation when it was last recorded, None before."""

    flags: int
    seconds: float | None = None


@answers("cuStreamCreate", "out:u64 u32")
def create(gpu: EmulatedGpu, flags: int) -> int:
    return gpu.handle(DriverStream(flags))


@answers("cuStreamCreateWithPriority", "out:u64 u32 i32")
def create_with_priority(gpu: EmulatedGpu, flags: int, priority: int) -> int:
    return create(gpu, flags)


@answers("cuStreamDestroy_v2", "u64")
def destroy(gpu: EmulatedGpu, handle: int) -> None:
    gpu.drop(handle, DriverStream)


@answers("cuStreamSynchronize", "u64")
@answers("cuStreamQuery", "u64")
def synchronize(gpu: EmulatedGpu, handle: int) -> None:
    gpu.stream(handle)


@answers("cuStreamWaitEvent", "u64 u64 u32")
def wait_for_event(gpu: EmulatedGpu, handle: int, event: int, flags: int) -> None:
    gpu.stream(handle)
    gpu.held(event, DriverEvent)


@answers("cuStreamGetFlags", "u64 out:u32")
def flags(gpu: EmulatedGpu, handle: int) -> int:
    return gpu.stream(handle).flags


@answers("cuStreamGetPriority", "u64 out:i32")
@answers("cuStreamGetDevice", "u64 out:i32")
def zero(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return 0


@answers("cuStreamGetId", "u64 out:u64")
def identity(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return handle


@answers("cuStreamGetCtx", "u64 out:u64", since=9020)
def context(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return gpu.context.handle


@answers("cuStreamGetCtx_v2", "u64 out:u64 out?:u64", since=12050)
def contexts(gpu: EmulatedGpu, handle: int) -> tuple[int, int]:
    return context(gpu, handle), 0


@answers("cuStreamIsCapturing", "u64 out:i32")
def is_capturing(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return 0


@answers("cuStreamGetCaptureInfo_v2", "u64 out:i32 u64 u64 u64 u64", since=11030)
@answers("cuStreamGetCaptureInfo_v3", "u64 out:i32 u64 u64 u64 u64 u64", since=12030)
def capture_info(gpu: EmulatedGpu, handle: int, *places: int) -> int:
    return is_capturing(gpu, handle)


@answers("cuThreadExchangeStreamCaptureMode", "u64")
def capture_mode(gpu: EmulatedGpu, place: int) -> None:
    """Nothing is captured, in whatever mode."""


@answers("cuStreamAddCallback", "u64 u64 u64 u32")
def add_callback(gpu: EmulatedGpu, handle: int, function: int, data: int, flags: int) -> None:
    gpu.stream(handle)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    kind(function)(handle, DriverResult.SUCCESS, data)


@answers("cuEventCreate", "out:u64 u32")
def create_event(gpu: EmulatedGpu, flags: int) -> int:
    return gpu.handle(DriverEvent(flags))


@answers("cuEventDestroy_v2", "u64")
def destroy_event(gpu: EmulatedGpu, handle: int) -> None:
    gpu.drop(handle, DriverEvent)


@answers("cuEventRecord", "u64 u64")
@answers("cuEventRecordWithFlags", "u64 u64 u32")
def record(gpu: EmulatedGpu, handle: int, stream: int, flags: int = 0) -> None:
    gpu.stream(stream)
    gpu.held(handle, DriverEvent).seconds = gpu.seconds


@answers("cuEventSynchronize", "u64")
@answers("cuEventQuery", "u64")
def synchronize_event(gpu: EmulatedGpu, handle: int) -> None:
    gpu.held(handle, DriverEvent)


_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


@answers("cuEventElapsedTime", "out:f32 u64 u64", since=2000)
@answers("cuEventElapsedTime_v2", "out:f32 u64 u64", since=12080)
def elapsed(gpu: EmulatedGpu, begin: int, end: int) -> float:
    """Return milliseconds of emulation."""
    first, last = gpu.held(begin, DriverEvent), gpu.held(end, DriverEvent)
    if (first.flags | last.flags) & _NO_TIMING or first.seconds is None or last.seconds is None:
        raise Refused(DriverResult.INVALID_HANDLE)
    return (last.seconds - first.seconds) * 1e3
