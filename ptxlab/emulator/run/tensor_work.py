"""What tensor cores have been told to do with Tensor Memory, and have not done yet.

Each CTA, or pair of CTAs, has one queue: multiplications, copies and shifts of Tensor Memory begin in the
order in which they were issued, by whichever thread. They land when a commit behind them must arrive, or
when the ``Schedule`` says so (``run.in_flight``).

Source: PTX ISA, "tcgen05 memory consistency model" and "tcgen05.commit".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptxlab.arrays import Array
from ptxlab.emulator.run.in_flight import Groups

if TYPE_CHECKING:  # its tables have hundreds of forms, which who runs none of them can spare
    from ptxlab.matrix.tensor_core_problem import TensorCoreProblem


class TensorWork(Groups):
    """The queues of a wave. Its threads stand for CTAs: of a pair it is the even one."""

    def pending(self, ctas: Array) -> bool:
        """Say whether some of the CTAs have work that has not landed."""
        return any(work.threads.mask[ctas].any() for work in self._pending)


@dataclass(frozen=True, slots=True)
class TensorCoreAccess:
    """What tensor cores access for operations, in each of the ``group`` CTAs of each, by operand: arrays [CTAs, ...].

    ``shared`` are first bytes of 16 of shared memory [CTAs, lines, units], which are read; cells of Tensor
    Memory are ``read`` or ``written``. Of products ``problem`` says what is multiplied, and ``adds`` [CTAs]
    whether D is added, which is then read too. ``swizzles`` are the names of the modes in which shared memory is read.
    """

    group: int
    shared: Mapping[str, Array] = field(default_factory=dict)
    read: Mapping[str, Array] = field(default_factory=dict)
    written: Mapping[str, Array] = field(default_factory=dict)
    problem: TensorCoreProblem | None = None
    adds: Array | None = None
    swizzles: Mapping[str, str] = field(default_factory=dict)
