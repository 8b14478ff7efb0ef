"""Facts of rungs, made up: what the story and its pictures are tested with, beside what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptxlab.gemm import ALGORITHMS
from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.reference import Comparison
from ptxlab.gemm.verification import Verdict
from ptxlab.isa.occupancy import Occupancy
from ptxlab.observe.counters import Counts
from ptxlab.toolchain import Resources

SIZE = 64
PRODUCTS = 2 * SIZE**3 // 64
"""The fma of warps that it takes, 8192."""


def made(algorithm: str, *, share: float = 0.5, registers: int = 32, **counts: int) -> KernelFacts:
    """Return facts of 4 CTAs of 1024 threads that multiply 64 x 64 matrices with as many fma as needed.

    What ``counts`` does not say is 1024 requests of 128 bytes of global memory, each in 4 sectors.
    """
    usual = {
        "flops": 2 * SIZE**3,
        "requests": 1024,
        "sectors": 4096,
        "sectors_ideal": 4096,
        "global_read": 512 * 128,
        "global_written": 512 * 128,
    }
    return KernelFacts(
        algorithm=ALGORITHMS[algorithm],
        target="sm_90a",
        problem=Problem(SIZE, SIZE, SIZE, "f32"),
        tile={"BM": 32, "BN": 32},
        verdict=Verdict(Comparison(0.0, None, None, None), 1.0),
        ctas=4,
        threads=1024,
        shared=0,
        counts=Counts(**{**usual, **counts}),
        copies=Counts(),
        products=PRODUCTS,
        barriers=0,
        bytes_per_flop={"global": 0.5, "sectors": 0.5, "shared": 0.0},
        resources=Resources(algorithm, registers, 0, 0, 1, 0, 0),
        occupancy=Occupancy(1024, 2, 64, 64, {"CTAs": 32, "threads": 2, "registers": 2}),
        opcode="FFMA",
        share=share,
    )


def counting(facts: KernelFacts, **counts: Any) -> KernelFacts:
    """Return the same facts with other counts."""
    return replace(facts, counts=replace(facts.counts, **counts))


def on_tensor_cores(facts: KernelFacts) -> KernelFacts:
    """Return the facts with as many FLOPs in 64 times fewer instructions."""
    return replace(
        facts,
        problem=replace(facts.problem, dtype="bf16"),
        opcode="HMMA",
        products=facts.products // 64,
    )
