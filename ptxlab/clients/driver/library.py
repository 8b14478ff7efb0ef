"""libcuda.so.1 and libcudart.so for a process: written, loaded, and answered by the table of functions."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from platform import machine
from typing import Any

from ptxlab.clients.driver import (  # noqa: F401, they put rows into the table
    contexts,
    copies,
    devices,
    graph_nodes,
    graphs,
    host_code,
    launches,
    memory,
    modules,
    occupancy,
    properties,
    registered,
    runtime,
    streams,
    tensor_maps,
)
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused, result_of
from ptxlab.clients.driver.shared_object import NOTHING, functions_of, shared_object
from ptxlab.clients.driver.starting import Python
from ptxlab.clients.driver.table import ROWS, AnsweredFunction, answers, named, store
from ptxlab.clients.session import Session
from ptxlab.device.cuda_driver import EMULATED, LIBRARY
from ptxlab.errors import LaunchError, PtxlabError, Unsupported

RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
"""The CUDA runtime, as programs that share it call it."""

UNVERSIONED = "libcuda.so"
"""The driver as Taichi calls it."""

UNVERSIONED_RUNTIME = "libcudart.so"
"""And the runtime as TileLang does."""

_LOOKED_FOR = (
    "cuImportExternalSemaphore",
    "cuWaitExternalSemaphoresAsync",
    "cuSignalExternalSemaphoresAsync",
    "cuSurfObjectCreate",
    "cuMipmappedArrayGetLevel",
    "cuExternalMemoryGetMappedMipmappedArray",
    "cuExternalMemoryGetMappedBuffer",
    "cuImportExternalMemory",
)
"""Functions without a row that Taichi does not start without, though it need not call them."""

_SPARE = 1024
"""Functions without a row that a program may be given, to learn of them when it calls one."""

_FOUND, _NOT_FOUND = 0, 1  # CUdriverProcAddressQueryResult


def _is_runtime(name: str) -> bool:
    return name.startswith(UNVERSIONED_RUNTIME)


def write(folder: Path, name: str, asked: Iterable[str] = (), python: Python | None = None) -> Path:
    """Write the driver, or one of ``RUNTIMES``, with what programs have ``asked`` for beside what there is.

    With ``python`` a process that is not Python's can use it.
    """
    of_runtime = {row.name: row.needs == "runtime" for row in ROWS.values()}
    own = (row for row in ROWS if of_runtime[row] == _is_runtime(name))
    names = dict.fromkeys([*own, *(row for row in ROWS if row.startswith(host_code.PREFIX))])
    if not _is_runtime(name):
        spares = (f"ptxlab_spare_{number}" for number in range(_SPARE))
        names |= dict.fromkeys([*(f"_{row}" for row in ROWS), *_LOOKED_FOR, *spares])
    path = folder / name
    path.write_bytes(shared_object(name, [*names | dict.fromkeys(asked)], machine(), python))
    return path


class Library:
    """A library that is loaded from the ``path`` where it was written, and what keeps its functions alive."""

    def __init__(self, gpu: EmulatedGpu, path: Path) -> None:
        self.gpu = gpu
        self.path = path
        self._is_runtime = _is_runtime(path.name)
        self._names = functions_of(path.read_bytes())
        self._spare = iter([at for at, name in enumerate(self._names) if name.startswith("ptxlab")])
        self._missing: dict[str, int] = {}
        self._loaded = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        self._slots = (ctypes.c_uint64 * len(self._names)).in_dll(self._loaded, EMULATED)
        self._callbacks: list[Any] = []
        for slot, name in enumerate(self._names):
            row = _row(name)
            if row is None:
                self._fill(slot, _NO_ARGUMENTS, partial(self._not_there, name))
            else:
                self._fill(slot, row.prototype, self._answering(row))
        atexit.register(self._end)

    def alias(self, path: Path) -> None:
        """Load a library with the same functions, to be found by another name, which are answered as these are."""
        other = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        slots = type(self._slots).in_dll(other, EMULATED)
        ctypes.memmove(slots, self._slots, ctypes.sizeof(slots))

    def _fill(self, slot: int, prototype: Any, function: Callable[..., int]) -> None:
        """Have a slot lead to ``function``, which must not raise."""
        callback = prototype(function)
        self._callbacks.append(callback)
        self._slots[slot] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def _end(self) -> None:
        """Leave what C code still frees or asks for, when Python is gone, to a function that does nothing."""
        nothing = ctypes.cast(getattr(self._loaded, NOTHING), ctypes.c_void_p).value or 0
        self._slots[:] = [nothing] * len(self._names)

    def _answering(self, row: AnsweredFunction) -> Callable[..., int]:
        """Return what a function does, to its result."""

        def answer(*values: Any) -> int:
            try:
                with self.gpu.lock:
                    self._require(row)
                    return row.call(self.gpu, values)
            except Refused as refused:
                if refused.why:
                    self.gpu.say(f"{row.name}: {refused.why}")
                result = refused.result
            except PtxlabError as error:
                self.gpu.say(f"{row.name}: {error}")
                result = result_of(error)
                if self._is_runtime and isinstance(error, LaunchError | Unsupported):
                    self.gpu.fault = result
            except Exception as error:
                self._say_unforeseen(row, error)
                result = DriverResult.UNKNOWN
            except BaseException as error:  # Ctrl-C, a test's time limit
                self.gpu.say(f"{row.name}: interrupted by {type(error).__name__}")
                result = DriverResult.LAUNCH_TIMEOUT
            if row.needs == "runtime":
                self.gpu.thread.error = result
            return 0 if row.returns else result

        return answer

    def _require(self, row: AnsweredFunction) -> None:
        """Raise Refused unless what must be before a call is."""
        if row.needs == "runtime":
            contexts.be_ready(self.gpu)
            if self._is_runtime and self.gpu.fault and not row.returns:
                raise Refused(self.gpu.fault)
        elif row.needs != "nothing" and not self.gpu.initialized:
            raise Refused(DriverResult.NOT_INITIALIZED)
        if row.needs == "context":
            _ = self.gpu.context

    def _say_unforeseen(self, row: AnsweredFunction, error: Exception) -> None:
        if os.environ.get("PTXLAB_DEBUG"):
            traceback.print_exception(error, file=sys.stderr)
        self.gpu.say(f"{row.name}: this should not happen: {type(error).__name__}: {error}")

    def address_of(self, name: str, version: int) -> int:
        """Return where a function is; one without a row says so when it is called."""
        row = named(name, version)
        if row is None and not name.startswith("cu"):
            return 0
        return self._stub(row.name if row else self._names[self._spare_for(name)])

    def runtime_function(self, name: str) -> int:
        """Return where a function of the runtime is; one without a row says so when it is called."""
        row = _row(name)
        return self._stub(f"_{row.name}" if row else self._names[self._spare_for(name)])

    def _stub(self, name: str) -> int:
        return ctypes.cast(getattr(self._loaded, name), ctypes.c_void_p).value or 0

    def _spare_for(self, name: str) -> int:
        if name not in self._missing:
            self._missing[name] = slot = next(self._spare)
            self._fill(slot, _NO_ARGUMENTS, partial(self._not_there, name))
        return self._missing[name]

    def _not_there(self, name: str) -> int:
        of = "runtime" if name.startswith(("cuda", "__cuda")) else "driver"
        self.gpu.say(f"{name} is a function of the CUDA {of} that the emulator does not have")
        self.gpu.thread.error = DriverResult.NOT_SUPPORTED
        return DriverResult.NOT_SUPPORTED


_NO_ARGUMENTS = ctypes.CFUNCTYPE(ctypes.c_int)


def _row(name: str) -> AnsweredFunction | None:
    """Return what answers a function, that of the default stream of each thread too, and CuTe DSL's with an underscore."""
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")
    if plain not in ROWS and plain[1:] in ROWS:
        return replace(ROWS[plain[1:]], needs="runtime")
    return ROWS.get(plain)


