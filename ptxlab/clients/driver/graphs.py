"""Graphs of kernels, copies, fills and calls of the host, put together node by node or by capturing a stream.

Source: CUDA Driver API, "Graph Management".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ptxlab.clients.captures import Graph, GraphNode, NodeKind, Stream, Work
from ptxlab.clients.driver import copies, launches
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.streams import DriverEvent
from ptxlab.clients.driver.table import answers, fetch, handles, store
from ptxlab.launch_config import LaunchConfig

handles("graph")(Graph)
handles("node")(GraphNode)

Maker = Callable[[EmulatedGpu, int], Work]
"""What gives the work that a structure in C describes, as that is now."""


@handles("executable")
@dataclass(slots=True, eq=False)
class Executable:
    """What the nodes of a graph did when it was made ready to be launched, in an order in which they may run."""

    work: dict[GraphNode, Work]
    disabled: set[GraphNode] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)

    def launch(self) -> None:
        for node, work in self.work.items():
            if node not in self.disabled:
                work()

    def change(self, node: GraphNode, kind: NodeKind, work: Work) -> None:
        if node not in self.work or node.kind is not kind:
            raise Refused(DriverResult.INVALID_VALUE)
        self.work[node] = work


def _in_order(graph: Graph) -> list[GraphNode]:
    try:
        return graph.in_order()
    except ValueError as error:
        raise Refused(DriverResult.INVALID_VALUE, str(error)) from None


# ---- what nodes do --------------------------------------------------------------------------


def _kernel(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the launch that CUDA_KERNEL_NODE_PARAMS are of, or a ``cudaKernelNodeParams``."""
    return _launch(gpu, parameters, *fetch(parameters, "<Q"))


