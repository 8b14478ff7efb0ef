"""TileLang changed in place: its runtime is the emulated one, and what it compiles is PTX.

TileLang calls the driver and the CUDA runtime through libraries that look for both; nvcc makes its kernels machine code
alone, which would run too, but without the lines of its source.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

FIRST, COMPILER = "tilelang.env", "tilelang.contrib.nvcc"
"""Modules of TileLang: what it imports before it loads its libraries, and what calls nvcc."""

_ASKED = [
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphInstantiate",
    "cudaGraphLaunch",
    "cudaIpcCloseMemHandle",
    "cudaIpcGetMemHandle",
    "cudaIpcOpenMemHandle",
    "cudaMemcpyPeerAsync",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
]
"""Functions of the runtime without which TileLang takes none."""


def prepare(module: Any) -> None:
    """Have TileLang find the runtime, and keep nothing for a program that runs on a GPU."""
    from ptxlab.clients.driver import library

    os.environ["TILELANG_DISABLE_CACHE"] = "1"
    library.write_runtime(_ASKED)


def compile_ptx(compiler: Any) -> None:
    """Have TileLang's module ``COMPILER`` make PTX."""
    compile_cuda = compiler.compile_cuda

    @wraps(compile_cuda)
    def compile_to_ptx(code: str, target_format: str = "ptx", *others: Any, **named: Any) -> Any:
        return compile_cuda(code, "ptx", *others, **named)

    compiler.compile_cuda = compile_to_ptx
