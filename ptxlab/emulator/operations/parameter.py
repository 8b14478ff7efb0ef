"""ld.param and st.param: parameters of kernels, and the .param variables of calls.

Source: PTX ISA, "State Spaces: Parameter State Space".
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.scope import Variable
from ptxlab.emulator.prepare.steps import AluStep
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, InWave, Wave
from ptxlab.numbers.types import ScalarType
from ptxlab.syntax.tree import Address


def static_parameter(context: Context, address: Any) -> Variable | None:
    """Return the parameter that ``[name + offset]`` names; None when the base is a register."""
    if not isinstance(address, Address) or address.base is None:
        return None
    if context.register(address.base.text) is not None:
        return None
    variable = context.variable(address.base.text)
    return variable if variable is not None and variable.space in ("param", "call") else None


def load_parameter(
    context: Context,
    variable: Variable,
    address: Address,
    destinations: list[Destination],
    kind: ScalarType,
) -> Step:
    """Return the step for ``ld.param`` of a parameter that is named. Bytes outside it are rejected."""
    end = address.offset + kind.bytes * len(destinations)
    if address.offset < 0 or end > variable.size:
        context.reject(
            f"bytes {address.offset} to {end} are outside parameter '{variable.name}' "
            f"({variable.size} bytes)",
            address,
        )
    if variable.space == "call":
        return LoadArgument(variable.offset, address.offset, destinations, kind.dtype)
    sources = []
    for i in range(len(destinations)):
        offset = variable.offset + address.offset + i * kind.bytes
        value = partial(_given, offset=offset, dtype=kind.dtype)
        slot = context.constant(InWave(value), ("param", offset, kind.name))
        sources.append(Source(slot, kind.dtype))
    if len(sources) == 1:
        return AluStep(_same, destinations, sources)
    return AluStep(_all, destinations, sources)


def _given(wave: Wave, offset: int, dtype: np.dtype[Any]) -> Array:
    """Return the value at ``offset`` in the parameter block of a launch."""
    return np.frombuffer(wave.parameters, dtype, 1, offset)


def _same(value: Array) -> Array:
    return value


def _all(*values: Array) -> tuple[Array, ...]:
    return values


class LoadArgument:
    """Read bytes of a ``.param`` variable of a call, kept as a register of byte rows."""

    __slots__ = ("_destinations", "_dtype", "_offset", "_slot")

    def __init__(
        self, slot: int, offset: int, destinations: list[Destination], dtype: np.dtype[Any]
    ) -> None:
        self._slot = slot
        self._offset = offset
        self._destinations = destinations
        self._dtype = dtype

    def run(self, frame: Frame, threads: Threads) -> None:
        """Load for ``threads``."""
        registers = frame.registers
        size = self._dtype.itemsize
        for i, destination in enumerate(self._destinations):
            start = self._offset + i * size
            raw = np.ascontiguousarray(registers[self._slot][:, start : start + size])
            value = destination.extended(raw.view(self._dtype)[:, 0])
            registers[destination.slot] = threads.merge(registers[destination.slot], value)


class StoreArgument:
    """Write bytes of a ``.param`` variable of a call."""

    __slots__ = ("_dtype", "_offset", "_slot", "_sources")

    def __init__(self, slot: int, offset: int, sources: list[Source], dtype: np.dtype[Any]) -> None:
        self._slot = slot
        self._offset = offset
        self._sources = sources
        self._dtype = dtype

    def run(self, frame: Frame, threads: Threads) -> None:
        """Store for ``threads``."""
        registers = frame.registers
        old = registers[self._slot]
        values = [source.read(registers) for source in self._sources]
        rows = max(old.shape[0], *(value.shape[0] for value in values))
        new = np.empty((rows, old.shape[1]), np.uint8)
        new[:] = old
        size = self._dtype.itemsize
        for i, value in enumerate(values):
            start = self._offset + i * size
            new[:, start : start + size] = (
                np.ascontiguousarray(value).view(np.uint8).reshape(-1, size)
            )
        registers[self._slot] = threads.merge(old, new)
