"""What tensor cores have been told to do with Tensor Memory, and have not done yet.

Each CTA, or pair of CTAs, has one queue: multiplications, copies and shifts of Tensor Memory begin in the
order in which they were issued, by whichever thread. They land when a commit behind them must arrive, or
when the ``Schedule`` says so (``run.in_flight``).

Source: PTX ISA, "tcgen05 memory consistency model" and "tcgen05.commit".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.arrays import Array
from ptxlab.emulator.run.in_flight import Groups


class TensorWork(Groups):
    """The queues of a wave. Its threads stand for CTAs: of a pair it is the even one."""

    def pending(self, ctas: Array) -> bool:
        """Say whether some of the CTAs have work that has not landed."""
        return any(work.threads.mask[ctas].any() for work in self._pending)


@dataclass(frozen=True, slots=True)
class TensorCoreAccess:
    """What tensor cores access for operations, in each of the ``group`` CTAs of each: arrays [CTAs, ...].

    ``shared`` are first bytes of 16 of shared memory, which are read; cells of Tensor Memory are ``read`` or
    ``written``.
    """

    group: int
    shared: Sequence[Array] = ()
    read: Sequence[Array] = ()
    written: Sequence[Array] = ()
