"""Graphs of kernels and copies, put together node by node; what a stream does is not captured.

Source: CUDA Driver API, "Graph Management".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ptxlab.clients.driver.copies import BOX, copy_fetched
from ptxlab.clients.driver.gpu import DriverStream, EmulatedGpu
from ptxlab.clients.driver.launches import packed, run
from ptxlab.clients.driver.modules import DriverFunction
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, fetch, handles
from ptxlab.launch_config import LaunchConfig

Deferred = Callable[[], None]


@handles("graph")
@dataclass(slots=True, eq=False)
class Graph:
    """What nodes do, by their handles: a node is there before those that depend on it."""

    nodes: dict[int, Deferred] = field(default_factory=dict)


@handles("executable")
class Executable(Graph):
    """A graph as it was when it was made ready to be launched."""


class GraphNode:
    """What the handle of a node is of."""


def _kernel(gpu: EmulatedGpu, parameters: int) -> Deferred:
    """Return the launch that CUDA_KERNEL_NODE_PARAMS are of, its arguments as they are now."""
    handle, *sizes, shared, pointers, extra = fetch(parameters, "<Q7I4xQQ")
    function = gpu.held(handle, DriverFunction)
    config = LaunchConfig.of(sizes[:3], sizes[3:], shared)
    block = packed(function, pointers, extra)
    return lambda: run(gpu, function, config, block)


def _copy(gpu: EmulatedGpu, parameters: int) -> Deferred:
    """Return the copy that a CUDA_MEMCPY3D is of."""
    box = fetch(parameters, BOX)
    return lambda: copy_fetched(gpu, box)


def _added(gpu: EmulatedGpu, graph: Graph, work: Deferred) -> int:
    node = gpu.handle(GraphNode())
    graph.nodes[node] = work
    return node


def _changed(executable: Executable, node: int, work: Deferred) -> None:
    if node not in executable.nodes:
        raise Refused(DriverResult.INVALID_VALUE)
    executable.nodes[node] = work


@answers("cuGraphCreate", "out:u64 -u32")
def create(gpu: EmulatedGpu) -> int:
    return gpu.handle(Graph())


@answers("cuGraphDestroy", "u64")
@answers("cuGraphExecDestroy", "u64")
def destroy(gpu: EmulatedGpu, graph: int) -> None:
    gpu.drop(graph, Graph)


@answers("cuGraphAddEmptyNode", "out:u64 graph -u64 -u64")
def add_empty(gpu: EmulatedGpu, graph: Graph) -> int:
    return _added(gpu, graph, lambda: None)


@answers("cuGraphAddKernelNode", "out:u64 graph -u64 -u64 u64", since=10000)
@answers("cuGraphAddKernelNode_v2", "out:u64 graph -u64 -u64 u64", since=12000)
def add_kernel(gpu: EmulatedGpu, graph: Graph, parameters: int) -> int:
    return _added(gpu, graph, _kernel(gpu, parameters))


@answers("cuGraphAddMemcpyNode", "out:u64 graph -u64 -u64 u64 -u64")
def add_copy(gpu: EmulatedGpu, graph: Graph, parameters: int) -> int:
    return _added(gpu, graph, _copy(gpu, parameters))


@answers("cuGraphInstantiate_v2", "out:u64 graph -u64 -u64 -u64", since=11000)
@answers("cuGraphInstantiateWithFlags", "out:u64 graph -u64", since=11040)
def instantiate(gpu: EmulatedGpu, graph: Graph) -> int:
    return gpu.handle(Executable(dict(graph.nodes)))


@answers("cuGraphExecKernelNodeSetParams", "executable u64 u64", since=10010)
@answers("cuGraphExecKernelNodeSetParams_v2", "executable u64 u64", since=12000)
def change_kernel(gpu: EmulatedGpu, executable: Executable, node: int, parameters: int) -> None:
    _changed(executable, node, _kernel(gpu, parameters))


@answers("cuGraphExecMemcpyNodeSetParams", "executable u64 u64 -u64")
def change_copy(gpu: EmulatedGpu, executable: Executable, node: int, parameters: int) -> None:
    _changed(executable, node, _copy(gpu, parameters))


@answers("cuGraphUpload", "executable -u64")
def upload(gpu: EmulatedGpu, executable: Executable) -> None:
    """It is where it runs."""


@answers("cuGraphLaunch", "executable stream")
def launch(gpu: EmulatedGpu, executable: Executable, stream: DriverStream) -> None:
    for work in executable.nodes.values():
        work()
