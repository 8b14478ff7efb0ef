"""What torch.cuda.Stream and Event are made of: what is launched has ended when its call returns.

Sources: torch/_C/__init__.pyi, and c10/core/impl/DeviceGuardImplInterface.h.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from itertools import count
from threading import local
from typing import Any

import torch

from ptxlab.clients.torch import recording

_CUDA = 1
"""c10::DeviceType::CUDA."""
_DEFAULT = 0
_ids = count(1)


class _Current(local):
    """The stream that a thread has chosen, by its number."""

    stream = _DEFAULT


_current = _Current()


def current() -> int:
    """Return the number of the stream of this thread, which is its handle too."""
    return _current.stream


def choose(stream: int) -> None:
    _current.stream = stream


class StreamBase(torch.Stream):  # type: ignore[misc]
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
        number = stream_ptr or (next(_ids) if stream_id is None else stream_id)
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
        recording.refuse()
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""
        recording.refuse()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and other.stream_id == self.stream_id

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
        recording.refuse()

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
    recording.invalidate()


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
