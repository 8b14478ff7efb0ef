"""The modifiers of an instruction, taken one by one; for what is not told in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.isa.targets import Target
from ptxlab.isa.types import TYPES, ScalarType


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


def quiet() -> Any:
    """Silence numpy's floating-point warnings: IEEE results are the result, not a problem."""
    return np.errstate(all="ignore")
