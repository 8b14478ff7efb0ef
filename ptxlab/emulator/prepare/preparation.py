"""From a syntax tree to a program: every instruction is bound, checked and legal before any runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ptxlab.emulator.prepare.accumulators import await_products
from ptxlab.emulator.prepare.blocks import bind, cut, find_liveness, legal_forms
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.declaration_check import check_constants, check_function, check_module
from ptxlab.emulator.prepare.flattening import declare_signature, flatten
from ptxlab.emulator.prepare.function_check import reject
from ptxlab.emulator.prepare.names import DeclaredBefore
from ptxlab.emulator.prepare.program import (
    BoundFunction,
    Program,
    declaration_order,
    declared_functions,
)
from ptxlab.emulator.prepare.registers import FrameLayout
from ptxlab.emulator.prepare.scope import (
    MODULE_SPACES,
    Declared,
    Scope,
    definitions,
    lay_out,
    module_scope,
    names_in,
)
from ptxlab.garbage import uncollected
from ptxlab.isa.targets import Target
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree
from ptxlab.syntax.names import called


@uncollected()
def prepare(module: tree.PtxModule, target: Target, entry: str) -> Program:
    """Prepare the kernel ``entry`` of ``module``, and what it can reach, to run as on ``target``.

    It reaches what it calls by name and functions whose address it takes, and so do these; where one of
    them calls an address, also those that the module's variables are initialised with.
    Raises Unsupported or PtxSyntaxError for the first instruction that cannot run, by name and line.
    """
    known = _declarations(module)
    declared, scope = known.functions, module_scope(module)

    def complete(program: Program, name: str) -> None:
        """Prepare the function ``name`` and all that it leads to."""
        missing = [name]
        while missing:
            for each in missing:
                context = Context(program, DeclaredBefore(known.order, known.bodies[each]))
                program.functions[each] = _bound(context, declared[each], Scope(scope))
            if program.by_address:
                program.reached |= dict.fromkeys(_in_initialisers(module))
            missing = [each for each in program.reached if _is_missing(program, each)]

    program = Program(module, target, entry, declared, complete)
    program.variables |= known.variables
    complete(program, entry)
    constants = [each for each in program.variables.values() if each[0].space == "const"]
    check_constants(module, constants)
    program.shared = lay_out(program.named)
    most, static = program.most_shared, program.shared.static_bytes
    if static > most:
        what = f"kernel {called(entry)} declares {static} bytes of shared memory, {target.name} has {most}"
        reject(
            module, what, declared[entry], "ask for them at the launch, or choose another --arch"
        )
    return program


def _bound(context: Context, function: tree.Function, scope: Scope) -> BoundFunction:
    """Make a function's blocks of its text, pass by pass: each takes what others have made, and leaves it."""
    check_function(context.module, function)
    signature = declare_signature(context, function, scope)
    flat = flatten(context, function, scope)
    forms = legal_forms(context, flat)
    spans = cut(flat, forms)
    blocks = await_products(bind(context, function.name, flat, forms, spans), context.accumulators)
    liveness = find_liveness(context, blocks)
    frame = FrameLayout(
        context.initial,
        signature.arguments,
        signature.results,
        flat.local_bytes,
        frozenset(context.literals),
    )
    unverified = {
        instruction.position.line
        for (instruction, _), form in zip(flat.instructions, forms, strict=True)
        if form.fidelity_on(context.target) == "unverified"
    }
    return BoundFunction(
        function.name, function.is_entry, blocks, liveness, frame, frozenset(unverified)
    )


def module_variables(module: tree.PtxModule) -> Mapping[str, Declared]:
    """Check what a module declares, and return its variables in global and constant memory by name."""
    return _declarations(module).variables


@dataclass(frozen=True, slots=True)
class _Declarations:
    """What a module declares, by name, and after how many other items; and where the bodies are."""

    module: tree.PtxModule
    variables: dict[str, Declared]
    functions: dict[str, tree.Function]
    order: dict[str, int]
    bodies: dict[str, int]


_latest: _Declarations | None = None


def _declarations(module: tree.PtxModule) -> _Declarations:
    """Check what a module declares: once for all of its kernels, which are prepared one after another."""
    global _latest
    known = _latest
    if known is None or known.module is not module:
        check_module(module)
        variables = {
            name: (declaration, declarator)
            for name, (declaration, declarator) in definitions(module).items()
            if declaration.space in MODULE_SPACES and declaration.type in TYPES
        }
        functions = declared_functions(module)
        known = _latest = _Declarations(module, variables, functions, *declaration_order(module))
    return known


def _is_missing(program: Program, name: str) -> bool:
    function = program.declared.get(name)
    return function is not None and function.body is not None and name not in program.functions


def _in_initialisers(module: tree.PtxModule) -> Iterator[str]:
    """Yield the names that the initialisers of a module's variables mention."""
    for item in module.items:
        if isinstance(item, tree.Declaration):
            for declarator in item.names:
                yield from names_in(declarator.initializer)
