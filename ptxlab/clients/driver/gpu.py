"""The GPU that the functions of the driver are asked about: what it holds, and what it is at."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

from ptxlab.arrays import Array
from ptxlab.clients import captures
from ptxlab.clients.borrowed import Borrowed, Named, tensors
from ptxlab.clients.captures import CaptureMode, NodeKind, Stream, Work
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.session import Session
from ptxlab.isa.targets import Target


class MemoryKind(Enum):
    """Whose memory it is."""

    DEVICE = "device"
    HOST = "host"
    MANAGED = "managed"
    REGISTERED = "registered"


@dataclass(frozen=True, slots=True, eq=False)
class MemoryBlock:
    """``nbytes`` from ``address`` on; of host memory that the driver gave, ``owner`` holds them."""

    kind: MemoryKind
    address: int
    nbytes: int
    flags: int = 0
    owner: Array | None = None


class MemoryBlocks:
    """The memory that the GPU was asked for, by where it begins."""

    def __init__(self) -> None:
        self._blocks: dict[int, MemoryBlock] = {}

    def add(self, block: MemoryBlock) -> int:
        self._blocks[block.address] = block
        return block.address

    def take(self, address: int, *kinds: MemoryKind) -> MemoryBlock | None:
        """Remove and return the block of one of those ``kinds`` that begins at an address."""
        block = self._blocks.get(address)
        return self._blocks.pop(address) if block and block.kind in kinds else None

    def at(self, begin: int) -> MemoryBlock | None:
        return self._blocks.get(begin)


_T = TypeVar("_T")

_LEGACY, _PER_THREAD = (0, 1), 2  # none and CU_STREAM_LEGACY, CU_STREAM_PER_THREAD


@dataclass(slots=True, eq=False)
class DriverContext:
    """A context of the GPU, whose handle is ``handle``; all of them share its memory and modules."""

    handle: int = 0
    flags: int = 0
    limits: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class PrimaryContext(DriverContext):
    """The primary context, there while anyone retains it."""

    users: int = 0


class LegacyStream(Stream):
    """The default stream of all threads, for which all others wait but those that do not block."""

    def put(self, kind: NodeKind, work: Work) -> None:
        require_no_blocking_capture()
        work()


def require_no_blocking_capture() -> None:
    """Raise Refused where the legacy stream would have to wait for one that is captured."""
    streams = (stream for capture in captures.under_way() for stream in capture.last)
    if any(not stream.flags & Stream.NON_BLOCKING for stream in streams):
        captures.invalidate()
        raise Refused(DriverResult.STREAM_CAPTURE_IMPLICIT)


class Threaded(threading.local):
    """What each thread has of its own: the contexts it has pushed, the last one current, and what is the runtime's."""

    def __init__(self) -> None:
        self.contexts: list[DriverContext] = []
        self.capture_mode = CaptureMode.GLOBAL
        self.told: Any = None
        """What the program reads until its next call, kept for it."""
        self.error = 0
        """The last result that was none of success, until the runtime is asked for it."""
        self.configurations: list[tuple[Any, ...]] = []
        """What ``<<<...>>>`` says, until the launch: grid, block, bytes of shared memory, stream."""


class HasHandle(Protocol):
    """What knows its own handle, 0 as long as the program has not asked for it."""

    handle: int


class EmulatedGpu:
    """An emulated GPU behind the driver's functions, its launches run in ``session``."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.initialized = False
        self.primary = PrimaryContext()
        self.fault = DriverResult.SUCCESS
        """What the first launch ended with that failed, of a program that calls the runtime: each later call ends so."""
        self.seconds = 0.0  # of emulation, which is what events tell
        self.blocks = MemoryBlocks()
        self.default_pool = self.pool = (
            0  # handles of the device's pools, the second where one was chosen
        )
        self.address_of: Callable[[str, int], int] = lambda name, version: 0  # of a function
        self.lent: Callable[[], Sequence[Borrowed]] = tensors
        """What of this process's memory kernels may use in place, beside what they are given."""
        self.made_of = ""
        """The PTX that machine code which is loaded now was made of, where the client knows it."""
        self.called: Sequence[Named] = ()
        """The tensors among the arguments of what the program has called last, where the client knows them."""
        self.legacy_stream = LegacyStream()
        self._stream_per_thread = Stream()
        self.thread = Threaded()
        self.lock = threading.RLock()
        """Held in each call: programs call from several threads."""
        self._handles: dict[int, Any] = {}
        self._said: set[str] = set()

    @property
    def target(self) -> Target:
        return self.session.device.target

    def handle(self, thing: object) -> int:
        handle = next(captures.handles)
        self._handles[handle] = thing
        return handle

    def handle_of(self, thing: HasHandle) -> int:
        """Return the handle that something has once it has been asked for."""
        if not thing.handle:
            thing.handle = self.handle(thing)
        return thing.handle

    def register(self, address: int, thing: object) -> None:
        """Have an address of the program be the handle of something."""
        self._handles[address] = thing

    def held(self, handle: int, kind: type[_T]) -> _T:
        """Return what a handle is of, which must be a ``kind``; that may say the result for any other, ``absent``."""
        thing = self._handles.get(handle)
        if not isinstance(thing, kind):
            raise Refused(getattr(kind, "absent", DriverResult.INVALID_HANDLE))
        return thing

    def held_at(self, at: int, number: int, kind: type[_T]) -> list[_T]:
        """Return what handles are of that stand one behind the other in the caller's memory."""
        data = ctypes.string_at(at, 8 * number) if number else b""
        return [self.held(handle, kind) for (handle,) in struct.iter_unpack("<Q", data)]

    def all_held(self, kind: type[_T]) -> list[_T]:
        return [thing for thing in self._handles.values() if isinstance(thing, kind)]

    def drop(self, handle: int, kind: type[_T]) -> _T:
        """Forget a handle, and return what it was of."""
        thing = self.held(handle, kind)
        del self._handles[handle]
        return thing

    def stream(self, handle: int) -> Stream:
        """Return a stream; the default ones need not be created, nor those of a framework."""
        if handle in _LEGACY:
            return self.legacy_stream
        if handle == _PER_THREAD:
            return self._stream_per_thread
        if handle not in captures.streams:
            raise Refused(DriverResult.INVALID_HANDLE)
        return captures.streams[handle]

    @property
    def contexts(self) -> list[DriverContext]:
        """The contexts that this thread has pushed, the last one current."""
        return self.thread.contexts

    @property
    def context(self) -> DriverContext:
        if not self.contexts:
            raise Refused(DriverResult.INVALID_CONTEXT)
        return self.contexts[-1]

    def say(self, text: str) -> None:
        """Tell whoever runs the program, once for the same text."""
        if text not in self._said:
            self._said.add(text)
            print(f"ptxlab: {text}", file=sys.stderr, flush=True)
