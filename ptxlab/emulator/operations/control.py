"""bra, brx, exit and the barriers of a CTA: where threads go next, as the exits of blocks.

Calls are another such: see ``call``. Source: PTX ISA, "Control Flow Instructions" and "Parallel
Synchronization and Communication Instructions: bar, barrier".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.operand_check import check_value
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.barriers import Barrier
from ptxlab.emulator.run.code import Converged, Onward, Reduction
from ptxlab.emulator.run.exits import ExitBlocks, Jump, by_value, end
from ptxlab.errors import LaunchError
from ptxlab.syntax import tree

# ---- branches -------------------------------------------------------------------------------


def branch(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Go on at a label."""
    [label] = context.names(1)
    target = context.label(label)
    return Jump(target), (target,)


def table(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Go on at the label that a number chooses from a list. Outside of it is a LaunchError."""
    if len(context.instruction.operands) != 2:
        context.reject(f"{context.instruction.name} takes an index and a list of targets")
    index, name = context.instruction.operands
    labels = context.table(name.text) if isinstance(name, tree.Name) else None
    if not isinstance(labels, tree.BranchTargets):
        context.reject("the name of a .branchtargets list is needed here", name)
    targets = tuple(context.label(target) for target in labels.targets)
    check_value(context, index, "u32")
    source, line = context.source(index, "u32"), context.line

    def leave(group: Converged) -> Sequence[Onward]:
        parts = []
        wave = group.frame.wave
        for chosen, threads in by_value(group, source.read(group.frame.registers)):
            if chosen >= len(targets):
                thread = wave.thread(int(threads.index[0]))
                raise LaunchError(
                    f"brx.idx with index {chosen} of {len(targets)} targets in {thread}",
                    location=wave.locate(line),
                    hint="the behaviour of a GPU is undefined here",
                )
            parts.append(group.part(threads, targets[chosen]))
        return parts

    return leave, targets


def leave_kernel(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """End the threads."""
    return end, ()


row("bra{.uni}", "@label", exit=branch, mix="control", effects=Effects(leads="label"))
row("brx.idx{.uni}", "u32 @list", exit=table, mix="control")
row("exit", "", exit=leave_kernel, mix="control")


# ---- barriers of a CTA ----------------------------------------------------------------------


def barrier(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Arrive at a barrier of the CTA, and stay until all have arrived, or go on without waiting.

    The barrier is for a number of threads of the CTA, or for all of them.
    """
    operands = list(context.instruction.operands)
    mode = form["mode"]
    reduction = _reduction(context, form, operands) if mode == "red" else None
    sources = [context.source(operand, "u32") for operand in operands]
    count = sources[1] if len(sources) == 2 else None
    leave = Barrier(sources[0], count, reduction, mode != "arrive", context.line, following)
    return leave, (following,)


def _reduction(context: Context, form: RowForm, operands: list[tree.Operand]) -> Reduction:
    """Take the destination and the predicate of bar.red from the operands."""
    destination = context.destination(operands.pop(0), form["T"])
    return Reduction(form["op"], context.source(operands.pop(), "pred"), destination)


_barrier = partial(row, exit=barrier, mix="synchronization", needs={"cta": "sm_30 7.8"})
for _opcode, _aligned, _whole in (("bar", "", "aligned"), ("barrier", "{.aligned}", "<aligned>")):
    _meets = Effects(barrier="cta", meets="<mode>", aligned=_whole)
    _meet = partial(_barrier, effects=_meets)
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32<16 u32/32?", mode="sync")
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32<16 u32/32", mode="arrive")
    _reduce = partial(_meet, mode="red")
    _start = _opcode + "{.cta}.<mode>.<op>"
    _reduce(_start + _aligned + ".<T>", "u32<16 u32/32? pred -> T", op="popc", T="u32")
    _reduce(_start + _aligned + ".<T>", "u32<16 u32/32? pred -> T", op="and or", T="pred")
