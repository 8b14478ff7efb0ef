"""What is counted of each instruction, and which of Nsight Compute's metrics that is.

Names of metrics: Nsight Compute, "Metrics Reference: Source Metrics". A GPU counts machine
instructions, of which one of PTX may become several or none; what is said here of addresses holds on
both. Bytes that several lanes ask for count once in an ideal, so that none exceeds what was counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: its ``name`` in ``Counts``, and what it counts.

    ``metric`` is Nsight Compute's, "" where it has none. ``ideal`` names the counter that this one
    would be equal to if nothing were wasted.
    """

    name: str
    meaning: str
    metric: str = ""
    ideal: str = ""


COUNTERS: tuple[Counter, ...] = (
    Counter("executed", "warps that executed it", "inst_executed"),
    Counter("threads", "threads that executed it", "thread_inst_executed"),
    Counter(
        "threads_on",
        "threads that executed it and whose predicate held",
        "thread_inst_executed_true",
    ),
    Counter(
        "partial",
        "warps that executed it with only part of their threads that had not ended",
    ),
    Counter(
        "splits",
        "warps of which it sent threads both ways (guarded branches, returns and exits)",
        "smsp__branch_targets_threads_divergent",
    ),
    Counter(
        "requests",
        "warps that asked for global memory with it",
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld, _op_st",
    ),
    Counter(
        "sectors",
        "sectors of 32 bytes of global memory that hold what each warp asked for",
        "memory_l2_theoretical_sectors_global",
        "sectors_ideal",
    ),
    Counter(
        "sectors_ideal",
        "the sectors that the same different bytes would fill",
        "memory_l2_theoretical_sectors_global_ideal",
    ),
    Counter("global_read", "bytes that threads asked of global memory"),
    Counter("global_written", "bytes that threads gave to global memory"),
    Counter("shared_requests", "warps that asked for shared memory with it"),
    Counter(
        "shared_wavefronts",
        "passes over the banks of shared memory, those that conflicts cost included",
        "memory_l1_wavefronts_shared",
        "shared_ideal",
    ),
    Counter(
        "shared_ideal",
        "the passes without a conflict",
        "memory_l1_wavefronts_shared_ideal",
    ),
    Counter("shared_read", "bytes that threads asked of shared memory"),
    Counter("shared_written", "bytes that threads gave to shared memory"),
    Counter("local_requests", "warps that asked for local memory with it"),
    Counter(
        "local_sectors",
        "sectors of local memory that hold what each warp asked for",
        "memory_l2_theoretical_sectors_local",
        "local_ideal",
    ),
    Counter("local_ideal", "the sectors that the words asked for would fill"),
    Counter("local_read", "bytes that threads asked of local memory"),
    Counter("local_written", "bytes that threads gave to local memory"),
    Counter(
        "collisions",
        "atomic updates of an address that a lane before it in the same warp updates too",
    ),
    Counter(
        "flops",
        "floating-point additions and multiplications, both of an fma, 2 m n k of a matrix product",
        "smsp__sass_thread_inst_executed_op_fadd_pred_on, _fmul_, 2 * _ffma_",
    ),
    Counter("integer_ops", "the same of integers, without logic, shifts and comparisons"),
)


IDEAL = {counter.name: counter.ideal for counter in COUNTERS if counter.ideal}
"""The counters that should not exceed another one, and that one."""


@dataclass(slots=True)
class Counts:
    """The counters of one instruction, a line, or a launch; see ``COUNTERS`` for what each counts."""

    executed: int = 0
    threads: int = 0
    threads_on: int = 0
    partial: int = 0
    splits: int = 0
    requests: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    global_read: int = 0
    global_written: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_ideal: int = 0
    shared_read: int = 0
    shared_written: int = 0
    local_requests: int = 0
    local_sectors: int = 0
    local_ideal: int = 0
    local_read: int = 0
    local_written: int = 0
    collisions: int = 0
    flops: int = 0
    integer_ops: int = 0

    @property
    def lanes(self) -> float:
        """How many threads of a warp execute it on average."""
        return self.threads / self.executed if self.executed else 0.0

    @property
    def excess(self) -> int:
        """The sectors and wavefronts beyond the ideal ones, what patterns of addresses cost."""
        return sum(getattr(self, name) - getattr(self, ideal) for name, ideal in IDEAL.items())


def total(several: Iterable[Counts]) -> Counts:
    """Add up counters one by one."""
    result = Counts()
    for counts in several:
        for field in fields(Counts):
            value = getattr(result, field.name) + getattr(counts, field.name)
            setattr(result, field.name, value)
    return result
