"""A CUDA runtime that is linked into a library of others: its functions go to the emulated one.

It cannot run as it is, as it asks the driver for tables that NVIDIA does not document. Where the file has its symbols,
they say where each function begins, and there a jump to the function of ptxlab's runtime is written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path
from platform import machine
from types import ModuleType

from ptxlab.clients.driver import library
from ptxlab.clients.driver.starting import PROCESSORS
from ptxlab.toolchain.elf import ElfSymbol, read_elf, symbols

_FUNCTION = re.compile(r"(__)?cuda[A-Z]\w*")
_ROOM = 16
"""How far apart functions begin at least, which a jump fits into."""
_WITHOUT_ROOM = "__cudaGetProcAddress"

_REGISTER = "__sti____cudaRegisterAllv"
"""What registers kernels as a library is loaded, and did so before anyone could redirect it."""

_READ, _WRITE, _EXECUTE = 1, 2, 4  # PROT_...


def answer(module: ModuleType) -> None:
    """Have the runtime inside an extension module be the emulated one."""
    assert module.__file__ is not None
    path = Path(module.__file__)
    begin, jump = _loaded_at(path), PROCESSORS[machine()].jump
    own = [symbol for symbol in symbols(read_elf(path.read_bytes())) if symbol.section == ".text"]
    for symbol in own:
        if _can_jump(symbol):
            to = library.loaded().runtime_function(symbol.name)
            _write(begin + symbol.value, jump(to))
    for symbol in own:
        if symbol.name.endswith(_REGISTER):
            ctypes.CFUNCTYPE(None)(begin + symbol.value)()


def _can_jump(symbol: ElfSymbol) -> bool:
    """Say whether it is a function of the runtime, with room for a jump where it begins."""
    is_runtime = _FUNCTION.fullmatch(symbol.name) and symbol.name != _WITHOUT_ROOM
    return bool(is_runtime) and symbol.value % _ROOM == 0


def _loaded_at(path: Path) -> int:
    """Return the address of a shared object of this process."""
    file = os.path.realpath(path)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(file))


def _write(address: int, code: bytes) -> None:
    """Write over code of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = address // mmap.PAGESIZE * mmap.PAGESIZE
    span = ctypes.c_void_p(page), ctypes.c_size_t(address + len(code) - page)
    if libc.mprotect(*span, _READ | _WRITE | _EXECUTE):
        raise OSError(ctypes.get_errno(), "code of the runtime cannot be written over")
    ctypes.memmove(address, code, len(code))
    libc.mprotect(*span, _READ | _EXECUTE)
