"""What all checks of a launch share: where it stands, and a place to put what they find."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator import Site
from ptxlab.emulator.run.memory import pitched
from ptxlab.emulator.run.wave import Wave
from ptxlab.instrument.sites import sources
from ptxlab.observe.check_report import Finding
from ptxlab.observe.shadow import Shadow
from ptxlab.syntax.functions import SourceLine

Array = npt.NDArray[Any]

Words = tuple[str, str]
"""A message and a hint."""


class Scene:
    """The wave that runs, the instruction it is at, and all findings of the launch so far.

    ``site`` is the instruction at hand. ``shadow`` is that of the wave's shared memory.
    """

    wave: Wave
    site: Site
    shadow: Shadow

    def __init__(self) -> None:
        self._numbers: dict[Site, int] = {}
        self._sites: list[Site] = []
        self._findings: dict[tuple[str, str, str, Site, Site | None], Finding] = {}

    def begin(self, wave: Wave) -> None:
        """Begin a wave: nothing is known of its memory."""
        self.wave = wave
        self.shadow = Shadow(wave.ctas * pitched(wave.shared_bytes))

    # ---- instructions by number ----

    def number(self, site: Site) -> int:
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self._sites)
            self._sites.append(site)
        return number

    def numbered(self, number: int) -> Site:
        return self._sites[number]

    # ---- findings ----

    def find(
        self,
        kind: str,
        severity: str,
        rule: str,
        count: int,
        words: Words,
        other: Site | None = None,
        site: Site | None = None,
        unit: str = "bytes",
    ) -> None:
        """Note that ``rule`` was broken ``count`` times, at ``site`` or where the wave stands.

        Findings that are alike are one, in the words of the first.
        """
        site = site or self.site
        key = (kind, severity, rule, site, other)
        found = self._findings.get(key)
        if found is None:
            line, other_line = site.line, None if other is None else other.line
            places = self.source(line), self.source(other_line)
            found = Finding(kind, rule, severity, line, *words, 0, unit, other_line, *places)
        self._findings[key] = replace(found, count=found.count + count)

    @property
    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    def source(self, line: int | None) -> SourceLine | None:
        """Return the line of CUDA C that the instruction on a line of the PTX comes from."""
        return None if line is None else self._sources.get(line)

    @cached_property
    def _sources(self) -> dict[int, SourceLine]:
        return sources(self.wave.module)

    # ---- names ----

    def thread(self, number: int) -> str:
        return self.wave.thread(int(number))

    def cta(self, thread: int) -> str:
        return self.thread(thread).partition(" of ")[2]

    def shared(self, granule: int) -> str:
        address = int(granule) * self.shadow.size % pitched(self.wave.shared_bytes)
        found = self.wave.shared.at(address)
        if found is None:
            return f"shared memory at {address:#x}"
        variable, inside = found
        return f"{variable.name}+{inside:#x} in shared memory"


def entries(column: Array, count: int) -> Array:
    """Repeat what is known of each access for its ``count`` granules."""
    return column if count == 1 else np.repeat(column, count)
