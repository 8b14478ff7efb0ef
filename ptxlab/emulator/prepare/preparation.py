"""From a syntax tree to a program: every instruction is bound, checked and legal before any runs."""

from __future__ import annotations

from collections.abc import Sequence

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.operations.control import End, Jump, Return
from ptxlab.emulator.operations.exits import build_exit
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.flatten import Body, flatten
from ptxlab.emulator.prepare.legality import legal_form
from ptxlab.emulator.prepare.liveness import Flow, Uses, live_out, with_drops
from ptxlab.emulator.prepare.names import function_address
from ptxlab.emulator.prepare.program import Block, Exit, Function, Program, Step
from ptxlab.emulator.prepare.row import Form, UnknownForm
from ptxlab.emulator.prepare.scope import Scope, Site, Variable, declare_registers, size_of
from ptxlab.emulator.prepare.steps import Guarded, InTurn, alu_step
from ptxlab.emulator.prepare.variables import module_variables
from ptxlab.emulator.run.registers import FrameLayout, Source
from ptxlab.emulator.run.watch import WatchedExit, WatchedStep
from ptxlab.isa.targets import Target
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree
from ptxlab.syntax.functions import parameters


def prepare(module: tree.Module, target: Target, *, watched: bool = False) -> Program:
    """Prepare all functions of ``module`` to run as on ``target``, ``watched`` or not.

    Raises Unsupported or PtxSyntaxError for the first instruction that cannot run, by name and line.
    """
    variables = module_variables(module)
    bodies = {f.name: f for f in module.functions if f.body is not None}
    declared = {f.name: f for f in module.functions} | bodies
    functions: dict[str, Function] = {}
    for name, function in bodies.items():
        context = Context(
            target, module.version, module.source, variables.known, declared, functions
        )
        functions[name] = _function(context, function, variables.shared_bytes, watched=watched)
    addresses = {name: function_address(declared, name) for name in declared}
    return Program(module, target, functions, addresses, variables.in_memory, watched)


def _function(context: Context, function: tree.Function, shared: int, *, watched: bool) -> Function:
    """Flatten a function, cut it into blocks, bind each instruction, and drop dead registers."""
    assert function.body is not None
    outer = Scope()
    context.scope = outer
    parameter_bytes = _kernel_parameters(function, outer) if function.is_entry else 0
    arguments = () if function.is_entry else function.parameters
    argument_slots = tuple(_argument(context, outer, d) for d in arguments)
    result_slots = tuple(_argument(context, outer, d) for d in function.results)
    body = flatten(context, function.body, Scope(outer), shared)
    forms = []
    for instruction, scope in body.instructions:
        context.begin(instruction, scope)
        forms.append(legal_form(context))
    spans = _spans(body, forms)
    flows = [Flow() for _ in spans]
    bound = [
        _block(context, body, forms, spans, number, flow, function, watched=watched)
        for number, flow in enumerate(flows)
    ]
    keep = context.pinned | (set(range(len(context.initial))) - context.droppable)
    for (block, last), flow, live in zip(bound, flows, live_out(flows), strict=True):
        block.steps = (block.steps if watched else with_drops(block.steps, flow, live, keep)) + last
    return Function(
        name=function.name,
        is_entry=function.is_entry,
        blocks=[block for block, _ in bound],
        frame=FrameLayout(context.initial, argument_slots, result_slots, body.local_bytes),
        shared_bytes=body.shared_bytes,
        parameter_bytes=parameter_bytes,
    )


def _kernel_parameters(function: tree.Function, scope: Scope) -> int:
    """Declare the parameters of a kernel and return the size of its parameter block."""
    end = 0
    for parameter in parameters(function):
        scope.variables[parameter.name] = Variable(
            "param", parameter.name, parameter.offset, parameter.size
        )
        end = parameter.offset + parameter.size
    return end


