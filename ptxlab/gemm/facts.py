"""What a kernel of the ladder does and takes, counted and read off its machine code: exact facts.

They depend on the kernel, the problem and the target alone, and are the same on every machine. Counts
are those of ``ptxlab.observe.counters``, one launch on the emulator; registers, spills and SASS are
what ptxas makes of the same program, as a GPU would run it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.device.loading import load_assembled
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.gemm.algorithms import Algorithm, Rung, kernel_of
from ptxlab.gemm.problem import Problem, uploaded
from ptxlab.gemm.run import cutting
from ptxlab.gemm.side_by_side import RungJob
from ptxlab.gemm.tensor_maps import arguments
from ptxlab.gemm.tile import AS_IT_IS, Sizes
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.verification import Verdict, Verification
from ptxlab.isa.occupancy import Occupancy, occupancy
from ptxlab.layouts.shared_memory import PASS_BYTES
from ptxlab.machine.sass import SassFunction, SassInstruction, sass
from ptxlab.observe import count
from ptxlab.observe.counters import Counts, total
from ptxlab.observe.counting import COPY
from ptxlab.observe.traffic import SECTOR_BYTES
from ptxlab.syntax.tree import Instruction
from ptxlab.toolchain import Resources

ARITHMETIC = {"fma": "FFMA", "mma": "HMMA", "wgmma": "HGMMA", "tcgen05": "UTCHMMA"}
"""The opcode in SASS that does a kernel's work, by its method of summation, which is one of PTX."""

_SHARING = {
    ("mma", "mxfp8"): "QMMA",
    ("mma", "nvfp4"): "OMMA",
    ("tcgen05", "mxfp8"): "UTCQMMA",
    ("tcgen05", "nvfp4"): "UTCOMMA",
}
"""That of numbers that share scales, by their type, too."""

_PRODUCTS = {"wgmma": "mma_async", "tcgen05": "mma"}
"""The modifier of what multiplies, where a method's instructions have several verbs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """The facts of one ``algorithm`` with one ``tile`` on one problem, and whether D was right.

    ``ctas`` of ``threads`` threads ran, each with ``shared`` bytes of dynamic shared memory; ``counts``
    are those of all of them, ``copies`` those of asynchronous copies among them, and ``products`` the
    fma or mma that warps executed. ``barriers`` counts each barrier once for each CTA. ``resources``
    are what ptxas says of the kernel. ``share`` is the part of the main loop's SASS that is
    ``opcode``; None where no loop has any.
    """

    algorithm: Algorithm
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

    def __repr__(self) -> str:
        of = f"{self.algorithm.name}, {self.problem} for {self.target}"
        return f"<facts of {of}: {self.ctas} CTAs of {self.threads} threads>"

    @property
    def launched(self) -> int:
        return self.ctas * self.threads

    @property
    def instructions_per_thread(self) -> float:
        return self.counts.threads / self.launched

    @property
    def flops_per_thread(self) -> float:
        return self.counts.flops / self.launched

    @property
    def asked_bytes(self) -> int:
        """The bytes that threads or the copy engine ask of global memory or give it."""
        counts = self.counts
        return counts.global_read + counts.global_written + counts.engine_global

    @property
    def requests(self) -> int:
        """The requests of global memory by warps, and copies by the copy engine, which ask for a box."""
        return self.counts.requests + self.counts.engine_copies

    @property
    def sectors(self) -> int:
        """The sectors of global memory, of which the copy engine moves no more than it must."""
        return self.counts.sectors + self.counts.engine_global // SECTOR_BYTES

    @property
    def sectors_ideal(self) -> int:
        return self.sectors - self.counts.sectors + self.counts.sectors_ideal

    @property
    def shared_wavefronts(self) -> int:
        """The passes over shared memory: the copy engine's and the tensor cores' have no conflicts."""
        moved = self.counts.engine_shared + self.counts.tensor_shared
        return self.counts.shared_wavefronts + moved // PASS_BYTES

    @property
    def shared_ideal(self) -> int:
        return self.shared_wavefronts - self.conflicts

    @property
    def results(self) -> float:
        """How many elements of D a thread has."""
        return self.problem.m * self.problem.n / self.launched

    @property
    def flops_of_a_product(self) -> float:
        """The FLOP of the problem that an fma or mma of a warp does."""
        return self.problem.flops / self.products

    @property
    def sectors_of_a_request(self) -> float:
        return self.sectors / self.requests

    @property
    def bytes_of_a_request(self) -> float:
        return self.asked_bytes / self.requests

    @property
    def bytes_of_a_shared_request(self) -> float:
        """The bytes that a warp asks of shared memory at once, 0 where it never does."""
        moved = self.counts.shared_read + self.counts.shared_written
        return moved / self.counts.shared_requests if self.counts.shared_requests else 0.0

    @property
    def wavefronts_of_a_product(self) -> float:
        """The wavefronts of shared memory for an fma or mma of a warp."""
        return self.shared_wavefronts / self.products

    @property
    def conflicts(self) -> int:
        """The wavefronts of shared memory that bank conflicts cost."""
        return self.counts.shared_wavefronts - self.counts.shared_ideal

    @property
    def spilled(self) -> int:
        """The bytes that a thread has to put aside and fetch again for want of registers."""
        return self.resources.spill_stores + self.resources.spill_loads

    @property
    def beside(self) -> float:
        """The other instructions in the main loop's machine code for each that computes."""
        return 1 / self.share - 1 if self.share else 0.0


