"""The forms of the operations that go from registers to registers."""

from __future__ import annotations

import ptxlab.emulator.operations  # noqa: F401  (registers every operation)
from ptxlab.emulator.prepare.row import ROWS, forms

__all__ = ["forms", "opcodes"]


def opcodes() -> tuple[str, ...]:
    """Return the opcodes that have such forms."""
    return tuple(
        name for name, rows in ROWS.items() if any(row.compute or row.make for row in rows)
    )
