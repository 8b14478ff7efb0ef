"""What torch.cuda.Stream and Event are made of: what is launched has ended when its call returns.

Sources: torch/_C/__init__.pyi, and c10/core/impl/DeviceGuardImplInterface.h.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from threading import local
from typing import Any

import torch

from ptxlab.clients import captures
from ptxlab.clients.captures import Capture, NodeKind, Stream, Work
from ptxlab.clients.torch.errors import refuse_while_capturing, require_device

_CUDA = 1
"""c10::DeviceType::CUDA."""
_DEFAULT = 0


class _TorchStream(Stream):
    """One of PyTorch's streams, all of which are taken to be at whatever capture is under way, as its operations are."""

    @property
    def capture(self) -> Capture | None:
        return captures.active()

    @capture.setter
    def capture(self, capture: Capture | None) -> None:
        """Do nothing: it is known."""

    def put(self, kind: NodeKind, work: Work) -> None:
        capture = captures.active()
        if capture is None:
            work()
        else:
            capture.add(capture.origin, kind, work)


def _new_stream() -> int:
    """Return the number of a new stream, by which the driver knows it too."""
    return captures.new_stream(_TorchStream(Stream.NON_BLOCKING))


class _Current(local):
    """The stream that a thread has chosen, by its number."""

    stream = _DEFAULT


_current = _Current()


def current() -> int:
    """Return the number of the stream of this thread, which is its handle too."""
    return _current.stream


def choose(stream: int) -> None:
    _current.stream = stream


class _Streams(type(torch._C.Stream)):  # type: ignore[misc]
    """All streams of PyTorch are instances of what stands in the place of their class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Stream)


class AnyStream(torch._C.Stream, metaclass=_Streams):  # type: ignore[misc]
    """A stream of whatever device: of "cuda" one of torch.cuda, as PyTorch's library asks the guard for it by value."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        device = given[0] if given else named.get("device")
        asked = torch.device("cuda" if device is None else device)
        if "stream_id" in named or len(given) > 1 or asked.type != "cuda":
            return super().__new__(cls, *given, **named)
        require_device(asked.index)
        return torch.cuda.Stream(priority=named.get("priority", 0))


class StreamBase(torch._C.Stream):  # type: ignore[misc]
    """A stream, whose number is its handle: nothing waits on it."""

    def __new__(
        cls,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int = 0,
        device_type: int = _CUDA,
        stream_ptr: int = 0,
    ) -> Any:
        number = stream_ptr or (_new_stream() if stream_id is None else stream_id)
        made = super().__new__(cls, stream_id=number, device_index=device_index, device_type=_CUDA)
        made.priority = max(-5, min(priority, 0))
        return made

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    @property
    def cuda_stream(self) -> int:
        return int(self.stream_id)

    def __enter__(self) -> Any:
        self._before = getattr(self, "_before", [])
        self._before.append(current())
        choose(self.stream_id)
        return self

    def __exit__(self, *_: object) -> None:
        choose(self._before.pop())

    def query(self) -> bool:
        refuse_while_capturing()
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""
        refuse_while_capturing()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch._C.Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)


class EventBase(torch.Event):  # type: ignore[misc]
    """PyTorch's own event, of CUDA, for which the library asks ``GUARD``."""

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        made = super().__new__(cls, device="cuda", enable_timing=enable_timing)
        made._timed = enable_timing
        return made

    @property
    def cuda_event(self) -> int:
        return int(self.event_id)

    def synchronize(self) -> None:
        """Wait for nothing."""
        refuse_while_capturing()

    def elapsed_time(self, end: EventBase) -> float:
        """Return milliseconds, as ``torch.Event`` does, which takes no event of a class made of it."""
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.event_id and end.event_id):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return _elapsed(0, self.event_id, end.event_id, 0)


def _record(guard: int, event: int, stream: int, device: int, flag: int) -> None:
    """Have the event, of which PyTorch keeps a pointer, be the time of this machine in nanoseconds."""
    ctypes.c_void_p.from_address(event).value = time.perf_counter_ns()


def _block(guard: int, event: int, stream: int) -> None:
    """Wait for nothing."""


def _query(guard: int, event: int) -> bool:
    return True


def _synchronize(guard: int, event: int) -> None:
    """Wait for nothing; an error cannot be raised through C++, but a capture can end with one."""
    captures.invalidate()


def _elapsed(guard: int, begin: int, end: int, device: int) -> float:
    """Return milliseconds of emulation."""
    return (end - begin) / 1e6


_POINTER = ctypes.c_void_p
GUARD: Mapping[str, Any] = {
    "record": ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER, ctypes.c_int8, ctypes.c_int)(
        _record
    ),
    "block": ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)(_block),
    "queryEvent": ctypes.CFUNCTYPE(ctypes.c_bool, _POINTER, _POINTER)(_query),
    "synchronizeEvent": ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(_synchronize),
    "elapsedTime": ctypes.CFUNCTYPE(ctypes.c_double, _POINTER, _POINTER, _POINTER, ctypes.c_int8)(
        _elapsed
    ),
}
"""What PyTorch's library asks the guard of a device about its events, by the name in its header."""
