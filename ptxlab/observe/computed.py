"""What an address is made of: registers that other lines of the source have computed, with a thread's values.

What one line computes and another uses is what the first has for the second, most often a variable of it. The
values are those of registers, as the compiler made them; of what it has folded into others nothing is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.operations.memory import state_space
from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.observe.value_flow import results
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.tree import Address, Function, Position

_TYPES = {
    f"{kind}{bits}": np.dtype(f"{'u' if kind == 'u' else ''}int{bits}")
    for kind in "bus"
    for bits in (32, 64)
}
_ADDRESSES = 1 << 40
"""The first number that is an address, not an index: memory begins above it."""
_MOST = 3


class Computed(NamedTuple):
    """The ``value`` that a line of the source computed in a ``register``."""

    register: str
    value: int
    source: SourceLine

    def told(self, text: str) -> str:
        """Say so, with the ``text`` of that line where it is at hand."""
        words = f"where {self.register} is {self.value}, which line {self.source.line} computed"
        return f"{words}: {text.strip()}" if text else words


class Definitions:
    """Where the registers of a function are written, by its ``sources``: of each line of PTX that of the source."""

    def __init__(self, function: Function, sources: Mapping[int, SourceLine]) -> None:
        self._sources = sources
        self._at: dict[Position, Scoped] = {}
        self._written: dict[str, list[Scoped]] = {}
        for site in instructions(function):
            self._at[site.instruction.position] = site
            for name in results(site):
                self._written.setdefault(name, []).append(site)

    def behind(self, site: Site, registers: Sequence[Array], thread: int) -> tuple[Computed, ...]:
        """Return what the addresses of an instruction are made of, nearest first, as a thread has it there."""
        user = self._at[site.instruction.position]
        addresses = [each for each in user.instruction.operands if isinstance(each, Address)]
        ahead = deque((name, user) for each in addresses for name in user.registers(each))
        behind: dict[str, Computed] = {}
        seen = set()
        while ahead and len(behind) < _MOST:
            name, reader = ahead.popleft()
            writers = self._written.get(name, [])
            lines = {self._source(each) for each in writers}
            if name in seen or len(lines) != 1:
                continue
            seen.add(name)
            [source] = lines
            if source is not None and source != self._source(reader) and not _given(writers[0]):
                value = _value(site, reader, name, registers, thread)
                if value is not None:
                    behind[name] = Computed(name, value, source)
                    continue
            ahead.extend((each, writers[0]) for each in _made_of(writers))
        return tuple(behind.values())

    def _source(self, site: Scoped) -> SourceLine | None:
        return self._sources.get(site.instruction.position.line)


def _given(writer: Scoped) -> bool:
    """Say whether a register has what the kernel was called with."""
    return state_space(writer.instruction.modifiers) == "param"


def _value(
    site: Site, reader: Scoped, name: str, registers: Sequence[Array], thread: int
) -> int | None:
    """Return the number that a thread has in a register, None where it has an address, or a number of other types."""
    register, kind = site.register(name), _TYPES.get(reader.type_of(name) or "")
    if register is None or kind is None:
        return None
    column = registers[register.slot].view(kind)
    value = int(column[thread if column.size > 1 else 0])
    return value if abs(value) < _ADDRESSES else None


def _made_of(writers: Sequence[Scoped]) -> list[str]:
    """Return the registers of which a register is computed; none where it is loaded, or written at several places."""
    operands = writers[0].instruction.operands[1:]
    if len(writers) > 1 or any(isinstance(operand, Address) for operand in operands):
        return []
    return [name for operand in operands for name in writers[0].registers(operand)]
