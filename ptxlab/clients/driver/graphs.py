"""Graphs, put together node by node or by capturing a stream: their structure, what they keep, and their launches.

Source: CUDA Driver API, "Graph Management".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ptxlab.clients.captures import Graph, GraphNode, NodeKind, Stream, Work
from ptxlab.clients.driver import launches
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, handles, store
from ptxlab.files import write_whole

handles("graph")(Graph)
handles("node")(GraphNode)


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


def in_order(graph: Graph) -> list[GraphNode]:
    try:
        return graph.in_order()
    except ValueError as error:
        raise Refused(DriverResult.INVALID_VALUE, str(error)) from None


def ready(graph: Graph) -> Executable:
    work = {node: ready(node.child).launch if node.child else node.work for node in in_order(graph)}
    return Executable(work)


# ---- graphs ---------------------------------------------------------------------------------


@answers("cuGraphCreate", "out:u64 -u32")
def create(gpu: EmulatedGpu) -> int:
    return gpu.handle(Graph())


@answers("cuGraphClone", "out:u64 graph")
def clone(gpu: EmulatedGpu, graph: Graph) -> int:
    in_order(graph)
    copy = graph.cloned()
    copy.kept = _shared(gpu, graph.kept)
    return gpu.handle(copy)


@answers("cuGraphNodeFindInClone", "out:u64 node graph")
def in_clone(gpu: EmulatedGpu, node: GraphNode, clone: Graph) -> int:
    twin = next((twin for twin in clone.nodes if twin.twin_of is node), None)
    if twin is None:
        raise Refused(DriverResult.INVALID_VALUE)
    return gpu.handle_of(twin)


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


def _give(gpu: EmulatedGpu, known: Sequence[GraphNode], at: int, count: int, data: int = 0) -> None:
    """Store as many nodes as there is room for, zeros in what is left of it, and how many there are, or were stored.

    Where ``data`` of their dependencies is wanted, it is that none is of a kind of its own: CUgraphEdgeData of zeros.
    """
    if not at:
        store(count, struct.pack("<Q", len(known)))
        return
    (room,) = fetch(count, "<Q")
    given = [gpu.handle_of(node) for node in known[:room]]
    store(at, struct.pack(f"<{room}Q", *given, *[0] * (room - len(given))))
    store(count, struct.pack("<Q", len(given)))
    if data:
        store(data, bytes(8 * len(given)))


def _pairs(
    gpu: EmulatedGpu, before: int, behind: int, number: int
) -> list[tuple[GraphNode, GraphNode]]:
    """Return nodes and those behind them, of which the program has two lists of handles."""
    nodes, others = (gpu.held_at(at, number, GraphNode) for at in (before, behind))
    return [*zip(nodes, others, strict=True)]


@answers("cuGraphAddDependencies", "graph u64 u64 u64", since=10000)
@answers("cuGraphAddDependencies_v2", "graph u64 u64 -u64 u64", since=12030)
def depend(gpu: EmulatedGpu, graph: Graph, before: int, behind: int, number: int) -> None:
    for node, other in _pairs(gpu, before, behind, number):
        if not {node, other} <= {*graph.nodes}:
            raise Refused(DriverResult.INVALID_VALUE)
        other.after.append(node)


@answers("cuGraphRemoveDependencies", "graph u64 u64 u64", since=10000)
@answers("cuGraphRemoveDependencies_v2", "graph u64 u64 -u64 u64", since=12030)
def depend_no_more(gpu: EmulatedGpu, graph: Graph, before: int, behind: int, number: int) -> None:
    for node, other in _pairs(gpu, before, behind, number):
        if node not in other.after or other not in graph.nodes:
            raise Refused(DriverResult.INVALID_VALUE)
        other.after.remove(node)


@answers("cuGraphDestroyNode", "u64")
def destroy_node(gpu: EmulatedGpu, handle: int) -> None:
    """Take a node out of its graph, and out of what others depend on."""
    node = gpu.drop(handle, GraphNode)
    for other in _behind(gpu, node):
        other.after.remove(node)
    for graph in gpu.all_held(Graph):
        if node in graph.nodes:
            graph.nodes.remove(node)


def _tell(name: str, find: Callable[[EmulatedGpu, GraphNode], Sequence[GraphNode]]) -> None:
    """Put a function that tells which nodes there are before or behind one into the table."""

    def tell(gpu: EmulatedGpu, node: GraphNode, at: int, data: int, count: int) -> None:
        _give(gpu, find(gpu, node), at, count, data)

    answers(name, "node u64 u64", since=10000)(
        lambda gpu, node, at, count: tell(gpu, node, at, 0, count)
    )
    answers(f"{name}_v2", "node u64 u64 u64", since=12030)(tell)


def _behind(gpu: EmulatedGpu, node: GraphNode) -> list[GraphNode]:
    graphs = gpu.all_held(Graph)
    return [other for graph in graphs for other in graph.nodes if node in other.after]


_tell("cuGraphNodeGetDependencies", lambda gpu, node: node.after)
_tell("cuGraphNodeGetDependentNodes", _behind)


@answers("cuGraphGetEdges", "graph u64 u64 u64", since=10000)
def edges(
    gpu: EmulatedGpu, graph: Graph, before: int, behind: int, count: int, data: int = 0
) -> None:
    pairs = [(other, node) for node in graph.nodes for other in node.after]
    _give(gpu, [other for other, _ in pairs], before, count)
    _give(gpu, [node for _, node in pairs], behind, count, data)


@answers("cuGraphGetEdges_v2", "graph u64 u64 u64 u64", since=12030)
def edges_of_kinds(
    gpu: EmulatedGpu, graph: Graph, before: int, behind: int, data: int, count: int
) -> None:
    edges(gpu, graph, before, behind, count, data)


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
    executable = ready(graph)
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
    given = in_order(graph)
    same = [node.kind for node in given] == [node.kind for node in executable.work]
    store(result, struct.pack("<i", _UPDATED if same else _TOPOLOGY_CHANGED))
    if not same:
        raise Refused(DriverResult.GRAPH_EXEC_UPDATE_FAILURE)
    for node, other in zip([*executable.work], given, strict=True):
        executable.work[node] = other.work
    before, executable.kept = executable.kept, _shared(gpu, graph.kept)
    for thing in before:
        release(gpu, thing)


@answers("cuGraphUpload", "executable -u64")
def upload(gpu: EmulatedGpu, executable: Executable) -> None:
    """It is where it runs."""


@answers("cuGraphLaunch", "executable stream")
def launch(gpu: EmulatedGpu, executable: Executable, stream: Stream) -> None:
    """Run a graph, or have what it is now be a node of the graph that the stream is captured into."""
    now = replace(executable, work={**executable.work}, disabled={*executable.disabled})
    stream.put(NodeKind.GRAPH, now.launch)


@answers("cuGraphDebugDotPrint", "graph text -u32", since=11030)
def picture(gpu: EmulatedGpu, graph: Graph, path: bytes) -> None:
    """Write a graph in Graphviz's language."""
    names = {node: f"node_{number}" for number, node in enumerate(graph.nodes)}
    lines = [f'  {names[node]} [label="{node.kind.name}"];' for node in graph.nodes]
    lines += [f"  {names[other]} -> {names[node]};" for node in graph.nodes for other in node.after]
    write_whole(path.decode(), "\n".join(["digraph graph_1 {", *lines, "}", ""]).encode())
