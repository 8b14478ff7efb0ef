"""Nodes of graphs: what each does, how it is added to a graph, and how it is changed there or in what was made of it.

Source: CUDA Driver API, "Graph Management", "Data types used by CUDA driver".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ptxlab.clients.captures import Graph, GraphNode, NodeKind, Work
from ptxlab.clients.driver import copies, launches
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.graphs import Executable, in_order, ready
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.streams import DriverEvent
from ptxlab.clients.driver.table import answers, fetch
from ptxlab.launch_config import LaunchConfig

Maker = Callable[[EmulatedGpu, int], Work]
"""What gives the work that a structure in C describes, as that is now."""


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


# ---- nodes ----------------------------------------------------------------------------------


def add(
    kind: NodeKind, make: Maker, gpu: EmulatedGpu, graph: Graph, after: int, number: int, given: int
) -> int:
    node = graph.add(kind, make(gpu, given), gpu.held_at(after, number, GraphNode))
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
    **node_functions("EventRecord", NodeKind.EVENT_RECORD, _record),
    **node_functions("EventWait", NodeKind.WAIT_EVENT, _wait),
}
"""The functions that are the runtime's too."""
_CONTEXT = "u64 -u64"
_OF_MEMORY = {
    **node_functions("Memcpy", NodeKind.MEMCPY, copies.box_copy, _CONTEXT),
    **node_functions("Memset", NodeKind.MEMSET, copies.box_fill, _CONTEXT),
    "GraphMemcpyNodeSetParams": ("node u64", partial(_change, NodeKind.MEMCPY, copies.box_copy)),
    "GraphMemsetNodeSetParams": ("node u64", partial(_change, NodeKind.MEMSET, copies.box_fill)),
}
_SECOND = node_functions("Kernel", NodeKind.KERNEL, _kernel_of_library)
for _name, (_types, _function) in _SECOND.items():
    answers(f"cu{_name}_v2", _types, since=12000)(_function)


def add_child(gpu: EmulatedGpu, graph: Graph, after: int, number: int, child: Graph) -> int:
    """Add a launch of a graph as it is now."""
    in_order(child)
    node = graph.add(NodeKind.GRAPH, lambda: None, gpu.held_at(after, number, GraphNode))
    node.child = child.cloned()
    return gpu.handle_of(node)


def change_child(gpu: EmulatedGpu, executable: Executable, node: GraphNode, child: Graph) -> None:
    executable.change(node, NodeKind.GRAPH, ready(child).launch)


def child_of(gpu: EmulatedGpu, node: GraphNode) -> int:
    if node.child is None:
        raise Refused(DriverResult.INVALID_VALUE)
    return gpu.handle_of(node.child)


SHARED |= {
    "GraphAddChildGraphNode": ("out:u64 graph u64 u64 graph", add_child),
    "GraphExecChildGraphNodeSetParams": ("executable node graph", change_child),
    "GraphChildGraphNodeGetGraph": ("node out:u64", child_of),
}


for _name, (_types, _function) in {**SHARED, **_OF_MEMORY}.items():
    answers(f"cu{_name}", _types, since=10000)(_function)


_UNION = 16
"""Where in a CUgraphNodeParams that is which stands for its kind, the first word."""
_DESCRIBED: dict[NodeKind, Maker] = {
    NodeKind.KERNEL: lambda gpu, at: _kernel_of_library(gpu, at + _UNION),
    NodeKind.MEMCPY: lambda gpu, at: copies.box_copy(gpu, at + _UNION + 16),
    NodeKind.MEMSET: lambda gpu, at: copies.box_fill(gpu, at + _UNION),
    NodeKind.HOST: lambda gpu, at: _host(gpu, at + _UNION),
    NodeKind.EMPTY: lambda gpu, at: lambda: None,
    NodeKind.EVENT_RECORD: lambda gpu, at: _record(gpu, *fetch(at + _UNION, "<Q")),
    NodeKind.WAIT_EVENT: lambda gpu, at: _wait(gpu, *fetch(at + _UNION, "<Q")),
}


def _described(parameters: int) -> tuple[NodeKind, Maker]:
    (kind,) = fetch(parameters, "<i")
    if kind not in _DESCRIBED:
        raise Refused(DriverResult.NOT_SUPPORTED, f"nodes of graphs of type {kind} are not there")
    return NodeKind(kind), _DESCRIBED[NodeKind(kind)]


@answers("cuGraphAddNode", "out:u64 graph u64 u64 u64", since=12020)
@answers("cuGraphAddNode_v2", "out:u64 graph u64 -u64 u64 u64", since=12030)
def add_described(gpu: EmulatedGpu, graph: Graph, after: int, number: int, parameters: int) -> int:
    return add(*_described(parameters), gpu, graph, after, number, parameters)


@answers("cuGraphNodeSetParams", "node u64", since=12020)
def change_described(gpu: EmulatedGpu, node: GraphNode, parameters: int) -> None:
    _change(*_described(parameters), gpu, node, parameters)


@answers("cuGraphExecNodeSetParams", "executable node u64", since=12020)
def change_described_ready(
    gpu: EmulatedGpu, executable: Executable, node: GraphNode, parameters: int
) -> None:
    _change_ready(*_described(parameters), gpu, executable, node, parameters)


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
