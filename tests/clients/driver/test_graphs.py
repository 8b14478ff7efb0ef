"""Graphs put together node by node and by capturing streams: nothing runs before a launch, and each launch does it all."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from ptxlab.clients import captures
from tests.clients.driver.calls import Driver
from tests.clients.driver.test_copies import DEVICE, Copy3D

# Puts the digit n behind those of the number that out has.
TEXT = """.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .b64 d; .reg .b32 r, digit;
    ld.param.u64 d, [out]; ld.param.u32 digit, [n];
    ld.global.u32 r, [d]; mad.lo.u32 r, r, 10, digit; st.global.u32 [d], r;
}
"""
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
BLOCKING, NON_BLOCKING = range(2)
NONE, ACTIVE, INVALIDATED = range(3)


class Digits:
    """A kernel that appends digits to a number, and streams and graphs for it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.kernel = self.driver.kernel(TEXT)
        self.out = self.driver.upload(bytes(4))
        self.kept: list[object] = []

    def arguments(self, digit: int) -> int:
        values = ctypes.c_uint64(self.out), ctypes.c_uint32(digit)
        pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, values))
        self.kept.append((values, pointers))
        return ctypes.addressof(pointers)

    def held(self, data: bytes) -> int:
        memory = ctypes.create_string_buffer(data, max(1, len(data)))
        self.kept.append(memory)
        return ctypes.addressof(memory)

    def launch(self, stream: int, digit: int) -> None:
        sizes = 1, 1, 1, 1, 1, 1, 0
        self.driver("cuLaunchKernel", self.kernel, *sizes, stream, self.arguments(digit), 0)

    def node(self, graph: int, digit: int, *after: int) -> int:
        packed = struct.pack("<Q7I4x3Q", self.kernel, *[1] * 6, 0, self.arguments(digit), 0, 0)
        return self.added("cuGraphAddKernelNode_v2", graph, self.held(packed), after)

    def added(self, name: str, graph: int, given: int, after: tuple[int, ...] = ()) -> int:
        places = self.held(struct.pack(f"<{len(after)}Q", *after))
        return int(self.driver(name, graph, places, len(after), given))

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return int(self.driver("cuStreamCreate", flags))

    def event(self) -> int:
        return int(self.driver("cuEventCreate", 0))

    def begun(self, mode: int = GLOBAL, flags: int = NON_BLOCKING) -> int:
        stream = self.stream(flags)
        self.driver("cuStreamBeginCapture_v2", stream, mode)
        return stream

    def number(self) -> int:
        """Return the number, and begin a new one."""
        (number,) = struct.unpack("<I", self.driver.download(self.out, 4))
        self.driver("cuMemsetD32_v2", self.out, 0, 1)
        return int(number)

    def launched(self, graph: int, times: int = 1) -> int:
        executable = self.driver("cuGraphInstantiateWithFlags", graph)
        for _ in range(times):
            self.driver("cuGraphLaunch", executable, 0)
        return self.number()

    def nodes(self, graph: int, room: int = 0) -> list[int]:
        count, places = ctypes.c_uint64(room), (ctypes.c_uint64 * max(1, room))()
        at = ctypes.addressof(places) if room else 0
        self.driver("cuGraphGetNodes", graph, at, ctypes.addressof(count))
        return list(places)[: count.value] if room else [count.value]


@pytest.fixture
def digits() -> Iterator[Digits]:
    yield Digits()
    for capture in captures.under_way():
        captures.end(capture)


def test_nodes_are_as_they_were_when_they_were_added(digits: Digits) -> None:
    driver = digits.driver
    copied = driver.upload(bytes(4))
    box = Copy3D(
        srcMemoryType=DEVICE, srcDevice=digits.out, dstMemoryType=DEVICE, dstDevice=copied,
        Width=4, Height=1, Depth=1,
    )  # fmt: skip
    graph = driver("cuGraphCreate")
    node = digits.node(graph, 5)
    copy = digits.added("cuGraphAddMemcpyNode", graph, ctypes.addressof(box), (node,))
    digits.kept[0][0][1].value, box.Width = 6, 0  # type: ignore[index]
    executable = driver("cuGraphInstantiateWithFlags", graph)
    late = digits.node(graph, 9)
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 5
    assert driver.download(copied, 4) == struct.pack("<I", 5)

    change = digits.held(
        struct.pack("<Q7I4xQQ", digits.kernel, *[1] * 6, 0, digits.arguments(8), 0)
    )
    assert driver.result("cuGraphExecKernelNodeSetParams", executable, late, change) == (
        "INVALID_VALUE"
    )
    assert driver.result("cuGraphExecKernelNodeSetParams", executable, copy, change) == (
        "INVALID_VALUE"
    )
    box.Width, box.srcX = 2, 2
    driver("cuGraphExecKernelNodeSetParams", executable, node, change)
    driver("cuGraphExecMemcpyNodeSetParams", executable, copy, ctypes.addressof(box))
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 8
    assert driver.download(copied, 4) == bytes(4)
    driver("cuGraphExecDestroy", executable)
    for handle in (executable, graph, node):
        assert driver.result("cuGraphLaunch", handle, 0) == "INVALID_HANDLE"
    driver("cuGraphDestroy", graph)
    assert driver.result("cuGraphNodeGetType", node) == "INVALID_HANDLE"


