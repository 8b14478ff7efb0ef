"""A rung under the roofline of a GPU: what its counts let an SM compute at most in a clock.

A bound is what the counted work of a kernel takes of one part of an SM that is never idle: no waiting,
no latency, all data already in the L1 cache or shared memory. So it is no estimate of a speed, which is
lower; and since counts are those of the PTX, of which ptxas may put loads together, it is one of the
program, not of its machine code, but for ``issue``, which comes from there. FLOP are those of the
problem, 2 m n k: what a kernel computes beyond the edges of D is work in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.errors import PtxlabError
from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.problem import Problem, element_bits, memory_type
from ptxlab.isa.gpus import ISSUED, Gpu
from ptxlab.layouts.shared_memory import PASS_BYTES
from ptxlab.observe.traffic import SECTOR_BYTES

ARITHMETIC, ISSUE, L1 = "arithmetic", "issue", "L1 and shared memory"
GLOBAL, SHARED = "requests of global memory", "shared memory"
"""What may keep an SM from more, and of L1 and shared memory, which are one, the larger half."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """FLOP a clock and SM that each part allows, in ``limits``, and FLOP a byte in ``intensity``.

    ``peak`` is that of the units the kernel computes with. ``l1`` says which of two takes more of the L1 cache and shared memory.
    ``intensity`` is by level: ``global`` for sectors of global memory, ``L1`` for the room in L1 cache
    and shared memory, ``problem`` if A, B and D were moved once.
    """

    gpu: Gpu
    peak: float
    limits: dict[str, float]
    l1: str
    intensity: dict[str, float]

    @property
    def most(self) -> float:
        """The FLOP a clock and SM that all parts allow."""
        return min(self.limits.values())

    @property
    def by(self) -> str:
        """What allows no more; of L1 and shared memory, which half of it."""
        least = min(self.limits, key=lambda name: self.limits[name])
        return self.l1 if least == L1 else least

    @property
    def tflops(self) -> float:
        return self.gpu.tflops(self.most)

    @property
    def from_caches(self) -> float:
        """The part of the sectors that caches have to answer, since memory is not as fast."""
        asked = self.most / self.intensity["global"]
        return max(0.0, 1 - self.gpu.memory_bytes / asked)


def bounds(facts: KernelFacts, gpu: Gpu) -> Bounds:
    """Return the bounds of a rung on ``gpu``. Raises PtxlabError where its tensor cores lack the types."""
    problem, flops = facts.problem, facts.problem.flops
    on_tensor_cores = facts.opcode != "FFMA"
    peak = gpu.tensor.get((problem.dtype, problem.acc)) if on_tensor_cores else gpu.fp32
    if peak is None:
        raise PtxlabError(f"the tensor cores of an {gpu.name} do not compute {problem.types}")
    room = l1_bytes(facts)
    reached = gpu.mma_sync if facts.opcode == "HMMA" else 1.0
    limits = {ARITHMETIC: peak * reached * flops / facts.counts.flops}
    if facts.share is not None:
        limits[ISSUE] = ISSUED * facts.share * flops / facts.products
    limits[L1] = gpu.l1 * flops / room
    intensity = {
        "global": flops / (SECTOR_BYTES * facts.sectors),
        "L1": flops / room,
        "problem": problem.flops / least_bytes(problem),
    }
    outside = global_wavefronts(facts) > facts.shared_wavefronts
    return Bounds(gpu, peak, limits, GLOBAL if outside else SHARED, intensity)


def least_bytes(problem: Problem) -> int:
    """Return the bytes that any kernel moves: A and B read once, D written once, and read for beta."""
    m, n, k = problem.m, problem.n, problem.k
    of_d = m * n * memory_type(problem.acc).itemsize
    return (m * k + k * n) * element_bits(problem.dtype) // 8 + of_d * (2 if problem.beta else 1)


def l1_bytes(facts: KernelFacts) -> float:
    """Return the room that a launch takes in L1 and shared memory: 128 bytes for each wavefront.

    A request of global memory takes one too, or as many as its sectors fill. Asynchronous copies
    take those of what they write to shared memory only.
    """
    return PASS_BYTES * (facts.shared_wavefronts + global_wavefronts(facts))


def global_wavefronts(facts: KernelFacts) -> float:
    """Return the wavefronts of requests of global memory that go through registers."""
    requests = facts.counts.requests - facts.copies.requests
    sectors = facts.counts.sectors - facts.copies.sectors
    return max(requests, sectors * SECTOR_BYTES / PASS_BYTES)
