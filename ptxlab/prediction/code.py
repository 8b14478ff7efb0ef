"""A kernel's machine code, decoded: each instruction with its operands and control bits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ptxlab.errors import Unsupported
from ptxlab.prediction.operands import Immediate, Operand, Predicate, SassRegister, read
from ptxlab.toolchain.control import INSTRUCTION_BYTES, Control, control
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.elf import read_elf
from ptxlab.toolchain.sass import SassFunction, SassInstruction

_LEADING = ("PLOP3", "UPLOP3", "R2P")
"""Whose first operands are predicates, of which not all are written."""

_ONE_OUT = ("VOTE", "VOTEU")
"""Which write one predicate and read those behind it."""

_NOTHING_OUT = ("RET", "BAR", "WARPSYNC", "BRX", "JMX", "UTMALDG", "UTMASTG", "UBLKCP", "NANOSLEEP")
"""Whose first register is read."""

_PREDICATE_FIRST = ("LOP3", "ULOP3", "SHFL", "ELECT")
"""Which may write a predicate and name it before the register."""

_CODE_ADDRESS = re.compile(r"32@(?P<half>lo|hi)\(\(?(?:\S+ \+ )?(?P<label>[^@\s]+)@srel\)*$")
_RETURN = re.compile(r"(?P<register>R\d+) (?:0x0|`\(.*\))$")


@dataclass(frozen=True, slots=True)
class DecodedInstruction:
    """One instruction, ``number`` among those of the kernel and what it calls.

    ``dest`` is the register it writes, ``outs`` are the predicates it writes, ``sources`` what it
    reads, ``ins`` the predicates behind them. ``target`` is the number that a branch goes to.
    """

    number: int
    sass: SassInstruction
    control: Control
    guard: Predicate | None
    operands: tuple[Operand, ...]
    dest: SassRegister | None
    outs: tuple[Predicate, ...]
    sources: tuple[Operand, ...]
    ins: tuple[Predicate, ...]
    target: int | None

    def has(self, modifier: str) -> bool:
        return modifier in self.sass.modifiers

    @property
    def takes_pairs(self) -> bool:
        """Whether its sources have 64 bits."""
        compares = self.sass.opcode in ("ISETP", "UISETP")
        return self.has("64") or (compares and (self.has("S64") or self.has("U64")))


class NotFollowed(Unsupported):
    """What keeps a kernel from being predicted, with the ``instruction`` that does."""

    def __init__(self, error: Unsupported, instruction: DecodedInstruction) -> None:
        super().__init__(error.message, location=error.location, hint=error.hint)
        self.instruction = instruction


def called(functions: Mapping[str, SassFunction], kernel: str) -> list[SassFunction]:
    """Return a kernel and behind it the functions that it calls, and that those call."""
    found = [functions[kernel]]
    for function in found:
        for i in function.instructions:
            other = functions.get(i.target or "") if i.opcode == "CALL" else None
            if other is not None and other not in found:
                found.append(other)
    return found


def decode(
    cubin: Cubin, functions: Mapping[str, SassFunction], kernel: str
) -> list[DecodedInstruction]:
    """Decode a kernel of a cubin and what it calls, one behind the other from address 0 on."""
    decoded: list[DecodedInstruction] = []
    bases: dict[str, int] = {}
    chosen = called(functions, kernel)
    for function in chosen:
        bases[function.name] = sum(len(one.instructions) for one in chosen[: len(bases)])
    for function in chosen:
        code, first = _section(cubin, f".text.{function.name}"), bases[function.name]
        places = {name: at // INSTRUCTION_BYTES + first for name, at in function.labels.items()}
        for number, sass in enumerate(function.instructions, first):
            decoded.append(_instruction(number, sass, code, bases | places))
    return decoded


def _section(cubin: Cubin, name: str) -> bytes:
    return next((one.content for one in read_elf(cubin.image).sections if one.name == name), b"")


def _instruction(
    number: int, sass: SassInstruction, code: bytes, places: Mapping[str, int]
) -> DecodedInstruction:
    """Decode an instruction; ``places`` are the numbers of labels and functions that it may name."""
    operands = tuple(_operand(text, places) for text in sass.operands)
    guard = read(sass.guard[1:]) if sass.guard else None
    dest, outs, sources, ins = _roles(sass.opcode, operands)
    return DecodedInstruction(
        number,
        sass,
        control(code[sass.address : sass.address + INSTRUCTION_BYTES]),
        guard if isinstance(guard, Predicate) else None,
        operands,
        dest,
        outs,
        sources,
        ins,
        places.get(sass.target or ""),
    )


def _operand(text: str, places: Mapping[str, int]) -> Operand:
    """Read an operand: half of an address of code, where a function returns to, or any other."""
    if found := _RETURN.match(text):
        return read(found["register"])
    found = _CODE_ADDRESS.match(text)
    if found and found["label"] in places:
        return Immediate(places[found["label"]] * INSTRUCTION_BYTES if found["half"] == "lo" else 0)
    return read(text)


def _roles(
    opcode: str, operands: Sequence[Operand]
) -> tuple[SassRegister | None, tuple[Predicate, ...], tuple[Operand, ...], tuple[Predicate, ...]]:
    """Tell what is written from what is read: results stand first, and predicates read stand last."""
    rest = list(operands)
    first = _predicates(rest[:1]) if opcode in _PREDICATE_FIRST else []
    rest = rest[len(first) :]
    if opcode in _NOTHING_OUT:
        return None, (), tuple(rest), ()
    dest = rest.pop(0) if rest and isinstance(rest[0], SassRegister) else None
    if opcode in _LEADING:
        return None, tuple(one for one in rest[:2] if isinstance(one, Predicate)), tuple(rest), ()
    after = [] if first else _predicates(rest)[: 1 if opcode in _ONE_OUT else None]
    outs = (*first, *after)
    rest = rest[len(after) :]
    ins = tuple(reversed(list(_predicates(rest[::-1]))))
    assert dest is None or isinstance(dest, SassRegister)
    return dest, outs, tuple(rest[: len(rest) - len(ins)]), ins


def _predicates(operands: Sequence[Operand]) -> list[Predicate]:
    return [
        one
        for one in takewhile(lambda one: isinstance(one, Predicate), operands)
        if isinstance(one, Predicate)
    ]
