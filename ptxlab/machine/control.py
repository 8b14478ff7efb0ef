"""The control bits of machine code: what ptxas tells the issue logic beside each instruction.

One layout holds for sm_70 to sm_120, in the upper bits of an instruction's 128: CuAssembler's user
guide, and "Dissecting and Modeling the Architecture of Modern GPU Cores" (arXiv 2503.20481).
"""

from __future__ import annotations

from dataclasses import dataclass

INSTRUCTION_BYTES = 16
_NONE = 7


@dataclass(frozen=True, slots=True)
class Control:
    """``stall``: cycles until this warp may issue again.

    Scoreboard ``writes`` is held until the result is there, ``reads`` until the sources were read,
    None where there is none; the instruction itself waits for those in ``waits``. ``reuse`` are the
    source slots whose register is kept for the next instruction.
    """

    stall: int
    writes: int | None
    reads: int | None
    waits: tuple[int, ...]
    reuse: tuple[int, ...]


def control(encoding: bytes) -> Control:
    """Read the control bits of one instruction of 16 bytes."""
    bits = int.from_bytes(encoding, "little") >> 105
    writes, reads = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        bits & 15,
        None if writes == _NONE else writes,
        None if reads == _NONE else reads,
        _set_bits(bits >> 11 & 63),
        _set_bits(bits >> 17 & 15),
    )


def scoreboards(operand: str) -> tuple[int, ...]:
    """Return the scoreboards in an operand that is a set of them, ``{5,4,3}``; none of any other."""
    names = operand[1:-1].split(",") if operand.startswith("{") else []
    return tuple(int(name) for name in names)


def _set_bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
