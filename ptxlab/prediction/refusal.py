"""What keeps a kernel from being predicted, and where."""

from __future__ import annotations

from ptxlab.errors import Unsupported
from ptxlab.machine.instruction import DecodedInstruction


class Undecided(Unsupported):
    """Whether a branch is taken, or something of memory done, depends on what is not computed."""


class NotFollowed(Unsupported):
    """What keeps a kernel from being predicted, with the ``instruction`` that does, of which it may be ``undecided`` whether it is done."""

    def __init__(self, error: Unsupported, instruction: DecodedInstruction) -> None:
        super().__init__(error.message, location=error.location, hint=error.hint)
        self.instruction = instruction
        self.undecided = isinstance(error, Undecided)
