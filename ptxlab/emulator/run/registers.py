"""The registers of a frame: how operands read and write them, and what they hold at the beginning.

Registers, constants, special registers and addresses of variables all live in one list, and are
known by their number in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an operand's value comes from: a register number and the dtype to see it as.

    ``convert`` is set where the register's bits are not the operand's bits as they stand.
    """

    slot: int
    dtype: np.dtype[Any]
    convert: Callable[[Array], Array] | None = None

    def read(self, registers: list[Array]) -> Array:
        """Return the operand's value: one element per thread, or one for all."""
        value = registers[self.slot]
        if self.convert is not None:
            return self.convert(value)
        return value if value.dtype is self.dtype else value.view(self.dtype)


@dataclass(frozen=True, slots=True)
class Destination:
    """A register to write; ``widen`` is the dtype to extend to when the register is wider."""

    slot: int
    widen: np.dtype[Any] | None = None

    def extended(self, value: Array) -> Array:
        """Return ``value`` extended to the register's width, by the sign of its own type."""
        return value if self.widen is None else value.astype(self.widen)


@dataclass(frozen=True, slots=True)
class CallResult:
    """A caller's register for a result; ``dtype`` is set where the callee gives it as bytes."""

    slot: int
    dtype: np.dtype[Any] | None = None

    def value(self, given: Array) -> Array:
        """Return what the callee gave as the caller's register holds it."""
        if self.dtype is None:
            return given
        scalar: Array = np.ascontiguousarray(given).view(self.dtype)[:, 0]
        return scalar


@dataclass(frozen=True, slots=True)
class Deferred:
    """A register filled when a wave or frame starts: ``kind`` says from what.

    "special": special register ``name``. "param": the value at ``offset`` in the kernel's parameter
    block. "symbol": the address of module variable ``name`` plus ``offset``. "dynamic": ``offset``
    in dynamic shared memory. "local": ``offset`` in the frame's part of local memory.
    """

    kind: str
    name: str = ""
    offset: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class FrameLayout:
    """What every frame of a function has.

    ``initial`` holds a value or a ``Deferred`` per register. ``parameters`` and ``results`` are the
    numbers of the registers through which calls pass values. ``local_bytes`` is its stack.
    """

    initial: list[Array | Deferred]
    parameters: tuple[int, ...]
    results: tuple[int, ...]
    local_bytes: int
