"""Machine code run for the CTAs that share an SM: which instructions each warp issues, what it asks for.

Integers, addresses, predicates and control flow are computed; what only becomes a result is not. Threads
that stand at the lowest instruction run first, so that those which parted meet again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.prediction.code import Instruction
from ptxlab.prediction.execute import Executor
from ptxlab.prediction.launch import Launch
from ptxlab.prediction.memory import GlobalMemory
from ptxlab.prediction.operands import Immediate
from ptxlab.prediction.requests import Request
from ptxlab.prediction.values import ALL, Array, Where

MOST_STEPS = 3_000_000
"""So many instructions are followed, of all warps that stand together; then something is said to be endless."""


@dataclass(slots=True, eq=False)
class Front:
    """Threads that stand at the same instruction, and what they wait for there."""

    pc: int
    threads: Array
    waits: str = ""
    warps: Array = field(init=False)

    def __post_init__(self) -> None:
        self.warps = np.unique(self.threads // WARP)

    def without(self, ended: Array) -> Front:
        """Return the others, one instruction further."""
        return Front(self.pc + 1, np.setdiff1d(self.threads, ended, assume_unique=True))


@dataclass(slots=True)
class Steps:
    """What was issued, in order: instructions by number, for which warps, and what they asked for.

    ``warps`` is None where it is all of them.
    """

    numbers: list[int] = field(default_factory=list)
    warps: list[Array | None] = field(default_factory=list)
    requests: list[Request | None] = field(default_factory=list)


def run(code: Sequence[Instruction], launch: Launch, ctas: Sequence[int]) -> Steps:
    """Run a kernel's CTAs by number, all on one SM, and return what was issued.

    Raises Unsupported, with the instruction, where something decides that is not known.
    """
    return Machine(code, launch, ctas).run()


class Machine:
    """The threads of some CTAs of a launch, from the first instruction to the last exit."""

    def __init__(self, code: Sequence[Instruction], launch: Launch, ctas: Sequence[int]) -> None:
        self._code = code
        self._executor = Executor(launch, ctas)
        alive = launch.alive(ctas)
        self._threads = len(alive)
        self._alive = alive
        self._fronts = [Front(0, np.flatnonzero(alive))]
        self.steps = Steps()

    @property
    def memory(self) -> GlobalMemory:
        """Global memory, as far as what is in it is known."""
        return self._executor.memory

    def run(self) -> Steps:
        """Run all threads to their end."""
        with np.errstate(over="ignore"):
            while self._fronts:
                self._advance(self._next())
                if len(self.steps.numbers) > MOST_STEPS:
                    raise Unsupported(f"the kernel issues more than {MOST_STEPS:,} instructions")
        return self.steps

    def _next(self) -> Front:
        """Return the threads that run next, joined with all that stand where they do."""
        ready = [front for front in self._fronts if not front.waits]
        if not ready:
            return self._released()
        pc = min(front.pc for front in ready)
        here = [front for front in ready if front.pc == pc]
        if len(here) > 1:
            together = np.sort(np.concatenate([front.threads for front in here]))
            self._fronts = [front for front in self._fronts if front not in here]
            here = [Front(pc, together)]
            self._fronts.append(here[0])
        return here[0]

    def _released(self) -> Front:
        """Let go whom nobody can be waited for any more: who wants to meet others, then barriers."""
        meeting = [front for front in self._fronts if front.waits == "BSYNC"]
        for front in meeting or self._fronts:
            if not meeting or front.pc == min(one.pc for one in meeting):
                front.waits = ""
                front.pc += 1
        return self._next()

    def _advance(self, front: Front) -> None:
        """Run the threads of a front on as long as they stay together and alone."""
        alone = len(self._fronts) == 1
        while True:
            instruction = self._code[front.pc]
            where: Where = ALL if len(front.threads) == self._threads else front.threads
            opcode = instruction.sass.opcode
            flow = _FLOW.get(opcode)
            if flow is None:
                request = self._executor.execute(instruction, where)
                self._record(front, request)
                front.pc += 1
            else:
                self._record(front, None)
                if flow(self, front, instruction, where):
                    return
            if not alone:
                return
            if len(self.steps.numbers) > MOST_STEPS:
                return

    def _record(self, front: Front, request: Request | None) -> None:
        steps = self.steps
        steps.numbers.append(front.pc)
        steps.warps.append(None if len(front.threads) == self._threads else front.warps)
        steps.requests.append(request)

    # Each returns whether the front has changed so that another may be next.

    def _branch(self, front: Front, i: Instruction, where: Where) -> bool:
        if i.target is None:
            raise Unsupported(
                f"'{i.sass.text}' leaves the kernel, and only what is inlined is in the model of time"
            )
        taken = self._taken(i, where, front.threads)
        if len(taken) == len(front.threads):
            front.pc = i.target
            return False
        if not len(taken):
            front.pc += 1
            return False
        self._fronts.remove(front)
        self._fronts += [Front(i.target, taken), front.without(taken)]
        return True

    def _exit(self, front: Front, i: Instruction, where: Where) -> bool:
        taken = self._taken(i, where, front.threads)
        self._alive[taken] = False
        if not len(taken):
            front.pc += 1
            return False
        self._fronts.remove(front)
        if len(taken) < len(front.threads):
            self._fronts.append(front.without(taken))
        return True

    def _barrier(self, front: Front, i: Instruction, where: Where) -> bool:
        if i.has("RED") or not all(isinstance(one, Immediate) for one in i.sources):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        if i.has("ARV"):
            front.pc += 1
            return False
        return self._wait(front, i, where)

    def _wait(self, front: Front, i: Instruction, where: Where) -> bool:
        alone = len(front.threads) == np.count_nonzero(self._alive)
        if alone:
            front.pc += 1
            return False
        front.waits = i.sass.opcode
        return True

    def _taken(self, i: Instruction, where: Where, threads: Array) -> Array:
        """Return the threads for which a branch's guard and its own predicates hold."""
        holds = self._executor.holds(i, where)
        if holds is None:
            raise Unsupported(
                f"'{i.sass.text}' depends on data that is not computed",
                hint="a prediction needs control flow that follows from sizes and arguments",
            )
        return threads if holds is True else threads[holds]


_FLOW = {
    "BRA": Machine._branch,
    "CALL": Machine._branch,
    "EXIT": Machine._exit,
    "BSYNC": Machine._wait,
    "BAR": Machine._barrier,
}
