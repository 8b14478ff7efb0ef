"""Graphs by cuda.core: a stream that is captured, a fork that is joined, and a graph put together node by node."""

from __future__ import annotations

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, launch
from cuda.core.graph import GraphDefinition

device = Device()
device.set_current()
code = """
extern "C" __global__ void add(int* x, int n) { x[threadIdx.x] += n; }
extern "C" __global__ void twice(int* x) { x[threadIdx.x] *= 2; }
"""
module = Program(code, code_type="c++").compile("ptx", name_expressions=())
add, twice = (module.get_kernel(name) for name in ("add", "twice"))
memory = LegacyPinnedMemoryResource().allocate(2 * 4 * 32)
x = np.from_dlpack(memory).view(np.int32)
x[:] = 1
config = LaunchConfig(grid=1, block=32)
second = memory.handle + 4 * 32

builder = device.create_graph_builder().begin_building()
launch(builder, config, add, memory.handle, np.int32(2))
left, right = builder.split(2)
launch(left, config, twice, memory.handle)
launch(right, config, add, second, np.int32(5))
builder = left.join(left, right)
launch(builder, config, add, memory.handle, np.int32(1))
graph = builder.end_building().complete()
assert x.tolist() == [1] * 64, "a capture runs nothing"

stream = device.create_stream()
for expected in ((7, 6), (19, 11)):
    graph.launch(stream)
    stream.sync()
    assert (x[0], x[-1]) == expected, (x[0], x[-1])

heard: list[int] = []
definition = GraphDefinition()
filled = definition.memset(memory.handle, np.uint32(3), 32)
added = filled.launch(config, add, memory.handle, np.int32(1))
copied = added.memcpy(second, memory.handle, 4 * 32)
called = copied.callback(lambda: heard.append(int(x[-1])))
doubled = added.launch(config, twice, memory.handle)
kinds = sorted(type(node).__name__ for node in definition.nodes())
assert kinds == ["HostCallbackNode", "KernelNode", "KernelNode", "MemcpyNode", "MemsetNode"]
assert (set(added.succ), set(doubled.pred)) == ({copied, doubled}, {added})
assert (filled, added) in definition.edges()
executable = definition.instantiate()
for _ in range(2):
    executable.launch(stream)
    assert (x[0], x[-1]) == (8, 4), (x[0], x[-1])
    x[-1] = 0
assert heard == [4, 4]

other = GraphDefinition()
other.memset(memory.handle, np.uint32(10), 32).launch(config, add, memory.handle, np.int32(3))
graph = other.instantiate()
graph.launch(stream)
assert x[0] == 13
again = GraphDefinition()
again.memset(memory.handle, np.uint32(20), 32).launch(config, twice, memory.handle)
graph.update(again)
graph.launch(stream)
assert x[0] == 40

builder = device.create_graph_builder().begin_building(mode="global")
said = ""
try:
    device.sync()
except Exception as error:
    said = str(error)
assert "not permitted when the stream is capturing" in said, said
