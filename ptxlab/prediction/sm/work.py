"""What a launch computes: floating-point and tensor core operations, as its machine code issues them.

A fused multiply-add is two, as in NVIDIA's figures; a product of tensor cores is 2 m n k, of integers too. All lanes of a
warp are counted, those that are switched off too, as the time of an instruction is theirs. What takes RZ for a factor, as
``HFMA2.MMA R5, -RZ, RZ, 0, 1``, moves a constant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import ZERO_REGISTER, SassRegister
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.sm.timing import peak, product_shape


def operations(
    code: Sequence[DecodedInstruction], stalls: Mapping[tuple[int, str], float], chip: Chip
) -> tuple[float, float | None] | None:
    """Return what was computed in a run of an SM, and the most a clock of the pipe that most of it is on, None where nobody says.

    None where sizes of products are in descriptors, as with tcgen05. ``stalls`` are a run's: a warp is selected once for
    each instruction that it issues.
    """
    by_peak: dict[float | None, float] = defaultdict(float)
    for (number, why), times in stalls.items():
        if why != "selected":
            continue
        i = code[number]
        if i.does == "tensor product":
            return None
        if each := _of_a_warp(i):
            by_peak[peak(i, chip)] += times * each
    return sum(by_peak.values()), max(by_peak, key=lambda each: by_peak[each], default=None)


def _of_a_warp(i: DecodedInstruction) -> float:
    if i.multiplies_matrices:
        m, n, k = product_shape(i)
        return 2 * m * n * k / (WARPGROUP // WARP if i.does == "product" else 1)
    moves = any(isinstance(s, SassRegister) and s.number == ZERO_REGISTER for s in i.sources[:2])
    return 0 if moves or i.row is None else WARP * i.row.flops
