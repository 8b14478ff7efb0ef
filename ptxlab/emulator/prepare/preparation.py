"""From a syntax tree to a program: every instruction is bound, checked and legal before any runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.declaration_check import check_constants, check_function, check_module
from ptxlab.emulator.prepare.exits import Jump, build_exit, end, go_back
from ptxlab.emulator.prepare.forms import legal_form
from ptxlab.emulator.prepare.function_check import reject
from ptxlab.emulator.prepare.liveness import BlockFlow, Uses, lasting, live_out, needed, with_drops
from ptxlab.emulator.prepare.names import DeclaredBefore
from ptxlab.emulator.prepare.operand_check import check_operands
from ptxlab.emulator.prepare.program import (
    BasicBlock,
    Bound,
    Exit,
    Participants,
    Program,
    Routine,
    Step,
    declaration_order,
    declared_functions,
)
from ptxlab.emulator.prepare.row import RowForm, UnknownForm
from ptxlab.emulator.prepare.scope import (
    MODULE_SPACES,
    MOST_LOCAL_BYTES,
    Declared,
    Scope,
    Site,
    Variable,
    aligned,
    alignment_of,
    declare_registers,
    declared_variable,
    definitions,
    element_bytes,
    lay_out,
    module_scope,
    names_in,
    registers_in,
    size_of,
)
from ptxlab.emulator.prepare.steps import Passing, alu_step, guarded, in_turn, settle
from ptxlab.emulator.run.registers import Source
from ptxlab.emulator.run.wave import FrameLayout
from ptxlab.garbage import uncollected
from ptxlab.isa.targets import Target
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree
from ptxlab.syntax.functions import parameters
from ptxlab.syntax.names import called

_RECENT: deque[Program] = deque(maxlen=8)
"""What was prepared last: a program that is loaded again goes on with the machine code that it has."""


def prepare(module: tree.PtxModule, target: Target, entry: str) -> Program:
    """Prepare the kernel ``entry`` of ``module``, and what it can reach, to run as on ``target``.

    It reaches what it calls by name and functions whose address it takes, and so do these; where one of
    them calls an address, also those that the module's variables are initialised with.
    Raises Unsupported or PtxSyntaxError for the first instruction that cannot run, by name and line.
    """
    for program in _RECENT:
        if (program.entry, program.target) == (entry, target) and _is(program.module, module):
            return program
    program = _prepared(module, target, entry)
    _RECENT.append(program)
    return program


def _is(old: tree.PtxModule, new: tree.PtxModule) -> bool:
    """Say whether two modules are one text parsed once: a tree that was rewritten has other items."""
    sources = old.source, new.source
    same = old.items is new.items and old == new and sources[0] == sources[1]
    return same and sources[0].arguments == sources[1].arguments


@uncollected()
def _prepared(module: tree.PtxModule, target: Target, entry: str) -> Program:
    variables = module_variables(module)
    declared = declared_functions(module)
    scope = module_scope(module)
    order, bodies = declaration_order(module)

    def complete(program: Program, name: str) -> None:
        """Prepare the function ``name`` and all that it leads to."""
        missing = [name]
        while missing:
            for each in missing:
                before = DeclaredBefore(order, bodies[each])
                body = _Body(Context(program, before), declared[each], Scope(scope))
                program.functions[each] = body.prepared()
            if program.by_address:
                program.reached |= dict.fromkeys(_in_initialisers(module))
            missing = [each for each in program.reached if _is_missing(program, each)]

    program = Program(module, target, entry, declared, complete)
    program.variables |= variables
    complete(program, entry)
    constants = [one for one in program.variables.values() if one[0].space == "const"]
    check_constants(module, constants)
    program.shared = lay_out(program.named)
    most, static = target.shared_bytes, program.shared.static_bytes
    if static > most:
        what = f"kernel {called(entry)} declares {static} bytes of shared memory, {target.name} has {most}"
        reject(
            module, what, declared[entry], "ask for them at the launch, or choose another --arch"
        )
    return program


def module_variables(module: tree.PtxModule) -> dict[str, Declared]:
    """Check what a module declares, and return its variables in global and constant memory by name."""
    check_module(module)
    return {
        name: (declaration, declarator)
        for name, (declaration, declarator) in definitions(module).items()
        if declaration.space in MODULE_SPACES and declaration.type in TYPES
    }


def _is_missing(program: Program, name: str) -> bool:
    function = program.declared.get(name)
    return function is not None and function.body is not None and name not in program.functions


def _in_initialisers(module: tree.PtxModule) -> Iterator[str]:
    """Yield the names that the initialisers of a module's variables mention."""
    for item in module.items:
        if isinstance(item, tree.Declaration):
            for declarator in item.names:
                yield from names_in(declarator.initializer)


