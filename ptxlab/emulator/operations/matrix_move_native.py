"""ldmatrix as a task in a dispatch loop: see ``ptxlab.native.ldmatrix``. Outside of one it is no machine code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.emulator.native.warp_operation import FallbackStep
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Destination
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP
from ptxlab.matrix.ldmatrix import LdMatrix
from ptxlab.native import compiler, ldmatrix
from ptxlab.native import cores as tasks
from ptxlab.native.arrays import sees_arrays

WORTH = 128
"""Warps that a core does at a time at least, in some microseconds."""


@dataclass(eq=False)
class LoadStep(FallbackStep):
    """The step of an ldmatrix of numbers of 16 bits, which is ``by_arrays`` where some threads alone execute it."""

    access: Access
    text: str
    word = np.dtype(np.uint32)
    kind = "ldmatrix"
    can_fail = True

    def task(self, wave: Wave) -> tuple[bytes, int]:
        function = compiler.compile(self.text, ldmatrix.NAME, tasks.Function)
        chunk = tasks.pool(wave.cores).chunk(wave.warps, WORTH)
        shared = wave.regions["shared"]
        words = (
            *(tasks.address(function), chunk, 0, 0, wave.warps),
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
    """Return the step that is a task too, where the form and its address allow it."""
    narrow = form.bits == form.packed_bits == 16 and access.space == "shared"
    if not (narrow and compiler.available() and sees_arrays()):
        return step
    checked = WARP if all_addresses else form.matrices * form.rows
    text = ldmatrix.text(form.matrices, checked, tuple(order))
    return LoadStep(step, [access.base], [one.slot for one in destinations], access, text)
