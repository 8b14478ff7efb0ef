"""The ports through which a sub-partition reads registers, one a bank, and the cache of operands that are read again.

After "Dissecting and Modeling the Architecture of Modern GPU Cores" (arXiv 2503.20481).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ptxlab.garbage import record

PORTS = 2
"""One for each bank."""

READ_WINDOW = 3
"""Cycles that an instruction has to read its registers in."""

Read = tuple[int, int, int, bool]
"""A register that is read: its bank, the slot of the operand, its number, and whether it is kept for reuse."""


@record(frozen=True, slots=True)
class Reads:
    """The registers that an instruction reads, as (latch, number) of each: a latch is a slot of one of the two banks.

    ``even`` and ``odd`` are how many of each bank. At each of ``latches`` nothing is kept afterwards but what is ``kept``.
    """

    even: int
    odd: int
    each: tuple[tuple[int, int], ...]
    latches: tuple[int, ...]
    kept: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, reads: Sequence[Read]) -> Reads:
        banks = Counter(bank for bank, *_ in reads)
        each = tuple((2 * slot + bank, number) for bank, slot, number, _ in reads)
        kept = tuple(latch for latch, (*_, reuse) in zip(each, reads, strict=True) if reuse)
        return cls(banks[0], banks[1], each, tuple({latch for latch, _ in each}), kept)


class RegisterPorts:
    """Until when the ports of a sub-partition are taken, and which registers of which warps are kept."""

    def __init__(self) -> None:
        self._even = self._odd = 0.0
        self._kept: dict[int, tuple[object, int]] = {}
        self._shared = 0.0
        self._times = 1.0

    def share(self, until: float, registers: float) -> None:
        """Have a tensor core read so many registers a cycle until some time, of both banks in turn: the others wait as much longer.

        FlashGPU-Sim's configuration of H100, after products beside other arithmetic: sums of f32 take 512 of 1,024 bytes a cycle.
        """
        self._shared, self._times = until, PORTS / (PORTS - registers)

    def read(self, warp: object, reads: Reads, now: float) -> float:
        """Take the ports for an instruction's registers, or return when that will be possible."""
        even: float = reads.even
        odd: float = reads.odd
        kept = self._kept
        if kept:
            for latch, number in reads.each:
                held = kept.get(latch)
                if held is not None and held[1] == number and held[0] is warp:
                    if latch & 1:
                        odd -= 1
                    else:
                        even -= 1
        if now < self._shared:
            even, odd = even * self._times, odd * self._times
        begins = now
        if even:
            begins = max(begins, self._even + min(even, READ_WINDOW) - READ_WINDOW)
        if odd:
            begins = max(begins, self._odd + min(odd, READ_WINDOW) - READ_WINDOW)
        if begins > now:
            return begins
        if even:
            self._even = max(self._even, now) + even
        if odd:
            self._odd = max(self._odd, now) + odd
        if kept:
            for latch in reads.latches:
                kept.pop(latch, None)
        for latch, number in reads.kept:
            kept[latch] = warp, number
        return now
