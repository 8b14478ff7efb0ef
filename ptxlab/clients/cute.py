"""CuTe DSL changed in place: its compiled host code calls the emulated driver, and its PTX is what runs.

CuTe DSL compiles a kernel to machine code inside of code of the host, which calls the CUDA runtime by names that begin
with an underscore. ``CUTE_DSL_LIBS`` says which libraries have them: here the emulated driver is the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import wraps
from inspect import Signature
from pathlib import Path
from types import ModuleType
from typing import Any

from ptxlab.clients.borrowed import Named
from ptxlab.emulator import Elements

FIRST, EXECUTOR = "cutlass._mlir._mlir_libs", "cutlass.cutlass_dsl.cuda_jit_executor"
PROVIDER = "cutlass.cutlass_dsl.tvm_ffi_provider"
"""Modules of CuTe DSL: what it imports before it reads its variables, and what loads machine code, for TVM-FFI too."""
COMPILER = "cutlass.base_dsl.dsl"
"""And what compiles a function of the host as it is called, and calls it with the same arguments."""
_RUNTIME = "libcute_dsl_runtime.so"
_COMPILERS = "CUTE_DSL", "CUTE_EXPERIMENTAL_DSL"
"""What the variables begin with of CuTe DSL's two compilers, the latter for cutlass.cute.experimental."""


def prepare(module: ModuleType) -> None:
    """Have CuTe DSL, which has imported no more than ``FIRST``, find the driver of this process."""
    from ptxlab.clients.driver.library import loaded

    library = loaded()
    ask_for(library.path, library.gpu.target.name)


def ask_for(driver: Path, arch: str) -> None:
    """Say by CuTe DSL's own variables what it compiles for, what its code calls, and that its PTX is kept."""
    import nvidia_cutlass_dsl

    folders = (Path(folder) for folder in nvidia_cutlass_dsl.__path__)
    own = [str(file) for folder in folders for file in folder.glob(f"cu*/lib/{_RUNTIME}")]
    for compiler in _COMPILERS:
        os.environ[f"{compiler}_LIBS"] = os.pathsep.join([str(driver), *own[:1]])
        os.environ[f"{compiler}_ARCH"] = arch
        os.environ[f"{compiler}_KEEP_PTX"] = "1"
        os.environ[f"{compiler}_LINEINFO"] = "1"
        os.environ.setdefault(f"{compiler}_DUMP_DIR", str(driver.parent))  # removed with the driver


def load_ptx(executor: ModuleType) -> None:
    """Have CuTe DSL's module ``EXECUTOR`` give the driver the PTX that machine code was made from, beside that.

    And the names of the tensors that a compiled function is called with.
    """
    _with_ptx(executor.CudaDialectJitCompiledFunction, "_load_cuda_library")
    generate = executor.ExecutionArgs.generate_execution_args

    @wraps(generate)
    def generate_named(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _name(called.signature, args, kwargs)
        return generate(called, args, kwargs)

    executor.ExecutionArgs.generate_execution_args = generate_named


def name_when_compiled(compiler: ModuleType) -> None:
    """Have CuTe DSL's module ``COMPILER`` do the latter for a function that is compiled as it is called."""
    generate = compiler.BaseDSL.generate_mlir_function_types

    @wraps(generate)
    def generate_named(
        dsl: Any,
        function: Any,
        name: str,
        args: Any,
        kwargs: Any,
        signature: Signature,
        *others: Any,
    ) -> Any:
        _name(signature, args, kwargs)
        return generate(dsl, function, name, args, kwargs, signature, *others)

    compiler.BaseDSL.generate_mlir_function_types = generate_named


def load_ptx_when_called(provider: ModuleType) -> None:
    """Have CuTe DSL's module ``PROVIDER`` do so, whose functions load their machine code when they are first called."""
    for function in (
        provider.TVMFFIJitCompiledFunction,
        provider.TVMFFIJitCompiledFunctionWithKwargs,
    ):
        _with_ptx(function, "__call__")


def text_of(ptx: str | None) -> str:
    """Return PTX. Where that is the name of a file there is none of it: the one of sm_110a is called after sm_101a."""
    if not ptx or "\n" in ptx:
        return ptx or ""
    older = Path(ptx.replace(".sm_110", ".sm_101"))
    return older.read_text() if older.is_file() else ""


def _with_ptx(function: Any, name: str) -> None:
    """Wrap the method of a compiled function in which the driver is given its machine code."""
    from ptxlab.clients.driver.library import loaded

    gpu, method = loaded().gpu, getattr(function, name)

    @wraps(method)
    def wrapped(compiled: Any, *arguments: Any, **named: Any) -> Any:
        gpu.made_of = text_of(compiled.__ptx__)
        _name(compiled.execution_args.signature, arguments, named)
        try:
            return method(compiled, *arguments, **named)
        finally:
            gpu.made_of = ""

    setattr(function, name, wrapped)


def _name(signature: Signature, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    """Have the driver call tensors by the arguments that they are, where there are any."""
    from ptxlab.clients.driver.library import loaded

    given = {**dict(zip(signature.parameters, args, strict=False)), **kwargs}
    if tensors := [named for name, value in given.items() if (named := _tensor(name, value))]:
        loaded().gpu.called = tensors


def _tensor(name: str, value: Any) -> Named | None:
    """Return what an argument is called if it is a tensor, of PyTorch or CuTe DSL, whose elements are whole bytes."""
    try:
        if hasattr(value, "element_type"):
            dtype, nbits = value.element_type.__name__.lower(), value.element_type.width
            address, shape, strides = value.data_ptr, value.shape, value.stride
        else:
            dtype, nbits = str(value.dtype).removeprefix("torch."), 8 * value.itemsize
            address, shape, strides = value.data_ptr(), value.shape, value.stride()
    except (AttributeError, TypeError):  # a number, a pointer, a stream
        return None
    if nbits % 8:
        return None
    elements = Elements(name, address, nbits // 8, tuple(strides), tuple(shape), dtype)
    return Named(f"argument {name}, {dtype}{list(shape)}", elements)
