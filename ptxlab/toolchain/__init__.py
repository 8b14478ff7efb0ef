"""The compilers and disassembler: CUDA C to PTX to cubin to SASS, without a GPU or a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxlab.late import importing

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

# Where each name lives. They are imported on first use: who asks for a file of the room does not wait for all of it.
_HOMES = {
    "Cubin": "ptxlab.toolchain.cubin",
    "Remark": "ptxlab.toolchain.cubin",
    "Resources": "ptxlab.toolchain.cubin",
    "assemble_cuda": "ptxlab.toolchain.nvrtc",
    "compile_cuda": "ptxlab.toolchain.nvrtc",
    "disassemble": "ptxlab.toolchain.nvdisasm",
    "link_ptx": "ptxlab.toolchain.nvjitlink",
}

__getattr__ = importing(__name__, _HOMES)
