"""The text of a function in LLVM's assembly language as it grows, and of the module that it needs.

What the instructions mean is in the LLVM Language Reference Manual.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

_FLOATS = {"half": 16, "float": 32, "double": 64}


def is_float(kind: str) -> bool:
    return kind in _FLOATS


def width(kind: str) -> int:
    """Return the bits of a number of a type of LLVM's."""
    return _FLOATS.get(kind) or int(kind[1:])


def type_of(kind: str, lanes: int) -> str:
    """Return the type of so many numbers, or where it is 0 of just one."""
    return f"<{lanes} x {kind}>" if lanes else kind


def literal(kind: str, value: float) -> str:
    """Return a constant: of what is no float its low bits."""
    if kind == "ptr":
        return "null"
    if is_float(kind):
        return "0x" + struct.pack(">d", value).hex().upper()
    bits = width(kind)
    word = int(value) % (1 << bits)
    return str(word - (word >> bits - 1 << bits) if bits > 1 else word)


@dataclass(frozen=True, slots=True)
class ModuleFunction:
    """A function of a module: the text of it and of all that it calls, by name."""

    name: str
    used: dict[str, str]

    @property
    def text(self) -> str:
        return module(self)


def module(*functions: ModuleFunction) -> str:
    """Return the text of functions and of all that they call, each once."""
    used: dict[str, str] = {}
    for function in functions:
        used |= function.used
    return "\n".join(used.values())


@dataclass(slots=True)
class InsertionPoint:
    """Where lines are written: behind ``lines``, the last of them in a ``block``, which may have ``ended``."""

    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    ended: bool = False


class FunctionText:
    """The lines of one function as they grow, and what they need of its module.

    In a loop over threads what is the same for all of them is computed once, before the loop, wherever it is
    written. ``known`` is what has been made of registers once, where all that is behind can use it.
    """

    def __init__(self, result: str = "i32") -> None:
        self.result = result
        self.parameters: list[str] = []
        self.known: dict[Hashable, Any] = {}
        self._here = InsertionPoint()
        self._before_threads: InsertionPoint | None = None
        self._buffers: list[str] = []
        self._used: dict[str, str] = {}
        self._count = 0

    @property
    def in_threads(self) -> bool:
        """Whether this is a loop over threads."""
        return self._before_threads is not None

    def function(self, name: str, *, internal: bool = False) -> ModuleFunction:
        """Return all of it as a function, maybe one that others of its module call."""
        linkage, attributes = ("internal ", " noinline") if internal else ("", "")
        signature = f"{linkage}{self.result} @{name}({', '.join(self.parameters)}){attributes}"
        end = "  ret void" if self.result == "void" else f"  ret {self.result} 0"
        if self._here.ended:
            end = ""
        body = "\n".join(["entry:", *self._buffers, *self._here.lines, end])
        self._used[name] = f"define {signature} {{\n{body}\n}}\n"
        return ModuleFunction(name, self._used)

    def line(self, text: str) -> None:
        if not self._here.ended:  # what follows a return is nowhere
            self._here.lines.append(f"  {text}")

    def defined(self, text: str, *, before_threads: bool = False) -> str:
        """Return the register that holds the result of an instruction, written here or before the loop over threads."""
        name = self._new("v")
        if before_threads and self._before_threads is not None:
            self._before_threads.lines.append(f"  {name} = {text}")
        else:
            self.line(f"{name} = {text}")
        return name

    def declare(self, name: str, signature: str) -> None:
        self._used[name] = f"declare {signature}\n"

    def table(self, kind: str, numbers: Sequence[int]) -> str:
        """Return the name of a table of the module."""
        elements = ", ".join(f"{kind} {number}" for number in numbers)
        name = f"@table.{sha256(elements.encode()).hexdigest()[:16]}"
        self._used[name] = f"{name} = private constant [{len(numbers)} x {kind}] [{elements}]\n"
        return name

    def named(self, function: ModuleFunction | str) -> str:
        """Return what to call a function by, which comes with the module, or is in it already by a name."""
        if isinstance(function, str):
            return function
        self._used.update(function.used)
        return function.name

    def _begin(self, block: str) -> None:
        self._here.ended = False
        self._here.lines.append(f"{block}:")
        self._here.block = block

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"%{prefix}{self._count}"