def test_nodes_run_behind_those_they_depend_on(digits: Digits) -> None:
    driver, graph = digits.driver, digits.driver("cuGraphCreate")
    last = digits.node(graph, 3)
    first = digits.node(graph, 1)
    second = digits.node(graph, 2, first)
    pairs = digits.held(struct.pack("<Q", second)), digits.held(struct.pack("<Q", last))
    driver("cuGraphAddDependencies", graph, *pairs, 1)
    assert digits.launched(graph, 2) == 123123
    assert digits.nodes(graph) == [3]
    assert digits.nodes(graph, 2) == [last, first]
    assert digits.nodes(graph, 5) == [last, first, second]
    clone = driver("cuGraphClone", graph)
    digits.node(clone, 4, *digits.nodes(clone, 3))
    assert digits.launched(clone) == 1234
    circle = digits.held(struct.pack("<Q", last)), digits.held(struct.pack("<Q", first))
    driver("cuGraphAddDependencies", graph, *circle, 1)
    assert driver.result("cuGraphInstantiateWithFlags", graph) == "INVALID_VALUE"
    strange = digits.held(struct.pack("<Q", 0x77))
    assert driver.result("cuGraphAddDependencies", graph, strange, strange, 1) == "INVALID_HANDLE"
    others = digits.held(struct.pack("<Q", digits.nodes(clone, 1)[0]))
    assert driver.result("cuGraphAddDependencies", graph, others, others, 1) == "INVALID_VALUE"


def test_what_nodes_do_and_how_they_are_changed(digits: Digits) -> None:
    driver, heard = digits.driver, list[int]()
    graph, inner = driver("cuGraphCreate"), driver("cuGraphCreate")
    heed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: heard.append(data))
    called = struct.pack("<2Q", ctypes.cast(heed, ctypes.c_void_p).value or 0, 0x1234)
    fill = struct.pack("<2Q2I2Q", digits.out, 0, 7, 4, 1, 1)
    digits.node(inner, 2)
    child = digits.added("cuGraphAddChildGraphNode", graph, inner)
    digits.node(inner, 9)  # too late
    filled = digits.added("cuGraphAddMemsetNode", graph, digits.held(fill), (child,))
    own = digits.node(graph, 4, filled)
    host = digits.added("cuGraphAddHostNode", graph, digits.held(called), (own,))
    event = digits.event()
    recorded = digits.added("cuGraphAddEventRecordNode", graph, event, (host,))
    digits.added("cuGraphAddEventWaitNode", graph, event, (recorded,))
    driver("cuGraphAddEmptyNode", graph, 0, 0)
    kinds = [driver("cuGraphNodeGetType", node) for node in digits.nodes(graph, 9)]
    assert kinds == [4, 2, 0, 3, 7, 6, 5]
    executable = driver("cuGraphInstantiateWithFlags", graph)
    driver("cuGraphLaunch", executable, 0)
    assert (digits.number(), heard) == (74, [0x1234])
    assert driver.result("cuEventElapsedTime", event, event) == "SUCCESS"
    driver("cuGraphNodeSetEnabled", executable, filled, 0)
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 24
    driver("cuGraphNodeSetEnabled", executable, filled, 1)
    wide = digits.held(struct.pack("<2Q2I2Q", digits.out, 0, 0x0101, 2, 1, 1))
    driver("cuGraphExecMemsetNodeSetParams", executable, filled, wide)
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 0x0101 * 10 + 4
    odd = digits.held(struct.pack("<2Q2I2Q", digits.out, 0, 1, 3, 1, 1))
    assert driver.result("cuGraphMemsetNodeSetParams", filled, odd) == "INVALID_VALUE"
    driver("cuGraphMemsetNodeSetParams", filled, wide)
    assert digits.launched(graph) == 0x0101 * 10 + 4


