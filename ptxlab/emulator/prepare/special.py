"""Special registers as preparation knows them: by name, how wide they are, and what a program needs for them.

Their rows are in ``operations.special``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxlab.arrays import Array
from ptxlab.isa.legality import ANYWHERE, Needs, parse_needs


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """Its value, how wide it is, and what a program needs to have it.

    Its ``value`` is a function of the wave (``run.wave``). A clock has none: it is read anew by each instruction, and is ``bits`` from bit
    ``lowest`` on of the number of instructions executed so far. A reading tells the order of events, and
    that time passes; it is no measure of a GPU's cycles.
    """

    value: Callable[..., Array] | None
    bits: int = 32
    needs: Needs = ANYWHERE
    lowest: int = 0


TABLE: dict[str, SpecialRegister] = {}


def special_register(
    name: str,
    value: Callable[..., Array] | None,
    *,
    bits: int = 32,
    needs: str = "",
    lowest: int = 0,
) -> None:
    """Add a special register to those that there are; ``needs`` is written as in a row of operations."""
    TABLE[name] = SpecialRegister(value, bits, parse_needs(needs) if needs else ANYWHERE, lowest)


def bits(name: str) -> int | None:
    """Return how wide a special register is, None for another name."""
    register = TABLE.get(name)
    return None if register is None else register.bits
