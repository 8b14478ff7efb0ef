"""What a kernel of the ladder does and takes, counted and read off its machine code: exact facts.

They depend on the kernel, the problem and the target alone, and are the same on every machine. Counts
are those of ``ptxlab.observe.counters``, one launch on the emulator; registers, spills and SASS are
what ptxas makes of the same program, as a GPU would run it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab import resources
from ptxlab.device.loading import load_assembled
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm
from ptxlab.gemm.ladder import find_algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import AS_IT_IS, Sizes, prepare
from ptxlab.gemm.storage import gathered, uploaded
from ptxlab.gemm.verification import Verdict, Verification
from ptxlab.isa.occupancy import Occupancy, occupancy
from ptxlab.observe import count
from ptxlab.observe.counters import Counts, total
from ptxlab.toolchain import Resources
from ptxlab.toolchain.sass import sass
from ptxlab.toolchain.sass_loops import main_loop

ARITHMETIC = {"fma": "FFMA", "mma": "HMMA"}
"""The opcode in SASS that does a kernel's work, by its method of summation, which is one of PTX."""

COPY = "asynchronous copy"
"""The class of cp.async in the instruction mix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The facts of one ``algorithm`` with one ``tile`` on one problem, and whether D was right.

    ``ctas`` of ``threads`` threads ran, each with ``shared`` bytes of dynamic shared memory; ``counts``
    are those of all of them, ``copies`` those of asynchronous copies among them, and ``products`` the
    fma or mma that warps executed. ``barriers`` counts each barrier once for each CTA. ``resources``
    are what ptxas says of the kernel. ``share`` is the part of the main loop's SASS that is
    ``opcode``; None where no loop has any.
    """

    algorithm: str
    target: str
    problem: Problem
    tile: dict[str, int]
    verdict: Verdict
    ctas: int
    threads: int
    shared: int
    counts: Counts
    copies: Counts
    products: int
    barriers: int
    bytes_per_flop: dict[str, float]
    resources: Resources
    occupancy: Occupancy
    opcode: str
    share: float | None


def facts(device: Device, problem: Problem, algorithm: str, sizes: Sizes = AS_IT_IS) -> KernelFacts:
    """Count one launch of a kernel of the ladder on the emulator ``device``.

    ``sizes`` changes its tile. Raises PtxlabError for a baseline, which is no kernel, for a problem
    without products, on a GPU, and for all that ``run`` raises it for.
    """
    chosen = find_algorithm(algorithm)
    if not isinstance(chosen, Algorithm):
        raise PtxlabError(f"{algorithm} is no kernel of ptxlab's: nothing of it can be counted")
    chosen.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    if not problem.flops:
        raise PtxlabError("a problem without products has nothing to count")
    tile = chosen.cut(sizes) if sizes else chosen.tile_for(problem, device.target)
    inputs = problem.inputs()
    with uploaded(device, problem, inputs) as operands:
        ready = prepare(device, problem, chosen, operands, tile)
        profile = count(ready.kernel, ready.config, ready.arguments)
        d, _ = gathered(operands.d.numpy(), problem.m, problem.n, operands.ldd)
    verification = Verification(problem, inputs)
    file, options = resources.path(chosen.file), chosen.options(problem, tile)
    _, cubin = load_assembled(file, device.target, options)
    used, threads = cubin.kernels[chosen.entry], ready.config.cta_threads
    opcode = ARITHMETIC[chosen.method]
    loop = main_loop(sass(cubin)[chosen.entry], opcode)
    return KernelFacts(
        algorithm=algorithm,
        target=device.target.name,
        problem=problem,
        tile=tile.macros,
        verdict=verification.verdict(d, chosen.method, device.target.dot16),
        ctas=profile.ctas,
        threads=threads,
        shared=ready.config.shared,
        counts=profile.totals,
        copies=total(one.counts for one in profile.instructions if one.kind == COPY),
        products=sum(
            one.counts.executed
            for one in profile.instructions
            if one.instruction.opcode == chosen.method
        ),
        barriers=profile.barriers,
        bytes_per_flop=profile.bytes_per_flop or {},
        resources=used,
        occupancy=occupancy(
            device.target,
            threads,
            registers=used.registers,
            shared=used.shared + ready.config.shared,
            barriers=used.barriers,
        ),
        opcode=opcode,
        share=None if loop is None else loop.share(opcode),
    )
