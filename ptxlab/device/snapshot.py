"""Shared memory and Tensor Memory in the middle of a launch, as a dump keeps them.

Source: PTX ISA, "Contents of the mbarrier object" and "Tensor Memory".
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.arrays import Array, Octets


@dataclass(frozen=True, slots=True)
class MbarrierSnapshot:
    """The state of an mbarrier: ``phase`` modulo 8, arrivals pending of those expected, bytes to come.

    ``tx`` is less than 0 where more bytes have come than were expected so far.
    """

    phase: int
    pending: int
    expected: int
    tx: int


@dataclass(frozen=True, slots=True, eq=False)
class SharedSnapshot:
    """The shared memory of a CTA at one moment: its bytes, where ``variables`` begin, its ``mbarriers`` by address.

    Of Tensor Memory ``cells`` [lanes, columns] are what it holds, of the columns that are ``allocated``. ``rank`` is
    that of the CTA in its cluster.
    """

    data: Octets
    variables: dict[str, int]
    mbarriers: dict[int, MbarrierSnapshot]
    cells: Array
    allocated: Array
    rank: int
