"""The table of the driver's functions: a row has the name, the types of the arguments, and who answers.

    @answers("cuMemAlloc_v2", "out:u64 u64")
    def allocate(gpu: Gpu, nbytes: int) -> int: ...

A type is a word: ``i32``, ``u64`` and so on, of which u64 is also any address, pointer, or handle that may
be NULL; ``text`` is a C string. A handle by its name, ``stream``, is given to the function as what it is of
(``handles``), and ``device`` is checked and not given at all; nor is ``-TYPE``, which changes nothing here.
``queue:KIND`` is the stream that the work is put on, which is a node of that kind where the stream is captured; a
function without one may have to wait for the GPU, ``waits``. ``out:TYPE`` is where a result goes, ``out?:TYPE`` one
that may be NULL: the function returns those in their order, or None where there is none. What else may go wrong it
says by ``Refused``. A function that returns something else in C than a result, ``returns``, gives that.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ptxlab.clients import captures
from ptxlab.clients.captures import NodeKind
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused


class Dim3(ctypes.Structure):
    """Three sizes, which the runtime is given as they are."""

    _fields_ = [(axis, ctypes.c_uint32) for axis in "xyz"]


_C_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "device": ctypes.c_int32,
    "text": ctypes.c_char_p,
    "dim3": Dim3,
}
_PACKED = {"i32": "<i", "u32": "<I", "u64": "<Q", "f32": "<f"}

_HANDLES: dict[str, type] = {}
"""What a handle is of, by the word for it."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class AnsweredFunction:
    """A function of the driver called ``name``, there since the CUDA release ``since``.

    ``needs`` says what must be before it may be called: "nothing", "init", or a current "context"; "runtime"
    says that it sees to that itself, as functions of the runtime do. ``returns`` is the type of what it returns in C
    in place of a result. One that ``waits`` is refused while a stream is captured.
    """

    name: str
    types: tuple[str, ...]
    function: Callable[..., Any]
    since: int
    needs: str
    returns: str = ""
    waits: bool = False

    @property
    def base(self) -> str:
        """The name without the version, as cuGetProcAddress is asked for it."""
        return re.sub(r"_v\d+$", "", self.name)

    @property
    def c_types(self) -> list[Any]:
        """The types of the arguments for ctypes."""
        return [_C_TYPES.get(kind.removeprefix("-"), ctypes.c_uint64) for kind in self.types]

    @property
    def prototype(self) -> Any:
        """The type of the function for ctypes."""
        return ctypes.CFUNCTYPE(_C_TYPES[self.returns or "i32"], *self.c_types)

    def call(self, gpu: EmulatedGpu, values: tuple[Any, ...]) -> int:
        """Have the function answer a call with ``values``, and store its results; return what C gets."""
        if self.waits:
            _require_no_capture(gpu)
        given: list[Any] = []
        put: Callable[[Callable[[], Any]], None] | None = None
        places: list[tuple[str, int]] = []
        for kind, value in zip(self.types, values, strict=True):
            if kind == "stream":
                given.append(gpu.stream(value))
            elif kind.startswith("queue"):
                put = partial(gpu.stream(value).put, NodeKind[kind.partition(":")[2].upper()])
            elif kind in _HANDLES:
                given.append(gpu.held(value, _HANDLES[kind]))
            elif kind == "device":
                if value:
                    raise Refused(DriverResult.INVALID_DEVICE)
            elif kind.startswith("-"):
                continue
            elif kind == "dim3":
                given.append((value.x, value.y, value.z))
            elif not kind.startswith("out"):
                given.append(value)
            elif value or kind.startswith("out?"):
                places.append((kind.partition(":")[2], value))
            else:
                raise Refused(DriverResult.INVALID_VALUE)
        if put is not None:
            put(partial(self.function, gpu, *given))
            return DriverResult.SUCCESS
        returned = self.function(gpu, *given)
        if self.returns:
            return int(returned)
        results = returned if len(places) > 1 else (returned,) * len(places)
        for (kind, at), value in zip(places, results, strict=True):
            if at:
                store(at, struct.pack(_PACKED[kind], value))
        return DriverResult.SUCCESS


def _require_no_capture(gpu: EmulatedGpu) -> None:
    """Raise Refused, and end captures with an error, where this thread must not wait for the GPU."""
    mode = gpu.thread.capture_mode
    prohibiting = [capture for capture in captures.under_way() if capture.prohibits(mode)]
    for capture in prohibiting:
        capture.invalid = True
    if prohibiting:
        raise Refused(DriverResult.STREAM_CAPTURE_UNSUPPORTED)


ROWS: dict[str, AnsweredFunction] = {}


def handles(word: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Have a word stand for handles of objects of a class."""

    def put(kind: type[_Kind]) -> type[_Kind]:
        _HANDLES[word] = kind
        return kind

    return put


def answers(
    name: str,
    types: str = "",
    *,
    since: int = 0,
    needs: str = "context",
    returns: str = "",
    waits: bool = False,
) -> Callable[[_Function], _Function]:
    def put(function: _Function) -> _Function:
        row = AnsweredFunction(name, tuple(types.split()), function, since, needs, returns, waits)
        ROWS[name] = row
        return function

    return put


def named(asked: str, version: int) -> AnsweredFunction | None:
    """Return the row that cuGetProcAddress gives for a name in a CUDA release, None where there is none."""
    of_driver = [row for row in ROWS.values() if row.needs != "runtime"]
    rows = [row for row in of_driver if row.base == asked and row.since <= version]
    exact = (row for row in of_driver if row.name == asked)
    return max(rows, key=lambda row: row.since, default=next(exact, None))


def store(at: int, data: bytes) -> None:
    """Write ``data`` where the caller has room for it."""
    ctypes.memmove(at, data, len(data))


def fetch(at: int, layout: str) -> tuple[Any, ...]:
    """Read values at an address of the caller's, laid out as ``struct`` says."""
    if not at:
        raise Refused(DriverResult.INVALID_VALUE)
    return struct.unpack(layout, ctypes.string_at(at, struct.calcsize(layout)))
