"""What machine code does for whoever runs blocks, which need not know how it comes about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ptxlab.emulator.prepare.program import BasicBlock, Converged
from ptxlab.emulator.run.wave import Frame


class Warm(Protocol):
    """Notes that a block of a function runs for so many threads; once it is hot it has machine code."""

    def __call__(self, block: BasicBlock, function: str, frame: Frame, threads: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Engine:
    """``threshold`` is the heat from which on blocks become machine code in a launch, NEVER for none.

    ``run_loop`` takes a group through what it can be called for at once: it returns how many instructions
    these were, and the block whose exit comes next, None where the group stands before a block.
    """

    threshold: Callable[[], int]
    warm: Warm
    run_loop: Callable[[Converged], tuple[int, BasicBlock | None]]
