"""What SMs draw, by chip, and the clock that a limit of power leaves them.

Power grows with what is computed and, as the voltage follows the clock, with the clock's cube: so each is told in W an SM
at 1 GHz. Tensor cores: the most that large products of 16 bits reach, which tensor cores that never wait need, of
stas00/ml-engineering, "Maximum Achievable Matmul FLOPS" (A100 SXM 271.2 TFLOP/s, H100 and H200 794.5, GH200 of 900 W 828.6,
B200 1745) and zzc0721/torch-performance-test-data, issues 96 (RTX 5090, 240.05), 120 (L4, 59.4) and 185 (A40, 122.29).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Draw:
    """What an SM draws at 1 GHz, in W: ``tensor`` cores that never wait, ``fma`` pipes that never do, and the ``rest``.

    Of many chips nobody has more than the first, which stands for all then.
    """

    tensor: float
    fma: float = 0.0
    rest: float = 0.0

    def clock(self, watts: float, tensor: float, fma: float) -> float:
        """Return the clock in MHz that ``watts`` an SM leave, where its pipes are used for such parts of the time."""
        drawn = self.rest + self.tensor * tensor + self.fma * fma
        return 1000 * math.cbrt(watts / drawn) if drawn else math.inf


def _drawn(watts: float, clock: int) -> float:
    """Return what an SM draws at 1 GHz that draws ``watts`` at a ``clock`` in MHz."""
    return watts / (clock / 1000) ** 3


GA100 = Draw(_drawn(400 / 108, 1226))
GH100 = Draw(_drawn(700 / 132, 1469))
GH200 = Draw(_drawn(900 / 132, 1532))
GB100 = Draw(_drawn(1000 / 148, 1439))

RTX_5090_CLOCK = 2758
"""What those 240.05 TFLOP/s take, beyond the 2407 MHz of its data sheet, with half of what its tensor cores have."""

GB202 = Draw(_drawn(575 / 170, RTX_5090_CLOCK) / 0.5)

# salykova/sgemm.cu has products of f32 on an RTX 3090 of 350 W, locked at 1395 MHz (assets/perf_locked.png) and not
# (assets/perf.png). From 8,000 on, where that no longer falls, Simon Boehm's kernel uses 46.3 % of the FMA pipes and is as much
# faster when it is not locked as 1701 MHz make it; cuBLAS uses 74.1 % and runs at 1567 MHz. What both draw else is the rest.
_HALF_USED, _MOSTLY_USED = _drawn(350 / 82, 1701), _drawn(350 / 82, 1567)
_FMA = (_MOSTLY_USED - _HALF_USED) / (0.741 - 0.463)
_REST = _HALF_USED - 0.463 * _FMA

GA102 = Draw(_drawn(300 / 84, 1422) - _REST, _FMA, _REST)
"""It stands for smaller chips of its kind, as what was measured of RTX 3070 Ti and RTX A4000 agrees with it."""

# cuBLAS of f32 uses 67.3 % of the FMA pipes of an RTX 4070 Ti SUPER (issue 70: 31.21 TFLOP/s, at the clock that 92.74 of f16 take)
# and reaches 11.11 TFLOP/s on an L4, which needs 1112 MHz. Other chips of its kind are far from their limits.
L4 = Draw(_drawn(72 / 58, 1000), _drawn(72 / 58, 1112) / 0.673)
