"""Streams and events. Work has ended when the call that asks for it returns.

Source: CUDA Driver API, "Stream Management" and "Event Management".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ptxlab.clients.driver.gpu import DriverStream, EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, handles


@handles("event")
@dataclass(slots=True, eq=False)
class DriverEvent:
    """An event: the seconds of emulation when it was last recorded, None before."""

    flags: int
    seconds: float | None = None


@answers("cuStreamCreate", "out:u64 u32")
@answers("cuStreamCreateWithPriority", "out:u64 u32 -i32")
def create(gpu: EmulatedGpu, flags: int) -> int:
    return gpu.handle(DriverStream(flags))


@answers("cuStreamDestroy", "u64", since=-1)
@answers("cuStreamDestroy_v2", "u64")
def destroy(gpu: EmulatedGpu, handle: int) -> None:
    gpu.drop(handle, DriverStream)


@answers("cuStreamSynchronize", "stream")
@answers("cuStreamQuery", "stream")
def synchronize(gpu: EmulatedGpu, stream: DriverStream) -> None:
    """All is done."""


@answers("cuStreamWaitEvent", "stream event -u32")
def wait_for_event(gpu: EmulatedGpu, stream: DriverStream, event: DriverEvent) -> None:
    """It has been."""


@answers("cuStreamGetFlags", "stream out:u32")
def flags(gpu: EmulatedGpu, stream: DriverStream) -> int:
    return stream.flags


@answers("cuStreamGetPriority", "stream out:i32")
@answers("cuStreamGetDevice", "stream out:i32")
@answers("cuStreamIsCapturing", "stream out:i32")
@answers("cuStreamGetCaptureInfo_v2", "stream out:i32 -u64 -u64 -u64 -u64", since=11030)
@answers("cuStreamGetCaptureInfo_v3", "stream out:i32 -u64 -u64 -u64 -u64 -u64", since=12030)
def zero(gpu: EmulatedGpu, stream: DriverStream) -> int:
    return 0


@answers("cuStreamGetId", "u64 out:u64")
def identity(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return handle


@answers("cuStreamGetCtx", "stream out:u64", since=9020)
def context(gpu: EmulatedGpu, stream: DriverStream) -> int:
    return gpu.context.handle


@answers("cuStreamGetCtx_v2", "stream out:u64 out?:u64", since=12050)
def contexts(gpu: EmulatedGpu, stream: DriverStream) -> tuple[int, int]:
    return gpu.context.handle, 0


@answers("cuThreadExchangeStreamCaptureMode", "-u64")
def capture_mode(gpu: EmulatedGpu) -> None:
    """Nothing is captured, in whatever mode."""


@answers("cuStreamAddCallback", "u64 u64 u64 -u32")
def add_callback(gpu: EmulatedGpu, handle: int, function: int, data: int) -> None:
    gpu.stream(handle)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    kind(function)(handle, DriverResult.SUCCESS, data)


@answers("cuEventCreate", "out:u64 u32")
def create_event(gpu: EmulatedGpu, flags: int) -> int:
    return gpu.handle(DriverEvent(flags))


@answers("cuEventDestroy", "u64", since=-1)
@answers("cuEventDestroy_v2", "u64")
def destroy_event(gpu: EmulatedGpu, handle: int) -> None:
    gpu.drop(handle, DriverEvent)


@answers("cuEventRecord", "event stream")
@answers("cuEventRecordWithFlags", "event stream -u32")
def record(gpu: EmulatedGpu, event: DriverEvent, stream: DriverStream) -> None:
    event.seconds = gpu.seconds


@answers("cuEventSynchronize", "event")
@answers("cuEventQuery", "event")
def synchronize_event(gpu: EmulatedGpu, event: DriverEvent) -> None:
    """It has been."""


_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


@answers("cuEventElapsedTime", "out:f32 event event", since=2000)
@answers("cuEventElapsedTime_v2", "out:f32 event event", since=12080)
def elapsed(gpu: EmulatedGpu, first: DriverEvent, last: DriverEvent) -> float:
    """Return milliseconds of emulation."""
    if (first.flags | last.flags) & _NO_TIMING or first.seconds is None or last.seconds is None:
        raise Refused(DriverResult.INVALID_HANDLE)
    return (last.seconds - first.seconds) * 1e3
