"""Figures that others have published for such kernels, to be put beside our own.

A speed on another chip says little; the part of that chip's peak that it is can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.gpus import gpus_of
from ptxlab.isa.targets import TARGETS


@dataclass(frozen=True, slots=True)
class Figure:
    """What ``source`` (who, on what hardware, of which size) found, in its own words.

    ``of_peak`` is the part of the hardware's peak that this is, None where that is not known.
    """

    source: str
    found: str
    of_peak: float | None = None

    def __str__(self) -> str:
        of_peak = "" if self.of_peak is None else f", {100 * self.of_peak:.1f} % of its peak"
        return f"{self.source}: {self.found}{of_peak}"


def recipe(gflops: int) -> Figure:
    """Return a figure of the MAX recipe for matrix multiplication."""
    (a100,) = gpus_of(TARGETS["sm_80"])
    of_peak = gflops / 1e3 / a100.tflops(a100.fp32)
    return Figure("MAX recipe, A100, 4096", f"{gflops} GFLOP/s", of_peak)


def metal(gflops: int) -> Figure:
    """Return a figure of the study of matrix multiplication in Metal."""
    return Figure("Metal study, M1 Max", f"{gflops} GFLOP/s")
