"""A kernel's machine code as the body of a kernel in PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.errors import Location, Unsupported
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import Target
from ptxlab.machine.flow import NotFollowed
from ptxlab.machine.hazards import HazardCheck
from ptxlab.machine.image import KernelImage, ModuleImage
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.latencies import Latencies
from ptxlab.machine.launch import constant_bank
from ptxlab.machine.lift.banks import (
    DYNAMIC_NAME,
    RESERVED_NAME,
    SHARED_NAME,
    STACK_NAME,
    ConstantBanks,
    Placed,
)
from ptxlab.machine.lift.code import PROVIDED, CodeAddresses, code_addresses
from ptxlab.machine.lift.listing import Listing
from ptxlab.machine.lift.operations.control import label
from ptxlab.machine.lift.table import RULES
from ptxlab.machine.lift.writer import FALSE, TEMPORARIES, TRUE, Writer
from ptxlab.machine.sass import NAMELESS
from ptxlab.toolchain.constant_memory import ADDRESSES, VARIABLES

_STACK_ALIGNMENT = 16
_CALLED_STACK = 1024
"""Bytes of the stack that functions have which a kernel calls, beside its own."""

_BANK_NAME = re.compile(r"(?P<bank>U?[RPB])(?:\d+|pc_\w+)$")
_TYPES = {"R": "b32", "UR": "b32", "P": "pred", "UP": "pred", "B": "b32"}


@dataclass(frozen=True, slots=True)
class LiftedBody:
    """The lines between the braces of a kernel, and which line of the listing each comes from, 0 for none.

    ``declarations`` stand before the kernel.
    """

    declarations: list[str]
    lines: list[str]
    origins: list[int]


def lift_body(
    module: ModuleImage,
    kernel: KernelImage,
    parameters: Sequence[Placed],
    listing: Listing,
    *,
    checked: bool = False,
) -> LiftedBody:
    """Return the body of a kernel. Raises Unsupported for what no rule lifts, by its line in the listing.

    Of machine code that is ``checked`` an instruction is refused too which does not wait for what it reads or overwrites.
    """
    code = kernel.code
    stack = _stack(kernel, code)
    addresses = code_addresses(kernel, code)
    banks = _banks(module, kernel, parameters, stack, addresses)
    writer = Writer(module.target, banks, addresses)
    first = listing.add(kernel)
    targets = {i.target for i in code if i.target is not None}
    targets |= {number for i in code for number in i.targets} | {*addresses.called}
    targets |= {number for numbers in addresses.returns.values() for number in numbers}
    early = _too_early(code, module.target) if checked else {}
    for i in code:
        writer.begin(i)
        if i.number in targets:
            writer.raw(f"{label(i.number)}:")
        try:
            rule = RULES.get(i.sass.opcode)
            if i.number in early:
                raise Unsupported(
                    early[i.number], hint="ptxlab check of the file says what is missing"
                )
            if i.sass.opcode == NAMELESS:
                raise writer.refused("nvdisasm knows no such instruction of this chip")
            if rule is None:
                raise writer.refused(f"{i.sass.opcode} is not modelled")
            rule(writer)
            writer.end()
        except Unsupported as error:
            line = first[i.number]
            location = Location(listing.path, line, 1, listing.lines[line - 1])
            raise Unsupported(error.message, location=location, hint=error.hint) from None
    writer.begin(code[-1])
    if len(code) in targets:
        writer.raw(f"{label(len(code))}:")
    writer.raw("trap;")
    head = _head(writer, banks, kernel, stack)
    return LiftedBody(
        [*banks.tables.values(), *map(_declared, addresses.provided)],
        [*head, *writer.lines],
        [0] * len(head) + [first[number] for number in writer.numbers],
    )


def _declared(name: str) -> str:
    """Declare a function that the driver provides."""
    taken, returned = PROVIDED[name]
    parameters = ", ".join(f".param .b{kind[1:]} p{n}" for n, kind in enumerate(taken))
    result = f"(.param .{returned} r) " if returned else ""
    return f".extern .func {result}{name}({parameters});"


def _stack(kernel: KernelImage, code: Sequence[DecodedInstruction]) -> int:
    """Return how many bytes of local memory the stack needs."""
    calls = any(i.does == "call" for i in code)
    needed = kernel.entry.used.stack + _CALLED_STACK * calls
    accessed = any(i.known.space == "local" for i in code if i.row is not None)
    return -(-needed // _STACK_ALIGNMENT) * _STACK_ALIGNMENT if needed or accessed else 0


def _banks(
    module: ModuleImage,
    kernel: KernelImage,
    parameters: Sequence[Placed],
    stack: int,
    code: CodeAddresses,
) -> ConstantBanks:
    addresses = {
        reference.offset: (reference.symbol, reference.addend)
        for reference in kernel.references.get(ADDRESSES, ())
    }
    literals = {
        bank: data
        for bank, data in kernel.constants.items()
        if bank not in (VARIABLES, ADDRESSES) and not kernel.references.get(bank)
    }
    variables = [
        Placed(variable.name, variable.start, len(variable.data))
        for variable in module.variables.values()
        if variable.space == "const"
    ]
    return ConstantBanks(
        constant_bank(module.target),
        parameters,
        stack,
        literals,
        variables,
        addresses,
        code.named,
        kernel.name,
    )


def _head(writer: Writer, banks: ConstantBanks, kernel: KernelImage, stack: int) -> list[str]:
    """Return the declarations, and what is done before the first instruction."""
    named: dict[str, list[str]] = {}
    for name in sorted(writer.written - {TRUE, FALSE}):
        if name in banks.names:
            continue
        match = _BANK_NAME.match(name)
        assert match is not None, name
        named.setdefault(_TYPES[match["bank"]], []).append(name)
    lines = [f".reg .{kind} {', '.join(names)};" for kind, names in named.items()]
    for letter, count in writer.most.items():
        lines.append(f".reg .{TEMPORARIES[letter]} {letter}<{count}>;")
    lines += [".reg .b32 rest;", ".reg .b64 wide;", ".reg .pred launched, begins, true, false;"]
    for name, kind in (banks.names | writer.special).items():
        lines.append(f".reg .{kind} {name};")
    lines += [f".param .{kind} {name};" for name, kind in writer.arguments.items()]
    if stack:
        lines.append(f".local .align {_STACK_ALIGNMENT} .b8 {STACK_NAME}[{stack}];")
    if _reserved(writer.target):
        lines.append(f"mov.u32 rest, {RESERVED_NAME};")
    if kernel.entry.used.shared:
        lines.append(f"mov.u32 rest, {SHARED_NAME};")
    lines.append(f"mov.u32 rest, {DYNAMIC_NAME};")
    lines += [*banks.prologue, *writer.first]
    if writer.written & {TRUE, FALSE}:
        lines += ["mov.u32 rest, 0;", "setp.eq.u32 true, rest, 0;", "setp.ne.u32 false, rest, 0;"]
    return lines


def shared_declarations(kernel: KernelImage, target: Target) -> list[str]:
    """Return the shared memory of a kernel in PTX: what is reserved before it, its own, and what a launch adds."""
    static, reserved = kernel.entry.used.shared, _reserved(target)
    own = [f".shared .align 16 .b8 {SHARED_NAME}[{static}];"] if static else []
    if reserved:
        own.insert(0, f".shared .align {reserved} .b8 {RESERVED_NAME}[{reserved}];")
    return [*own, f".extern .shared .align 16 .b8 {DYNAMIC_NAME}[];"]


def _reserved(target: Target) -> int:
    return MULTIPROCESSORS[target.capability].shared_base


def _too_early(code: Sequence[DecodedInstruction], target: Target) -> dict[int, str]:
    """Say by number of which instructions nobody knows what they read: they do not wait for others."""
    try:
        hazards = HazardCheck(code, Latencies(target.capability)).run()
    except NotFollowed:
        return {}
    return {
        hazard.later.number: f"'{hazard.later.sass.text}' does not wait for '{hazard.earlier.sass.text}' at "
        f"{hazard.earlier.sass.address:#06x}: what a GPU does then is not defined"
        for hazard in hazards
    }


def runs_on(target: Target) -> str:
    return f".version 9.3\n.target {target.name}\n.address_size 64\n"
