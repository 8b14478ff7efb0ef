"""A program as code: its functions as steps, made when threads first come to them, and kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from functools import cache, partial
from weakref import proxy

from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.prepare.liveness import Liveness
from ptxlab.emulator.prepare.liveness import temporary as temporary_in
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.program import BoundBlock, BoundFunction, BoundInstruction, Program
from ptxlab.emulator.run.code import BasicBlock, Exit, InstructionSteps, Participants, Routine, Step
from ptxlab.emulator.run.exits import Guarded, Jump, end, go_back
from ptxlab.emulator.run.steps import Drop, Passing, in_turn, settle, step_of
from ptxlab.garbage import uncollected
from ptxlab.isa.targets import Target
from ptxlab.syntax import tree

_BESIDE = frozenset({"products", "tensor_work", "signals", "bulk_copies"})
"""Queues whose work, when it lands, has products finish where it must; bulk copies in groups write global memory."""

_RECENT: deque[Executable] = deque(maxlen=8)
"""What was loaded last: a program that is loaded again goes on with the machine code that it has."""


class Executable:
    """A prepared program, and the code of those of its functions that threads have come to.

    A function does not hold the program to whose functions it leads: who holds none of it is rid of it at
    once, without Python's search for garbage.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._routines: dict[str, Routine] = {}
        self._called = partial(Executable.routine, proxy(self))

    def routine(self, name: str) -> Routine:
        """Return the code of a function, made now where it is entered for the first time."""
        routine = self._routines.get(name)
        if routine is None:
            routine = self._routines[name] = _routine(self.program.function(name), self._called)
        return routine


def load(module: tree.PtxModule, target: Target, entry: str) -> Executable:
    """Prepare the kernel ``entry`` of ``module`` to run as on ``target``; see ``prepare``."""
    for executable in _RECENT:
        program = executable.program
        if (program.entry, program.target) == (entry, target) and _is(program.module, module):
            return executable
    executable = Executable(prepare(module, target, entry))
    _RECENT.append(executable)
    return executable


def _is(old: tree.PtxModule, new: tree.PtxModule) -> bool:
    """Say whether two modules are one text parsed once: a tree that was rewritten has other items."""
    sources = old.source, new.source
    same = old.items is new.items and old == new and sources[0] == sources[1]
    return same and sources[0].arguments == sources[1].arguments


@uncollected()
def _routine(function: BoundFunction, called: Callable[[str], Routine]) -> Routine:
    parts = zip(function.blocks, function.liveness, temporary_in(function.liveness), strict=True)
    blocks = [_block(*part, function.is_entry) for part in parts]
    return Routine(function.name, blocks, function.frame, called)


def _block(
    block: BoundBlock, liveness: Liveness, temporary: Set[int], of_kernel: bool
) -> BasicBlock:
    watched = [_steps(instruction, temporary) for instruction in block.instructions]
    staying = sum(not instruction.leaves for instruction in watched)
    drops = dict(liveness.drops(staying))
    steps: list[Step] = []
    for position, instruction in enumerate(watched):
        steps += instruction.steps
        if position in drops:
            steps.append(Drop(drops[position]))
    leave = _exit(block)
    return BasicBlock(
        steps=steps,
        watched=watched,
        exit=leave,
        successors=block.successors,
        lasting=liveness.lasting,
        needed=liveness.needed,
        first_line=watched[0].site.line if watched else 0,
        participants=_participants(block.instructions),
        polls=any(_polls(instruction.site.instruction) for instruction in watched),
        instructions=len(watched),
        accesses=sum(bool(each.lowered and each.lowered.access) for each in watched),
        ends=(leave is end or (leave is go_back and of_kernel)) and not steps,
        beside=cache(lambda: _only_jumps(leave) and all(map(_goes_beside, watched))),
    )


def _only_jumps(leave: Exit) -> bool:
    return isinstance(leave.then if isinstance(leave, Guarded) else leave, Jump)


def _goes_beside(instruction: InstructionSteps) -> bool:
    """Say whether an instruction touches nothing that products do which are under way, or sees to it itself."""
    if instruction.lowered is not None:
        access = instruction.lowered.access
        return access is None or not access.writes or access.space == "global"
    if instruction.leaves:
        return not instruction.steps
    effects, operands = (
        effects_of(instruction.site.instruction),
        instruction.site.instruction.operands,
    )
    queues = {effects.begins, effects.commits, effects.waits} - {""}
    if effects.mbarrier in ("init", "inval") or not queues <= _BESIDE:
        return False
    known = effects.mbarrier or effects.fence or queues
    return bool(known) or not any(isinstance(operand, tree.Address) for operand in operands)


def _steps(instruction: BoundInstruction, temporary: Set[int]) -> InstructionSteps:
    guard, leaves = instruction.guard, instruction.exit is not None
    steps = [step_of(action, guard if leaves else None) for action in instruction.first]
    if instruction.action is not None:
        steps.append(step_of(instruction.action, guard, temporary))
    if instruction.awaited:
        steps.insert(0, settle(instruction.awaited))
    if len(steps) > 1:
        steps = [in_turn(steps)]
    return InstructionSteps(instruction.site, guard, steps, leaves, instruction.lowered)


def _exit(block: BoundBlock) -> Exit:
    """Return the exit of a block: that of its last instruction, or on to what follows."""
    last = block.instructions[-1] if block.instructions else None
    if last is None or last.exit is None:
        return go_back if block.following is None else Jump(block.following)
    if last.guard is None:
        return last.exit
    assert block.following is not None
    return Guarded(last.guard, last.exit, block.following)


def _participants(instructions: Sequence[BoundInstruction]) -> Participants | None:
    """Return who must arrive together at a block: only its first instruction asks for that."""
    for instruction in instructions:
        if instruction.participants is not None:
            guard, participants = instruction.guard, instruction.participants
            return participants if guard is None else Passing(participants, guard)
    return None


def _polls(instruction: tree.Instruction) -> bool:
    """Say whether this may be how a thread waits for another one."""
    waiting = {"volatile", "relaxed", "acquire"}
    return instruction.opcode in ("atom", "nanosleep") or not waiting.isdisjoint(
        instruction.modifiers
    )
