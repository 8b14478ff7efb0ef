"""call and ret, by name or by address, and how arguments and results are passed.

Source: PTX ISA, "Control Flow Instructions: call, ret".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ptxlab.emulator.operations.memory import load_argument, store_argument
from ptxlab.emulator.prepare.context import SINK, Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.operand import agrees
from ptxlab.emulator.prepare.operand_check import check_result, check_value
from ptxlab.emulator.prepare.program import BoundFunction, Program, function_addresses
from ptxlab.emulator.prepare.registers import CallResult, Destination, Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.prepare.scope import (
    MOST_LOCAL_BYTES,
    PASSED,
    Variable,
    alignment_of,
    registers_in,
    size_of,
)
from ptxlab.emulator.run import host
from ptxlab.emulator.run.code import Activation, Caller, Converged, Exit, Onward
from ptxlab.emulator.run.exits import ExitBlocks, Jump, by_value, go_back
from ptxlab.emulator.run.memory import pitched
from ptxlab.errors import LaunchError
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree
from ptxlab.syntax.names import called

MOST_CALLS = 4096
RECURSION_BYTES = 64 * 1024
"""Activations on top of each other, and their local memory: a GPU has 1 KiB unless it is asked for more."""


def _stack_bytes(functions: Mapping[str, BoundFunction]) -> int:
    """Return how much local memory a thread may use: each function's once, and some for recursion."""
    each = sum(function.frame.local_bytes for function in functions.values())
    return min(each + RECURSION_BYTES, MOST_LOCAL_BYTES)


@dataclass(frozen=True, slots=True)
class Call:
    """Call a function of ``program``: ``arguments`` are registers of the caller, as ``results`` are."""

    program: Program
    arguments: tuple[int, ...]
    results: tuple[CallResult, ...]
    following: int
    line: int

    def enter(self, name: str, group: Converged) -> Sequence[Onward]:
        """Move the group into a new activation of the function. Raise LaunchError without a stack."""
        function = group.activation.function.called(name)
        frame, wave = group.frame, group.frame.wave
        base = pitched(frame.local_base + frame.layout.local_bytes)
        top, depth = base + function.frame.local_bytes, group.activation.depth
        if depth >= MOST_CALLS or top > _stack_bytes(self.program.functions):
            raise LaunchError(
                f"stack overflow: {depth + 1} calls deep and {base} bytes of local memory in "
                f"use, in {wave.thread(group.first)}",
                location=wave.locate(self.line),
                hint=f"'{name}' calls itself without end, or its local variables are large",
            )
        caller = Caller(group.activation, self.following, self.results)
        inner = Activation.of(function, wave, base, caller)
        for mine, theirs in zip(function.frame.parameters, self.arguments, strict=True):
            inner.frame.registers[mine] = frame.registers[theirs]
        return (Converged(inner, 0, group.threads, group.ran),)

    def enter_at(self, address: Source) -> Exit:
        """Call the function whose address a register holds, which may differ from thread to thread.

        An address that is none of a function is a LaunchError.
        """
        declared, taken = self.program.declared, len(self.arguments)
        names = {
            at: name
            for name, at in function_addresses(declared).items()
            if declared[name].body is not None
            and sum(map(registers_in, declared[name].parameters)) == taken
        }

        def leave(group: Converged) -> Sequence[Onward]:
            parts: list[Onward] = []
            wave = group.frame.wave
            for at, threads in by_value(group, address.read(group.frame.registers)):
                if at not in names:
                    raise LaunchError(
                        f"call of address {at:#x}, which is no function with these parameters, in "
                        f"{wave.thread(int(threads.index[0]))}",
                        location=wave.locate(self.line),
                        hint="the register must hold the address of a function of this module",
                    )
                parts += self.enter(names[at], group.part(threads))
            return parts

        return leave