_UNDECLARING = (tree.Instruction, tree.Label, tree.Block, tree.Loc, tree.Pragma)
"""Statements after which a block knows the same names."""


class _Body:
    """A function on its way to blocks: its instructions in order, each with the scope it stands in.

    ``scope`` has its parameters; ``labels`` are positions among the instructions, ``local_bytes`` the
    memory that its local variables take. Nested ``{ }`` only matter for names: here they are gone.
    """

    def __init__(self, context: Context, function: tree.Function, scope: Scope) -> None:
        self.context = context
        self.function = function
        self.scope = scope
        self.local_bytes = 0
        self.instructions: list[tuple[tree.Instruction, Scope]] = []
        self.labels: list[tuple[Scope, str, int]] = []

    def prepared(self) -> Routine:
        """Flatten the function, cut it into blocks, bind each instruction, and drop dead registers."""
        function, context = self.function, self.context
        check_function(context.module, function)
        if function.is_entry:
            self._declare_parameters()
        given = () if function.is_entry else function.parameters
        arguments, results = (
            tuple(slot for one in declarations for slot in self._arguments(one, space))
            for declarations, space in ((given, "given"), (function.results, "returned"))
        )
        self._flatten(function.body or (), Scope(self.scope))
        forms = []
        unverified = set()
        for instruction, scope in self.instructions:
            context.begin(instruction, scope)
            form = legal_form(context)
            check_operands(context, form)
            forms.append(form)
            if form.fidelity == "unverified":
                unverified.add(context.line)
        spans = self._spans(forms)
        flows = [BlockFlow() for _ in spans]
        blocks = [self._block(forms, spans, number, flow) for number, flow in enumerate(flows)]
        for block in blocks if context.accumulators else ():
            block.watched = [_settled(one, context.accumulators) for one in block.watched]
        keep = context.pinned | (set(range(len(context.initial))) - context.droppable)
        for block, flow, live in zip(blocks, flows, live_out(flows), strict=True):
            leaving = [step for one in block.watched if one.leaves for step in one.steps]
            staying = [step for one in block.watched if not one.leaves for step in one.steps]
            # Nothing that the exit reads may be dropped before it.
            block.steps = with_drops(staying, flow, live, keep) + leaving
            block.lasting = partial(lasting, flow, live, keep - context.unread)
            block.needed = cache(partial(needed, flow, live, keep - context.unread))
        return Routine(
            name=function.name,
            blocks=blocks,
            frame=FrameLayout(
                context.initial, arguments, results, self.local_bytes, frozenset(context.literals)
            ),
            unverified=frozenset(unverified),
        )

    # ---- declarations ----

    def _declare_parameters(self) -> None:
        """Declare the parameters of a kernel, each at its place in the parameter block."""
        given = zip(parameters(self.function), self.function.parameters, strict=True)
        for found, declaration in given:
            element = element_bytes(declaration, *declaration.names)
            variable = Variable("param", found.name, found.offset, found.size, element=element)
            self.scope.variables[found.name] = variable

    def _arguments(self, declaration: tree.Declaration, space: str) -> list[int]:
        """Declare a parameter or result of a device function and return its registers."""
        [declarator] = declaration.names
        if declaration.space != "reg":
            return [self._passed(self.scope, declaration, declarator, space).offset]
        declare_registers(self.scope, declaration, self.context.new_slot)
        count, name = registers_in(declaration), declarator.name
        names = [name] if count == 1 else [f"{name}.{x}" for x in "xyzw"[:count]]
        slots = [self.scope.registers[each].slot for each in names]
        self.context.pinned.update(slots)
        return slots

    def _passed(
        self, scope: Scope, declaration: tree.Declaration, declarator: tree.Declarator, space: str
    ) -> Variable:
        """Declare a ``.param`` variable of a call or a function, which is a register."""
        size = size_of(declaration, declarator)
        if size > MOST_LOCAL_BYTES:
            what = f".param variable '{declarator.name}' of {size} bytes"
            self.context.refuse(what, declaration)
        slot = self.context.argument_slot(size)
        found = replace(
            declared_variable(declaration, declarator, slot), space=space, type=declaration.type
        )
        scope.variables[declarator.name] = found
        return found

    def _flatten(self, statements: Sequence[tree.Statement], block: Scope) -> None:
        """Take the statements of a block. What it declares is known from there on, its labels everywhere."""
        scope, known_to = block, len(self.instructions)
        for statement in statements:
            if not isinstance(statement, _UNDECLARING) and known_to < len(self.instructions):
                scope, known_to = Scope(scope), len(self.instructions)
            match statement:
                case tree.Instruction():
                    self.context.begin(statement, scope)
                    self.instructions.append((self.context.plain(statement), scope))
                case tree.Label():
                    self.labels.append((block, statement.name, len(self.instructions)))
                case tree.Declaration():
                    self._declare(scope, statement)
                case tree.Block():
                    self._flatten(statement.statements, Scope(scope))
                case tree.BranchTargets() | tree.CallTargets() | tree.CallPrototype():
                    scope.tables[statement.label] = statement

    def _declare(self, scope: Scope, declaration: tree.Declaration) -> None:
        if declaration.space == "reg":
            declare_registers(scope, declaration, self.context.new_slot)
            return
        for declarator in declaration.names:
            match declaration.space:
                case "global" | "const":
                    variable = self._module_variable(declaration, declarator)
                    scope.variables[declarator.name] = variable
                case "param":
                    self._passed(scope, declaration, declarator, "call")
                case "shared":
                    variable = declared_variable(declaration, declarator)
                    scope.variables[declarator.name] = variable
                    self.context.needs_place(variable)  # even if nothing names it, as in ptxas
                case "local":
                    self._local_variable(scope, declaration, declarator)
                case space:
                    what = f".{space} variable '{declarator.name}' inside a function"
                    self.context.refuse(what, declaration)

    def _local_variable(
        self, scope: Scope, declaration: tree.Declaration, declarator: tree.Declarator
    ) -> None:
        offset = aligned(self.local_bytes, alignment_of(declaration))
        variable = declared_variable(declaration, declarator, offset)
        scope.variables[declarator.name] = variable
        self.local_bytes = offset + variable.size

    def _module_variable(
        self, declaration: tree.Declaration, declarator: tree.Declarator
    ) -> Variable:
        """Declare a variable that lives as long as the module, of which only this function knows."""
        key = f"{self.function.name}.{declarator.name}"
        program = self.context.program
        if key in program.variables:
            self.context.refuse(f"a second variable '{declarator.name}' in a function", declaration)
        if program.shared is not None:
            what = f"variable '{declarator.name}' of a function called by an address from elsewhere"
            self.context.refuse(what, declaration)
        program.variables[key] = declaration, declarator
        return replace(declared_variable(declaration, declarator), name=key)

    # ---- blocks ----

    def _spans(self, forms: Sequence[RowForm]) -> list[range]:
        """Cut at labels, after exits, and before what must wait for the rest of a warp."""
        count = len(self.instructions)
        starts = {0, count} | {position for _, _, position in self.labels}
        starts |= {at for at, form in enumerate(forms) if form.row.collective}
        starts |= {at + 1 for at, form in enumerate(forms) if form.row.exit}
        ordered = sorted(starts)
        number = {position: index for index, position in enumerate(ordered)}
        for scope, name, position in self.labels:
            scope.labels[name] = number[position]
        return [range(a, b) for a, b in pairwise([*ordered, count])]

    def _block(
        self, forms: Sequence[RowForm], spans: Sequence[range], number: int, flow: BlockFlow
    ) -> BasicBlock:
        """Bind the instructions of one block, and note in ``flow`` what they read and write."""
        context, span, following = self.context, spans[number], number + 1
        last = following == len(spans)
        exit: Exit = go_back if last else Jump(following)
        flow.successors = () if last else (following,)
        bound: list[Bound] = []
        participants: Participants | None = None
        for position in span:
            instruction, scope = self.instructions[position]
            context.begin(instruction, scope, position - span.start)
            form, guard = forms[position], _guard(context)
            if form.row.exit:
                exit, flow.successors = build_exit(context, form, guard, following)
                own = [_guarded(step, guard) for step in context.prologue]
            else:
                own = [_step(context, form, guard)]
                participants = participants or context.participants  # only a first step has them
            reads, writes = frozenset(context.reads), frozenset(context.writes)
            flow.uses.append(Uses(reads, writes, guard is not None))
            site = Site(position, self.function.name, instruction, scope, reads, writes)
            # What comes before an instruction, or waits for others, has no native form.
            plain = not (context.prologue or context.participants or form.row.exit)
            lowered = context.lowered if plain else None
            bound.append(Bound(site, guard, own, form.row.exit is not None, lowered))
        steps = [step for one in bound for step in one.steps]
        ends = exit is end or (exit is go_back and self.function.is_entry)
        return BasicBlock(
            steps=steps,
            watched=bound,
            exit=exit,
            first_line=bound[0].site.line if bound else 0,
            participants=participants,
            polls=any(_polls(one.site.instruction) for one in bound),
            instructions=len(bound),
            ends=ends and not steps,
        )


