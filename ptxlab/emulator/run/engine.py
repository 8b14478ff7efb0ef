"""What machine code does for whoever runs blocks, which need not know how it comes about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.run.code import BasicBlock, Converged, Step
from ptxlab.launch_config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Engine:
    """A launch is made in the context of ``launching``.

    It yields the heat from which on blocks become machine code, NEVER for none.
    ``steps`` are those that a group runs of its block: machine code once the block is hot.
    ``run_loop`` takes a group through what it can be called for at once: it returns how many instructions
    these were, and the block whose exit comes next, None where the group stands before a block.
    """

    launching: Callable[[Program, LaunchConfig], AbstractContextManager[int]]
    steps: Callable[[Converged], Sequence[Step]]
    run_loop: Callable[[Converged], tuple[int, BasicBlock | None]]
