"""Instructions of machine code, of which each is a step though the emulator executes what it was lifted into."""

from __future__ import annotations

from ptxlab.emulator import Site
from ptxlab.observe.timeline import Warps
from ptxlab.observe.work import work

_BETWEEN = ("move", "integer", "logic and bits", "comparison", "conversion")
"""Kinds of what makes operands ready, where an instruction does more."""


class LiftedParts:
    """Which instructions of PTX are parts of one of machine code; without one that was ``lifted`` none is."""

    def __init__(self, *, lifted: bool) -> None:
        self._lifted = lifted
        self._first: Site | None = None
        self._warps: Warps = ()
        self._step = -1
        self._here: set[Site] = set()
        self._parts: dict[Site, dict[Site, None]] = {}

    def goes_on(self, site: Site, warps: Warps, step: int) -> bool:
        """Say whether a site is a part of the instruction that ``step`` is of, and not its beginning anew."""
        first = self._first
        goes_on = (
            self._lifted
            and first is not None
            and (site.line, site.function) == (first.line, first.function)
            and (warps, step) == (self._warps, self._step)
            and site not in self._here
        )
        if goes_on and first is not None:
            self._here.add(site)
            self._parts[first][site] = None
        return goes_on

    def begin(self, site: Site, warps: Warps, step: int) -> None:
        """Have a step begin with a site."""
        self._first, self._warps, self._step = site, warps, step
        self._here = {site}
        self._parts.setdefault(site, {site: None})

    def of(self, first: Site) -> list[Site]:
        """Return the parts that were executed of the instruction which begins with a site."""
        return list(self._parts[first])

    def kind(self, first: Site) -> str:
        """Return the class of an instruction in the instruction mix: of what it does, not of what stands in between."""
        kinds = [work(site.instruction).kind for site in self._parts[first]]
        return next((kind for kind in kinds if kind not in _BETWEEN), kinds[0])
