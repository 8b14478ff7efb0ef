"""Parameters that code of the host makes: CUDA Tile's compiler puts that into the cubin, and tensor maps behind the arguments.

Nobody describes it. The section ``.nv.host`` is an object file for the processor of the host, whose table
``__CUDA_TILEIR_CALLBACKS`` has a row a kernel: its name, and a function that is called when arguments change, with
the block of parameters, of which it fills in what is behind those that the program gives. A table or row that has more
than tileiras 13.5 writes is refused.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.native import compiler
from ptxlab.toolchain.elf import read_elf
from ptxlab.toolchain.machine_code import HOST_CODE

_TABLE = "__CUDA_TILEIR_CALLBACKS"
_VERSION = 2
_MACHINES = {62: compiler.X86, 183: ("aarch64",)}
"""Of processors their number in ELF files, and what systems call them."""
_CHANGED = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


class _Row(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("before", ctypes.c_uint64 * 4),
        ("on_arguments_change", ctypes.c_void_p),
        ("behind", ctypes.c_uint64 * 2),
    )


class _Callbacks(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 3),
        ("row_bytes", ctypes.c_uint64),
        ("rows", ctypes.POINTER(_Row)),
        ("count", ctypes.c_uint64),
    )


class HostCode:
    """The code of the host in a cubin."""

    def __init__(self, code: bytes) -> None:
        self._engine = compiler.load_object(code)  # which keeps it where it is
        table = _Callbacks.from_address(self._engine.get_global_value_address(_TABLE))
        if table.version != _VERSION or table.row_bytes != ctypes.sizeof(_Row):
            raise _unknown(f"its table is of version {table.version}")
        self._functions: Mapping[str, Any] = {
            row.name.decode(): _function(row) for row in table.rows[: table.count]
        }

    def complete(self, kernel: str, given: bytes, nbytes: int) -> bytes:
        """Return the block of ``nbytes`` that a kernel is launched with, of the parameters that a program gives."""
        block = ctypes.create_string_buffer(given, nbytes)
        if kernel not in self._functions:
            raise _unknown(f"it does not name {kernel}")
        failed = self._functions[kernel](None, None, None, ctypes.addressof(block))
        if failed:
            raise Refused(
                DriverResult.INVALID_VALUE,
                f"code of the host in the cubin of {kernel} refuses its arguments: it returns {failed}",
            )
        return block.raw


@cache
def host_code(cubin: bytes) -> HostCode:
    """Return the code of the host in a cubin. Raises Refused for one that cannot run here."""
    section = next(each for each in read_elf(cubin).sections if each.name == HOST_CODE)
    if platform.machine() not in _MACHINES.get(read_elf(section.content).machine, ()):
        raise _unknown(f"it is not for the processor of this machine, {platform.machine()}")
    if not compiler.available():
        raise _unknown("to load it llvmlite is needed: pip install llvmlite")
    return HostCode(section.content)


def _function(row: _Row) -> Any:
    if any(row.before) or any(row.behind):
        raise _unknown("it wants to be called for more than arguments that change")
    return _CHANGED(row.on_arguments_change)


def _unknown(why: str) -> Refused:
    return Refused(
        DriverResult.NOT_SUPPORTED,
        f"this cubin has code of the host that makes parameters, as CUDA Tile's compiler writes it: {why}",
    )
