"""A kernel that appends digits to a number, so that what ran, and in which order, can be read."""

from __future__ import annotations

import ctypes
import struct

from tests.clients.driver.calls import Driver

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
