"""Comparing what was dumped with what was predicted, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ptxlab.fragments.predict import matrices
from ptxlab.fragments.report import Mismatch, Run
from ptxlab.isa import FragmentLayout, MatrixInstruction


def mismatches(instruction: MatrixInstruction, runs: Sequence[Run]) -> tuple[Mismatch, ...]:
    """Return every wrong element of every run: registers of A, B, C and D, then D in memory."""
    return tuple(found for run in runs for found in _of_run(instruction, run))


def _of_run(instruction: MatrixInstruction, run: Run) -> Iterator[Mismatch]:
    expected = matrices(instruction, run.inputs)
    for layout in instruction.operands:
        words = layout.pack(expected[layout.operand])
        held = run.registers[layout.operand]
        for lane, register in np.argwhere(words != held):
            yield from _of_register(
                layout, run, int(lane), int(register), int(words[lane, register])
            )
    d = instruction.operand("D")
    for row, col in np.argwhere(expected["D"] != run.result):
        (place,) = d.registers(int(row), int(col))
        right, wrong = int(expected["D"][row, col]), int(run.result[row, col])
        yield Mismatch(run.inputs.fill, "memory", "D", *place, int(row), int(col), right, wrong)


def _of_register(
    layout: FragmentLayout, run: Run, lane: int, register: int, expected: int
) -> Iterator[Mismatch]:
    found = int(run.registers[layout.operand][lane, register])
    for element in range(layout.elements_per_register):
        right, wrong = (element_bits(layout, word, element) for word in (expected, found))
        if right != wrong:
            row, col = map(int, layout.element(lane, register, element))
            place = (lane, register, element, row, col)
            yield Mismatch(run.inputs.fill, "register", layout.operand, *place, right, wrong)


def element_bits(layout: FragmentLayout, word: int, element: int) -> int:
    """Return the bit pattern of ``element`` of a register that holds ``word``."""
    return (word >> (element * layout.bits)) & ((1 << layout.bits) - 1)