def _kernel_of_library(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the same of the second version, which may have a CUkernel behind the rest in place of a function."""
    handle, kernel = fetch(parameters, "<Q48xQ")
    return _launch(gpu, parameters, handle or kernel)


def _launch(gpu: EmulatedGpu, parameters: int, handle: int) -> Work:
    *sizes, shared, pointers, extra = fetch(parameters, "<8x7I4xQQ")
    function = gpu.held(handle, DriverFunction)
    config = LaunchConfig.of(sizes[:3], sizes[3:], shared)
    return launches.ready(gpu, function, config, launches.packed(function, pointers, extra))


def _host(gpu: EmulatedGpu, parameters: int) -> Work:
    """Return the call that CUDA_HOST_NODE_PARAMS are of."""
    return partial(launches.call_host, gpu, *fetch(parameters, "<2Q"))


def _record(gpu: EmulatedGpu, event: int) -> Work:
    return partial(gpu.held(event, DriverEvent).be_now, gpu)


def _wait(gpu: EmulatedGpu, event: int) -> Work:
    gpu.held(event, DriverEvent)
    return lambda: None


def _child(gpu: EmulatedGpu, graph: int) -> Work:
    """Return the launch of what a graph holds now."""
    return _ready(gpu.held(graph, Graph)).launch


def _ready(graph: Graph) -> Executable:
    return Executable({node: node.work for node in _in_order(graph)})


# ---- nodes ----------------------------------------------------------------------------------


def _nodes_at(gpu: EmulatedGpu, at: int, number: int) -> list[GraphNode]:
    return [gpu.held(each, GraphNode) for each in fetch(at, f"<{number}Q")] if number else []


def add(
    kind: NodeKind, make: Maker, gpu: EmulatedGpu, graph: Graph, after: int, number: int, given: int
) -> int:
    node = graph.add(kind, make(gpu, given), _nodes_at(gpu, after, number))
    return gpu.handle_of(node)


def _change(kind: NodeKind, make: Maker, gpu: EmulatedGpu, node: GraphNode, given: int) -> None:
    if node.kind is not kind:
        raise Refused(DriverResult.INVALID_VALUE)
    node.work = make(gpu, given)


def _change_ready(
    kind: NodeKind,
    make: Maker,
    gpu: EmulatedGpu,
    executable: Executable,
    node: GraphNode,
    given: int,
) -> None:
    executable.change(node, kind, make(gpu, given))


def node_functions(
    name: str, kind: NodeKind, make: Maker, given: str = "u64"
) -> dict[str, tuple[str, Any]]:
    """Return the functions that add nodes of a kind and change them, by their names without "cu" or "cuda"."""
    setter = f"{name}NodeSet{'Event' if kind in _OF_EVENTS else 'Params'}"
    return {
        f"GraphAdd{name}Node": (f"out:u64 graph u64 u64 {given}", partial(add, kind, make)),
        f"GraphExec{setter}": (f"executable node {given}", partial(_change_ready, kind, make)),
        f"Graph{setter}": (f"node {given}", partial(_change, kind, make)),
    }


_OF_EVENTS = (NodeKind.EVENT_RECORD, NodeKind.WAIT_EVENT)
SHARED = {
    **node_functions("Kernel", NodeKind.KERNEL, _kernel),
    **node_functions("Host", NodeKind.HOST, _host),
    **node_functions("ChildGraph", NodeKind.GRAPH, _child),
    **node_functions("EventRecord", NodeKind.EVENT_RECORD, _record),
    **node_functions("EventWait", NodeKind.WAIT_EVENT, _wait),
}
"""The functions that are the runtime's too."""
del SHARED["GraphChildGraphNodeSetParams"]  # which neither has

_CONTEXT = "u64 -u64"
_OF_MEMORY = {
    **node_functions("Memcpy", NodeKind.MEMCPY, copies.box_copy, _CONTEXT),
    **node_functions("Memset", NodeKind.MEMSET, copies.box_fill, _CONTEXT),
    "GraphMemcpyNodeSetParams": ("node u64", partial(_change, NodeKind.MEMCPY, copies.box_copy)),
    "GraphMemsetNodeSetParams": ("node u64", partial(_change, NodeKind.MEMSET, copies.box_fill)),
}
for _name, (_types, _function) in {**SHARED, **_OF_MEMORY}.items():
    answers(f"cu{_name}", _types, since=10000)(_function)
_SECOND = node_functions("Kernel", NodeKind.KERNEL, _kernel_of_library)
for _name, (_types, _function) in _SECOND.items():
    answers(f"cu{_name}_v2", _types, since=12000)(_function)


@answers("cuGraphAddEmptyNode", "out:u64 graph u64 u64")
def add_empty(gpu: EmulatedGpu, graph: Graph, after: int, number: int) -> int:
    return add(NodeKind.EMPTY, lambda *_: lambda: None, gpu, graph, after, number, 0)


@answers("cuGraphNodeGetType", "node out:i32")
def kind_of(gpu: EmulatedGpu, node: GraphNode) -> int:
    return node.kind


@answers("cuGraphNodeSetEnabled", "executable node u32", since=11060)
def enable(gpu: EmulatedGpu, executable: Executable, node: GraphNode, enabled: int) -> None:
    if node not in executable.work:
        raise Refused(DriverResult.INVALID_VALUE)
    if enabled:
        executable.disabled.discard(node)
    else:
        executable.disabled.add(node)


# ---- graphs ---------------------------------------------------------------------------------


@answers("cuGraphCreate", "out:u64 -u32")
def create(gpu: EmulatedGpu) -> int:
    return gpu.handle(Graph())


@answers("cuGraphClone", "out:u64 graph")
def clone(gpu: EmulatedGpu, graph: Graph) -> int:
    copy, twins = Graph(), dict[GraphNode, GraphNode]()
    for node in _in_order(graph):
        twins[node] = copy.add(node.kind, node.work, (twins[other] for other in node.after))
    copy.kept = _shared(gpu, graph.kept)
    return gpu.handle(copy)


@answers("cuGraphDestroy", "u64")
def destroy(gpu: EmulatedGpu, handle: int) -> None:
    graph = gpu.drop(handle, Graph)
    for node in graph.nodes:
        if node.handle:
            gpu.drop(node.handle, GraphNode)
    for thing in graph.kept:
        release(gpu, thing)


@answers("cuGraphGetNodes", "graph u64 u64")
def nodes(gpu: EmulatedGpu, graph: Graph, at: int, count: int) -> None:
    _give(gpu, graph.nodes, at, count)


@answers("cuGraphGetRootNodes", "graph u64 u64")
def roots(gpu: EmulatedGpu, graph: Graph, at: int, count: int) -> None:
    _give(gpu, [node for node in graph.nodes if not node.after], at, count)


def _give(gpu: EmulatedGpu, known: Sequence[GraphNode], at: int, count: int) -> None:
    """Store as many nodes as there is room for, zeros in what is left of it, and how many there are, or were stored."""
    if not at:
        store(count, struct.pack("<Q", len(known)))
        return
    (room,) = fetch(count, "<Q")
    given = [gpu.handle_of(node) for node in known[:room]]
    store(at, struct.pack(f"<{room}Q", *given, *[0] * (room - len(given))))
    store(count, struct.pack("<Q", len(given)))


@answers("cuGraphAddDependencies", "graph u64 u64 u64", since=10000)
@answers("cuGraphAddDependencies_v2", "graph u64 u64 -u64 u64", since=12030)
def depend(gpu: EmulatedGpu, graph: Graph, before: int, behind: int, number: int) -> None:
    pairs = zip(_nodes_at(gpu, before, number), _nodes_at(gpu, behind, number), strict=True)
    for node, other in [*pairs]:
        if not {node, other} <= {*graph.nodes}:
            raise Refused(DriverResult.INVALID_VALUE)
        other.after.append(node)


def _tell(name: str, find: Callable[[EmulatedGpu, GraphNode], Sequence[GraphNode]]) -> None:
    """Put a function that tells which nodes there are before or behind one into the table."""

    def tell(gpu: EmulatedGpu, node: GraphNode, at: int, count: int) -> None:
        _give(gpu, find(gpu, node), at, count)

    answers(name, "node u64 u64", since=10000)(tell)
    answers(f"{name}_v2", "node u64 -u64 u64", since=12030)(tell)


def _behind(gpu: EmulatedGpu, node: GraphNode) -> list[GraphNode]:
    graphs = gpu.all_held(Graph)
    return [other for graph in graphs for other in graph.nodes if node in other.after]


_tell("cuGraphNodeGetDependencies", lambda gpu, node: node.after)
_tell("cuGraphNodeGetDependentNodes", _behind)


@answers("cuGraphGetEdges", "graph u64 u64 u64", since=10000)
@answers("cuGraphGetEdges_v2", "graph u64 u64 -u64 u64", since=12030)
def edges(gpu: EmulatedGpu, graph: Graph, before: int, behind: int, count: int) -> None:
    pairs = [(other, node) for node in graph.nodes for other in node.after]
    _give(gpu, [other for other, _ in pairs], before, count)
    _give(gpu, [node for _, node in pairs], behind, count)


# ---- what graphs keep -----------------------------------------------------------------------


@handles("object")
@dataclass(slots=True, eq=False)
class UserObject:
    """What the program hears of when it has no user left: references of its own, graphs, and what was made of these."""

    function: int
    data: int
    users: int
    handle: int = 0


@answers("cuUserObjectCreate", "out:u64 u64 u64 u32 -u32", since=11030)
def create_object(gpu: EmulatedGpu, data: int, function: int, users: int) -> int:
    return gpu.handle_of(UserObject(function, data, users))


@answers("cuUserObjectRetain", "object u32", since=11030)
def retain(gpu: EmulatedGpu, thing: UserObject, count: int = 1) -> None:
    thing.users += count


@answers("cuUserObjectRelease", "object u32", since=11030)
def release(gpu: EmulatedGpu, thing: UserObject, count: int = 1) -> None:
    thing.users -= count
    if thing.users <= 0:
        gpu.drop(thing.handle, UserObject)
        launches.call_host(gpu, thing.function, thing.data)


_MOVED = 1  # CU_GRAPH_USER_OBJECT_MOVE


@answers("cuGraphRetainUserObject", "graph object u32 u32", since=11030)
def keep(gpu: EmulatedGpu, graph: Graph, thing: UserObject, count: int, flags: int) -> None:
    graph.kept += [thing] * count
    if not flags & _MOVED:
        retain(gpu, thing, count)


@answers("cuGraphReleaseUserObject", "graph object u32", since=11030)
def let_go(gpu: EmulatedGpu, graph: Graph, thing: UserObject, count: int) -> None:
    for _ in range(count):
        graph.kept.remove(thing)
    release(gpu, thing, count)


def _shared(gpu: EmulatedGpu, kept: Sequence[Any]) -> list[Any]:
    """Return what a graph keeps for another user of it."""
    for thing in kept:
        retain(gpu, thing)
    return [*kept]


# ---- launches -------------------------------------------------------------------------------


@answers("cuGraphInstantiate", "out:u64 graph -u64 -u64 -u64", since=10000)
@answers("cuGraphInstantiate_v2", "out:u64 graph -u64 -u64 -u64", since=11000)
@answers("cuGraphInstantiateWithFlags", "out:u64 graph -u64", since=11040)
def instantiate(gpu: EmulatedGpu, graph: Graph) -> int:
    executable = _ready(graph)
    executable.kept = _shared(gpu, graph.kept)
    return gpu.handle(executable)


@answers("cuGraphInstantiateWithParams", "out:u64 graph u64", since=12000)
def instantiate_with(gpu: EmulatedGpu, graph: Graph, parameters: int) -> int:
    """Make a graph ready; of CUDA_GRAPH_INSTANTIATE_PARAMS the second half is what went wrong, which is nothing."""
    store(parameters + 16, struct.pack("<Qi", 0, 0))
    return instantiate(gpu, graph)


@answers("cuGraphExecDestroy", "u64")
def destroy_executable(gpu: EmulatedGpu, handle: int) -> None:
    for thing in gpu.drop(handle, Executable).kept:
        release(gpu, thing)


_UPDATED, _TOPOLOGY_CHANGED = 0, 2  # CUgraphExecUpdateResult


@answers("cuGraphExecUpdate", "executable graph -u64 u64", since=10020)
@answers("cuGraphExecUpdate_v2", "executable graph u64", since=12000)
def update(gpu: EmulatedGpu, executable: Executable, graph: Graph, result: int) -> None:
    """Have an executable do what another graph of the same nodes does."""
    given = _in_order(graph)
    same = [node.kind for node in given] == [node.kind for node in executable.work]
    store(result, struct.pack("<i", _UPDATED if same else _TOPOLOGY_CHANGED))
    if not same:
        raise Refused(DriverResult.GRAPH_EXEC_UPDATE_FAILURE)
    for node, other in zip([*executable.work], given, strict=True):
        executable.work[node] = other.work


@answers("cuGraphUpload", "executable -u64")
def upload(gpu: EmulatedGpu, executable: Executable) -> None:
    """It is where it runs."""


@answers("cuGraphLaunch", "executable stream")
def launch(gpu: EmulatedGpu, executable: Executable, stream: Stream) -> None:
    """Run a graph, or have what it is now be a node of the graph that the stream is captured into."""
    now = replace(executable, work={**executable.work}, disabled={*executable.disabled})
    stream.put(NodeKind.GRAPH, now.launch)
