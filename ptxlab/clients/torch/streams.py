"""What torch.cuda.Stream and Event are made of: what is launched has ended when its call returns.

Sources: torch/_C/__init__.pyi, and the texts of c10/cuda/CUDAEvent.h.
"""

from __future__ import annotations

import time
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
    """A time of this machine: what lies between two of them is the time of emulation."""

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        made = super().__new__(cls, device="cuda", enable_timing=enable_timing)
        made._timed = enable_timing
        made._time = None
        return made

    @property
    def cuda_event(self) -> int:
        return 0 if self._time is None else id(self)

    def record(self, stream: Any) -> None:
        self._time = time.perf_counter()

    def wait(self, stream: Any) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Wait for nothing."""
        recording.refuse()

    def elapsed_time(self, end: EventBase) -> float:
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float((end._time - self._time) * 1e3)
