"""Instructions of the machine about Tensor Memory: what one thread has done there, loads, stores, columns."""

from __future__ import annotations

from functools import partial

from ptxlab.machine.row import Modifiers, rows, tensor_registers

_BOARD = "tensor memory"
_told = partial(rows, pipe="uniform", scoreboard=_BOARD, stores=True, reads_late=True)
_queued = partial(_told, operands="nothing out", space="tensor memory")


def _stored(modifiers: Modifiers, source: int) -> int:
    """Return the registers that STTM stores, behind the address."""
    return tensor_registers(modifiers) if source else 1


ROWS = (
    *_queued("UTCHMMA UTCQMMA UTCIMMA UTCOMMA", does="tensor product"),
    *_queued("UTCCP", does="tensor copy"),
    *_told("UTCBAR", operands="nothing out", space="mbarrier", does="tensor commit"),
    *_told(
        "UTCATOMSWS", operands="a predicate first", space="tensor memory", does="tensor allocation"
    ),
    *rows("LDTM", "tmem", scoreboard=_BOARD, writes=tensor_registers),
    *rows("STTM", "tmem", scoreboard=_BOARD, writes=tensor_registers, reads=_stored),
    *rows("UVIRTCOUNT", "control", operands="nothing out"),
)
