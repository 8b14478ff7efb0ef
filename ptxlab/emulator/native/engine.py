"""Which blocks run as machine code: those that have run for so long that compiling them pays.

``PTXLAB_ENGINE`` says: ``auto`` as here, where llvmlite is installed; ``array`` none; ``native`` all from
the beginning. Results are the same bits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

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
"""Nanoseconds that all blocks have taken as arrays when the first is compiled, for which LLVM is loaded."""

COMPILING, FUNCTION = 2_000_000, 5
"""Nanoseconds that an instruction takes to be compiled, and of how many instructions a function is worth."""

NEVER = -1


@dataclass(slots=True)
class _Process:
    """What blocks have taken as arrays, and those that were hot: source, function and line.

    These are compiled at once when they come again.
    """

    heat: int = 0
    known: set[tuple[int, str, int]] = field(default_factory=set)


_PROCESS = _Process()


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
    """Note that a block of a function runs for so many threads, and compile it once it is hot.

    It is when it has taken as long as that will take.
    """
    key = hash(frame.wave.module.source.text), function, block.first_line
    known = not block.heat and key in _PROCESS.known
    spent = block.instructions * (STEP + THREAD * threads)
    block.heat += spent
    _PROCESS.heat += spent
    pays = block.heat >= COMPILING * (block.instructions + FUNCTION)
    hot = frame.wave.hot
    if known or not hot or (pays and _PROCESS.heat >= hot):
        from ptxlab.emulator.native.cutting import steps_of

        _PROCESS.known.add(key)
        block.native = steps_of(block, frame.layout)
