"""All rungs of the ladder by name: the kernels, and what they are measured against."""

from __future__ import annotations

from difflib import get_close_matches

from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm
from ptxlab.gemm.baselines import BASELINES, GpuBaseline, HostBaseline

LADDER: dict[str, Algorithm | HostBaseline | GpuBaseline] = {**BASELINES, **ALGORITHMS}


def find_algorithm(name: str) -> Algorithm | HostBaseline | GpuBaseline:
    """Return the kernel or baseline called ``name``; raise PtxlabError naming all of them."""
    if name not in LADDER:
        close = get_close_matches(name, LADDER, n=1)
        raise PtxlabError(
            f"there is no algorithm {name!r}, there are {', '.join(LADDER)}",
            hint=f"did you mean {close[0]}?" if close else None,
        )
    return LADDER[name]
