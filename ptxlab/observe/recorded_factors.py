"""The factors of a warpgroup's products that lie in shared memory: where the descriptors say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ptxlab.emulator import Site
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.descriptor import WGMMA_DESCRIPTOR
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.shared_matrix import addresses
from ptxlab.observe.recorded_operands import descriptor_slots, matrix_form
from ptxlab.observe.recording import Factor
from ptxlab.syntax.tree import Integer, Operand


def factors(site: Site, frame: Frame, threads: Threads, position: int) -> Iterator[Factor]:
    """Yield what a ``wgmma`` that ``threads`` begin reads of the shared memory of the CTA at a position."""
    form = matrix_form(site)
    if not isinstance(form, MatrixInstruction):
        return
    wave, first = frame.wave, position * frame.wave.cta_width
    mine = threads.index[(threads.index >= first) & (threads.index < first + wave.cta_width)]
    given = dict(zip((one.name for one in form.signature), site.instruction.operands, strict=True))
    for name, slot in descriptor_slots(site):
        operand = form.held(name.upper())
        if slot is None or not isinstance(operand, SharedOperand):
            continue
        words = np.broadcast_to(frame.registers[slot], (threads.width,))
        major = "mn" if _is_one(given.get(f"imm-trans-{name}")) else "k"
        for group in np.unique((mine - first) // WARPGROUP).tolist():
            word = words[first + group * WARPGROUP]
            yield _factor(operand, major, int(word), group * WARPGROUP // WARP, wave.shared_base)


def _is_one(operand: Operand | None) -> bool:
    return isinstance(operand, Integer) and operand.value == 1


def _factor(operand: SharedOperand, major: str, word: int, warp: int, base: int) -> Factor:
    [units] = addresses(operand, major, np.array([word], np.uint64)) - base
    swizzle = str(WGMMA_DESCRIPTOR.decode(word)["swizzle"])
    return Factor(operand, (operand.operand == "A") == (major == "k"), warp, swizzle, units)
