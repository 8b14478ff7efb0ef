"""What all checks of a launch share: where it stands, and a place to put what they find."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.instrument.sites import sources
from ptxlab.observe.agents import Agents
from ptxlab.observe.check_report import Finding, rules
from ptxlab.observe.computed import Computed, Definitions
from ptxlab.observe.shadow import Shadow
from ptxlab.observe.value_flow import RegisterNames
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called

Wording = tuple[str, str]
"""A message and a hint."""

_ENGINES: dict[Queue, str] = {
    "signals": "a copy that an mbarrier hears of",
    "bulk_copies": "a bulk copy",
    "products": "a wgmma",
    "tensor_work": "a tcgen05.mma, cp or shift",
}


class CheckContext:
    """The wave that runs, the instruction it is at, and all findings of the launch so far.

    ``site`` is the instruction at hand, of the activation ``frame``. ``shadow`` is that of the wave's shared memory. ``agents`` are
    its threads and engines. ``ended`` is the mask of threads that are no more,
    ``names`` has the names of registers.
    """

    wave: Wave
    site: Site
    frame: Frame
    shadow: Shadow
    agents: Agents
    ended: Array

    def __init__(self) -> None:
        self.names = RegisterNames()
        self._numbers: dict[Site, int] = {}
        self._sites: list[Site] = []
        self._definitions: dict[str, Definitions] = {}
        self._findings: dict[tuple[str, str, str, Site, Site | None], Finding] = {}

    def begin(self, wave: Wave) -> None:
        """Begin a wave: nothing is known of its memory."""
        self.wave = wave
        self.shadow = Shadow(wave.ctas * wave.shared_pitch)
        self.agents = Agents(wave)
        self.ended = np.zeros(wave.width, bool)

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
        words: Wording,
        other: Site | None = None,
        site: Site | None = None,
        unit: str = "bytes",
        computed: tuple[Computed, ...] | None = None,
        thread: int | None = None,
    ) -> None:
        """Note that ``rule`` was broken ``count`` times, at ``site`` or where the wave stands, there by a ``thread``.

        What its address is made of is said by ``computed``, or by what the thread has where the wave stands. Findings that are alike are one, in the words of the first.
        """
        assert kind == "uninitialized" or rule in rules(kind), rule
        site = site or self.site
        key = (kind, severity, rule, site, other)
        finding = self._findings.get(key)
        if finding is None:
            line, other_line = site.line, None if other is None else other.line
            places = self.source(line), self.source(other_line)
            finding = Finding(kind, rule, severity, line, *words, 0, unit, other_line, *places)
            made_of = self.computed(thread) if computed is None else computed
            finding = replace(finding, computed=made_of)
        self._findings[key] = replace(finding, count=finding.count + count)

    @property
    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    def source(self, line: int | None) -> SourceLine | None:
        """Return the line of CUDA C that the instruction on a line of the PTX comes from."""
        return None if line is None else self._sources.get(line)

    def computed(self, thread: int | None) -> tuple[Computed, ...]:
        """Return what the addresses of the instruction at hand are made of, as a thread of the wave has it."""
        if thread is None or not self._sources:
            return ()
        name = self.site.function
        if name not in self._definitions:
            function = next(each for each in self.wave.functions if each.name == name)
            self._definitions[name] = Definitions(function, self._sources)
        return self._definitions[name].behind(self.site, self.frame.registers, thread)

    @cached_property
    def _sources(self) -> dict[int, SourceLine]:
        return sources(self.wave.module, self.wave.functions)

    # ---- names ----

    def thread(self, number: int) -> str:
        return self.wave.thread(int(number))

    def cta(self, thread: int) -> str:
        return self.thread(thread).partition(" of ")[2]

    def agent(self, number: int) -> str:
        engine = self.engine(number)
        return self.thread(number) if engine is None else _ENGINES[engine[0]]

    def engine(self, number: int) -> tuple[Queue, int] | None:
        return self.agents.engine(number)

    def global_at(self, address: int) -> str:
        """Name an address of global memory by the element there, where that is known."""
        held = self.wave.memory.find(address)
        if held is None or held.elements is None or address >= held.end:
            return f"{address:#x} in global memory"
        return held.elements.at(address)

    def shared(self, granule: int) -> str:
        return self.shared_at(int(granule) * self.shadow.size)

    def shared_at(self, byte: int) -> str:
        """Name a byte of the shared memory of the wave, and its CTA where it may be another one's."""
        cta, address = divmod(byte, self.wave.shared_pitch)
        held = self.wave.shared.at(address)
        of = f" of {self.wave.cta(cta)}" if self.wave.config.cluster_ctas > 1 else ""
        if held is None:
            return f"shared memory{of} at {address:#x}"
        variable, inside = held
        return f"{called(variable.name)}+{inside:#x} in shared memory{of}"


def entries(column: Array, count: int) -> Array:
    """Repeat what is known of each access for its ``count`` granules."""
    return column if count == 1 else np.repeat(column, count)
