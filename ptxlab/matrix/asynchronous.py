"""Instructions of asynchronous tensor cores whose operands are addresses and descriptors."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.matrix.form import Form
from ptxlab.matrix.operand import SignatureOperand

_SHORT = 4
"""Fewer numbers are written one by one."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The m and n an instruction descriptor may name, and the k that follows from the kind."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int

    def __str__(self) -> str:
        ms = ", ".join(map(str, self.m))
        return f"m {ms}; n {in_steps(self.n)}; k {self.k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncInstruction(Form):
    """One instruction: its operands in PTX's order, and what it does in a few words.

    ``shapes`` are those of a multiplication, empty for all else.
    """

    meaning: str
    signature: tuple[SignatureOperand, ...] = ()
    shapes: tuple[Shapes, ...] = ()


def in_steps(numbers: tuple[int, ...]) -> str:
    """Write numbers whose last ones are in equal steps as ``8, 16, 32 to 256 in steps of 16``."""
    if len(numbers) < _SHORT:
        return ", ".join(map(str, numbers))
    step = numbers[-1] - numbers[-2]
    first = len(numbers) - 1
    while first and numbers[first] - numbers[first - 1] == step:
        first -= 1
    if len(numbers) - first < _SHORT:
        return ", ".join(map(str, numbers))
    run = f"{numbers[first]} to {numbers[-1]} in steps of {step}"
    return ", ".join([*map(str, numbers[:first]), run])
