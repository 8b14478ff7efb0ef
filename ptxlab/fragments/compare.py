"""Comparing what a handwritten program dumped with what was predicted, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ptxlab.fragments.predict import matrices
from ptxlab.fragments.report import Mismatch, Run
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction


def mismatches(instruction: MatrixInstruction, runs: Sequence[Run]) -> tuple[Mismatch, ...]:
    """Return every wrong element of every run: registers of A, B, C and D, then D in memory."""
    return tuple(found for run in runs for found in _of_run(instruction, run))


def _of_run(instruction: MatrixInstruction, run: Run) -> Iterator[Mismatch]:
    expected = matrices(instruction, run.fill)
    for layout in instruction.operands:
        words = layout.pack(expected[layout.operand])
        held = run.registers[layout.operand]
        for lane, register in np.argwhere(words != held):
            place = int(lane), int(register)
            for element, right, wrong in differences(layout, int(words[place]), int(held[place])):
                row, col = map(int, layout.element(*place, element))
                at = (*place, element, row, col, right, wrong)
                yield Mismatch(run.fill, "register", layout.operand, *at, layout.bits)
    if run.result is None:
        return
    d = instruction.operand("D")
    for row, col in np.argwhere(expected["D"] != run.result):
        (owner,) = d.registers(int(row), int(col))
        right, wrong = int(expected["D"][row, col]), int(run.result[row, col])
        at = (*owner, int(row), int(col), right, wrong)
        yield Mismatch(run.fill, "memory", "D", *at, d.bits)


def differences(
    layout: FragmentLayout, expected: int, found: int
) -> Iterator[tuple[int, int, int]]:
    """Yield number and both bit patterns of the elements that differ between two registers."""
    for element in range(layout.elements_per_register):
        right, wrong = (element_bits(layout, word, element) for word in (expected, found))
        if right != wrong:
            yield element, right, wrong


def element_bits(layout: FragmentLayout, word: int, element: int) -> int:
    """Return the bit pattern of ``element`` of a register that holds ``word``."""
    return (word >> (element * layout.bits)) & ((1 << layout.bits) - 1)
