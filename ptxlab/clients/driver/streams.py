"""Streams and events, and captures of streams. Work that is not captured has ended when the call that asks for it returns.

Source: CUDA Driver API, "Stream Management" and "Event Management".
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ptxlab.clients import captures
from ptxlab.clients.captures import Capture, CaptureMode, GraphNode, NodeKind, Stream
from ptxlab.clients.driver.gpu import EmulatedGpu, LegacyStream, require_no_blocking_capture
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, handles, store


@handles("event")
@dataclass(slots=True, eq=False)
class DriverEvent:
    """An event: the seconds of emulation when it was last recorded, None before, or what was captured until then."""

    flags: int
    seconds: float | None = None
    captured: tuple[Capture, tuple[GraphNode, ...]] | None = None

    def be_now(self, gpu: EmulatedGpu) -> None:
        self.seconds, self.captured = gpu.seconds, None


@answers("cuStreamCreate", "out:u64 u32")
@answers("cuStreamCreateWithPriority", "out:u64 u32 -i32")
def create(gpu: EmulatedGpu, flags: int) -> int:
    return captures.new_stream(Stream(flags))


@answers("cuStreamDestroy", "u64", since=-1)
@answers("cuStreamDestroy_v2", "u64")
def destroy(gpu: EmulatedGpu, handle: int) -> None:
    stream = gpu.stream(handle)
    if captures.streams.pop(handle, None) is None:
        raise Refused(DriverResult.INVALID_HANDLE)  # a default stream stays
    if stream.capture and stream.capture.origin is stream:
        captures.end(stream.capture)


@answers("cuStreamSynchronize", "stream")
@answers("cuStreamQuery", "stream")
def synchronize(gpu: EmulatedGpu, stream: Stream) -> None:
    """All is done."""
    if isinstance(stream, LegacyStream):
        require_no_blocking_capture()
    if stream.capture:
        raise _invalidated(stream.capture, DriverResult.STREAM_CAPTURE_UNSUPPORTED)


_EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL: a node of the graph does it, at each launch."""


@answers("cuStreamWaitEvent", "stream event u32")
def wait_for_event(gpu: EmulatedGpu, stream: Stream, event: DriverEvent, flags: int) -> None:
    """It has been; or the stream is captured from here on, as the event is."""
    capture = stream.capture
    if capture and flags & _EXTERNAL:
        capture.add(stream, NodeKind.WAIT_EVENT, lambda: None)
    elif event.captured and event.captured[0] in captures.under_way():
        _join(stream, *event.captured)
    elif capture and event.seconds is not None:
        raise _invalidated(capture, DriverResult.STREAM_CAPTURE_ISOLATION)


def _join(stream: Stream, capture: Capture, nodes: Iterable[GraphNode]) -> None:
    if isinstance(stream, LegacyStream):
        raise _invalidated(capture, DriverResult.STREAM_CAPTURE_IMPLICIT)
    if stream.capture not in (None, capture):
        raise _invalidated(capture, DriverResult.STREAM_CAPTURE_MERGE)
    stream.capture = capture
    capture.last[stream] = [*capture.last.get(stream, ()), *nodes]


def _invalidated(capture: Capture, result: DriverResult) -> Refused:
    """Return what a call ends with that is not permitted, after which the capture is worth nothing."""
    capture.invalid = True
    return Refused(result)


@answers("cuStreamGetFlags", "stream out:u32")
def flags(gpu: EmulatedGpu, stream: Stream) -> int:
    return stream.flags


@answers("cuStreamGetPriority", "stream out:i32")
@answers("cuStreamGetDevice", "stream out:i32")
def zero(gpu: EmulatedGpu, stream: Stream) -> int:
    return 0


_NONE, _ACTIVE, _INVALIDATED = range(3)  # CUstreamCaptureStatus


@answers("cuStreamIsCapturing", "stream out:i32")
def capture_status(gpu: EmulatedGpu, stream: Stream) -> int:
    if isinstance(stream, LegacyStream):
        require_no_blocking_capture()
    if stream.capture is None:
        return _NONE
    return _INVALIDATED if stream.capture.invalid else _ACTIVE


@answers("cuStreamGetCaptureInfo", "stream out:i32 out?:u64", since=10010)
def capture_info(gpu: EmulatedGpu, stream: Stream) -> tuple[int, int]:
    """Return the status, and a number for the capture."""
    capture = stream.capture
    return capture_status(gpu, stream), gpu.handle_of(capture.graph) if capture else 0


@answers(
    "cuStreamGetCaptureInfo_v2", "stream out:i32 out?:u64 out?:u64 out?:u64 out?:u64", since=11030
)
def capture_and_nodes(gpu: EmulatedGpu, stream: Stream) -> tuple[int, int, int, int, int]:
    """Return besides the graph, and where the nodes are, and how many, that what comes next depends on."""
    status, graph = capture_info(gpu, stream)
    last = stream.capture.behind(stream) if stream.capture else []
    gpu.thread.told = (ctypes.c_uint64 * len(last))(*map(gpu.handle_of, last))
    return status, graph, graph, ctypes.addressof(gpu.thread.told), len(last)


