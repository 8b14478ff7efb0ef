"""How fast matrix instructions are on GPUs: cycles between two of them, and what that is a clock and a second.

They are those that ``ptxlab predict`` takes: of what ptxas makes of an instruction for the very chip, and of
published rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.fragments.probe_kernel import KERNEL, programs
from ptxlab.isa.gpus import Gpu
from ptxlab.machine.decode import decode
from ptxlab.machine.sass import sass
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.prediction.chip import Chip, find, names
from ptxlab.prediction.sm.timing import timings
from ptxlab.toolchain import link_ptx

PARTITIONS = 4
"""Tensor cores of an SM, which a warpgroup's product holds all at once."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One instruction on a GPU: ``cycles`` until the next may begin, on the tensor core of one warp or of all four."""

    gpu: Gpu
    cycles: float
    per_clock: float

    @property
    def tera(self) -> float:
        """10^12 operations a second, by all SMs at the boost clock."""
        return self.gpu.tflops(self.per_clock)


def rates(form: Form, gpus: Sequence[str]) -> list[Rate]:
    """Return the rates on GPUs, or on ``all`` that have the instruction and whose rates are published.

    Raises PtxlabError for what does not multiply, for a GPU that is not known or has not the instruction, and
    Unsupported where nobody has published its rate there.
    """
    if not isinstance(form, MatrixInstruction):
        raise PtxlabError(f"{form.name} has no rate that is published", hint="leave out --gpu")
    everywhere = "all" in gpus
    made = []
    for chip in map(find, names() if everywhere else gpus):
        try:
            cycles = _held(form, chip)
        except PtxlabError:
            if everywhere:
                continue
            raise
        tensor_cores = 1 if form.shared else PARTITIONS
        made.append(Rate(chip.gpu, cycles, form.flops * tensor_cores / cycles))
    return made


def _held(form: MatrixInstruction, chip: Chip) -> float:
    """Return for how many cycles an instruction holds its tensor core, or as many as it is made into."""
    target = chip.gpu.target
    if not form.runs_on(target):
        raise PtxlabError(f"{form.name} does not run on {chip.gpu.name}, {target.name}")
    cubin = link_ptx(programs([form], target.name), arch=target.name)
    code = decode(cubin, sass(cubin), f"{KERNEL}0")
    products = [number for number, each in enumerate(code) if each.multiplies_matrices]
    held = sum(timing.hold for timing in timings(code, products, chip, {}).values())
    if not held:
        raise Unsupported(f"how fast {chip.gpu.name} computes {form.name} is not published")
    return held
