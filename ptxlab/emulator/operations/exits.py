"""bra, brx, call, ret, exit and the barriers of a CTA: the exits of blocks, and where they may lead.

Source: PTX ISA, "Control Flow Instructions" and "Parallel Synchronization and Communication
Instructions: bar, barrier".
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ptxlab.emulator.operations.control import (
    Barrier,
    Branch,
    BranchTable,
    Call,
    End,
    GuardedExit,
    IndirectCall,
    Jump,
    Return,
)
from ptxlab.emulator.operations.parameter import StoreArgument
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.names import function_address
from ptxlab.emulator.prepare.program import Exit, Reduction
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.prepare.scope import Variable, size_of
from ptxlab.emulator.run import host
from ptxlab.emulator.run.registers import CallResult, Source
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree

Plain = Jump | BranchTable | End | Return | Call | IndirectCall | Barrier


def build_exit(
    context: Context, form: Form, guard: Source | None, following: int, *, in_entry: bool
) -> tuple[Exit, tuple[int, ...]]:
    """Return the exit for the instruction in hand, and the blocks it may lead to."""
    assert form.row.exit is not None
    plain: Plain = form.row.exit(context, form, following, in_entry)
    onward = _leads_to(plain)
    if guard is None:
        return plain, onward
    if isinstance(plain, Jump):
        return Branch(guard, plain.target, following), (plain.target, following)
    return GuardedExit(guard, plain, following), tuple({*onward, following})


def _leads_to(plain: Plain) -> tuple[int, ...]:
    if isinstance(plain, Jump):
        return (plain.target,)
    if isinstance(plain, BranchTable):
        return plain.targets
    if isinstance(plain, Call | IndirectCall | Barrier):
        return (plain.following,)
    return ()


def branch(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """Go on at a label."""
    [label] = context.names(1)
    return Jump(context.label(label))


def end(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """End the threads."""
    return End()


def give_back(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """Go back to the caller, or end the threads of a kernel."""
    return End() if in_entry else Return()


def table(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """Go on at the label that a number chooses from a list."""
    if len(context.instruction.operands) != 2:
        context.reject(f"{context.instruction.name} takes an index and a list of targets")
    index, name = context.instruction.operands
    labels = context.table(name.text) if isinstance(name, tree.Name) else None
    if not isinstance(labels, tree.BranchTargets):
        context.reject("the name of a .branchtargets list is needed here", name)
    targets = tuple(context.label(target) for target in labels.targets)
    return BranchTable(context.source(index, "u32"), targets, context.line)


def call(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """Call a function, by its name or by its address."""
    operands = list(context.instruction.operands)
    results = _group(operands)
    callee = operands.pop(0) if operands else None
    if not isinstance(callee, tree.Name):
        context.reject("the name of a function, or a register with its address, is needed")
    arguments = _group(operands)
    function = context.functions.get(callee.text)
    if function is None:
        signature = _signature(context, operands, callee)
    else:
        signature = Signature(function.results, function.parameters)
    passed = _passed(context, callee.text, signature, arguments, results)
    if function is None:
        names = {function_address(context.functions, name): name for name in context.functions}
        address = context.source(callee, "u64")
        return IndirectCall(context.prepared, names, address, *passed, following, context.line)
    if function.body is None:
        return _host_call(context, function, passed, following)
    return Call(context.prepared, function.name, *passed, following, context.line)


def _host_call(
    context: Context,
    function: tree.Function,
    passed: tuple[tuple[int, ...], tuple[CallResult, ...]],
    following: int,
) -> Jump:
    """Call a function that the system provides, as a step before going on."""
    provided = host.FUNCTIONS.get(function.name)
    if provided is None:
        context.refuse(
            f"a call of '{function.name}', which has no body here,",
            hint=f"provided are {', '.join(host.FUNCTIONS)}",
        )
    arguments, results = passed
    size = sum(TYPES[result.type].bytes for result in function.results)
    call = host.HostCall(provided, arguments, results[0] if results else None, size, context.line)
    context.prologue.append(call)
    return Jump(following)


class Signature(NamedTuple):
    """The results and parameters a call is made with."""

    results: tuple[tree.Declaration, ...]
    parameters: tuple[tree.Declaration, ...]


def _signature(context: Context, operands: list[tree.Operand], callee: tree.Name) -> Signature:
    """Return the signature of an indirect call, from its prototype or list of functions."""
    if not operands or not isinstance(operands[0], tree.Name):
        context.reject(
            f"'{callee.text}' is not a function, and the call names no prototype", callee
        )
    table = context.table(operands[0].text)
    if isinstance(table, tree.CallPrototype):
        return Signature(table.results, table.parameters)
    if isinstance(table, tree.CallTargets) and table.targets[0] in context.functions:
        function = context.functions[table.targets[0]]
        return Signature(function.results, function.parameters)
    return context.reject("a .callprototype or .calltargets is needed here", operands[0])


def _passed(
    context: Context,
    callee: str,
    signature: Signature,
    arguments: tuple[tree.Operand, ...],
    results: tuple[tree.Operand, ...],
) -> tuple[tuple[int, ...], tuple[CallResult, ...]]:
    """Return the registers through which a call passes its arguments and results."""
    if len(results) != len(signature.results) or len(arguments) != len(signature.parameters):
        context.reject(
            f"'{callee}' takes {len(signature.parameters)} arguments and gives "
            f"{len(signature.results)} results"
        )
    return (
        tuple(
            _argument(context, operand, declaration)
            for operand, declaration in zip(arguments, signature.parameters, strict=True)
        ),
        tuple(
            _result(context, operand, declaration)
            for operand, declaration in zip(results, signature.results, strict=True)
        ),
    )


def _group(operands: list[tree.Operand]) -> tuple[tree.Operand, ...]:
    """Take a parenthesised list from the front; none is an empty one."""
    if operands and isinstance(operands[0], tree.Group):
        group = operands.pop(0)
        assert isinstance(group, tree.Group)
        return group.elements
    return ()


def _argument(context: Context, operand: tree.Operand, declaration: tree.Declaration) -> int:
    """Return the register that an argument is passed in, made of a plain value where it is one."""
    kind = TYPES[declaration.type]
    if declaration.space == "reg":
        slot = context.source(operand, declaration.type).slot
        context.pinned.add(slot)
        return slot
    variable = _param_variable(context, operand, declaration)
    if variable is not None:
        return variable.offset
    slot = context.argument_slot(kind.bytes)
    source = context.source(operand, declaration.type)
    context.prologue.append(StoreArgument(slot, 0, [source], kind.dtype))
    return slot


def _result(context: Context, operand: tree.Operand, declaration: tree.Declaration) -> CallResult:
    """Return the register that takes a result, and its dtype where it comes as bytes."""
    if declaration.space == "reg":
        slot = context.destination(operand, declaration.type).slot
        context.pinned.add(slot)
        return CallResult(slot)
    variable = _param_variable(context, operand, declaration)
    if variable is not None:
        return CallResult(variable.offset)
    slot = context.destination(operand, declaration.type).slot
    context.pinned.add(slot)
    return CallResult(slot, TYPES[declaration.type].dtype)


def _param_variable(
    context: Context, operand: tree.Operand, declaration: tree.Declaration
) -> Variable | None:
    """Return the .param variable that is passed; None when it is a register or a constant."""
    variable = context.variable(operand.text) if isinstance(operand, tree.Name) else None
    if variable is None or variable.space != "call":
        return None
    [declarator] = declaration.names
    size = size_of(declaration, declarator)
    if variable.size != size:
        context.reject(f"'{variable.name}' has {variable.size} bytes, {size} are needed", operand)
    return variable


def barrier(context: Context, form: Form, following: int, in_entry: bool) -> Plain:
    """Meet the other threads of the CTA, or only say that this one has come."""
    instruction = context.instruction
    operands = list(instruction.operands)
    mode = form["mode"]
    reduction = _reduction(context, form, operands) if mode == "red" else None
    sources = [context.source(operand, "u32") for operand in operands]
    if not 1 + (mode == "arrive") <= len(sources) <= 2:
        context.reject(f"{instruction.name} takes a barrier and a number of threads")
    count = sources[1] if len(sources) == 2 else None
    return Barrier(sources[0], count, mode != "arrive", reduction, following, context.line)


def _reduction(context: Context, form: Form, operands: list[tree.Operand]) -> Reduction:
    """Take the destination and the predicate of bar.red from the operands."""
    if len(operands) < 3:
        context.reject(f"{context.instruction.name} takes a result, a barrier and a predicate")
    destination = context.destination(operands.pop(0), form["T"])
    return Reduction(form["op"], context.source(operands.pop(), "pred"), destination)


row("bra{.uni}", "@label", exit=branch, mix="control")
row("brx.idx{.uni}", "u32 @list", exit=table, mix="control")
row("call{.uni}", "@function", exit=call, mix="control")
row("ret{.uni}", "", exit=give_back, mix="control")
row("exit", "", exit=end, mix="control")

_meet = partial(row, exit=barrier, mix="synchronization", needs={"cta": "sm_75 7.8"})
for _opcode, _aligned in (("bar", ""), ("barrier", "{.aligned}")):
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32 u32?", mode="sync")
    _meet(_opcode + "{.cta}.<mode>" + _aligned, "u32 u32", mode="arrive")
    _reduce = partial(_meet, mode="red")
    _start = _opcode + "{.cta}.<mode>.<op>"
    _reduce(_start + _aligned + ".<T>", "u32 pred -> T", op="popc", T="u32")
    _reduce(_start + _aligned + ".<T>", "u32 u32? pred -> T", op="and or", T="pred")
