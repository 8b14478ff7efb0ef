"""Machine code run for the CTAs that share an SM: which instructions each warp issues, what it asks for.

Integers, addresses, predicates and control flow are computed; what only becomes a result is not. Threads
that stand at the lowest instruction run first, so that those which parted meet again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import GlobalWords
from ptxlab.machine.operands import Immediate, SassRegister
from ptxlab.machine.values import ALL, Array, Where, warps_of
from ptxlab.prediction.following.execute import Executor
from ptxlab.prediction.following.issue_order import IssueOrder, ThreadGroup
from ptxlab.prediction.following.long_loops import PATIENCE, LongLoop
from ptxlab.prediction.following.periods import Periods
from ptxlab.prediction.following.program_slice import ProgramSlice
from ptxlab.prediction.following.slow_paths import passed_by, prints
from ptxlab.prediction.refusal import NotFollowed, Undecided
from ptxlab.prediction.sm.mbarriers import WAIT, Operation
from ptxlab.prediction.sm.requests import Request
from ptxlab.prediction.sm.warps import Asked

_TOGETHER = ("barrier", "cluster arrive")
"""Count once for a warp, whose lanes wait there for each other."""

BARRIERS = 16
"""Of a CTA."""

_PARTED = "parted"
"""What lanes of a warp wait for there: the others."""

Tell = Callable[[int, Request | Asked], None]
"""Called with a step, by number, and what its instruction asks for."""

MOST_STEPS = 3_000_000
"""So many instructions are followed, of all warps that stand together; then something is said to be endless."""


def run(
    code: Sequence[DecodedInstruction],
    launch: Launch,
    ctas: Sequence[int],
    told: Collection[int] = (),
    measured: bool = False,
) -> IssueOrder:
    """Run a kernel's CTAs by number, all on one SM, and return what was issued.

    What the instructions ``told``, by number, ask memory for is returned, too. ``measured`` says that it is to be run clock by
    clock. Raises Unsupported, with the instruction, where something decides that is not known.
    """
    needed = ProgramSlice(code, addresses=told, floats=launch.floats)
    return Interpreter(code, launch, ctas, needed, told=told, measured=measured).run()


def waits(code: Sequence[DecodedInstruction]) -> bool:
    """Say whether warps of a kernel wait for each other by mbarriers."""
    return any(i.does == "phase" for i in code)


def requests(
    code: Sequence[DecodedInstruction],
    launch: Launch,
    ctas: Sequence[int],
    asked: Array,
    tell: Tell,
    more: Mapping[tuple[int, int], int] | None = None,
) -> None:
    """Run a kernel's CTAs again, and tell what each of the steps ``asked`` about asks memory for.

    ``more`` are the turns that were not followed before, and are not now. Raises Unsupported as ``run`` does.
    """
    needed = ProgramSlice(code, addresses=range(len(code)), floats=launch.floats)
    Interpreter(code, launch, ctas, needed, asked, tell, more or {}).run()


class Interpreter:
    """The threads of some CTAs of a launch, from the first instruction to the last exit.

    Only what is ``needed`` is run, all if that is not said; of the steps ``asked`` about ``tell`` is told the requests, those of the
    instructions ``told`` are kept with the steps. ``more`` are turns that are not followed, as ``IssueOrder`` has them; without it
    those of long loops are not.
    """

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        launch: Launch,
        ctas: Sequence[int],
        needed: ProgramSlice | None = None,
        asked: Array | None = None,
        tell: Tell | None = None,
        more: Mapping[tuple[int, int], int] | None = None,
        told: Collection[int] = (),
        measured: bool = False,
    ) -> None:
        self._code = code
        self._executor = Executor(launch, ctas, any(i.has("2CTA") for i in code))
        alive = launch.alive(ctas)
        self._threads = len(alive)
        self._alive = alive
        self._groups = [ThreadGroup(0, np.flatnonzero(alive))]
        self._at = 0
        self._needed = needed
        self._asked = [] if asked is None else np.unique(asked).tolist()
        self._told = frozenset(told)
        self._last = MOST_STEPS if asked is None else max(self._asked, default=-1)
        self._flow = [i.number for i in code if i.does in _FLOW]
        self._passed_by = passed_by(code)
        self._warps_of_cta = launch.warps
        self._arrived = np.zeros(len(ctas) * BARRIERS, np.int64)
        """Threads at each barrier of each CTA, of those that say how many they wait for."""
        self._memory = {i.number for i in code if i.row is not None and i.row.space}
        self.steps = IssueOrder()
        self._tell: Tell = tell or self.steps.requests.__setitem__
        self._skipped = (
            None if more is None else {first: turns for (first, _), turns in more.items()}
        )
        self._periods: Periods | None = None
        """Of loops in which warps wait for each other."""
        if needed is not None and waits(code):
            self._periods = Periods(
                code, self._executor, needed, self.steps, self._arrived, measured, more
            )
        self._turned: tuple[DecodedInstruction, ThreadGroup] | None = None
        self._turns = 0
        self._lifted: set[tuple[int, int, bool]] = set()
        """Segments of whose instructions the executor knows what they compute."""

    @property
    def memory(self) -> GlobalWords:
        """Global memory, as far as what is in it is known."""
        return self._executor.memory

    def run(self) -> IssueOrder:
        """Run all threads to their end, or until the last step that is asked about."""
        try:
            with np.errstate(all="ignore"):
                self._follow()
        except Unsupported as error:
            raise NotFollowed(error, self._code[self._at]) from None
        return self.steps

    def _follow(self) -> None:
        periods = self._periods
        while True:
            try:
                while self._groups and self.steps.count <= self._last:
                    self._advance(self._next())
                    if periods and periods.overdue:
                        break
                    if self.steps.count > MOST_STEPS:
                        raise Unsupported(
                            f"the kernel issues more than {MOST_STEPS:,} instructions",
                            hint="a smaller problem, or a loop that ends",
                        )
            except Unsupported:
                if not periods or not periods.trying:
                    raise
            if not periods or not periods.trying:
                return
            self._go_on(periods.undone())

    def _next(self) -> ThreadGroup:
        """Return the threads that run next, joined with all that stand where they do."""
        for group in self._groups:
            if group.phases and self._executor.asynchronous.reached(group.phases):
                group.waits, group.phases = "", ()
                group.pc += 1
        self._rejoined()
        ready = [group for group in self._groups if not group.waits]
        if not ready:
            return self._released()
        pc = min(group.pc for group in ready)
        here = [group for group in ready if group.pc == pc]
        if len(here) > 1:
            together = np.sort(np.concatenate([group.threads for group in here]))
            self._groups = [group for group in self._groups if group not in here]
            here = [ThreadGroup(pc, together)]
            self._groups.append(here[0])
        return here[0]

    def _is_torn(self, threads: Array) -> bool:
        """Say whether some lanes of these warps are not among the threads."""
        warps, _ = warps_of(threads)
        return int(self._alive.reshape(-1, WARP)[warps].sum()) > len(threads)

    def _rejoined(self) -> None:
        """Have the parts of warps that stand before a barrier go on together."""
        torn = [group for group in self._groups if group.waits == _PARTED]
        for pc in {group.pc for group in torn}:
            here = [group for group in torn if group.pc == pc]
            together = np.sort(np.concatenate([group.threads for group in here]))
            if not self._is_torn(together):
                self._groups = [group for group in self._groups if group not in here]
                self._groups.append(ThreadGroup(pc, together))

    def _released(self) -> ThreadGroup:
        """Let go whom nobody can be waited for any more: who wants to meet others, then barriers."""
        others = [group for group in self._groups if not group.phases and group.waits != _PARTED]
        if not others:
            self._at = self._groups[0].pc
            raise Unsupported("warps wait for a phase of an mbarrier that nobody ends")
        meeting = [group for group in others if group.waits == "meet"]
        if len(meeting) < len(others):  # who will be met when a phase has ended is waited for
            late = np.concatenate([[-1], *(group.warps for group in self._groups if group.phases)])
            meeting = [group for group in meeting if not np.isin(late, group.warps).any()]
            others = [group for group in others if group.waits != "meet"]
        for group in meeting or others:
            if not meeting or group.pc == min(other.pc for other in meeting):
                if group.barriers is not None:
                    self._arrived[group.barriers] = 0
                group.waits, group.barriers = "", None
                group.pc += 1
        return self._next()

    def _advance(self, group: ThreadGroup) -> None:
        """Run the threads of a group on until they part, end, wait, or come to where others stand."""
        others = [other.pc for other in self._groups if other is not group and not other.waits]
        meeting = min((pc for pc in others if pc > group.pc), default=len(self._code))
        while self.steps.count <= self._last:
            first = group.pc
            flow = self._flow[bisect_left(self._flow, first)]
            where: Where = ALL if len(group.threads) == self._threads else group.threads
            end = min(flow, meeting)
            self._segment(first, end, where)
            warps = None if isinstance(where, slice) else group.warps
            if end == meeting:
                self.steps.add(first, end, warps)
                group.pc = end
                return
            instruction = self._code[flow]
            group.pc = self._at = flow
            if instruction.does in _TOGETHER and self._is_torn(group.threads):
                self.steps.add(first, end, warps)
                group.waits = _PARTED
                return
            if instruction.does == "barrier" and instruction.guard is not None:
                arriving = self._taken(instruction, where, group.threads)
                if len(arriving) < len(group.threads):  # the others pass by
                    self.steps.add(first, end, warps)
                    self._groups.remove(group)
                    self._groups.append(group.without(arriving))
                    if len(arriving):
                        self._groups.append(ThreadGroup(flow, arriving))
                    return
            self.steps.add(first, end + 1, warps)
            if _FLOW[instruction.does](self, group, instruction, where) or others:
                return

    def _segment(self, first: int, end: int, where: Where) -> None:
        """Run what is needed of some instructions in a row."""
        step = self.steps.count - first
        asked = self._asked_in(first, end)
        needed = self._needed.of(first, end, bool(asked)) if self._needed else range(first, end)
        if (first, end, bool(asked)) not in self._lifted:
            self._lifted.add((first, end, bool(asked)))
            every = self._memory.intersection(range(first, end)) if asked else set()
            self._executor.lift(
                [i for number in every.union(needed) if (i := self._code[number]).row]
            )
        if not asked:
            for number in needed:
                self._execute(self._code[number], where, told=False)
            return
        for number in sorted(asked.union(needed)):
            self._at = number
            instruction = self._code[number]
            if number in asked and not instruction.known.asynchronous:
                self._tell(step + number, self._executor.request(instruction, where))
            if number in needed:
                done = self._execute(instruction, where, told=number in asked)
                if number in asked and instruction.known.asynchronous:
                    self._tell(step + number, done)

    def _asked_in(self, first: int, end: int) -> set[int]:
        """Return which instructions of memory, of some in a row, are asked about."""
        if self._told:
            return self._memory & self._told.intersection(range(first, end))
        step = self.steps.count - first
        places = slice(bisect_left(self._asked, step + first), bisect_left(self._asked, step + end))
        return self._memory.intersection(asked - step for asked in self._asked[places])

    def _execute(self, i: DecodedInstruction, where: Where, told: bool) -> Asked:
        self._at = i.number
        if self._periods is not None:
            self._periods.compare(i, where)
        return self._executor.execute(i, where, told)

    # Each returns whether the group has changed so that another may be next.

    def _branch(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        # Whole warps stand here together, as far as there are more lanes to them; the driver's functions are not followed.
        if i.has("DIV") or prints(i):
            group.pc += 1
            return False
        if i.target is None:
            raise Unsupported(
                f"'{i.sass.text}' goes where the machine code does not say, which is not modelled"
            )
        if i.number in self._passed_by:
            group.pc = i.target if self._passed_by[i.number] else i.number + 1
            return False
        taken = self._taken(i, where, group.threads)
        if len(taken) == len(group.threads):
            group.pc = i.target
            return i.target < i.number and self._look_ahead(group, i, where)
        if not len(taken):
            group.pc += 1
            return False
        self._groups.remove(group)
        self._groups += [ThreadGroup(i.target, taken), group.without(taken)]
        return True

    def _look_ahead(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        """Behind a turn of a loop, pass by those that need not be followed."""
        if self._periods is None:
            self._pass_by(group, i, where)
            return False
        others = self._periods.come(i, group, self._groups)
        if others is None:
            return False
        self._go_on(others)
        return True

    def _go_on(self, groups: list[ThreadGroup]) -> None:
        """Have others go on instead."""
        self._groups = groups
        self._alive[:] = False
        for group in groups:
            self._alive[group.threads] = True

    def _pass_by(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> None:
        """Behind a turn of a loop that is alone, pass by those that need not be followed."""
        assert i.target is not None
        first = self.steps.count
        if self._skipped is not None:
            if first in self._skipped:
                self._loop(i, where).skip(self._skipped[first])
            return
        if self._turned != (i, group):
            self._turned, self._turns = (i, group), 0
        self._turns += 1
        alone = self._flow[bisect_left(self._flow, i.target)] == i.number and len(self._groups) == 1
        if self._turns != PATIENCE or not alone:
            return
        loop = self._loop(i, where)
        if turns := loop.coming():
            loop.skip(turns)
            self.steps.more[first, first + i.number + 1 - i.target] = turns

    def _loop(self, branch: DecodedInstruction, where: Where) -> LongLoop:
        assert branch.target is not None
        first, end = branch.target, branch.number
        needed = self._needed.of(first, end, False) if self._needed else range(first, end)
        return LongLoop(self._executor, [self._code[n] for n in needed], branch, where)

    def _return(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        """Go to where a register says, thread by thread."""
        taken = self._taken(i, where, group.threads)
        back = self._executor.address(i, taken)
        self._groups.remove(group)
        if len(taken) < len(group.threads):
            self._groups.append(group.without(taken))
        for number in np.unique(back).tolist():
            if number >= len(self._code):
                raise Unsupported(f"'{i.sass.text}' goes to an address that is no instruction's")
            self._groups.append(ThreadGroup(number, taken[back == number]))
        return True

    def _exit(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        taken = self._taken(i, where, group.threads)
        self._alive[taken] = False
        if not len(taken):
            group.pc += 1
            return False
        self._groups.remove(group)
        if len(taken) < len(group.threads):
            self._groups.append(group.without(taken))
        return True

    def _barrier(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        if i.has("RED"):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        step = self.steps.count - 1
        if self._is_asked(step, i) and isinstance(i.sources[0], SassRegister):
            self._tell(step, self._executor.named(i, where))
        barriers = self._barriers(group, i, where)
        if barriers is not None:
            self._arrive_at(group, i, barriers)
            return True
        if i.has("ARV"):
            group.pc += 1
            return False
        return self._wait(group, i, where)

    def _barriers(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> Array | None:
        """Return at which barrier each warp arrives, None where it is not said how many do."""
        if not isinstance(i.sources[-1], Immediate) or len(i.sources) < 2:
            return None
        numbers = self._executor.value(i.sources[0], where)
        if numbers is None:
            return None
        first = np.searchsorted(group.threads, group.warps * WARP)
        barriers: Array = np.broadcast_to(numbers, group.threads.shape)[first]
        return group.warps // self._warps_of_cta * BARRIERS + barriers

    def _arrive_at(self, group: ThreadGroup, i: DecodedInstruction, barriers: Array) -> None:
        """Have the warps of a group arrive at barriers; those that are complete let go who waits there."""
        (*_, expected) = i.sources
        assert isinstance(expected, Immediate)
        np.add.at(self._arrived, barriers, WARP)
        complete = np.zeros(len(self._arrived), bool)
        complete[barriers] = self._arrived[barriers] >= expected.value
        self._arrived[complete] = 0
        group.barriers, group.waits = barriers, i.does
        for other in list(self._groups):
            if other is group and i.has("ARV"):
                self._let_go(other, np.ones(len(barriers), bool))
            elif other.barriers is not None:
                self._let_go(other, complete[other.barriers])

    def _let_go(self, group: ThreadGroup, going: Array) -> None:
        """Have some of a group's warps go on, and the others wait."""
        assert group.barriers is not None
        if not going.any():
            return
        threads = going[np.searchsorted(group.warps, group.threads // WARP)]
        self._groups.remove(group)
        self._groups.append(ThreadGroup(group.pc + 1, group.threads[threads]))
        if not threads.all():
            left = group.barriers[~going]
            waiting = ThreadGroup(group.pc, group.threads[~threads], group.waits, (), left)
            self._groups.append(waiting)

    def _mbarrier(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        """Go on if the phases have ended that are asked for, or wait until they have."""
        step = self.steps.count - 1
        told = self._is_asked(step, i)
        asked = self._executor.execute(i, where, told)
        if told:
            self._tell(step, asked)
        waits = tuple(
            request for of_warp in asked for request in of_warp if isinstance(request, Operation)
        )
        group.phases = tuple(dict.fromkeys(wait for wait in waits if wait.kind == WAIT))
        if self._executor.asynchronous.reached(group.phases):
            group.phases = ()
            group.pc += 1
            return False
        group.waits = i.does
        return True

    def _is_asked(self, step: int, i: DecodedInstruction) -> bool:
        if self._told:
            return i.number in self._told
        at = bisect_left(self._asked, step)
        return at < len(self._asked) and self._asked[at] == step

    def _arrive(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        group.pc += 1
        return False

    def _wait(self, group: ThreadGroup, i: DecodedInstruction, where: Where) -> bool:
        alone = len(group.threads) == np.count_nonzero(self._alive)
        if alone:
            group.pc += 1
            return False
        group.waits = i.does
        return True

    def _taken(self, i: DecodedInstruction, where: Where, threads: Array) -> Array:
        """Return the threads for which a branch's guard and its own predicates hold."""
        holds = self._executor.holds(i, where)
        if holds is None:
            raise Undecided(f"'{i.sass.text}' depends on data that is not computed")
        return threads if holds is True else threads[holds]


_FLOW = {
    "branch": Interpreter._branch,
    "call": Interpreter._branch,
    "return": Interpreter._return,
    "exit": Interpreter._exit,
    "meet": Interpreter._wait,
    "barrier": Interpreter._barrier,
    "phase": Interpreter._mbarrier,
    "cluster arrive": Interpreter._arrive,
    "cluster wait": Interpreter._wait,
}
"""What follows what an instruction does to threads."""