@answers(
    "cuStreamGetCaptureInfo_v3",
    "stream out:i32 out?:u64 out?:u64 out?:u64 out?:u64 out?:u64",
    since=12030,
)
def capture_nodes_and_edges(gpu: EmulatedGpu, stream: Stream) -> tuple[int, ...]:
    """Return the same, and of each dependency that it is of no kind of its own: a CUgraphEdgeData of zeros."""
    *known, number = capture_and_nodes(gpu, stream)
    edges = (ctypes.c_uint64 * number)()
    gpu.thread.told = gpu.thread.told, edges
    return *known, ctypes.addressof(edges), number


_ADD, _SET = range(2)  # CUstreamUpdateCaptureDependencies_flags


@answers("cuStreamUpdateCaptureDependencies", "stream u64 u64 u32", since=11030)
@answers("cuStreamUpdateCaptureDependencies_v2", "stream u64 -u64 u64 u32", since=12030)
def depend_on(gpu: EmulatedGpu, stream: Stream, nodes: int, number: int, how: int) -> None:
    """Have what a captured stream does next depend on nodes of its graph, beside those it would or in their place."""
    capture = stream.capture
    if capture is None:
        raise Refused(DriverResult.ILLEGAL_STATE)
    given = gpu.held_at(nodes, number, GraphNode)
    if how not in (_ADD, _SET) or not {*given} <= {*capture.graph.nodes}:
        raise Refused(DriverResult.INVALID_VALUE)
    before = capture.behind(stream) if how == _ADD else []
    capture.last[stream] = [*before, *given]


@answers("cuStreamGetId", "u64 out:u64")
def identity(gpu: EmulatedGpu, handle: int) -> int:
    gpu.stream(handle)
    return handle


@answers("cuStreamGetCtx", "stream out:u64", since=9020)
def context(gpu: EmulatedGpu, stream: Stream) -> int:
    return gpu.context.handle


@answers("cuStreamGetCtx_v2", "stream out:u64 out?:u64", since=12050)
def contexts(gpu: EmulatedGpu, stream: Stream) -> tuple[int, int]:
    return gpu.context.handle, 0


def _mode(value: int) -> CaptureMode:
    if value not in (*CaptureMode,):
        raise Refused(DriverResult.INVALID_VALUE)
    return CaptureMode(value)


@answers("cuThreadExchangeStreamCaptureMode", "u64")
def exchange_capture_mode(gpu: EmulatedGpu, at: int) -> None:
    wanted = _mode(*fetch(at, "<i"))
    store(at, gpu.thread.capture_mode.to_bytes(4, "little"))
    gpu.thread.capture_mode = wanted


@answers("cuStreamBeginCapture", "stream i32", since=10000)
@answers("cuStreamBeginCapture_v2", "stream i32", since=10010)
def begin_capture(gpu: EmulatedGpu, stream: Stream, mode: int) -> None:
    if isinstance(stream, LegacyStream):
        raise Refused(DriverResult.STREAM_CAPTURE_UNSUPPORTED)
    if stream.capture:
        raise Refused(DriverResult.ILLEGAL_STATE)
    captures.begin(Capture(stream, _mode(mode)))


@answers("cuStreamEndCapture", "stream out:u64")
def end_capture(gpu: EmulatedGpu, stream: Stream) -> int:
    """Return the graph that the stream was captured into. Raises Refused, after which the capture has ended too."""
    capture = stream.capture
    if capture is None:
        raise Refused(DriverResult.ILLEGAL_STATE)
    if capture.origin is not stream:
        raise _invalidated(capture, DriverResult.STREAM_CAPTURE_UNMATCHED)
    if capture.mode is not CaptureMode.RELAXED and capture.thread != threading.get_ident():
        raise Refused(DriverResult.STREAM_CAPTURE_WRONG_THREAD)
    captures.end(capture)
    if capture.invalid:
        raise Refused(DriverResult.STREAM_CAPTURE_INVALIDATED)
    if not capture.joined():
        raise Refused(DriverResult.STREAM_CAPTURE_UNJOINED)
    return gpu.handle_of(capture.graph)


@answers("cuStreamAddCallback", "u64 u64 u64 -u32")
def add_callback(gpu: EmulatedGpu, handle: int, function: int, data: int) -> None:
    synchronize(gpu, gpu.stream(handle))
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
@answers("cuEventRecordWithFlags", "event stream u32")
def record(gpu: EmulatedGpu, event: DriverEvent, stream: Stream, flags: int = 0) -> None:
    capture = stream.capture
    if capture and not flags & _EXTERNAL:
        event.captured = capture, tuple(capture.behind(stream))
    else:
        stream.put(NodeKind.EVENT_RECORD, partial(event.be_now, gpu))


@answers("cuEventSynchronize", "event")
@answers("cuEventQuery", "event")
def synchronize_event(gpu: EmulatedGpu, event: DriverEvent) -> None:
    """It has been. Raises Refused for one that stands for what was captured."""
    if event.captured:
        raise _invalidated(event.captured[0], DriverResult.CAPTURED_EVENT)


_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


@answers("cuEventElapsedTime", "out:f32 event event", since=2000)
@answers("cuEventElapsedTime_v2", "out:f32 event event", since=12080)
def elapsed(gpu: EmulatedGpu, first: DriverEvent, last: DriverEvent) -> float:
    """Return milliseconds of emulation."""
    for event in (first, last):
        synchronize_event(gpu, event)
    if (first.flags | last.flags) & _NO_TIMING or first.seconds is None or last.seconds is None:
        raise Refused(DriverResult.INVALID_HANDLE)
    return (last.seconds - first.seconds) * 1e3
