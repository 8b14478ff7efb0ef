"""Memory fences, trap, and what is for debuggers and profilers.

All threads see one memory, and every access is complete before the next begins, so a fence has
nothing to do. Source: PTX ISA, "membar, fence" and "Miscellaneous Instructions".
"""

from __future__ import annotations

from functools import partial

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Instruction


class Fence:
    """A fence: nothing to wait for."""

    __slots__ = ()

    def run(self, frame: Frame, threads: Threads) -> None:
        """Go on."""


def fence(context: Context, instruction: Instruction, form: Form) -> Step:
    """Order memory accesses, which they are; proxies are not modelled."""
    return Fence()


class Trap:
    """trap, and brkpt where no debugger listens: the kernel stops with an error."""

    __slots__ = ("_line", "_name")

    def __init__(self, name: str, line: int) -> None:
        self._name = name
        self._line = line

    def run(self, frame: Frame, threads: Threads) -> None:
        """Stop the launch in the name of the first thread that is here."""
        wave = frame.wave
        raise LaunchError(
            f"{self._name} in {wave.thread(int(threads.index[0]))}",
            location=wave.locate(self._line),
            hint="the program stops itself here, as a failed check or an unreachable place does",
        )


def trap(context: Context, instruction: Instruction, form: Form) -> Step:
    """Abort execution; brkpt suspends it, for a debugger."""
    return Trap(instruction.opcode, context.line)


def event(context: Context, instruction: Instruction, form: Form) -> Step:
    """Send a signal to a profiler."""
    if len(instruction.operands) != 1:
        context.reject(f"{instruction.name} takes the number or mask of events")
    return Fence()


_order = partial(row, operands="", step=fence, mix="synchronization", fidelity="ordering")
_order("membar.<scope>", scope="cta gl sys")
_order(
    "fence{.<sem>}.<scope>",
    needs={"cluster": "sm_90 7.8"},
    sem="sc acq_rel acquire release",
    scope="cta cluster gpu sys",
)
row("trap", "", step=trap, mix="control")
row("brkpt", "", step=trap, mix="control")
row("pmevent{.mask}", "#u32", step=event, mix="control", fidelity="ordering")
