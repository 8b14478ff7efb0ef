"""Streams, and the graphs that they are captured into: what is put on a stream is done at once, or when its graph is launched.

A capture begins on one stream. Others join it when they wait for an event of it, and have to be waited for before
it ends. What is captured depends on what its stream was at before; nodes run in an order in which each is behind
those it depends on.

Source: CUDA Programming Guide, "CUDA Graphs", "Creating a Graph Using Stream Capture".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any, ClassVar

Work = Callable[[], object]

handles: Iterator[int] = count(0x1000, 0x10)
"""Numbers by which programs know streams and all else; lower ones are those of default streams."""


class NodeKind(IntEnum):
    """What a node of a graph does: CUgraphNodeType."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    MEM_FREE = 11


@dataclass(slots=True, eq=False)
class GraphNode:
    """What is done when a graph comes to it, behind the nodes ``after`` which it is."""

    kind: NodeKind
    work: Work
    after: list[GraphNode]
    handle: int = 0
    """The number by which the program knows it, 0 as long as it has not asked."""
    child: Graph | None = None
    """The graph that it is a launch of, in place of other work."""
    twin_of: GraphNode | None = None
    """The node of another graph that it is a copy of."""


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes, in the order in which they were added."""

    nodes: list[GraphNode] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    """What is there as long as the graph is."""
    handle: int = 0

    def add(self, kind: NodeKind, work: Work, after: Iterable[GraphNode] = ()) -> GraphNode:
        node = GraphNode(kind, work, [*dict.fromkeys(after)])
        self.nodes.append(node)
        return node

    def cloned(self) -> Graph:
        """Return another graph of the same nodes, and of what graphs these launch."""
        copy, twins = Graph(kept=[*self.kept]), dict[GraphNode, GraphNode]()
        for node in self.in_order():
            twin = copy.add(node.kind, node.work, (twins[other] for other in node.after))
            twin.child, twin.twin_of = node.child and node.child.cloned(), node
            twins[node] = twin
        return copy

    def in_order(self) -> list[GraphNode]:
        """Return the nodes, each behind those that it depends on. Raises ValueError where they go round in a circle."""
        ordered: dict[GraphNode, None] = {}
        left = self.nodes
        while left:
            for node in left:
                if all(other in ordered for other in node.after):
                    ordered[node] = None
            waiting = [node for node in left if node not in ordered]
            if len(waiting) == len(left):
                raise ValueError("nodes of a graph depend on each other in a circle")
            left = waiting
        return [*ordered]


class CaptureMode(IntEnum):
    """Which threads must leave alone what waits for the GPU while a stream is captured: CUstreamCaptureMode."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class Capture:
    """A capture under way: its graph, the streams in it by what each was at last, and whether it has failed."""

    def __init__(self, origin: Stream, mode: CaptureMode = CaptureMode.GLOBAL) -> None:
        self.origin = origin
        self.mode = mode
        self.thread = threading.get_ident()
        self.graph = Graph()
        self.last: dict[Stream, list[GraphNode]] = {origin: []}
        self.invalid = False

    def behind(self, stream: Stream) -> list[GraphNode]:
        """Return what the next node of a stream depends on: of one that has not joined what that of the origin does."""
        return self.last.get(stream, self.last[self.origin])

    def add(self, stream: Stream, kind: NodeKind, work: Work) -> None:
        self.last[stream] = [self.graph.add(kind, work, self.behind(stream))]

    def prohibits(self, mode: CaptureMode) -> bool:
        """Say whether this thread, which is in a ``mode`` of its own, must not wait for the GPU meanwhile."""
        if CaptureMode.RELAXED in (mode, self.mode):
            return False
        everywhere = mode == self.mode == CaptureMode.GLOBAL
        return everywhere or self.thread == threading.get_ident()

    def joined(self) -> bool:
        """Say whether all that other streams have captured is waited for by the origin."""
        reached: set[GraphNode] = set()
        left = [*self.last[self.origin]]
        while left:
            node = left.pop()
            if node not in reached:
                reached.add(node)
                left += node.after
        return all(node in reached for nodes in self.last.values() for node in nodes)


@dataclass(slots=True, eq=False)
class Stream:
    """A stream with the driver's ``flags``, which is at one ``capture`` at most."""

    NON_BLOCKING: ClassVar = 1
    flags: int = 0
    capture: Capture | None = None

    def put(self, kind: NodeKind, work: Work) -> None:
        """Do some work, or have it be a node of the graph that the stream is captured into."""
        if self.capture is None:
            work()
        else:
            self.capture.add(self, kind, work)


streams: dict[int, Stream] = {}
"""The streams of this process by their handles, whether the driver made them or a framework."""


def new_stream(stream: Stream) -> int:
    """Return the handle of a stream from now on."""
    handle = next(handles)
    streams[handle] = stream
    return handle


_under_way: list[Capture] = []


def active() -> Capture | None:
    """Return the capture that was begun last of those under way in this process."""
    return _under_way[-1] if _under_way else None


def under_way() -> list[Capture]:
    return [*_under_way]


def begin(capture: Capture) -> None:
    _under_way.append(capture)
    capture.origin.capture = capture


def end(capture: Capture) -> None:
    _under_way.remove(capture)
    for stream in capture.last:
        stream.capture = None


def add(work: Work) -> None:
    """Have ``work`` be a node of the capture that was begun last."""
    capture = active()
    assert capture is not None
    capture.add(capture.origin, NodeKind.KERNEL, work)


def invalidate() -> None:
    """Have the captures that are under way end with an error."""
    for capture in _under_way:
        capture.invalid = True
