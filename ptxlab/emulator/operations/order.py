"""Memory fences, trap, and what is for debuggers and profilers.

All threads see one memory, and every access is complete before the next begins, so a fence has
nothing to do. Source: PTX ISA, "membar, fence" and "Miscellaneous Instructions".
"""

from __future__ import annotations

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Modifiers, step
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Instruction


class Fence:
    """A fence: nothing to wait for."""

    __slots__ = ()

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Go on."""


@step("membar", "fence")
def fence(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """membar.{cta,gl,sys} and fence.{sc,acq_rel,acquire,release}; proxies are not modelled."""
    if instruction.opcode == "membar":
        modifiers.one_of("cta", "gl", "sys")
    else:
        modifiers.one_of("sc", "acq_rel", "acquire", "release", default="acq_rel")
        modifiers.one_of("cta", "cluster", "gpu", "sys")
    return Fence()


class Trap:
    """trap, and brkpt where no debugger listens: the kernel stops with an error."""

    __slots__ = ("_line", "_name")

    def __init__(self, name: str, line: int) -> None:
        self._name = name
        self._line = line

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Stop the launch in the name of the first thread that is here."""
        wave = frame.wave
        raise LaunchError(
            f"{self._name} in {wave.thread(int(lanes.index[0]))}",
            location=wave.program.locate(self._line),
            hint="the program stops itself here, as a failed check or an unreachable place does",
        )


@step("trap", "brkpt")
def trap(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """Trap aborts execution; brkpt suspends it, for a debugger."""
    return Trap(instruction.opcode, context.line)


@step("pmevent")
def event(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """Pmevent: a signal to a profiler."""
    modifiers.take("mask")
    if len(instruction.operands) != 1:
        context.reject(f"{instruction.name} takes the number or mask of events")
    return Fence()