def _argument(context: Context, scope: Scope, declaration: tree.Declaration) -> int:
    """Declare a parameter or result of a device function and return its register."""
    [declarator] = declaration.names
    if declaration.space == "reg":
        declare_registers(scope, declaration, context.new_slot)
        slot = scope.registers[declarator.name].slot
        context.pinned.add(slot)
        return slot
    size = size_of(declaration, declarator, TYPES[declaration.type].bytes)
    slot = context.argument_slot(size)
    scope.variables[declarator.name] = Variable("call", declarator.name, slot, size)
    return slot


def _spans(body: Body, forms: Sequence[Form]) -> list[range]:
    """Cut at labels, after exits, and before what must wait for the rest of a warp."""
    count = len(body.instructions)
    starts = {0, count} | {position for _, _, position in body.labels}
    for position, form in enumerate(forms):
        if form.row.collective:
            starts.add(position)
        if form.row.exit:
            starts.add(position + 1)
    ordered = sorted(starts)
    number = {position: index for index, position in enumerate(ordered)}
    for scope, name, position in body.labels:
        scope.labels[name] = number[position]
    return [range(a, b) for a, b in zip(ordered, [*ordered[1:], count], strict=True)]


def _block(
    context: Context,
    body: Body,
    forms: Sequence[Form],
    spans: list[range],
    number: int,
    flow: Flow,
    function: tree.Function,
    *,
    watched: bool,
) -> tuple[Block, list[Step]]:
    """Bind the instructions of one block, and note in ``flow`` what they read and write.

    The steps that belong to its exit come apart: nothing that the exit reads may be dropped before.
    """
    steps: list[Step] = []
    leaving: list[Step] = []
    polls = False
    following = number + 1
    last = following == len(spans)
    in_entry = function.is_entry
    exit: Exit = (End() if in_entry else Return()) if last else Jump(following)
    ends = last and in_entry
    flow.successors = () if last else (following,)
    for position in spans[number]:
        instruction, scope = body.instructions[position]
        context.begin(instruction, scope, position - spans[number].start)
        polls |= _polls(instruction)
        guard = _guard(context)
        form = forms[position]
        if form.row.exit:
            exit, flow.successors = build_exit(context, form, guard, following, in_entry=in_entry)
            ends = isinstance(exit, End)
            leaving = [_guarded(step, guard) for step in context.prologue]
        else:
            steps.append(_step(context, form, guard))
        reads, writes = frozenset(context.reads), frozenset(context.writes)
        flow.uses.append(Uses(reads, writes, guard is not None))
        if watched:
            site = Site(position, function.name, instruction, scope, reads, writes)
            if form.row.exit:
                exit = WatchedExit(exit, guard, site)
            else:
                steps[-1] = WatchedStep(steps[-1], guard, site)
    line = body.instructions[spans[number].start][0].position.line if spans[number] else 0
    participants = getattr(steps[0], "participants", None) if steps else None
    ends = ends and not (steps or leaving)
    return Block(steps, exit, line, participants, polls, len(spans[number]), ends), leaving


def _polls(instruction: tree.Instruction) -> bool:
    """Say whether this may be how a thread waits for another one."""
    waiting = {"volatile", "relaxed", "acquire"}
    return instruction.opcode == "atom" or not waiting.isdisjoint(instruction.modifiers)


def _step(context: Context, form: Form, guard: Source | None) -> Step:
    """Build the step of the instruction in hand. Raise Unsupported for what no step can do."""
    build = form.row.step or alu_step
    try:
        step: Step = build(context, context.instruction, form)
    except UnknownForm as unknown:
        context.refuse_form(unknown)
    guarded = _guarded(step, guard)
    return InTurn([*context.prologue, guarded]) if context.prologue else guarded


def _guarded(step: Step, guard: Source | None) -> Step:
    return step if guard is None else Guarded(step, guard)


def _guard(context: Context) -> Source | None:
    guard = context.instruction.guard
    if guard is None:
        return None
    name = tree.Name(guard.name, position=guard.position)
    return context.source(tree.Not(name) if guard.negated else name, "pred")