def test_an_executable_is_updated_by_a_graph_of_the_same_nodes(digits: Digits) -> None:
    driver = digits.driver
    graphs = [driver("cuGraphCreate") for _ in range(3)]
    for graph, numbers in zip(graphs, ((1, 2), (3, 4), (5, 6, 7)), strict=True):
        node = digits.node(graph, numbers[0])
        for number in numbers[1:]:
            node = digits.node(graph, number, node)
    executable, info = driver("cuGraphInstantiateWithFlags", graphs[0]), digits.held(bytes(24))
    assert driver.result("cuGraphExecUpdate_v2", executable, graphs[1], info) == "SUCCESS"
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 34
    assert driver.result("cuGraphExecUpdate_v2", executable, graphs[2], info) == (
        "GRAPH_EXEC_UPDATE_FAILURE"
    )
    assert ctypes.c_int.from_address(info).value == 2  # CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 34


def test_what_a_stream_captures_runs_when_its_graph_is_launched(digits: Digits) -> None:
    driver = digits.driver
    copied = driver.upload(bytes(4))
    stream = digits.begun(RELAXED)
    assert driver("cuStreamIsCapturing", stream) == ACTIVE
    driver("cuMemsetD32Async", digits.out, 4, 1, stream)
    digits.launch(stream, 2)
    driver("cuMemcpyDtoDAsync_v2", copied, digits.out, 4, stream)
    digits.launch(digits.stream(), 9)  # another, which is not captured
    assert digits.number() == 9
    graph = driver("cuStreamEndCapture", stream)
    assert driver("cuStreamIsCapturing", stream) == NONE
    assert [driver("cuGraphNodeGetType", node) for node in digits.nodes(graph, 9)] == [2, 0, 1]
    assert driver.download(copied, 4) == bytes(4)
    assert digits.launched(graph, 2) == 42
    assert driver.download(copied, 4) == struct.pack("<I", 42)
    outer = digits.begun()
    executable = driver("cuGraphInstantiateWithFlags", graph)
    driver("cuGraphLaunch", executable, outer)
    digits.launch(outer, 1)
    node = digits.nodes(graph, 3)[1]
    driver("cuGraphNodeSetEnabled", executable, node, 0)  # too late for what is captured
    assert digits.launched(driver("cuStreamEndCapture", outer)) == 421


def test_streams_join_by_events(digits: Digits) -> None:
    driver = digits.driver
    stream, side, fork, join = digits.begun(), digits.stream(), digits.event(), digits.event()
    digits.launch(stream, 1)
    driver("cuEventRecord", fork, stream)
    driver("cuStreamWaitEvent", side, fork, 0)
    assert driver("cuStreamIsCapturing", side) == ACTIVE
    digits.launch(side, 2)
    driver("cuEventRecord", join, side)
    driver("cuStreamWaitEvent", stream, join, 0)
    status, graph, again, last, number = driver("cuStreamGetCaptureInfo_v2", stream)
    assert (status, graph, number) == (ACTIVE, again, 2)
    first, second = (ctypes.c_uint64 * 2).from_address(last)
    digits.launch(stream, 3)
    assert driver("cuStreamEndCapture", stream) == graph
    assert driver("cuStreamIsCapturing", side) == NONE
    assert digits.nodes(graph, 3)[:2] == [first, second]
    assert digits.launched(graph) == 123


