"""What machine code does for whoever runs blocks, which need not know how it comes about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxlab.emulator.run.code import BasicBlock, Converged, Step


@dataclass(frozen=True, slots=True)
class Engine:
    """``threshold`` is the heat from which on blocks become machine code in a launch, NEVER for none.

    ``steps`` are those that a group runs of its block: machine code once the block is hot.
    ``run_loop`` takes a group through what it can be called for at once: it returns how many instructions
    these were, and the block whose exit comes next, None where the group stands before a block.
    """

    threshold: Callable[[], int]
    steps: Callable[[Converged], Sequence[Step]]
    run_loop: Callable[[Converged], tuple[int, BasicBlock | None]]
