"""The registers of a frame: how operands read and write them, and what they hold at first.

Registers, constants, special registers and addresses of variables all live in one list, and are
known by their number in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from ptxlab.arrays import Array as Array
from ptxlab.emulator.prepare.scope import Variable
from ptxlab.garbage import record


@record(frozen=True, slots=True)
class Source:
    """Where an operand's value comes from: a register number and the dtype to see it as.

    ``convert`` is set where the register's bits are not the operand's bits as they stand.
    """

    slot: int
    dtype: np.dtype[Any]
    convert: Callable[[Array], Array] | None = None

    def read(self, registers: list[Array] | dict[int, Array]) -> Array:
        """Return the operand's value: one element per thread, or one for all."""
        value = registers[self.slot]
        if self.convert is not None:
            return self.convert(value)
        return value if value.dtype is self.dtype else value.view(self.dtype)


@record(frozen=True, slots=True)
class Narrower:
    """The conversion of a register of dtype ``wide`` to its low bits, ``narrow``, seen as ``dtype``."""

    wide: np.dtype[Any]
    narrow: np.dtype[Any]
    dtype: np.dtype[Any]

    def __call__(self, value: Array) -> Array:
        return value.view(self.wide).astype(self.narrow).view(self.dtype)


@record(frozen=True, slots=True)
class Destination:
    """A register to write; ``widen`` is the dtype to extend to when the register is wider."""

    slot: int
    widen: np.dtype[Any] | None = None

    def extended(self, value: Array) -> Array:
        """Return ``value`` extended to the register's width, by the sign of its own type."""
        return value if self.widen is None else value.astype(self.widen)


@record(frozen=True, slots=True)
class CallResult:
    """A caller's register for a result; ``dtype`` is set where the callee gives it as bytes.

    One that ``keeps_bytes`` takes as bytes what the callee gives in a register.
    """

    slot: int
    dtype: np.dtype[Any] | None = None
    keeps_bytes: bool = False

    def value(self, given: Array) -> Array:
        """Return what the callee gave as the caller's register holds it."""
        if self.keeps_bytes:
            return np.ascontiguousarray(given).view(np.uint8).reshape(len(given), -1)
        if self.dtype is None:
            return given
        scalar: Array = np.ascontiguousarray(given).view(self.dtype)[:, 0]
        return scalar


@record(frozen=True, slots=True)
class InWave:
    """A register that is filled when a wave begins, by a function of it, and the same in all its frames."""

    value: Callable[..., Array]


@record(frozen=True, slots=True)
class VariableAddress:
    """A register that is filled when a wave begins: the address ``offset`` in a variable.

    It lies in global, constant or shared memory.
    """

    variable: Variable
    offset: int


@record(frozen=True, slots=True)
class InFrame:
    """A register that is filled when a frame begins: the address ``offset`` in its local memory."""

    offset: int


Initial = Array | InWave | VariableAddress | InFrame
"""What a register holds at the beginning."""


@record(frozen=True, slots=True, eq=False)
class FrameLayout:
    """What every frame of a function has.

    ``initial`` is what its registers hold at the beginning. ``parameters`` and ``results`` are the
    numbers of the registers through which calls pass values. ``local_bytes`` is its stack. Of the
    ``literals`` the initial value is that of all times. Registers that are ``varying`` are filled when a wave or a frame
    begins.
    """

    initial: list[Initial]
    parameters: tuple[int, ...]
    results: tuple[int, ...]
    local_bytes: int
    literals: frozenset[int]
    varying: Mapping[int, InWave | VariableAddress | InFrame] = field(init=False)

    def __post_init__(self) -> None:
        values = enumerate(self.initial)
        varying = {slot: value for slot, value in values if not isinstance(value, np.ndarray)}
        object.__setattr__(self, "varying", varying)


def address(value: int) -> Array:
    """Return an address as a register that all threads share."""
    return np.array([value % (1 << 64)], np.uint64)
