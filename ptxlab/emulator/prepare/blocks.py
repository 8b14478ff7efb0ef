"""From a list of instructions to basic blocks: cut, each instruction bound to registers, and what dies in them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ptxlab.emulator.prepare.computation import row_computation
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.flattening import FlatFunction
from ptxlab.emulator.prepare.forms import legal_form
from ptxlab.emulator.prepare.liveness import BlockFlow, Liveness, Uses, live_out
from ptxlab.emulator.prepare.operand_check import check_operands
from ptxlab.emulator.prepare.program import Action, BoundBlock, BoundInstruction
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, UnknownForm
from ptxlab.emulator.prepare.scope import Site
from ptxlab.syntax import tree


def legal_forms(context: Context, flat: FlatFunction) -> list[RowForm]:
    """Return the form of each instruction, which the target has, and whose operands fit."""
    forms = []
    known: dict[tuple[str, tuple[str, ...], int], RowForm] = {}
    for instruction, scope in flat.instructions:
        context.begin(instruction, scope)
        written = instruction.opcode, instruction.modifiers, len(instruction.operands)
        form = known.get(written)
        if form is None:
            form = known[written] = legal_form(context)
        check_operands(context, form)
        forms.append(form)
    return forms


def cut(flat: FlatFunction, forms: Sequence[RowForm]) -> list[range]:
    """Cut at labels, after exits, and before what must wait for the rest of a warp; number the labels."""
    count = len(forms)
    starts = {0, count} | {position for _, _, position in flat.labels}
    starts |= {at for at, form in enumerate(forms) if form.row.collective}
    starts |= {at + 1 for at, form in enumerate(forms) if form.row.exit}
    ordered = sorted(starts)
    number = {position: index for index, position in enumerate(ordered)}
    for scope, name, position in flat.labels:
        scope.labels[name] = number[position]
    return [range(a, b) for a, b in pairwise([*ordered, count])]


def bind(
    context: Context,
    function: str,
    flat: FlatFunction,
    forms: Sequence[RowForm],
    spans: Sequence[range],
) -> list[BoundBlock]:
    """Bind the operands of all instructions to registers, and each to what it does."""
    blocks = []
    for number, span in enumerate(spans):
        following = number + 1 if number + 1 < len(spans) else None
        successors = () if following is None else (following,)
        instructions = []
        for position in span:
            instruction, scope = flat.instructions[position]
            context.begin(instruction, scope, position - span.start)
            form, guard = forms[position], _guard(context)
            action = exit = None
            if form.row.exit is None:
                action = _action(context, form)
            else:
                assert following is not None
                exit, successors = form.row.exit(context, form, following)
                if guard is not None:
                    successors = tuple({*successors, following})
            reads, writes = frozenset(context.reads), frozenset(context.writes)
            site = Site(position, function, instruction, scope, reads, writes)
            instructions.append(
                BoundInstruction(site, guard, context.prologue, action, context.participants, exit)
            )
        blocks.append(BoundBlock(instructions, following, successors))
    return blocks


def _action(context: Context, form: RowForm) -> Action:
    """Build what the instruction in hand does. Raise Unsupported for what cannot be done."""
    build = form.row.step or row_computation
    try:
        action: Action = build(context, form)
    except UnknownForm as unknown:
        context.refuse_form(unknown)
    return action


def _guard(context: Context) -> Source | None:
    guard = context.instruction.guard
    if guard is None:
        return None
    name = tree.Name(guard.name, position=guard.position)
    return context.source(tree.Not(name) if guard.negated else name, "pred")


def find_liveness(context: Context, blocks: Sequence[BoundBlock]) -> list[Liveness]:
    """Find out which registers matter in each block."""
    flows = [
        BlockFlow(
            [
                Uses(each.site.reads, each.site.writes, each.guard is not None)
                for each in block.instructions
            ],
            block.successors,
        )
        for block in blocks
    ]
    keep = context.pinned | (set(range(len(context.initial))) - context.droppable)
    return [
        Liveness(flow, live, keep, context.unread)
        for flow, live in zip(flows, live_out(flows), strict=True)
    ]
