"""The registers of CTAs, which warps give back and take again with setmaxnreg.

Each warp has at first what the kernel is launched with. What it gives back is there for the others of
its CTA, and nothing else is: a warp waits until there is enough for it, though nobody give any back.
Source: PTX ISA, "setmaxnreg"; what a kernel is launched with is what ptxas 13.0 says ("Used 168 registers").
"""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.occupancy import most_registers
from ptxlab.isa.targets import WARP
from ptxlab.syntax.tree import Directive, Function

UNIT = 8
"""Registers of a thread that come and go together."""


def at_entry(kernel: Function, largest: int) -> int:
    """Return how many registers a thread of a kernel has at first, ``largest`` being the most it asks for.

    It is 0 where the directives do not tell: then ptxas ignores setmaxnreg (C7508).
    """
    given = {
        directive.name: directive.values
        for directive in kernel.directives
        if isinstance(directive, Directive)
    }
    threads = given.get("reqntid", given.get("maxntid"))
    if "maxnreg" in given:
        [most] = given["maxnreg"]
    elif threads is not None and "minnctapersm" in given:
        [ctas] = given["minnctapersm"]
        most = most_registers(ctas * -(-int(np.prod(threads)) // WARP))
    else:
        return 0
    return -(-min(most, largest) // UNIT) * UNIT


class RegisterPool:
    """The registers of ``ctas`` CTAs of so many warps. ``changes`` counts what may end somebody's wait for some."""

    def __init__(self, ctas: int, warps: int, registers: int) -> None:
        self.changes = 0
        self.held = np.full((ctas, warps), registers)
        self.free = np.zeros(ctas, np.int64)

    def served(self, asking: Array, count: int) -> Array:
        """Return which of the warps that are ``asking`` for ``count`` get them now, the first ones first."""
        more = self._more(asking, count)
        enough: Array = more.cumsum(axis=1) <= self.free[:, np.newaxis]
        return asking & enough.reshape(-1)

    def take(self, warps: Array, count: int) -> None:
        """Have warps hold ``count`` registers at least."""
        more = self._more(warps, count)
        self.held += more
        self.free -= more.sum(axis=1)

    def give_back(self, warps: Array, count: int) -> None:
        """Have warps hold ``count`` registers at most."""
        less = np.where(self._of_ctas(warps), np.maximum(self.held - count, 0), 0)
        self.held -= less
        self.free += less.sum(axis=1)
        self.changes += 1

    def _more(self, warps: Array, count: int) -> Array:
        more: Array = np.where(self._of_ctas(warps), np.maximum(count - self.held, 0), 0)
        return more

    def _of_ctas(self, warps: Array) -> Array:
        return warps.reshape(self.held.shape)
