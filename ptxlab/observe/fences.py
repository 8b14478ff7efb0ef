"""Fences of threads: with one before it a relaxed arrival releases, with one after it a relaxed wait acquires.

A relaxed arrival tells what its thread knew at its last fence, and what a relaxed wait has seen is
known from the next fence on. Source: PTX ISA, "Memory Consistency Model: Release and Acquire Patterns".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ptxlab.arrays import Array
from ptxlab.instrument.sites import instructions
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.knowledge import HEARD, TimeRows
from ptxlab.syntax.tree import Function, Instruction


def is_relaxed(instruction: Instruction) -> bool:
    """Say whether an instruction arrives or waits at a barrier object, and orders nothing by itself."""
    return instruction.opcode in ("mbarrier", "barrier") and "relaxed" in instruction.modifiers


class Fences:
    """What threads knew at their last fence, and what they have seen without acquiring it.

    Fences are ``narrow``, of the scope of a CTA, or wide. A program that relaxes nothing needs no notes.
    """

    def __init__(self, clocks: Clocks, functions: Iterable[Function], width: int) -> None:
        self._clocks = clocks
        self._width = width
        self._needed = any(
            is_relaxed(site.instruction)
            for function in functions
            for site in instructions(function)
        )
        self._known: dict[bool, TimeRows] = {}
        self._seen: TimeRows | None = None

    def fence(self, instruction: Instruction, threads: Array) -> None:
        """See threads execute a fence of memory, not of proxies."""
        if not self._needed:
            return
        if self._seen is not None and "release" not in instruction.modifiers:
            self._clocks.learn(threads, self._seen.data, threads)
        if "acquire" not in instruction.modifiers:
            known = self._known.setdefault("cta" in instruction.modifiers, self._rows())
            known.learn(threads, self._clocks.released(threads))

    def told(self, threads: Array, *, near: bool) -> Array | None:
        """Return what relaxed arrivals tell; a narrow fence counts only for those ``near``, in the CTA."""
        known = [rows for narrow, rows in self._known.items() if near or not narrow]
        if not known:
            return None
        columns = max(rows.data.shape[2] for rows in known)
        for rows in known:
            rows.fit(columns)
        told: Array = np.maximum.reduce([rows.data[:, threads] for rows in known])
        return told

    def see(self, threads: Array, rows: Array) -> None:
        """See relaxed waits: they have been told ``rows``."""
        if self._seen is None:
            self._seen = self._rows()
        self._seen.learn(threads, rows)

    def seen_in(self, ctas: Array, width: int) -> Array:
        """Return what the ``width`` threads of each CTA have seen: of each column there is up to when."""
        if self._seen is None:
            return np.zeros((ctas.size, 0), np.int32)
        threads = ctas[:, None] * width + np.arange(width)
        seen: Array = self._seen.data[HEARD, threads].max(axis=1)
        return seen

    def _rows(self) -> TimeRows:
        return TimeRows(self._clocks.layers, self._width)
