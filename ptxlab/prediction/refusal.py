"""What keeps a kernel from being predicted, and where."""

from __future__ import annotations

from ptxlab.errors import Unsupported
from ptxlab.machine.instruction import DecodedInstruction


class NotFollowed(Unsupported):
    """What keeps a kernel from being predicted, with the ``instruction`` that does."""

    def __init__(self, error: Unsupported, instruction: DecodedInstruction) -> None:
        super().__init__(error.message, location=error.location, hint=error.hint)
        self.instruction = instruction
