"""Numba on the emulator: its kernels are loaded as PTX, and not as the machine code it links."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NamedTuple

from ptxlab.clients.imports import AfterImport
from ptxlab.errors import Unsupported
from ptxlab.toolchain import link_ptx

_CODEGEN = "numba.cuda.codegen"

_RUNTIME = "libcudadevrt.a"
"""Machine code with the barrier of cooperative kernels."""

_BARRIER = """
#include <cooperative_groups.h>
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(cudaCGScope scope) { return scope; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long handle, unsigned flags) {
    cooperative_groups::this_grid().sync();
    return cudaSuccess;
}
"""
"""What stands in its place: Numba knows no group but the grid."""


def keep_ptx(arch: str) -> None:
    """Have Numba load the PTX of its kernels from now on, whenever it is imported.

    The machine code that it shows is assembled for ``arch``.
    """
    if _CODEGEN in sys.modules:
        _change(sys.modules[_CODEGEN], arch)
    else:
        sys.meta_path.insert(0, AfterImport({_CODEGEN: partial(_change, arch=arch)}))


def _change(codegen: Any, arch: str) -> None:
    """Have the linker give PTX, which is assembled where someone wants to see machine code."""
    disassemble = codegen.run_nvdisasm
    codegen.driver._Linker.complete = _linked
    codegen.run_nvdisasm = lambda image, flags: disassemble(
        _Code(link_ptx(image.code.decode(), arch=arch).image), flags
    )


class _Code(NamedTuple):
    """Machine code, as Numba passes it on."""

    code: bytes


def _linked(linker: Any) -> Any:
    """Return the PTX of a kernel and all that it calls: what Numba's linker makes machine code of."""
    from numba.cuda.cudadrv.driver import ObjectCode

    names = [part.name for part in linker._object_codes]
    if _RUNTIME in names:
        del linker._object_codes[names.index(_RUNTIME)]
        linker.add_cu(_BARRIER, "barrier.cu")
    parts = linker._object_codes
    kinds = {part.code_type for part in parts}
    if kinds == {"ltoir"}:
        return ObjectCode.from_ptx(linker.get_linked_ptx())
    if kinds != {"ptx"} or len(parts) != 1:
        raise Unsupported(
            f"a kernel of Numba is linked from {', '.join(sorted(kinds))}, of which the emulator cannot "
            "make one program",
            hint="link files of CUDA C (.cu), and leave lto and debug as they are",
        )
    linker._info_log = linker._error_log = ""
    linker.linker, linker._complete = parts[0], True
    return parts[0]
