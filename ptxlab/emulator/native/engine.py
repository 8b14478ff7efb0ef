"""Which blocks run as machine code: those that have run for so long that compiling them pays.

``PTXLAB_ENGINE`` says: ``auto`` as here, where llvmlite is installed; ``array`` none; ``native`` all from
the beginning. Results are the same bits.
"""

from __future__ import annotations

import os

from ptxlab.emulator.prepare.program import BasicBlock
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.installation import adding_extra
from ptxlab.native import compiler

VARIABLE = "PTXLAB_ENGINE"
ENGINES = ("auto", "array", "native")

STEP, THREAD = 3000, 1
"""Nanoseconds that an instruction takes as arrays, and that it takes for each thread besides."""

HOT = 200_000_000
"""Nanoseconds that a block has taken as arrays when it is compiled, about as long as that takes."""

NEVER = -1

_known: set[tuple[int, str, int]] = set()
"""The blocks that were hot before: source, function and line. They are compiled at once."""


def threshold() -> int:
    """Return from which heat on blocks are compiled, as the environment says.

    Raise PtxlabError for an engine that there is not, DeviceUnavailable without llvmlite where it must be.
    """
    engine = os.environ.get(VARIABLE, "auto")
    if engine not in ENGINES:
        raise PtxlabError(
            f"{VARIABLE} is '{engine}', which is no engine",
            hint=f"engines are {', '.join(ENGINES)}",
        )
    if engine == "array":
        return NEVER
    if not compiler.available():
        if engine == "auto":
            return NEVER
        raise DeviceUnavailable(
            "the native engine needs llvmlite, which is not installed",
            hint=adding_extra("native"),
        )
    return 0 if engine == "native" else HOT


def warm(block: BasicBlock, function: str, frame: Frame, threads: int) -> None:
    """Note that a block of a function runs for so many threads, and compile it once it is hot."""
    key = hash(frame.wave.module.source.text), function, block.first_line
    known = not block.heat and key in _known
    block.heat += block.instructions * (STEP + THREAD * threads)
    if known or block.heat >= frame.wave.hot:
        from ptxlab.emulator.native.cutting import steps_of

        _known.add(key)
        block.native = steps_of(block, frame.layout)
