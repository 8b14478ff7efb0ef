"""Numbers of a rung that follow from its facts, and how numbers are written in a sentence."""

from __future__ import annotations

from ptxlab.gemm.facts import KernelFacts


def asked_bytes(facts: KernelFacts) -> int:
    """Return the bytes that threads ask of global memory or give it."""
    return facts.counts.global_read + facts.counts.global_written


def results(facts: KernelFacts) -> float:
    """Return how many elements of D a thread has."""
    return facts.problem.m * facts.problem.n / (facts.ctas * facts.threads)


def flops_of_a_product(facts: KernelFacts) -> float:
    """Return the FLOP of the problem that an fma or mma of a warp does."""
    return facts.problem.flops / facts.products


def sectors_of_a_request(facts: KernelFacts) -> float:
    """Return the sectors of global memory that a warp touches at once."""
    return facts.counts.sectors / facts.counts.requests


def bytes_of_a_request(facts: KernelFacts) -> float:
    """Return the bytes that a warp asks of global memory at once."""
    return asked_bytes(facts) / facts.counts.requests


def bytes_of_a_shared_request(facts: KernelFacts) -> float:
    """Return the bytes that a warp asks of shared memory at once, 0 where it never does."""
    moved = facts.counts.shared_read + facts.counts.shared_written
    return moved / facts.counts.shared_requests if facts.counts.shared_requests else 0.0


def wavefronts_of_a_product(facts: KernelFacts) -> float:
    """Return the wavefronts of shared memory for an fma or mma of a warp."""
    return facts.counts.shared_wavefronts / facts.products


def spilled(facts: KernelFacts) -> float:
    """Return the bytes that a thread has to put aside and fetch again for want of registers."""
    return facts.resources.spill_stores + facts.resources.spill_loads


def conflicts(facts: KernelFacts) -> float:
    """Return the wavefronts of shared memory that bank conflicts cost."""
    return facts.counts.shared_wavefronts - facts.counts.shared_ideal


def beside(facts: KernelFacts) -> float:
    """Return the other instructions in the main loop's machine code for each that computes."""
    return 1 / facts.share - 1 if facts.share else 0.0


def brief(value: float) -> str:
    """Write a number with as many digits as one wants to hear."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 1 else f"{value:.3g}"


def percent(part: float) -> str:
    """Write a part of a whole."""
    return f"{100 * part:.0f} %" if part >= 0.01 or not part else f"{100 * part:.1g} %"


def several(value: float, noun: str) -> str:
    """Write a number with what it counts."""
    return f"{brief(value)} {noun}" + "s" * (value != 1)
