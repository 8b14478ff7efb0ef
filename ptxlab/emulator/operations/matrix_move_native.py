"""ldmatrix as a job in a walk: see ``ptxlab.native.ldmatrix``. Outside of one it is no machine code."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from ptxlab.emulator.native.collective import Collective
from ptxlab.emulator.native.engine import NEVER
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.run.memory import Access
from ptxlab.emulator.run.registers import Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.matrix.ldmatrix import LdMatrix
from ptxlab.native import compiler, ldmatrix
from ptxlab.native import cores as jobs
from ptxlab.native.arrays import sees_arrays

WORTH = 128
"""Warps that a core does at a time at least, in some microseconds."""

SOONER = 8
"""How much sooner than a block it is compiled: it is short, and who loads matrices multiplies them, by LLVM too."""

_SPENT: Counter[str] = Counter()
"""Nanoseconds that each function would have spared."""


@dataclass(eq=False)
class LoadStep(Collective):
    """The step of an ldmatrix of numbers of 16 bits, which is ``by_arrays`` where some threads alone execute it."""

    by_arrays: Step
    access: Access
    sources: Sequence[Source]
    slots: Sequence[int]
    text: str
    word: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint32))
    can_fail = True

    def __call__(self, frame: Frame, threads: Threads) -> None:
        began = perf_counter_ns()
        self.by_arrays(frame, threads)
        _SPENT[self.text] += perf_counter_ns() - began

    def ready(self, wave: Wave) -> bool:
        hot = wave.hot != NEVER and _SPENT[self.text] * SOONER >= wave.hot
        return hot and wave.config.cluster_ctas == 1

    def job(self, wave: Wave) -> tuple[bytes, int]:
        function = compiler.compile(self.text, ldmatrix.NAME, jobs.Function)
        piece = jobs.pool(wave.cores).piece(wave.warps, WORTH)
        shared = wave.regions["shared"]
        words = (
            *(jobs.address(function), piece, 0, 0, wave.warps),
            *(id(shared.data), id(shared.start), shared.size, shared.first, self.access.offset),
            *[0] * (1 + len(self.slots)),
        )
        return struct.pack(f"{len(words)}q", *words), ldmatrix.REGISTERS


def natively(
    form: LdMatrix,
    step: Step,
    access: Access,
    destinations: Sequence[Destination],
    order: Sequence[int],
    *,
    all_addresses: bool,
) -> Step:
    """Return the step that is a job too, where the form and its address allow it."""
    narrow = form.bits == form.packed_bits == 16 and access.space == "shared"
    if not (narrow and compiler.available() and sees_arrays()):
        return step
    checked = WARP if all_addresses else form.matrices * form.rows
    text = ldmatrix.text(form.matrices, checked, tuple(order))
    return LoadStep(step, access, [access.base], [one.slot for one in destinations], text)
