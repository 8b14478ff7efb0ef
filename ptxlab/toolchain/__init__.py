"""The compilers and disassembler: CUDA C to PTX to cubin to SASS, without a GPU or a driver."""

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