def _be_found_in(folder: Path) -> None:
    """Put ``folder`` where programs look for the file themselves, as tinygrad does."""
    others = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{folder}{os.pathsep}{others}" if others else str(folder)


_loaded: list[Library] = []


def loaded() -> Library:
    """Return the driver of this process."""
    return _loaded[0]


def is_loaded() -> bool:
    return bool(_loaded)


def load(session: Session, folder: Path | None = None) -> Session:
    """Load the driver, whose launches run in ``session``, for as long as the process lasts.

    It is the one in ``folder``, or is written.
    """
    owned = folder is None
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="ptxlab-driver-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        write(folder, LIBRARY)
        _be_found_in(folder)
    _loaded.append(Library(EmulatedGpu(session), folder / LIBRARY))
    loaded().gpu.address_of = loaded().address_of
    if owned:
        loaded().alias(write(folder, UNVERSIONED))
    return session


def write_runtime(asked: Iterable[str]) -> None:
    """Write and load the runtime under the names that a program of Python may look for."""
    folder = loaded().path.parent
    add_runtime(write(folder, RUNTIMES[-1], asked))
    _loaded[-1].alias(write(folder, UNVERSIONED_RUNTIME, asked))


def add_runtime(path: Path) -> None:
    """Load a runtime of the process whose driver is loaded."""
    _loaded.append(Library(loaded().gpu, path))


@answers("cuGetProcAddress", "text out:u64 i32 u64", since=11030, needs="nothing")
def address(gpu: EmulatedGpu, name: bytes, version: int, flags: int) -> int:
    entry = gpu.address_of(name.decode(), version)
    if not entry:
        raise Refused(DriverResult.NOT_FOUND)
    return entry


@answers("cuGetProcAddress_v2", "text u64 i32 u64 u64", since=12000, needs="nothing")
def address_and_status(
    gpu: EmulatedGpu, name: bytes, at: int, version: int, flags: int, status: int
) -> None:
    entry = gpu.address_of(name.decode(), version)
    store(at, entry.to_bytes(8, "little"))
    if status:
        store(status, (_FOUND if entry else _NOT_FOUND).to_bytes(4, "little"))
    if not entry:
        raise Refused(DriverResult.NOT_FOUND)
