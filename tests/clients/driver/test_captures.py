"""Graphs into which streams are captured, and what must not be done meanwhile."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable

import pytest

from tests.clients.driver.digits import (
    ACTIVE,
    BLOCKING,
    GLOBAL,
    INVALIDATED,
    NON_BLOCKING,
    NONE,
    RELAXED,
    THREAD_LOCAL,
    Digits,
)


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


def test_a_graph_inside_of_another_and_what_follows_it(digits: Digits) -> None:
    driver, inner = digits.driver, digits.driver("cuGraphCreate")
    node = digits.node(inner, 2)
    stream = digits.begun()
    digits.launch(stream, 1)
    *_, graph, last, edges, number = driver("cuStreamGetCaptureInfo_v3", stream)
    assert (number, ctypes.c_uint64.from_address(edges).value) == (1, 0)
    places = digits.held(ctypes.string_at(last, 8))
    child = driver("cuGraphAddChildGraphNode", graph, places, 1, inner)
    digits.node(inner, 9)  # too late
    copy = driver("cuGraphChildGraphNodeGetGraph", child)
    [twin] = digits.nodes(copy, 5)
    assert driver("cuGraphNodeFindInClone", node, copy) == twin
    assert driver.result("cuGraphNodeFindInClone", child, copy) == "INVALID_VALUE"
    assert driver.result("cuGraphChildGraphNodeGetGraph", twin) == "INVALID_VALUE"
    at = digits.held(struct.pack("<Q", child))
    for how, number in ((0, 2), (1, 1)):  # beside what it would depend on, and in its place
        driver("cuStreamUpdateCaptureDependencies", stream, at, 1, how)
        assert driver("cuStreamGetCaptureInfo_v3", stream)[-1] == number
    digits.launch(stream, 3)
    assert driver("cuStreamEndCapture", stream) == graph
    assert digits.launched(graph) == 123
    digits.node(copy, 7, twin)
    assert digits.launched(graph) == 1273
    assert driver.result("cuStreamUpdateCaptureDependencies", stream, at, 1, 1) == "ILLEGAL_STATE"
