"""Linear layouts: where each bit of a number leads, so that any number leads to the XOR of where its bits do.

Source: "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (arXiv 2505.23819), and
Triton's TritonGPUAttrDefs.td for how they are written.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxlab.arrays import Array

Bases = list[tuple[int, ...]]
"""The coordinates that each bit leads to, the lowest bit first."""


def bases(coordinates: Array) -> Bases:
    """Return the bases of a map from 0, 1, 2 ... to ``coordinates``, int64 [numbers, dimensions].

    Raises ValueError where it is not linear.
    """
    count = len(coordinates)
    led = coordinates[1 << np.arange(count.bit_length() - 1)]
    if count & (count - 1) or (coordinates[0] != 0).any():
        raise ValueError(
            f"{count} numbers, from {coordinates[0].tolist()} on, make no linear layout"
        )
    for bit, basis in enumerate(led):
        below, above = coordinates[: 1 << bit], coordinates[1 << bit : 2 << bit]
        if (above != below ^ basis).any():
            raise ValueError(
                f"bit {bit} does not always lead {tuple(basis.tolist())} further: not linear"
            )
    return [tuple(map(int, basis)) for basis in led]


def distributed(threads: Bases, values: Bases) -> str:
    """Write Triton's encoding of registers: of 32 threads a warp."""
    parts = {"register": values, "lane": threads[:5], "warp": threads[5:], "block": []}
    return f"#ttg.linear<{_written(parts)}>"


def shared(offsets: Bases, alignment: int) -> str:
    """Write Triton's encoding of shared memory: from an offset to an element."""
    return f"#ttg.shared_linear<{_written({'offset': offsets})}, alignment = {alignment}>"


def _written(parts: Mapping[str, Bases]) -> str:
    told = (f"{name} = [{', '.join(map(str, map(list, some)))}]" for name, some in parts.items())
    return "{" + ", ".join(told) + "}"
