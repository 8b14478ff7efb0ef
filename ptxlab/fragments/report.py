"""The results of looking at an instruction's fragments: plain data, drawn by ``ptxlab.view``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxlab.fragments.fill import Array, Fill, Inputs
from ptxlab.isa import MatrixInstruction, Target


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One launch of one warp.

    ``registers`` holds, for A, B, C (before the instruction) and D (after it), the words each lane
    had, [32, registers]. ``result`` is D as the program left it in memory, bit patterns, m x n.
    """

    inputs: Inputs
    registers: dict[str, Array]
    result: Array


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element that is not what was predicted; ``expected`` and ``found`` are bit patterns.

    ``where`` is "register" for what a lane held at the instruction, and "memory" for what the
    program stored; then lane, register and element name the place that should have stored it.
    """

    fill: Fill
    where: Literal["register", "memory"]
    operand: str
    lane: int
    register: int
    element: int
    row: int
    col: int
    expected: int
    found: int


@dataclass(frozen=True, slots=True, eq=False)
class FragmentReport:
    """What was seen of ``instruction`` on a device, and how it compares with the prediction.

    ``runs`` starts with the fill that was asked for; the launches that settle the layouts follow.
    ``hardware`` names the GPU whose register dump confirms the layouts, None without one.
    """

    instruction: MatrixInstruction
    device_kind: str
    device_name: str
    target: Target
    runs: tuple[Run, ...]
    mismatches: tuple[Mismatch, ...]
    hardware: str | None

    @property
    def shown(self) -> Run:
        """The launch of the fill that was asked for."""
        return self.runs[0]

    @property
    def layout_verified(self) -> bool:
        """Whether every register of every lane held what the layouts say, in all launches."""
        return not any(mismatch.where == "register" for mismatch in self.mismatches)

    @property
    def result_verified(self) -> bool:
        """Whether the program stored the right D, in all launches."""
        return not any(mismatch.where == "memory" for mismatch in self.mismatches)

    @property
    def passed(self) -> bool:
        """Whether everything compared equal."""
        return not self.mismatches
