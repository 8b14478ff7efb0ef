"""Functions of the driver, called from Python: the table behind them, and no shared object in between."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import ptxlab.clients.driver.library  # noqa: F401, whose import fills the table
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused, result_of
from ptxlab.clients.driver.table import ROWS
from ptxlab.clients.session import Session
from ptxlab.errors import PtxlabError

_LAYOUTS = {"i32": "<i", "u32": "<I", "u64": "<Q", "f32": "<f"}


class Driver:
    """An emulated GPU whose primary context is current."""

    def __init__(self, arch: str = "sm_80") -> None:
        self.session = Session(arch)
        self.gpu = EmulatedGpu(self.session)
        self("cuInit", 0)
        self.primary = self("cuDevicePrimaryCtxRetain")
        self("cuCtxSetCurrent", self.primary)

    def __call__(self, name: str, *values: Any) -> Any:
        """Call a function with what it reads; return its results, one alone where there is one."""
        row, given = ROWS[name], list(values)
        results: list[tuple[str, Any]] = []
        arguments = []
        for kind in row.types:
            if kind.startswith("out"):
                results.append((kind.partition(":")[2], ctypes.create_string_buffer(8)))
                arguments.append(ctypes.addressof(results[-1][1]))
            elif kind == "device" or kind.startswith("-"):
                arguments.append(0)
            else:
                arguments.append(given.pop(0))
        assert not given, f"{name} takes fewer"
        row.call(self.gpu, tuple(arguments))
        answers = [struct.unpack_from(_LAYOUTS[kind], memory)[0] for kind, memory in results]
        return answers[0] if len(answers) == 1 else tuple(answers)

    def result(self, name: str, *values: Any) -> str:
        """Return the name of what a call ends with."""
        try:
            self(name, *values)
        except Refused as refused:
            return refused.result.name
        except PtxlabError as error:
            return result_of(error).name
        return DriverResult.SUCCESS.name

    def upload(self, data: bytes) -> int:
        """Return where on the GPU a copy of ``data`` is."""
        address = int(self("cuMemAlloc_v2", len(data)))
        held = ctypes.create_string_buffer(data, len(data))
        self("cuMemcpyHtoD_v2", address, ctypes.addressof(held), len(data))
        return address

    def download(self, address: int, nbytes: int) -> bytes:
        held = ctypes.create_string_buffer(nbytes)
        self("cuMemcpyDtoH_v2", ctypes.addressof(held), address, nbytes)
        return held.raw

    def kernel(self, text: str, name: str = "k") -> int:
        """Return the handle of a kernel of a module."""
        held = ctypes.c_char_p(text.encode())
        module = self("cuModuleLoadData", ctypes.cast(held, ctypes.c_void_p).value)
        return int(self("cuModuleGetFunction", module, name.encode()))
