"""What a candidate may take of this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate may take: ``seconds`` of time and of a processor, ``memory`` and each file in bytes.

    A launch may execute so many ``instructions`` of all its threads together, None for as many as it likes.
    ``elements`` are those that all arrays of a launch may have together before their sizes are made smaller.
    """

    seconds: float = 120.0
    memory: int = 4 << 30
    file: int = 256 << 20
    instructions: int | None = None
    elements: int = 1 << 18
