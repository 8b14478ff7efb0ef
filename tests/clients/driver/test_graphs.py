"""Graphs put together node by node: nothing runs before a launch, and each launch does it all."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

from tests.clients.driver.digits import ACTIVE, RELAXED, Digits
from tests.clients.driver.test_copies import DEVICE, Copy3D


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


def test_nodes_are_described_and_taken_out(digits: Digits) -> None:
    driver, graph = digits.driver, digits.driver("cuGraphCreate")
    event = digits.event()

    def described(kind: int, inside: bytes) -> int:
        return digits.held(struct.pack("<i12x", kind) + inside.ljust(240, b"\0"))

    def kernel(digit: int) -> int:
        return described(
            0, struct.pack("<Q7I4x3Q", 0, *[1] * 6, 0, digits.arguments(digit), 0, digits.kernel)
        )

    box = Copy3D(
        srcMemoryType=DEVICE, srcDevice=digits.out, dstMemoryType=DEVICE, dstDevice=digits.out + 4,
        Width=4, Height=1, Depth=1,
    )  # fmt: skip
    nodes = [
        digits.added("cuGraphAddNode", graph, parameters)
        for parameters in (
            kernel(1), described(1, bytes(16) + bytes(box)), described(5, b""),
            described(2, struct.pack("<2Q2I2Q", digits.out, 0, 0, 4, 1, 1)),
            described(7, struct.pack("<Q", event)), described(6, struct.pack("<Q", event)),
        )
    ]  # fmt: skip
    assert [driver("cuGraphNodeGetType", node) for node in nodes] == [0, 1, 5, 2, 7, 6]
    assert driver.result("cuGraphAddNode", graph, 0, 0, described(13, b"")) == "NOT_SUPPORTED"
    for node in nodes[1:]:
        driver("cuGraphDestroyNode", node)
    executable = driver("cuGraphInstantiateWithFlags", graph)
    driver("cuGraphExecNodeSetParams", executable, nodes[0], kernel(3))
    driver("cuGraphLaunch", executable, 0)
    assert digits.number() == 3
    driver("cuGraphNodeSetParams", nodes[0], kernel(5))
    assert digits.launched(graph) == 5


def test_what_depends_on_what(digits: Digits) -> None:
    driver, graph = digits.driver, digits.driver("cuGraphCreate")
    first = digits.node(graph, 1)
    second, third = (digits.node(graph, digit, first) for digit in (2, 3))

    def asked(name: str, *given: int, sides: int = 1) -> list[list[int]]:
        """Return the nodes of each side; where there is no room, how many there are is told before."""
        count = ctypes.c_uint64()
        driver(name, *given, *[0] * sides, 0, ctypes.addressof(count))
        places = [(ctypes.c_uint64 * 4)() for _ in range(sides)]
        data, room = (ctypes.c_uint64 * 4)(*[7] * 4), ctypes.c_uint64(4)
        at = (*map(ctypes.addressof, places), ctypes.addressof(data))
        driver(name, *given, *at, ctypes.addressof(room))
        assert (room.value, [*data]) == (count.value, [0] * count.value + [7] * (4 - count.value))
        return [[*each][: count.value] for each in places]

    assert asked("cuGraphNodeGetDependencies_v2", second) == [[first]]
    assert asked("cuGraphNodeGetDependentNodes_v2", first) == [[second, third]]
    assert asked("cuGraphGetEdges_v2", graph, sides=2) == [[first, first], [second, third]]
    ends = digits.held(struct.pack("<Q", first)), digits.held(struct.pack("<Q", third))
    driver("cuGraphRemoveDependencies", graph, *ends, 1)
    assert asked("cuGraphNodeGetDependentNodes_v2", first) == [[second]]
    assert driver.result("cuGraphRemoveDependencies", graph, *ends, 1) == "INVALID_VALUE"
    driver("cuGraphDestroyNode", first)
    assert asked("cuGraphNodeGetDependencies_v2", second) == [[]]
    assert digits.launched(graph) == 23


def test_a_graph_as_a_picture(digits: Digits, tmp_path: Path) -> None:
    driver, graph = digits.driver, digits.driver("cuGraphCreate")
    digits.node(graph, 1, driver("cuGraphAddEmptyNode", graph, 0, 0))
    driver("cuGraphDebugDotPrint", graph, str(tmp_path / "x.dot").encode())
    lines = (tmp_path / "x.dot").read_text().splitlines()
    assert lines[1:-1] == [
        '  node_0 [label="EMPTY"];', '  node_1 [label="KERNEL"];', "  node_0 -> node_1;"
    ]  # fmt: skip


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
    other = driver("cuGraphCreate")
    next_thing = driver("cuUserObjectCreate", 0x77, function, 1)
    driver("cuGraphRetainUserObject", other, next_thing, 1, 1)  # CU_GRAPH_USER_OBJECT_MOVE
    driver("cuGraphExecUpdate_v2", executable, other, digits.held(bytes(24)))
    assert gone == [0x99]
    driver("cuGraphDestroy", other)
    assert gone == [0x99]
    driver("cuGraphExecDestroy", executable)
    assert gone == [0x99, 0x77]
    assert driver.result("cuUserObjectRetain", thing, 1) == "INVALID_HANDLE"
