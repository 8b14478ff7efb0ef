"""What an instruction does, apart from where its operands come from: the registry of operations.

An operation family registers a builder under its opcode. The builder reads the instruction's
modifiers once, when a program is prepared, and returns an ``Alu``: the PTX types of results and
operands, and a pure function over numpy arrays. That function sees every active thread at once. It
must not write to its inputs, and it must broadcast: an array of shape (1,) is a value all threads
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.prepare.row import ROWS, Alu, Form, UnknownForm, find
from ptxlab.isa.targets import Target
from ptxlab.isa.types import TYPES, ScalarType
from ptxlab.syntax.tree import Instruction

if TYPE_CHECKING:
    from ptxlab.emulator.prepare.context import Context

Array = npt.NDArray[Any]


class Modifiers:
    """The modifiers of one instruction, taken one by one in any order the ISA allows.

    What a builder leaves untaken is refused, so no qualifier is ever ignored in silence.
    ``sources`` is how many source operands the instruction has, for the few opcodes where that
    says which instruction it is; None where it is not known.
    """

    def __init__(self, names: Sequence[str], target: Target, sources: int | None = None) -> None:
        self._rest = list(names)
        self._every = tuple(names)
        self.target = target
        self.sources = sources

    def take(self, name: str) -> bool:
        """Take ``name`` if it is there, and say whether it was."""
        if name in self._rest:
            self._rest.remove(name)
            return True
        return False

    def one_of(self, *names: str, default: str | None = None) -> str:
        """Take the first modifier that is one of ``names``; without one, ``default`` or an error."""
        for name in self._rest:
            if name in names:
                self._rest.remove(name)
                return name
        if default is None:
            raise UnknownForm(f"needs one of .{', .'.join(names)}")
        return default

    def type(self, *allowed: str) -> ScalarType:
        """Take the next fundamental type, which must be among ``allowed`` when any are given."""
        for name in self._rest:
            if name in TYPES:
                if allowed and name not in allowed:
                    raise UnknownForm(f"does not take type .{name}")
                self._rest.remove(name)
                return TYPES[name]
        raise UnknownForm("needs a type")

    @property
    def every(self) -> tuple[str, ...]:
        """All the modifiers."""
        return self._every

    def rest(self) -> tuple[str, ...]:
        """The modifiers nobody has taken yet."""
        return tuple(self._rest)

    def finish(self) -> None:
        """Refuse the instruction if any modifier is left."""
        if self._rest:
            raise UnknownForm(f"modifier .{self._rest[0]} is not modelled")


Builder = Callable[[Modifiers], Alu]

ALU: dict[str, Builder] = {}


def alu(*opcodes: str) -> Callable[[Builder], Builder]:
    """Register a builder of register-to-register operations under ``opcodes``."""

    def register(builder: Builder) -> Builder:
        for opcode in opcodes:
            if opcode in ALU:
                raise ValueError(f"opcode {opcode} is registered twice")
            ALU[opcode] = builder
        return builder

    return register


def build(opcode: str, modifiers: Modifiers) -> Alu | Form:
    """Return the row's form, or what a builder makes of it."""
    try:
        if opcode in ROWS:
            form = find(opcode, modifiers.every, modifiers.sources)
            for name in modifiers.every:
                modifiers.take(name)
            return form
    except UnknownForm:
        if opcode not in ALU:
            raise
    operation = ALU[opcode](modifiers)
    modifiers.finish()
    return operation


def quiet() -> Any:
    """Silence numpy's floating-point warnings: IEEE results are the result, not a problem."""
    return np.errstate(all="ignore")


StepBuilder = Callable[["Context", Instruction, Modifiers], Any]

STEPS: dict[str, StepBuilder] = {}

COLLECTIVE: set[str] = set()
"""Opcodes whose threads must arrive together: each begins a block, so that some can wait there."""


def step(*opcodes: str, collective: bool = False) -> Callable[[StepBuilder], StepBuilder]:
    """Register a builder of ``Step`` objects, for operations that are more than arithmetic.

    The steps of a ``collective`` one have ``participants``; see ``program.Block``.
    """
    if collective:
        COLLECTIVE.update(opcodes)

    def register(builder: StepBuilder) -> StepBuilder:
        for opcode in opcodes:
            if opcode in STEPS:
                raise ValueError(f"opcode {opcode} is registered twice")
            STEPS[opcode] = builder
        return builder

    return register
