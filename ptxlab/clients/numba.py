"""Numba on the emulator: its kernels are loaded as PTX, and not as the machine code it links."""

from __future__ import annotations

import sys
from functools import partial, wraps
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from ptxlab.clients.imports import AfterImport, Hook
from ptxlab.emulator import Elements
from ptxlab.errors import Unsupported
from ptxlab.toolchain import link_ptx

_CODEGEN, _DISPATCHER = "numba.cuda.codegen", "numba.cuda.dispatcher"
_DEBUG_INFO = "numba.cuda.debuginfo"

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
    """Have Numba load the PTX of its kernels from now on, with the lines of Python, whenever it is imported.

    The machine code that it shows is assembled for ``arch``.
    """
    hooks: dict[str, Hook] = {
        _CODEGEN: partial(_change, arch=arch),
        _DISPATCHER: _tell_lines_and_names,
        _DEBUG_INFO: _flag_as_nvrtc,
    }
    for name in sys.modules.keys() & hooks:
        hooks.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(hooks))


def _change(codegen: Any, arch: str) -> None:
    """Have the linker give PTX, which is assembled where someone wants to see machine code."""
    disassemble = codegen.run_nvdisasm
    codegen.driver._Linker.complete = _linked
    codegen.run_nvdisasm = lambda image, flags: disassemble(
        _Code(link_ptx(image.code.decode(), arch=arch).image), flags
    )


def _tell_lines_and_names(dispatcher: Any) -> None:
    """Have PTX name the lines of Python, and memory be called by the argument that it is."""
    kernel = dispatcher._Kernel
    make, launch = kernel.__init__, kernel.launch

    @wraps(make)
    def make_with_lines(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs | {"lineinfo": not kwargs.get("debug")})

    @wraps(launch)
    def launch_with_names(self: Any, args: Any, *config: Any, **more: Any) -> Any:
        for name, value in zip(signature(self.py_func).parameters, args, strict=False):
            if hasattr(value, "__cuda_array_interface__"):
                _name(name, value)
        return launch(self, args, *config, **more)

    kernel.__init__, kernel.launch = make_with_lines, launch_with_names


def _name(name: str, array: Any) -> None:
    """Call the memory of an array on the device, and its elements, by the argument that it is."""
    from ptxlab.clients.driver.library import loaded

    told = array.__cuda_array_interface__
    address, dtype, shape = told["data"][0], np.dtype(told["typestr"]), told["shape"]
    allocation = loaded().gpu.session.device.memory.find(address)
    if allocation is None or address >= allocation.end or not dtype.itemsize:
        return
    strides = told["strides"] or np.empty(shape, dtype).strides
    allocation.name = f"argument {name}, {dtype}{list(shape)}"
    in_elements = tuple(stride // dtype.itemsize for stride in strides)
    allocation.elements = Elements(
        name, address, dtype.itemsize, in_elements, tuple(shape), str(dtype)
    )


def _flag_as_nvrtc(debuginfo: Any) -> None:
    """Have modules with lines be linked with CUDA C: both must say alike what becomes of versions that differ."""
    builder = debuginfo.DIBuilder
    flag = builder._set_module_flags

    @wraps(flag)
    def flag_as_error(self: Any) -> None:
        flag(self)
        flags = self.module.get_named_metadata("llvm.module.flags")
        for n, (_, name, version) in enumerate(metadata.operands for metadata in flags.operands):
            error = [self._const_int(1), name, version]
            flags.operands[n] = self.module.add_metadata(error)

    builder._set_module_flags = flag_as_error


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
