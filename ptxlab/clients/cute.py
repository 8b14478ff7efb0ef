"""CuTe DSL changed in place: its compiled host code calls the emulated driver, and its PTX is what runs.

CuTe DSL compiles a kernel to machine code inside of code of the host, which calls the CUDA runtime by names that begin
with an underscore. ``CUTE_DSL_LIBS`` says which libraries have them: here the emulated driver is the first.
"""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

FIRST, EXECUTOR = "cutlass._mlir._mlir_libs", "cutlass.cutlass_dsl.cuda_jit_executor"
PROVIDER = "cutlass.cutlass_dsl.tvm_ffi_provider"
"""Modules of CuTe DSL: what it imports before it reads its variables, and what loads machine code, for TVM-FFI too."""
_RUNTIME = "libcute_dsl_runtime.so"


def prepare(module: ModuleType) -> None:
    """Have CuTe DSL, which has imported no more than ``FIRST``, find the driver of this process."""
    from ptxlab.clients.driver.library import loaded

    library = loaded()
    _ask_for(library.path, library.gpu.target.name)


def _ask_for(driver: Path, arch: str) -> None:
    """Say by CuTe DSL's own variables what it compiles for, what its code calls, and that its PTX is kept."""
    import nvidia_cutlass_dsl

    folders = (Path(folder) for folder in nvidia_cutlass_dsl.__path__)
    own = [str(file) for folder in folders for file in folder.glob(f"cu*/lib/{_RUNTIME}")]
    os.environ["CUTE_DSL_LIBS"] = os.pathsep.join([str(driver), *own[:1]])
    os.environ["CUTE_DSL_ARCH"] = arch
    os.environ["CUTE_DSL_KEEP_PTX"] = "1"
    os.environ["CUTE_DSL_LINEINFO"] = "1"
    os.environ.setdefault("CUTE_DSL_DUMP_DIR", str(driver.parent))  # removed with the driver


def load_ptx(executor: ModuleType) -> None:
    """Have CuTe DSL's module ``EXECUTOR`` give the driver the PTX that machine code was made from, beside that."""
    _with_ptx(executor.CudaDialectJitCompiledFunction, "_load_cuda_library")


def load_ptx_when_called(provider: ModuleType) -> None:
    """Have CuTe DSL's module ``PROVIDER`` do so, whose functions load their machine code when they are first called."""
    for function in (
        provider.TVMFFIJitCompiledFunction,
        provider.TVMFFIJitCompiledFunctionWithKwargs,
    ):
        _with_ptx(function, "__call__")


def _with_ptx(function: Any, name: str) -> None:
    """Wrap the method of a compiled function in which the driver is given its machine code."""
    from ptxlab.clients.driver.library import loaded

    gpu, method = loaded().gpu, getattr(function, name)

    @wraps(method)
    def wrapped(compiled: Any, *arguments: Any, **named: Any) -> Any:
        gpu.made_of = compiled.__ptx__ or ""
        try:
            return method(compiled, *arguments, **named)
        finally:
            gpu.made_of = ""

    setattr(function, name, wrapped)
