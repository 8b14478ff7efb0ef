"""The operands of SASS as nvdisasm writes them: ``R5.reuse``, ``!P0``, ``c[0x0][0x160]``, ``[R4.64+0x8]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

ZERO_REGISTER = 255
TRUE_PREDICATE = 7
UNIFORM = 256
"""Uniform registers are counted from here on, uniform predicates from 8 on."""
UNIFORM_PREDICATE = 8
URZ, UPT = UNIFORM + ZERO_REGISTER, UNIFORM_PREDICATE + TRUE_PREDICATE
RPC = {"Rpc.LO": UNIFORM + 253, "Rpc.HI": UNIFORM + 254}
"""The halves of a register for program counters, in which ptxas keeps two words where it has none left: no others are so high."""


@dataclass(frozen=True, slots=True)
class SassRegister:
    """A register by ``number``; what is done to it first: ``-``, ``~``, ``|R5|``.

    ``wide`` is it and the next, ``part`` some bytes of it. ``marks`` stand behind it: ``H0_H0``, ``U32``.
    """

    number: int
    negated: bool = False
    inverted: bool = False
    absolute: bool = False
    wide: bool = False
    part: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate by ``number``, or its opposite."""

    number: int
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Immediate:
    """A value of 32 bits; ``real`` is the number that a literal is to floating-point instructions.

    Where it has a point, ``value`` are the bits of that number. Of a number of 64 bits, ``upper`` are those above.
    """

    value: int
    real: float = 0.0
    upper: int = 0


@dataclass(frozen=True, slots=True)
class SassConstant:
    """A word of a constant ``bank`` at ``offset``, and behind it where a ``register`` says."""

    bank: int
    offset: int
    register: SassRegister | None = None
    negated: bool = False
    inverted: bool = False
    absolute: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SassAddress:
    """``desc[descriptor][base * scale + uniform + offset]``, or where the descriptor of a matrix is: ``gdesc[UR4]``.

    ``what`` stands before it where that is neither shared nor global memory: ``tmem``, Tensor Memory; ``gdesc``,
    a descriptor of a matrix in shared memory; ``idesc``, one of a product.
    """

    base: SassRegister | None
    scale: int
    uniform: SassRegister | None
    offset: int
    descriptor: SassRegister | None = None
    what: str = ""


@dataclass(frozen=True, slots=True)
class SassName:
    """Anything else: a special register, a label, a scoreboard."""

    text: str


Operand = SassRegister | Predicate | Immediate | SassConstant | SassAddress | SassName

_REGISTER = re.compile(r"(?P<bank>U?)R(?P<number>\d+|Z)(?P<marks>(?:\.\w+)*)$")
_PREDICATE = re.compile(r"(?P<bank>U?)P(?P<number>\d|T)$")
_CONSTANT = re.compile(
    r"c\[(?P<bank>0x[0-9a-f]+)\]\s*\[(?:(?P<register>U?R[\dZ]+)\+?)?(?P<offset>-?0x[0-9a-f]+)?\](?P<marks>(?:\.\w+)*)$"
)
_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
_REAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|INF|QNAN|SNAN)(?:\s.*)?$")
_ELSEWHERE = ("tmem", "gdesc", "idesc")
_WHOLE = {"64", "reuse", "U32", "S32"}
_UNTOLD = {"64", "reuse"}
"""Marks that are no part of a value: told otherwise, or of the register cache."""
_DESCRIPTOR = re.compile(r"desc\[(?P<register>UR[\dZ]+)\]\[")
_SCALE = re.compile(r"\.X(\d+)")


def read(text: str) -> Operand:
    """Read one operand, without what nvdisasm remarks behind it."""
    text = text.partition("(*")[0]
    bare, negated, inverted, absolute = _prefixes(text.strip())
    if bare in RPC:
        return SassRegister(RPC[bare])
    if match := _REGISTER.match(bare):
        names = match["marks"].split(".")[1:]
        marks = tuple(mark for mark in names if not _SCALE.match(f".{mark}"))
        part = bool({*marks} - _WHOLE)
        told = tuple(mark for mark in marks if mark not in _UNTOLD)
        return SassRegister(_number(match), negated, inverted, absolute, "64" in marks, part, told)
    if match := _PREDICATE.match(bare):
        first = UNIFORM_PREDICATE if match["bank"] else 0
        number = TRUE_PREDICATE if match["number"] == "T" else int(match["number"])
        return Predicate(first + number, inverted)
    if match := _CONSTANT.match(bare):
        register = match["register"] and _REGISTER.match(match["register"])
        return SassConstant(
            int(match["bank"], 16),
            int(match["offset"] or "0", 16),
            SassRegister(_number(register)) if register else None,
            negated,
            inverted,
            absolute,
            tuple(match["marks"].split(".")[1:]),
        )
    if _INTEGER.match(text.strip()):
        whole = int(text.strip(), 0)
        upper = whole >> 32 & 0xFFFFFFFF if abs(whole) >> 32 else 0
        return Immediate(whole & 0xFFFFFFFF, float(whole), upper)
    if _REAL.match(text.strip()):
        return _real(text.strip())
    if "[" in text:
        inside, described = text[text.rindex("[") + 1 : text.rindex("]")], _DESCRIPTOR.search(text)
        before = text[: text.rindex("[")]
        address = _address(inside, described, matrix="gdesc[" in text)
        return replace(address, what=before) if before in _ELSEWHERE else address
    return SassName(text.strip())


def _prefixes(text: str) -> tuple[str, bool, bool, bool]:
    negated = text.startswith("-")
    text = text.removeprefix("-")
    inverted = text.startswith(("~", "!"))
    text = text.lstrip("~!")
    absolute = text.startswith("|")
    return text.replace("|", ""), negated, inverted, absolute


def _number(match: re.Match[str]) -> int:
    number = ZERO_REGISTER if match["number"] == "Z" else int(match["number"])
    return number + UNIFORM if match["bank"] else number


def _real(text: str) -> Immediate:
    word = text.split()[0].lstrip("+")
    sign = -1.0 if word.startswith("-") else 1.0
    name = word.lstrip("-")
    value = {"INF": float("inf"), "QNAN": float("nan"), "SNAN": float("nan")}.get(name)
    real = sign * value if value is not None else float(word)
    with np.errstate(over="ignore"):  # of a double
        return Immediate(int(np.float32(real).view(np.uint32)), real)


def _address(inside: str, described: re.Match[str] | None, *, matrix: bool) -> SassAddress:
    base, uniform, scale, offset = None, None, 1, 0
    for part in re.findall(r"[^+]+", inside):
        if _INTEGER.match(part):
            offset += int(part, 0)
        elif match := _REGISTER.match(part):
            register = read(part)
            assert isinstance(register, SassRegister)
            if match["bank"]:
                uniform = register
            else:
                base = register
                scaled = _SCALE.search(part)
                scale = int(scaled[1]) if scaled else 1
    if matrix and uniform is not None:
        uniform = replace(uniform, wide=True)
    descriptor = read(described["register"]) if described else None
    assert descriptor is None or isinstance(descriptor, SassRegister)
    return SassAddress(base, scale, uniform, offset, descriptor)