def elsewhere(call: Callable[[], str]) -> str:
    """Return what a call in another thread ends with."""
    results = list[str]()
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("calls", ["origin", "unjoined", "other origin", "thread", "twice", "none"])
def test_how_a_capture_cannot_begin_or_end(digits: Digits, calls: str) -> None:
    driver, result = digits.driver, digits.driver.result
    if calls == "none":
        assert result("cuStreamEndCapture", digits.stream()) == "ILLEGAL_STATE"
        assert result("cuStreamBeginCapture_v2", 0, GLOBAL) == "STREAM_CAPTURE_UNSUPPORTED"
        assert result("cuStreamBeginCapture_v2", digits.stream(), 3) == "INVALID_VALUE"
        return
    stream, side, event = digits.begun(), digits.stream(), digits.event()
    driver("cuEventRecord", event, stream)
    if calls == "thread":

        def end() -> str:
            driver("cuCtxSetCurrent", driver.primary)
            return result("cuStreamEndCapture", stream)

        assert elsewhere(end) == "STREAM_CAPTURE_WRONG_THREAD"
        assert result("cuStreamEndCapture", stream) == "SUCCESS"
        return
    if calls == "twice":
        assert result("cuStreamBeginCapture_v2", stream, GLOBAL) == "ILLEGAL_STATE"
        assert result("cuStreamEndCapture", stream) == "SUCCESS"
        return
    if calls == "other origin":
        other = digits.begun()
        assert result("cuStreamWaitEvent", other, event, 0) == "STREAM_CAPTURE_MERGE"
        assert result("cuStreamEndCapture", stream) == "STREAM_CAPTURE_INVALIDATED"
        return
    driver("cuStreamWaitEvent", side, event, 0)
    digits.launch(side, 1)
    if calls == "origin":
        assert result("cuStreamEndCapture", side) == "STREAM_CAPTURE_UNMATCHED"
        assert driver("cuStreamIsCapturing", stream) == INVALIDATED
        assert result("cuStreamEndCapture", stream) == "STREAM_CAPTURE_INVALIDATED"
    else:
        assert result("cuStreamEndCapture", stream) == "STREAM_CAPTURE_UNJOINED"
    assert driver("cuStreamIsCapturing", stream) == NONE


def misuses(digits: Digits, stream: int) -> dict[str, tuple[str, Callable[[], str]]]:
    """Return what must not be done while a stream is captured, and what it ends with."""
    driver, result = digits.driver, digits.driver.result
    recorded, captured = digits.event(), digits.event()
    driver("cuEventRecord", recorded, digits.stream())
    driver("cuEventRecord", captured, stream)
    unsupported = "STREAM_CAPTURE_UNSUPPORTED"
    return {
        "synchronize": (unsupported, lambda: result("cuStreamSynchronize", stream)),
        "query": (unsupported, lambda: result("cuStreamQuery", stream)),
        "callback": (unsupported, lambda: result("cuStreamAddCallback", stream, 0, 0)),
        "context": (unsupported, lambda: result("cuCtxSynchronize")),
        "allocate": (unsupported, lambda: result("cuMemAlloc_v2", 4)),
        "copy": (unsupported, lambda: result("cuMemcpyDtoD_v2", digits.out, digits.out, 4)),
        "event": ("CAPTURED_EVENT", lambda: result("cuEventSynchronize", captured)),
        "time": ("CAPTURED_EVENT", lambda: result("cuEventElapsedTime", recorded, captured)),
        "before": (
            "STREAM_CAPTURE_ISOLATION",
            lambda: result("cuStreamWaitEvent", stream, recorded, 0),
        ),
        "legacy": (
            "STREAM_CAPTURE_IMPLICIT",
            lambda: result("cuStreamWaitEvent", 0, captured, 0),
        ),
        "order": ("NOT_SUPPORTED", lambda: result("cuMemAllocAsync", 4, stream)),
    }


@pytest.mark.parametrize(
    "misuse",
    "synchronize query callback context allocate copy event time before legacy order".split(),  # noqa: SIM905
)
def test_what_must_not_be_done_ends_the_capture(digits: Digits, misuse: str) -> None:
    stream = digits.begun()
    digits.launch(stream, 1)
    expected, call = misuses(digits, stream)[misuse]
    assert call() == expected
    assert digits.driver("cuStreamIsCapturing", stream) == INVALIDATED
    assert digits.driver.result("cuStreamEndCapture", stream) == "STREAM_CAPTURE_INVALIDATED"
    assert digits.driver.result("cuCtxSynchronize") == "SUCCESS"


def test_the_legacy_stream_waits_for_those_that_block(digits: Digits) -> None:
    digits.begun(flags=NON_BLOCKING)
    digits.launch(0, 1)
    stream = digits.begun(flags=BLOCKING)
    for name in ("cuStreamSynchronize", "cuStreamIsCapturing"):
        assert digits.driver.result(name, 0) == "STREAM_CAPTURE_IMPLICIT"
    sizes = 1, 1, 1, 1, 1, 1, 0
    given = digits.kernel, *sizes, 0, digits.arguments(2), 0
    assert digits.driver.result("cuLaunchKernel", *given) == "STREAM_CAPTURE_IMPLICIT"
    assert digits.driver.result("cuStreamEndCapture", stream) == "STREAM_CAPTURE_INVALIDATED"


