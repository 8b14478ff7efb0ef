"""What is counted of each instruction, and which of Nsight Compute's metrics that is.

Names of metrics: Nsight Compute, "Metrics Reference: Source Metrics". A GPU counts machine
instructions, of which one of PTX may become several or none; what is said here of addresses holds on
both. Bytes that several lanes ask for count once in an ideal, so that none exceeds what was counted. That
tensor cores read a core matrix in one pass is an assumption: NVIDIA does not say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: its ``name`` in ``Counts``, and what it counts.

    ``metric`` is Nsight Compute's, "" where it has none. ``ideal`` names the counter that this one
    would be equal to if nothing were wasted. ``heading`` is that of its column in a table of lines, ""
    where it has none: those of a state space follow its name.
    """

    name: str
    meaning: str
    metric: str = ""
    ideal: str = ""
    heading: str = ""


def _counted(meaning: str, metric: str = "", ideal: str = "", heading: str = "") -> int:
    about = {"meaning": meaning, "metric": metric, "ideal": ideal, "heading": heading}
    counter: int = field(default=0, metadata=about)
    return counter


@dataclass(slots=True)
class Counts:
    """The counters of one instruction, a line, or a launch, each with what it counts: see ``Counter``."""

    executed: int = _counted("warps that executed it", "inst_executed", heading="executed")
    threads: int = _counted("threads that executed it", "thread_inst_executed")
    threads_on: int = _counted(
        "threads that executed it and whose predicate held", "thread_inst_executed_true"
    )
    partial: int = _counted(
        "warps that executed it with only part of their threads that had not ended",
        heading="partial",
    )
    splits: int = _counted(
        "warps of which it sent threads both ways (guarded branches, returns and exits)",
        "smsp__branch_targets_threads_divergent",
        heading="splits",
    )
    requests: int = _counted(
        "warps that asked for global memory with it",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld, _op_st",
        heading="global",
    )
    sectors: int = _counted(
        "sectors of 32 bytes of global memory that hold what each warp asked for",
        "memory_l2_theoretical_sectors_global",
        "sectors_ideal",
        heading="sectors",
    )
    sectors_ideal: int = _counted(
        "the sectors that the same different bytes would fill",
        "memory_l2_theoretical_sectors_global_ideal",
        heading="ideal",
    )
    global_read: int = _counted("bytes that threads asked of global memory")
    global_written: int = _counted("bytes that threads gave to global memory")
    shared_requests: int = _counted("warps that asked for shared memory with it", heading="shared")
    shared_wavefronts: int = _counted(
        "passes over the banks of shared memory, those that conflicts cost included",
        "memory_l1_wavefronts_shared",
        "shared_ideal",
        heading="wavefronts",
    )
    shared_ideal: int = _counted(
        "the passes without a conflict", "memory_l1_wavefronts_shared_ideal", heading="ideal"
    )
    shared_read: int = _counted("bytes that threads asked of shared memory")
    shared_written: int = _counted("bytes that threads gave to shared memory")
    local_requests: int = _counted("warps that asked for local memory with it", heading="local")
    local_sectors: int = _counted(
        "sectors of local memory that hold what each warp asked for",
        "memory_l2_theoretical_sectors_local",
        "local_ideal",
        heading="sectors",
    )
    local_ideal: int = _counted("the sectors that the words asked for would fill", heading="ideal")
    local_read: int = _counted("bytes that threads asked of local memory")
    local_written: int = _counted("bytes that threads gave to local memory")
    collisions: int = _counted(
        "atomic updates of an address that a lane before it in the same warp updates too",
        heading="collisions",
    )
    engine_copies: int = _counted(
        "copies that the copy engine was asked for, tiles and rows of bytes"
    )
    engine_global: int = _counted(
        "bytes of global memory that the copy engine read or wrote", heading="engine"
    )
    engine_shared: int = _counted(
        "bytes of shared memory that the copy engine read or wrote, of a multicast in each CTA",
        heading="in shared",
    )
    tensor_shared: int = _counted(
        "bytes of shared memory that tensor cores read: factors of wgmma and tcgen05.mma, and what tcgen05.cp copies",
        heading="tensor",
    )
    tensor_wavefronts: int = _counted(
        "passes over the banks in which they read these, a core matrix of 8 times 16 bytes at a time",
        ideal="tensor_ideal",
        heading="wavefronts",
    )
    tensor_ideal: int = _counted(
        "these passes without a conflict, one a core matrix", heading="ideal"
    )
    tmem_loaded: int = _counted(
        "bytes of the cells of Tensor Memory that warps loaded", heading="tmem ld"
    )
    tmem_stored: int = _counted(
        "bytes of the cells of Tensor Memory that warps stored to", heading="tmem st"
    )
    tmem_read: int = _counted(
        "bytes of the cells that tensor cores read: A, the D that is added to, scales in each of their copies, "
        "metadata, and what is shifted",
        heading="tmem read",
    )
    tmem_written: int = _counted(
        "bytes of the cells that tensor cores wrote: D, copies, and what was shifted",
        heading="written",
    )
    flops: int = _counted(
        "floating-point additions and multiplications, both of an fma, 2 m n k of a matrix product",
        "smsp__sass_thread_inst_executed_op_fadd_pred_on, _fmul_, 2 * _ffma_",
        heading="FLOPs",
    )
    integer_ops: int = _counted(
        "the same of integers, without logic, shifts and comparisons", heading="int ops"
    )

    @property
    def lanes(self) -> float:
        """How many threads of a warp execute it on average."""
        return self.threads / self.executed if self.executed else 0.0

    @property
    def tmem_moved(self) -> int:
        """The bytes of Tensor Memory that anybody read or wrote."""
        return self.tmem_loaded + self.tmem_stored + self.tmem_read + self.tmem_written

    @property
    def excess(self) -> int:
        """The sectors and wavefronts beyond the ideal ones, what patterns of addresses cost."""
        return sum(getattr(self, name) - getattr(self, ideal) for name, ideal in IDEAL.items())

    def add(self, name: str, count: int) -> None:
        setattr(self, name, getattr(self, name) + count)


COUNTERS = tuple(Counter(field.name, **field.metadata) for field in fields(Counts))
_NUMBERS = attrgetter(*(counter.name for counter in COUNTERS))
IDEAL = {counter.name: counter.ideal for counter in COUNTERS if counter.ideal}
"""The counters that should not exceed another one, and that one."""


@dataclass(frozen=True, slots=True)
class Space:
    """The counters of a state space, by name; ``units`` counts its sectors or wavefronts."""

    requests: str
    units: str
    ideal: str
    read: str
    written: str


SPACES = {
    "global": Space("requests", "sectors", "sectors_ideal", "global_read", "global_written"),
    "shared": Space(
        "shared_requests", "shared_wavefronts", "shared_ideal", "shared_read", "shared_written"
    ),
    "local": Space("local_requests", "local_sectors", "local_ideal", "local_read", "local_written"),
}


def total(several: Iterable[Counts]) -> Counts:
    return Counts(*map(sum, zip(*map(_NUMBERS, (Counts(), *several)), strict=True)))
