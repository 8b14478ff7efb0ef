"""A kernel's machine code, decoded: each instruction with its operands, its row and its control bits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from ptxlab.errors import Unsupported
from ptxlab.machine.control import INSTRUCTION_BYTES, Control, control
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import Immediate, Operand, Predicate, SassRegister, read
from ptxlab.machine.row import Row
from ptxlab.machine.sass import SassFunction, SassInstruction
from ptxlab.machine.table import ROWS
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.elf import read_elf

_CODE_ADDRESS = re.compile(r"32@(?P<half>lo|hi)\(\(?(?:\S+ \+ )?(?P<label>[^@\s]+)@srel\)*$")
_NAMED = re.compile(r"[`@\w]\((?P<name>[^()\s]+)\)")
_COMPUTED = re.compile(r"U?R\d+$")
_INDIRECT = re.compile(r"(?P<register>U?R\d+) (?:-?0x[0-9a-f]+|`\(.*\))(?: *\(\*.*\*\))?$")
"""A register that says where to go, and behind it from where on: a function, or a number of bytes."""
_TARGETS = re.compile(r"\(\*\"BRANCH_TARGETS (?P<labels>[^\"]*)\"\*\)$")


def called(
    functions: Mapping[str, SassFunction], kernel: str, addressed: Sequence[str] = ()
) -> list[SassFunction]:
    """Return a kernel and behind it the functions that it names, and that those name.

    Behind a call of an address that is computed also those ``addressed``, whose addresses memory has.
    """
    reached = [functions[kernel]]
    for function in reached:
        for i in function.instructions:
            named = [match["name"] for operand in i.operands for match in _NAMED.finditer(operand)]
            if _calls(i) and any(map(_COMPUTED.match, i.operands)):
                named += addressed
            for other in map(functions.get, named):
                if other is not None and other not in reached:
                    reached.append(other)
    return reached


def _calls(i: SassInstruction) -> bool:
    row = ROWS.get(i.opcode)
    return row is not None and row.does == "call"


def numbers(
    functions: Mapping[str, SassFunction], kernel: str, addressed: Sequence[str] = ()
) -> dict[str, int]:
    """Return the number of the first instruction of a kernel, and of each function behind it."""
    first, bases = 0, {}
    for function in called(functions, kernel, addressed):
        bases[function.name] = first
        first += len(function.instructions)
    return bases


def decode(
    cubin: Cubin,
    functions: Mapping[str, SassFunction],
    kernel: str,
    addressed: Sequence[str] = (),
) -> list[DecodedInstruction]:
    """Decode a kernel of a cubin and what it calls, one behind the other from address 0 on."""
    instructions: list[DecodedInstruction] = []
    bases = numbers(functions, kernel, addressed)
    for name, first in bases.items():
        function, code = functions[name], _section(cubin, f".text.{name}")
        places = {name: at // INSTRUCTION_BYTES + first for name, at in function.labels.items()}
        for number, sass in enumerate(function.instructions, first):
            if sass.address != (at := (number - first) * INSTRUCTION_BYTES):
                raise Unsupported(f"nvdisasm prints no instruction at {at:#06x} of {name}")
            instructions.append(decoded(number, sass, code, bases | places))
    return instructions


def _section(cubin: Cubin, name: str) -> bytes:
    return next(
        (section.content for section in read_elf(cubin.image).sections if section.name == name), b""
    )


def control_bits(cubin: Cubin, function: SassFunction) -> dict[int, Control]:
    """Return the control bits of each instruction of a function, by its address."""
    code = _section(cubin, f".text.{function.name}")
    return {
        each.address: control(code[each.address : each.address + INSTRUCTION_BYTES])
        for each in function.instructions
    }


def decoded(
    number: int, sass: SassInstruction, code: bytes, places: Mapping[str, int]
) -> DecodedInstruction:
    """Decode an instruction; ``places`` are the numbers of labels and functions that it may name."""
    operands = tuple(_operand(text, places) for text in sass.operands)
    guard = read(sass.guard[1:]) if sass.guard else None
    row = ROWS.get(sass.opcode)
    dest, outs, sources, ins = _roles(row, operands)
    return DecodedInstruction(
        number,
        sass,
        row,
        control(code[sass.address : sass.address + INSTRUCTION_BYTES]),
        guard if isinstance(guard, Predicate) else None,
        operands,
        dest,
        outs,
        sources,
        ins,
        places.get(sass.target or ""),
        _targets(sass, places),
    )


def _targets(sass: SassInstruction, places: Mapping[str, int]) -> tuple[int, ...]:
    """Return where a branch may go that goes where a register says, as nvdisasm remarks behind it."""
    told = _TARGETS.search(sass.operands[-1]) if sass.operands else None
    labels = told["labels"].split(",") if told else []
    return tuple(sorted({places[label] for label in labels if label in places}))


def _operand(text: str, places: Mapping[str, int]) -> Operand:
    """Read an operand: half of an address of code, a register that says where to go, or any other."""
    if match := _INDIRECT.match(text):
        return read(match["register"])
    match = _CODE_ADDRESS.match(text)
    if match and match["label"] in places:
        return Immediate(places[match["label"]] * INSTRUCTION_BYTES if match["half"] == "lo" else 0)
    return read(text)


def _roles(
    row: Row | None, operands: Sequence[Operand]
) -> tuple[SassRegister | None, tuple[Predicate, ...], tuple[Operand, ...], tuple[Predicate, ...]]:
    """Tell what is written from what is read, as the row says: register, predicates, sources, and predicates read."""
    rest, stand = list(operands), row.operands if row else "results first"
    if stand == "nothing out":
        return None, (), tuple(rest), ()
    if stand == "a condition":
        read_first = _predicates(rest)
        return None, (), tuple(rest[len(read_first) :]), tuple(read_first)
    first = _predicates(rest[:1]) if stand == "a predicate first" else []
    rest = rest[len(first) :]
    dest = rest.pop(0) if rest and isinstance(rest[0], SassRegister) else None
    if stand == "predicates first":
        return (
            None,
            tuple(operand for operand in rest[:2] if isinstance(operand, Predicate)),
            tuple(rest),
            (),
        )
    after = [] if first else _predicates(rest)[: 1 if stand == "one predicate out" else None]
    outs = (*first, *after)
    rest = rest[len(after) :]
    ins = tuple(reversed(list(_predicates(rest[::-1]))))
    assert dest is None or isinstance(dest, SassRegister)
    return dest, outs, tuple(rest[: len(rest) - len(ins)]), ins


def _predicates(operands: Sequence[Operand]) -> list[Predicate]:
    return [
        operand
        for operand in takewhile(lambda operand: isinstance(operand, Predicate), operands)
        if isinstance(operand, Predicate)
    ]