@pytest.mark.parametrize(
    ("mode", "here", "there"),
    [
        (GLOBAL, "STREAM_CAPTURE_UNSUPPORTED", "STREAM_CAPTURE_UNSUPPORTED"),
        (THREAD_LOCAL, "STREAM_CAPTURE_UNSUPPORTED", "SUCCESS"),
        (RELAXED, "SUCCESS", "SUCCESS"),
    ],
)
def test_the_mode_says_which_threads_may_wait(
    digits: Digits, mode: int, here: str, there: str
) -> None:
    driver = digits.driver

    def in_another() -> str:
        driver("cuCtxSetCurrent", driver.primary)
        return driver.result("cuMemAlloc_v2", 4)

    assert (digits.begun(mode), elsewhere(in_another))[1] == there
    assert driver.result("cuMemAlloc_v2", 4) == here
    wanted = ctypes.c_int(RELAXED)
    driver("cuThreadExchangeStreamCaptureMode", ctypes.addressof(wanted))
    assert wanted.value == GLOBAL
    assert driver.result("cuMemAlloc_v2", 4) == "SUCCESS"


def test_an_event_may_be_recorded_by_the_graph(digits: Digits) -> None:
    driver, stream, event = digits.driver, digits.begun(), digits.event()
    driver("cuEventRecordWithFlags", event, stream, 1)  # CU_EVENT_RECORD_EXTERNAL
    driver("cuStreamWaitEvent", stream, event, 1)
    graph = driver("cuStreamEndCapture", stream)
    assert [driver("cuGraphNodeGetType", node) for node in digits.nodes(graph, 9)] == [7, 6]
    assert driver.result("cuEventElapsedTime", event, event) == "INVALID_HANDLE", "not recorded"
    digits.launched(graph)
    assert driver("cuEventElapsedTime", event, event) == 0


def test_the_runtime_has_the_same(digits: Digits) -> None:
    driver = digits.driver
    source, to = (driver.upload(bytes([value] * 64)) for value in (7, 1))
    # 3 bytes of 2 rows of one plane, from rows of 8 to rows of 16: cudaMemcpy3DParms
    box = struct.pack("<19Q", 0, 1, 0, 0, source, 8, 8, 2, 0, 2, 1, 0, to, 16, 16, 4, 3, 2, 1)
    graph = driver("cudaGraphCreate")
    first = digits.added("cudaGraphAddMemcpyNode", graph, digits.held(box))
    places = digits.held(struct.pack("<Q", first))
    line = driver("cudaGraphAddMemcpyNode1D", graph, places, 1, to + 60, source, 4)
    executable = driver("cudaGraphInstantiate", graph)
    expected = bytearray([1] * 64)
    for begin, size in ((18, 3), (34, 3), (60, 4)):
        expected[begin : begin + size] = bytes([7] * size)
    driver("cudaGraphLaunch", executable, 0)
    assert driver.download(to, 64) == expected
    driver("cudaGraphExecMemcpyNodeSetParams1D", executable, line, to, source, 1)
    driver("cudaGraphLaunch", executable, 0)
    assert driver.download(to, 64) == bytes([7]) + expected[1:]
    textures = digits.held(b"\1" + box[1:])
    assert driver.result("cudaMemcpy3D", textures) == "NOT_SUPPORTED"
    stream = driver("cudaStreamCreate")
    driver("cudaStreamBeginCapture", stream, RELAXED)
    driver("cudaMemsetAsync", to, 3, 2, stream)
    driver("cudaMemcpyAsync", to + 2, source, 2, stream)
    assert driver("cudaStreamIsCapturing", stream) == ACTIVE
    captured = driver("cudaStreamEndCapture", stream)
    driver("cudaGraphLaunch", driver("cudaGraphInstantiate", captured), stream)
    assert driver.download(to, 4) == bytes([3, 3, 7, 7])


def test_a_graph_keeps_what_the_program_wants_to_hear_of(digits: Digits) -> None:
    driver, gone = digits.driver, list[int]()
    heed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: gone.append(data))
    function = ctypes.cast(heed, ctypes.c_void_p).value
    thing = driver("cuUserObjectCreate", 0x99, function, 1)
    graph = driver("cuGraphCreate")
    driver("cuGraphRetainUserObject", graph, thing, 1, 0)
    driver("cuUserObjectRelease", thing, 1)
    executable = driver("cuGraphInstantiateWithFlags", graph)
    driver("cuGraphDestroy", graph)
    assert gone == []
    driver("cuGraphExecDestroy", executable)
    assert gone == [0x99]
    assert driver.result("cuUserObjectRetain", thing, 1) == "INVALID_HANDLE"
