"""The compilers and disassembler: CUDA C to PTX to cubin to SASS, without a GPU or a driver."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxlab.toolchain.cubin import Cubin, Remark, Resources
    from ptxlab.toolchain.nvdisasm import disassemble
    from ptxlab.toolchain.nvjitlink import link_ptx
    from ptxlab.toolchain.nvrtc import assemble_cuda, compile_cuda

__all__ = [
    "Cubin",
    "Remark",
    "Resources",
    "assemble_cuda",
    "compile_cuda",
    "disassemble",
    "link_ptx",
]

LINE_INFO = "--generate-line-info"
"""The option that has NVRTC say in PTX which lines of CUDA C it comes from."""

# Where each name lives. They are imported on first use: who asks for a file of the room does not wait for all of it.
_HOMES = {
    "Cubin": "cubin",
    "Remark": "cubin",
    "Resources": "cubin",
    "assemble_cuda": "nvrtc",
    "compile_cuda": "nvrtc",
    "disassemble": "nvdisasm",
    "link_ptx": "nvjitlink",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ptxlab.toolchain' has no attribute {name!r}")
    value = getattr(import_module(f"ptxlab.toolchain.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
