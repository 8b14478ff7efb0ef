"""Accesses to shared memory, as those who hold them against each other see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ptxlab.arrays import Array


class AccessKind(NamedTuple):
    """What matters of an access: whether it writes, is strong, and is by an engine, in its proxy.

    Strong ones do not race with each other. Those to an ``mbarrier`` as one are in no proxy of an engine.
    """

    writes: bool
    strong: bool = False
    engine: bool = False
    mbarrier: bool = False

    @property
    def proxied(self) -> bool:
        return self.engine and not self.mbarrier


@dataclass(frozen=True, slots=True)
class Touch:
    """Accesses of one kind by one instruction, an entry a granule.

    ``threads`` are the agents: threads of the wave, ascending, or engines, which threads have begin
    ``behind`` what these know: rows of ``clocks``. ``instruction`` is the number of the instruction.
    """

    kind: AccessKind
    instruction: int
    threads: Array
    granules: Array
    behind: Array | None = None

    @property
    def by(self) -> Array:
        """The rows whose knowledge counts."""
        return self.threads if self.behind is None else self.behind


@dataclass(frozen=True, slots=True)
class EarlierAccesses:
    """For the entries ``at`` of a touch: who accessed the granule before, unordered, and where.

    Those ``unfenced`` are ordered, but not for the proxy of an engine. Of those ``partly`` ordered, a part is
    that one warp of a warpgroup has waited for.
    """

    at: Array
    threads: Array
    places: Array
    unfenced: Array
    partly: Array
