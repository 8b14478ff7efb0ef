"""CuPy changed in place: the CUDA runtimes inside its modules are the emulated one, and what it compiles is PTX."""

from __future__ import annotations

import os
from types import ModuleType

FIRST = "cupy_backends"
"""What CuPy imports before anything that has a runtime inside, and before it reads its variables."""

WITH_RUNTIME = (
    "cupy_backends.cuda.api.runtime", "cupy.cuda.cub", "cupy.cuda.jitify", "cupy.cuda.thrust",
    "cupy.random._generator_api",
)  # fmt: skip
"""The modules of CuPy that have a runtime inside, each its own."""


def prepare(module: ModuleType) -> None:
    """Have CuPy, which has imported no more than ``FIRST``, compile to PTX, whose lines are those of its source."""
    os.environ["CUPY_COMPILE_WITH_PTX"] = "1"
