"""CuPy changed in place: the CUDA runtimes inside its modules are the emulated one, and what it compiles is PTX."""

from __future__ import annotations

import os
import sys
from functools import wraps
from types import ModuleType
from typing import Any

from ptxlab.clients.strings import standing_in

FIRST, RAW = "cupy_backends", "cupy._core.raw"
"""What CuPy imports before anything that has a runtime inside, and before it reads its variables; what has kernels of users."""

_LINES = "-lineinfo", "--generate-line-info"

WITH_RUNTIME = (
    "cupy_backends.cuda.api.runtime", "cupy.cuda.cub", "cupy.cuda.jitify", "cupy.cuda.thrust",
    "cupy.random._generator_api",
)  # fmt: skip
"""The modules of CuPy that have a runtime inside, each its own."""


def prepare(module: ModuleType) -> None:
    """Have CuPy, which has imported no more than ``FIRST``, compile to PTX, whose lines are those of its source."""
    os.environ["CUPY_COMPILE_WITH_PTX"] = "1"


def be_exact(_: ModuleType) -> None:
    """Have CuPy, which has imported ``RAW``, tell of an array where it ends, and of a kernel where it stands.

    A pool, from which CuPy gives memory in pieces of 512 bytes, would hide what lies beyond the end of an array.
    """
    cuda: Any = sys.modules["cupy.cuda"]
    allocated = {"malloc": lambda pool, nbytes: cuda.memory._malloc(nbytes)}
    cuda.MemoryPool = type("MemoryPool", (cuda.MemoryPool,), allocated)
    _compile_with_lines(cuda.compiler)


def _compile_with_lines(compiler: Any) -> None:
    """Have the lines be those of the Python file that has a kernel as a string."""
    compile_source = compiler._compile_module_with_cache

    @wraps(compile_source)
    def compile_placed(source: str, options: tuple[str, ...] = (), **named: Any) -> Any:
        if placed := _placed(source):
            source = placed
            options = (*(option for option in options if option not in _LINES), _LINES[0])
        return compile_source(source, options, **named)

    compiler._compile_module_with_cache = compile_placed


def _placed(source: str) -> str | None:
    """Return a source with its line in the nearest Python file that called and has it, None where none has it."""
    frame = sys._getframe(1)
    while frame is not None:
        if placed := standing_in(frame.f_code.co_filename, source):
            return placed
        frame = frame.f_back  # type: ignore[assignment]
    return None