def facts(device: Device, problem: Problem, rung: Rung, sizes: Sizes = AS_IT_IS) -> KernelFacts:
    """Count one launch of a kernel of the ladder on the emulator ``device``.

    ``sizes`` changes its tile. Raises PtxlabError for a baseline, which is no kernel, for a problem
    without products, on a GPU, and for all that ``run`` raises it for.
    """
    algorithm = kernel_of(rung, ": nothing of it can be counted")
    algorithm.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    if not problem.flops:
        raise PtxlabError("a problem without products has nothing to count")
    tile = tile_for(device, algorithm, problem, sizes)
    with cutting(algorithm, problem, tile, device.target) as (file, options, config):
        tree, cubin = load_assembled(file, device.target, options)
    inputs = problem.inputs()
    with uploaded(device, problem, inputs) as operands:
        kernel = device.load(tree).kernel(algorithm.entry)
        profile = count(kernel, config, arguments(device, operands, algorithm))
        d, strays = operands.result()
    verification = Verification(problem, inputs)
    used = cubin.kernels[algorithm.entry]
    opcode = _SHARING.get((algorithm.method, problem.dtype), ARITHMETIC[algorithm.method])
    loop = main_loop(sass(cubin)[algorithm.entry], opcode)
    return KernelFacts(
        algorithm=algorithm,
        target=device.target.name,
        problem=problem,
        tile=tile.macros,
        verdict=verification.verdict(d, algorithm.method, device.target.dot16, strays),
        ctas=profile.ctas,
        threads=config.cta_threads,
        shared=config.shared,
        counts=profile.totals,
        copies=total(
            instruction.counts for instruction in profile.instructions if instruction.kind == COPY
        ),
        products=sum(
            instruction.counts.executed
            for instruction in profile.instructions
            if _multiplies(instruction.instruction, algorithm.method)
        ),
        barriers=profile.barriers,
        bytes_per_flop=profile.bytes_per_flop or {},
        resources=used,
        occupancy=occupancy(
            device.target,
            config.cta_threads,
            registers=used.registers,
            shared=used.shared + config.shared,
            barriers=used.barriers,
        ),
        opcode=opcode,
        share=None if loop is None else loop.share(opcode),
    )


def facts_of(device: Device, job: RungJob) -> KernelFacts:
    return facts(device, job.problem, job.rung, job.sizes)


def _multiplies(instruction: Instruction, method: str) -> bool:
    """Say whether it is of this method, and multiplies: others of its family wait or move."""
    product = _PRODUCTS.get(method)
    return instruction.opcode == method and (product is None or product in instruction.modifiers)


# ---- the loops of its machine code --------------------------------------------------------------
#
# A kernel is as fast as its main loop, and a scheduler of an SM issues one instruction a cycle: where
# fma is what counts, 90 % FFMA in the main loop is at most 90 % of the peak.


@dataclass(frozen=True, slots=True)
class SassLoop:
    """What lies between a label and the last branch back to it, inner loops included."""

    instructions: tuple[SassInstruction, ...]

    def count(self, opcode: str) -> int:
        """Return how many instructions have this opcode, whatever their modifiers."""
        return sum(instruction.opcode == opcode for instruction in self.instructions)

    def share(self, opcode: str) -> float:
        return self.count(opcode) / len(self.instructions)

    def surrounds(self, other: SassLoop) -> bool:
        first, last = self.instructions[0].address, self.instructions[-1].address
        inside = other.instructions[0].address >= first and other.instructions[-1].address <= last
        return inside and self != other


def loops(function: SassFunction) -> tuple[SassLoop, ...]:
    """Return the loops of a function in the order of their labels.

    A loop is known by a branch to a label before it (BRA). What the assembler puts elsewhere, behind a
    branch out of the loop, is not seen.
    """
    ends: dict[int, int] = {}  # by the address of the label
    for instruction in function.instructions:
        start = function.labels.get(instruction.target or "")
        if instruction.opcode == "BRA" and start is not None and start <= instruction.address:
            ends[start] = instruction.address
    return tuple(
        SassLoop(tuple(i for i in function.instructions if start <= i.address <= end))
        for start, end in sorted(ends.items())
    )


def main_loop(function: SassFunction, opcode: str) -> SassLoop | None:
    """Return the innermost loop with the most instructions of ``opcode``, None where no loop has any.

    Where several have as many, versions of the same loop for different cases, it is the shortest.
    """
    having = [loop for loop in loops(function) if loop.count(opcode)]
    innermost = [loop for loop in having if not any(map(loop.surrounds, having))]
    return max(
        innermost, key=lambda loop: (loop.count(opcode), -len(loop.instructions)), default=None
    )