def call(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Call a function, by its name or by its address."""
    operands = list(context.instruction.operands)
    results = _group(operands)
    callee = operands.pop(0) if operands else None
    if not isinstance(callee, tree.Name):
        context.reject("the name of a function, or a register with its address, is needed")
    listed = bool(operands) and isinstance(operands[0], tree.Group)
    arguments = _group(operands)
    function = context.function(callee.text)
    if function is not None and function.is_entry:
        context.reject(f"'{callee.text}' is a kernel; a function (.func) is called", callee)
    signature = _signature(context, operands, callee) if function is None else function
    wanted = signature.parameters
    left_out = listed and len(arguments) == len(wanted) - 1 and _is_open(wanted[-1])
    if len(results) != len(signature.results) or len(arguments) + left_out != len(wanted):
        context.reject(
            f"'{callee.text}' takes {len(wanted)} arguments and gives {len(signature.results)} results"
        )
    given = tuple(
        slot
        for operand, declaration in zip(arguments, wanted, strict=not left_out)
        for slot in _arguments(context, operand, declaration)
    )
    if left_out:
        given = (*given, context.argument_slot(0))
    taken = tuple(
        result
        for operand, declaration in zip(results, signature.results, strict=True)
        for result in _results(context, operand, declaration)
    )
    if function is not None and function.body is None:
        context.prologue.append(_host_call(context, function, given, taken))
        return Jump(following), (following,)
    made = Call(context.program, given, taken, following, context.line)
    if function is not None:
        return partial(made.enter, function.name), (following,)
    check_value(context, callee, "u64")
    context.program.by_address = True
    return made.enter_at(context.source(callee, "u64")), (following,)


def _host_call(
    context: Context,
    function: tree.Function,
    arguments: tuple[int, ...],
    results: tuple[CallResult, ...],
) -> host.HostCall:
    """Return the call of a function that the system provides, a step before going on."""
    provided = host.FUNCTIONS.get(function.name)
    if provided is None:
        context.refuse(
            f"a call of '{called(function.name)}', which has no body here,",
            hint=f"provided are {', '.join(host.FUNCTIONS)}",
        )
    size = sum(TYPES[result.type].bytes for result in function.results)
    return host.HostCall(provided, arguments, results[0] if results else None, size, context.line)


def _signature(
    context: Context, operands: list[tree.Operand], callee: tree.Name
) -> tree.Function | tree.CallPrototype:
    """Return what has the signature of an indirect call: its prototype, or one of its functions."""
    if not operands or not isinstance(operands[0], tree.Name):
        context.reject(
            f"'{callee.text}' is not a function, and the call names no prototype", callee
        )
    table = context.table(operands[0].text)
    if isinstance(table, tree.CallPrototype):
        return table
    if isinstance(table, tree.CallTargets):
        targets = [context.function(name) for name in table.targets]
        if targets[0] is not None:
            return targets[0]
    return context.reject("a .callprototype or .calltargets is needed here", operands[0])


def _group(operands: list[tree.Operand]) -> tuple[tree.Operand, ...]:
    """Take a parenthesised list from the front; none is an empty one."""
    if operands and isinstance(operands[0], tree.Group):
        group = operands.pop(0)
        assert isinstance(group, tree.Group)
        return group.elements
    return ()


def _is_open(declaration: tree.Declaration) -> bool:
    """Say whether it is an array whose size each call decides."""
    dimensions = declaration.names[0].dimensions
    return bool(dimensions) and not dimensions[0]


def _arguments(context: Context, operand: tree.Operand, declaration: tree.Declaration) -> list[int]:
    """Return the registers that an argument is passed in, made of a plain value where it is one."""
    variable, kind = _param_variable(context, operand, declaration), TYPES[declaration.type]
    if variable is None:
        parts = []
        for part in _parts(context, operand, declaration):
            check_value(context, part, _checked(declaration))
            parts.append(context.source(part, kind.name))
        if declaration.space == "reg":
            context.pinned.update(source.slot for source in parts)
            return [source.slot for source in parts]
        slot = context.argument_slot(kind.bytes)
        context.prologue.append(store_argument(slot, 0, parts))
        return [slot]
    if declaration.space != "reg":
        return [variable.offset]
    slot = context.new_slot(kind.name)
    context.pinned.add(slot)
    context.prologue.append(load_argument(context, variable, [Destination(slot)], kind.dtype))
    return [slot]


def _results(
    context: Context, operand: tree.Operand, declaration: tree.Declaration
) -> list[CallResult]:
    """Return the registers that take a result, and their dtype where it comes as bytes."""
    variable, kind = _param_variable(context, operand, declaration), TYPES[declaration.type]
    in_register = declaration.space == "reg"
    if variable is not None:
        context.returned.add(variable)
        return [CallResult(variable.offset, keeps_bytes=in_register)]
    taken = []
    for part in _parts(context, operand, declaration):
        check_result(context, part, _checked(declaration))
        slot = context.destination(part, kind.name).slot
        context.pinned.add(slot)
        taken.append(CallResult(slot, None if in_register else kind.dtype))
    return taken


def _parts(
    context: Context, operand: tree.Operand, declaration: tree.Declaration
) -> Sequence[tree.Operand]:
    """Return the registers, as many as are needed, that are named as one; a constant is one."""
    name = operand.text if isinstance(operand, tree.Name) else ""
    if name.partition(".")[2] and context.register(name) is not None:
        context.reject("a call takes a vector as a whole", operand)
    count = registers_in(declaration)
    parts: Sequence[tree.Operand] = context.components(operand)
    parts = parts or [operand] * (count if name == SINK else 1)
    if len(parts) != count:
        passed = (
            "a vector where one register" if count == 1 else f"another operand where a .v{count}"
        )
        context.refuse(f"{passed} is passed", operand)
    in_memory = declaration.space != "reg"
    if in_memory and (
        declaration.names[0].dimensions or _alignment(declaration) > TYPES[declaration.type].bytes
    ):
        what = f"a .param variable is needed here, of {_alignment(declaration)} bytes' alignment"
        context.reject(what, operand)
    return parts


def _checked(declaration: tree.Declaration) -> str:
    """Return the type that a register must have; of a vector ptxas looks at the size alone."""
    kind = TYPES[declaration.type]
    return f"b{kind.bits}" if registers_in(declaration) > 1 else kind.name


def _alignment(declaration: tree.Declaration) -> int:
    return max(alignment_of(declaration), TYPES[declaration.type].bytes)


def _param_variable(
    context: Context, operand: tree.Operand, declaration: tree.Declaration
) -> Variable | None:
    """Return the .param variable that is passed; None when it is a register or a constant.

    Its alignment must be that of the declaration, and its size, where a call does not decide it. Of
    arrays the elements have one type or one of them plain bits, of others the types agree.
    """
    if not isinstance(operand, tree.Name) or context.register(operand.text) is not None:
        return None
    variable = context.variable(operand.text)
    if variable is None or variable.space not in PASSED:
        return None
    name, [declarator] = variable.name, declaration.names
    if variable.space != "call":
        hint = "a call passes .param variables that are declared beside it"
        context.reject(f"'{name}' is a parameter of this function", operand, hint)
    given, wanted = TYPES[variable.type], TYPES[declaration.type]
    if declarator.dimensions:
        fits = given is wanted or "bits" in (given.kind, wanted.kind)
    else:
        fits = agrees(given, wanted, "type", wider=False)
    if not fits or bool(variable.element) != bool(declarator.dimensions):
        taken = f".{wanted.name}[]" if declarator.dimensions else f".{wanted.name}"
        own = f".{given.name}[]" if variable.element else f".{given.name}"
        context.reject(f"'{name}' is a {own}, a {taken} is needed", operand)
    size, alignment = size_of(declaration, declarator), _alignment(declaration)
    if variable.size != size and not _is_open(declaration):
        context.reject(f"'{name}' has {variable.size} bytes, {size} are needed", operand)
    if max(variable.alignment, given.bytes) != alignment:
        context.reject(
            f"'{name}' is aligned to {max(variable.alignment, given.bytes)} bytes, {alignment} are needed",
            operand,
        )
    return variable


def leave_function(context: Context, form: RowForm, following: int) -> ExitBlocks:
    """Go back to where the function was called; at the end of a kernel, end the threads."""
    return go_back, ()


row("call{.uni}", "@function", exit=call, mix="control", effects=Effects(leads="function"))
row("ret{.uni}", "", exit=leave_function, mix="control", effects=Effects(leads="caller"))
