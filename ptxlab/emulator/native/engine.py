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

COMPILING, FUNCTION = 1_000_000, 6
"""Nanoseconds that an instruction takes to be compiled, and of how many instructions a function is worth."""

NEVER = -1


Key = tuple[str, str, str, int]


@dataclass(slots=True)
class _Process:
    """What all blocks have taken as arrays, and each: by text, target, function and first instruction.

    So a program that is loaded again goes on where it was, and is walked through at once from those
    ``heads`` from which that has paid.
    """

    heat: int = 0
    blocks: dict[Key, int] = field(default_factory=dict)
    heads: set[Key] = field(default_factory=set)


PROCESS = _Process()


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


def key_of(block: BasicBlock, function: str, frame: Frame) -> Key:
    """Return what a block is known by: several of a line are told apart by the number of their first instruction."""
    wave, first = frame.wave, block.watched[:1]
    number = first[0].site.number if first else -1
    return wave.module.source.text, wave.target.name, function, number


def warm(block: BasicBlock, function: str, frame: Frame, threads: int) -> None:
    """Note that a block of a function runs for so many threads, and compile it once it is hot.

    It is when it has taken as long as that will take.
    """
    key = key_of(block, function, frame)
    spent = block.instructions * (STEP + THREAD * threads)
    heat = PROCESS.blocks[key] = PROCESS.blocks.get(key, 0) + spent
    PROCESS.heat += spent
    hot = frame.wave.hot
    pays = heat >= COMPILING * (block.instructions + FUNCTION)
    if not hot or (pays and PROCESS.heat >= hot):
        from ptxlab.emulator.native.cutting import steps_of

        block.native = steps_of(block, frame.layout, frame.wave.target.name)
