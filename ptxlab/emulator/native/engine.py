"""Which blocks run as machine code: those that have run for so long that compiling them pays.

``PTXLAB_ENGINE`` says: ``auto`` as here, where llvmlite is installed; ``array`` none; ``native`` all from
the beginning. Results are the same bits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ptxlab.emulator.native.heat import ANY, PROCESS, Key, program_key
from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.run.code import BasicBlock, Converged, Routine, Step
from ptxlab.emulator.run.wave import NEVER, Frame
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.installation import adding_extra
from ptxlab.launch_config import LaunchConfig
from ptxlab.native import compiler

VARIABLE = "PTXLAB_ENGINE"
ENGINES = ("auto", "array", "native")

STEP, THREAD, ACCESS = 3000, 1, 16
"""Nanoseconds that an instruction takes as arrays, and besides for each thread of a wave: however few execute
it, what it writes is an array of all. An access to memory takes more."""

HOT = 200_000_000
"""Nanoseconds that all blocks have taken as arrays when the first is compiled, for which LLVM is loaded."""

STOP = 50_000
"""Nanoseconds that it takes besides to stop for a block around which a dispatch loop runs the others."""

FEW = 32
"""Instructions of a block that is known by what they are, not by where they stand: one machine code serves many."""

COMPILING, FUNCTION = 1_000_000, 6
"""Nanoseconds that an instruction takes to be compiled, and of how many instructions a function is worth."""

LOADING = 16
"""How many times sooner machine code is there that an earlier process has left on disk."""


@dataclass(slots=True)
class BlockCode:
    """What there is of a block: its ``steps`` once it is hot.

    ``turns`` is how often threads came back to it in a loop since so many could be made in one call, less the
    ``rest`` that it had when it could not.
    """

    steps: Sequence[Step] | None = None
    turns: int = 0
    rest: int = 1


@dataclass(slots=True)
class RoutineCode:
    """What there is of a routine: of its ``blocks``, by their numbers, and of several together.

    The ``regions`` are by whether they are for some threads only, whether for clusters of several CTAs, and by block.
    """

    blocks: list[BlockCode]
    regions: dict[tuple[bool, bool, int], Any] = field(default_factory=dict)


def code_of(routine: Routine) -> RoutineCode:
    code = routine.engine
    if code is None:
        code = routine.engine = RoutineCode([BlockCode() for _ in routine.blocks])
    assert isinstance(code, RoutineCode)
    return code


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


def missing() -> str | None:
    """Return how machine code is had where ``auto`` does without it; None where it does not, or can have none."""
    if os.environ.get(VARIABLE, "auto") != "auto" or compiler.available():
        return None
    return None if sys.platform == "emscripten" else adding_extra("native")


@contextmanager
def launching(program: Program, config: LaunchConfig) -> Iterator[int]:
    """Yield the threshold of a launch; what gets hot in it is known to later ones."""
    hot = threshold()
    if hot in (NEVER, 0):
        yield hot
        return
    with PROCESS.of_launch(program, config):
        yield hot


def key_of(block: BasicBlock, function: str, frame: Frame) -> Key:
    """Return what a block is known by: several of a line are told apart by the number of their first instruction."""
    wave, first = frame.wave, block.watched[:1]
    number = first[0].site.number if first else -1
    return program_key(wave.module.source.text), wave.target.name, function, number


def steps(group: Converged) -> Sequence[Step]:
    """Return the steps that a group runs of its block."""
    return warm(group) or group.stands_at().steps


def warm(group: Converged, stop: int = 0) -> Sequence[Step] | None:
    """Note that a group runs its block, and return the block's steps once it is hot.

    It is when it has taken as long as compiling it will, with the nanoseconds that it takes to ``stop`` for it.
    """
    code = code_of(group.activation.function).blocks[group.block]
    if code.steps is None and _gets_hot(group, stop):
        code.steps = _steps_of(group.stands_at(), group.frame)
    return code.steps


def warm_ahead(routine: Routine, number: int, frame: Frame) -> None:
    """Have the steps of a block that is known to be hot before a group runs it."""
    code, block = code_of(routine).blocks[number], routine.blocks[number]
    if code.steps is None and _heat_key(block, routine.name, frame) in PROCESS.hot:
        code.steps = _steps_of(block, frame)


def _steps_of(block: BasicBlock, frame: Frame) -> Sequence[Step]:
    from ptxlab.emulator.native.cutting import steps_of

    return steps_of(block, frame.layout, frame.wave.target.name)


def _heat_key(block: BasicBlock, function: str, frame: Frame) -> Key:
    if len(block.watched) > FEW:
        return key_of(block, function, frame)
    names = (instruction.site.instruction.name for instruction in block.watched)
    return ANY, frame.wave.target.name, *names


def _gets_hot(group: Converged, stop: int) -> bool:
    block, frame = group.stands_at(), group.frame
    key = _heat_key(block, group.activation.function.name, frame)
    each = STEP + THREAD * frame.wave.width
    spent = block.instructions * each + block.accesses * ACCESS * frame.wave.width + stop
    PROCESS.spent[key] += spent
    PROCESS.taken += spent
    if PROCESS.taken < frame.wave.hot:
        return key in PROCESS.hot
    cost = frame.wave.hot and COMPILING * (block.instructions + FUNCTION)
    return PROCESS.is_hot(key, cost // LOADING if PROCESS.was_hot(key) else cost)
