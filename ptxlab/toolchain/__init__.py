"""The compilers and disassembler: CUDA C to PTX to cubin to SASS, without a GPU or a driver."""

from ptxlab.toolchain.nvdisasm import disassemble
from ptxlab.toolchain.nvjitlink import Cubin, Resources, link_ptx
from ptxlab.toolchain.nvrtc import compile_cuda

__all__ = ["Cubin", "Resources", "compile_cuda", "disassemble", "link_ptx"]
