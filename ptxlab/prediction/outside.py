"""Functions of the driver that a kernel calls by an address in constant memory: the call is given their name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import Immediate, SassConstant, SassRegister
from ptxlab.toolchain.constant_memory import ADDRESSES

PRINTS, FAILS = "vprintf", "__assertfail"


def named(
    code: Sequence[DecodedInstruction], addresses: Mapping[int, tuple[str, int]]
) -> list[DecodedInstruction]:
    """Return the code with those calls named; ``addresses`` says of what there are any, by their offset in their bank."""
    names = {i.number: _name(code, i, addresses) for i in code if i.does == "call"}
    return [
        replace(i, sass=replace(i.sass, operands=(f"`({name})",)))
        if (name := names.get(i.number)) in (PRINTS, FAILS)
        else i
        for i in code
    ]


def _name(
    code: Sequence[DecodedInstruction],
    call: DecodedInstruction,
    addresses: Mapping[int, tuple[str, int]],
) -> str | None:
    load = _writer(code, call, *call.operands[:1])
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
    code: Sequence[DecodedInstruction], reader: DecodedInstruction, *operands: object
) -> DecodedInstruction | None:
    """Return the last instruction before one, run one behind the other, that writes the register it reads."""
    registers = sum(uses.of(each) for each in operands if isinstance(each, SassRegister))
    for i in reversed(code[: reader.number]):
        if i.row is None or i.row.flow:
            return None
        if uses.written(i) & registers:
            return i
    return None