def _settled(one: Bound, accumulators: set[int]) -> Bound:
    """Return the instruction behind the end of products whose D it touches, if not to add to it."""
    reads, writes = one.site.reads, one.site.writes
    is_product = one.site.instruction.opcode == "wgmma"
    touched = (reads - writes if is_product else reads | writes) & accumulators
    if not touched:
        return one
    return replace(one, steps=[in_turn([settle(touched), *one.steps])], lowered=None)


def _polls(instruction: tree.Instruction) -> bool:
    """Say whether this may be how a thread waits for another one."""
    waiting = {"volatile", "relaxed", "acquire"}
    return instruction.opcode in ("atom", "nanosleep") or not waiting.isdisjoint(
        instruction.modifiers
    )


def _step(context: Context, form: RowForm, guard: Source | None) -> Step:
    """Build the step of the instruction in hand. Raise Unsupported for what no step can do."""
    build = form.row.step or alu_step
    try:
        step: Step = build(context, form)
    except UnknownForm as unknown:
        context.refuse_form(unknown)
    if guard is not None and context.participants is not None:
        context.participants = Passing(context.participants, guard)
    step = _guarded(step, guard)
    return in_turn([*context.prologue, step]) if context.prologue else step


def _guarded(step: Step, guard: Source | None) -> Step:
    return step if guard is None else guarded(step, guard)


def _guard(context: Context) -> Source | None:
    guard = context.instruction.guard
    if guard is None:
        return None
    name = tree.Name(guard.name, position=guard.position)
    return context.source(tree.Not(name) if guard.negated else name, "pred")
