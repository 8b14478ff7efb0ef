"""What machine code names that lies outside of it: variables, whose addresses are put there, and functions of the driver.

Such a function is called by an address in constant memory: the call is given its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ptxlab.machine import uses
from ptxlab.machine.flow import straight_before
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.lift.banks import named_address
from ptxlab.machine.operands import Immediate, Operand, SassConstant, SassName, SassRegister
from ptxlab.toolchain.constant_memory import ADDRESSES

PRINTS, FAILS = "vprintf", "__assertfail"


def variables_named(code: Sequence[DecodedInstruction]) -> set[str]:
    """Return the names of variables whose addresses instructions have."""
    texts = {o.text for i in code for o in i.operands if isinstance(o, SassName)}
    return {named[0] for text in texts if (named := named_address(text))}


def resolved(
    code: Sequence[DecodedInstruction],
    addresses: Mapping[int, tuple[str, int]],
    variables: Mapping[str, int],
) -> list[DecodedInstruction]:
    """Return the code with the addresses of ``variables`` in it, and with the driver's functions called by name.

    ``addresses`` says of what there are any in constant memory, by their offset in their bank.
    """
    placed = [_placed(i, variables) for i in code]
    names = {i.number: _name(placed, i, addresses) for i in code if i.does == "call"}
    return [
        replace(i, sass=replace(i.sass, operands=(f"`({name})",)))
        if (name := names.get(i.number)) in (PRINTS, FAILS)
        else i
        for i in placed
    ]


def _placed(i: DecodedInstruction, variables: Mapping[str, int]) -> DecodedInstruction:
    def value(operand: Operand) -> Operand:
        named = named_address(operand.text) if isinstance(operand, SassName) else None
        if named is None or named[0] not in variables:
            return operand
        symbol, distance, first = named
        return Immediate(variables[symbol] + distance >> 8 * first & 0xFFFFFFFF)

    operands = tuple(map(value, i.operands))
    if operands == i.operands:
        return i
    return replace(i, operands=operands, sources=tuple(map(value, i.sources)))


def _name(
    code: Sequence[DecodedInstruction],
    call: DecodedInstruction,
    addresses: Mapping[int, tuple[str, int]],
) -> str | None:
    load = _writer(code, call, next(iter(call.operands), None))
    if load is None:
        return None
    constant = next((source for source in load.sources if isinstance(source, SassConstant)), None)
    if constant is None or constant.bank != ADDRESSES:
        return None
    offset = constant.offset
    if constant.register is not None:
        placed = _writer(code, load, constant.register)
        if placed is None or len(placed.sources) != 1:
            return None
        (distance,) = placed.sources
        if not isinstance(distance, Immediate):
            return None
        offset += distance.value
    name, _ = addresses.get(offset, (None, 0))
    return name


def _writer(
    code: Sequence[DecodedInstruction], reader: DecodedInstruction, read: Operand | None
) -> DecodedInstruction | None:
    """Return the last instruction before one, run one behind the other, that writes a register it has read."""
    register = uses.of(read) if isinstance(read, SassRegister) else 0
    before = reversed(straight_before(code, reader.number))
    return next((i for i in before if uses.written(i) & register), None)
