"""libcuda.so.1 for this process: written, loaded, and answered by the table of functions."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from platform import machine
from threading import RLock
from typing import Any

from ptxlab.clients.driver import (  # noqa: F401, they put rows into the table
    contexts,
    copies,
    devices,
    graphs,
    launches,
    memory,
    modules,
    occupancy,
    runtime,
    streams,
    tensor_maps,
)
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused, result_of
from ptxlab.clients.driver.shared_object import NOTHING, shared_object
from ptxlab.clients.driver.table import ROWS, AnsweredFunction, answers, named, store
from ptxlab.clients.session import Session
from ptxlab.device.cuda_driver import EMULATED, LIBRARY
from ptxlab.errors import PtxlabError

_SPARE = 1024
"""Functions without a row that a program may be given, to learn of them when it calls one."""

_FOUND, _NOT_FOUND = 0, 1  # CUdriverProcAddressQueryResult


class Library:
    """The loaded library, and what keeps its functions alive."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu = gpu
        self._lock = RLock()  # programs call from several threads
        self._names = [*ROWS, *(f"ptxlab_spare_{number}" for number in range(_SPARE))]
        self._spare = count(len(ROWS))
        self._missing: dict[str, int] = {}
        folder = Path(tempfile.mkdtemp(prefix="ptxlab-driver-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = folder / LIBRARY
        self.path.write_bytes(shared_object(LIBRARY, self._names, machine()))
        self._loaded = ctypes.CDLL(str(self.path), ctypes.RTLD_GLOBAL)
        _be_found_in(folder)
        self._slots = (ctypes.c_uint64 * len(self._names)).in_dll(self._loaded, EMULATED)
        self._callbacks: list[Any] = []
        for number, row in enumerate(ROWS.values()):
            self._fill(number, row.c_types, self._answering(row))
        atexit.register(self._end)
        gpu.address_of = self.address_of

    def _fill(self, slot: int, types: list[Any], function: Callable[..., int]) -> None:
        """Have a slot lead to ``function``, which must not raise."""
        callback = ctypes.CFUNCTYPE(ctypes.c_int, *types)(function)
        self._callbacks.append(callback)
        self._slots[slot] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def _end(self) -> None:
        """Leave what C code still frees or asks for, when Python is gone, to a function that does nothing."""
        nothing = ctypes.cast(getattr(self._loaded, NOTHING), ctypes.c_void_p).value or 0
        self._slots[:] = [nothing] * len(self._names)

    def _answering(self, row: AnsweredFunction) -> Callable[..., int]:
        """Return what a function of the driver does, to its result."""

        def answer(*values: Any) -> int:
            try:
                with self._lock:
                    self._require(row)
                    row.call(self.gpu, values)
            except Refused as refused:
                if refused.why:
                    self.gpu.say(f"{row.name}: {refused.why}")
                return refused.result
            except PtxlabError as error:
                self.gpu.say(f"{row.name}: {error}")
                return result_of(error)
            except Exception as error:
                self._say_unforeseen(row, error)
                return DriverResult.UNKNOWN
            except BaseException as error:  # Ctrl-C, a test's time limit
                self.gpu.say(f"{row.name}: interrupted by {type(error).__name__}")
                return DriverResult.LAUNCH_TIMEOUT
            return DriverResult.SUCCESS

        return answer

    def _require(self, row: AnsweredFunction) -> None:
        """Raise Refused unless what must be before a call is."""
        if row.needs == "runtime":
            contexts.be_ready(self.gpu)
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
        at = self._names.index(row.name) if row else self._spare_for(name)
        function = getattr(self._loaded, self._names[at])
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def _spare_for(self, name: str) -> int:
        if name not in self._missing:
            self._missing[name] = slot = next(self._spare)
            self._fill(slot, [], lambda: self._not_there(name))
        return self._missing[name]

    def _not_there(self, name: str) -> int:
        self.gpu.say(f"{name} is a function of the CUDA driver that the emulator does not have")
        return DriverResult.NOT_SUPPORTED


def _be_found_in(folder: Path) -> None:
    """Put ``folder`` where programs look for the file themselves, as tinygrad does."""
    others = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{folder}{os.pathsep}{others}" if others else str(folder)


_loaded: list[Library] = []


def loaded() -> Library:
    """Return the library of this process."""
    return _loaded[-1]


def load(session: Session) -> Session:
    """Load the library, whose launches run in ``session``, for as long as the process lasts."""
    _loaded.append(Library(EmulatedGpu(session)))
    return session


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
