"""All rungs of the ladder by name: the kernels, and what they are measured against."""

from __future__ import annotations

from ptxlab.errors import PtxlabError, did_you_mean
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm
from ptxlab.gemm.baselines import BASELINES, GpuBaseline, HostBaseline

LADDER: dict[str, Algorithm | HostBaseline | GpuBaseline] = {**BASELINES, **ALGORITHMS}


def find_algorithm(name: str) -> Algorithm | HostBaseline | GpuBaseline:
    """Return the kernel or baseline called ``name``; raise PtxlabError naming all of them."""
    if name not in LADDER:
        raise PtxlabError(
            f"there is no algorithm {name!r}, there are {', '.join(LADDER)}",
            hint=did_you_mean(name, LADDER),
        )
    return LADDER[name]
