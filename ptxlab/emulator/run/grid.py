"""A launch: module variables in place, the grid run wave by wave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.emulator.prepare.program import Program
from ptxlab.emulator.prepare.scope import MOST_LOCAL_BYTES
from ptxlab.emulator.run.engine import Engine
from ptxlab.emulator.run.executable import Executable
from ptxlab.emulator.run.in_flight import Schedule
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.emulator.run.register_pool import at_entry
from ptxlab.emulator.run.scheduler import Scheduler
from ptxlab.emulator.run.wave import Watcher, Wave
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.isa.occupancy import PARTITION_REGISTERS, PARTITIONS, occupancy
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import LaunchConfig
from ptxlab.workers import Progress, cores

WAVE_THREADS = 16384
"""Threads that run together: enough for numpy's calls to pay, few enough for the cache."""

WAVE_MEMORY = 1 << 26
"""Bytes of shared and local memory that a wave may have in all its CTAs together."""

RESIDENT_THREADS = 132 * 2048
RESIDENT_MEMORY = 1 << 30
"""What a cooperative launch may have, all of which runs together: the threads of an H100's SMs."""

WORKSPACE_BYTES = 16
"""Zeroes that a cooperative launch is given; ``this_grid().sync()`` counts CTAs in them."""


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch tells: ``counters`` by name, and the lines ``unverified``, whose bits nobody has measured."""

    counters: dict[str, int]
    unverified: tuple[int, ...]


def print_text(text: str) -> None:
    """Write what the program prints to standard output, as a GPU's driver does."""
    sys.stdout.write(text)
    sys.stdout.flush()


def launch(
    executable: Executable,
    config: LaunchConfig,
    parameters: bytes,
    memory: GlobalMemory,
    variables: dict[str, int],
    progress: Progress | None = None,
    write: Callable[[str], None] = print_text,
    watcher: Watcher | None = None,
    schedule: str = "late",
    most_instructions: int | None = None,
    alone: int | None = None,
    *,
    engine: Engine,
) -> Launched:
    """Run the kernel of an ``executable`` as ``config`` says, which is the caller's to check.

    ``parameters`` is the parameter block, ``variables`` are the addresses of the module's in
    ``memory``. ``progress`` is told (CTAs done, CTAs in all), repeatedly;
    ``write`` gets what the program prints, ``watcher`` is told all that happens. When asynchronous work
    lands, ``schedule`` says (``run.in_flight``). Blocks become machine code of the ``engine``. With ``most_instructions``
    a launch is stopped, sooner or later, whose threads have executed more than so many in all. The cluster of a CTA
    can run ``alone``.
    Raises LaunchError for a fault of the kernel, PtxlabError for more shared or
    local memory than there is, or a cooperative launch that cannot run all at once.
    """
    program = executable.program
    kernel, layout = program.entry, program.shared
    assert layout is not None
    entry = executable.routine(kernel)
    shared_bytes = layout.dynamic_base + config.shared if config.shared else layout.static_bytes
    if shared_bytes > program.most_shared:
        raise PtxlabError(
            f"kernel {kernel} needs {shared_bytes} bytes of shared memory, "
            f"{program.target.name} has {program.most_shared} for a CTA",
            hint="launch it with less dynamic shared memory, or choose another --arch",
        )
    if entry.frame.local_bytes > MOST_LOCAL_BYTES:
        raise PtxlabError(
            f"kernel {kernel} needs {entry.frame.local_bytes} bytes of local memory, "
            f"a thread has {MOST_LOCAL_BYTES}"
        )
    registers = _registers(program, config) if program.most_registers else 0
    total, tell, processors = config.ctas, progress or _nobody, cores()
    local = sum(function.frame.local_bytes for function in program.functions.values())
    size = _wave_size(config, shared_bytes, local)
    if config.cooperative and size < total:
        raise PtxlabError(
            f"a cooperative launch of kernel {kernel} has {size} CTAs at most, not {total}",
            hint="all of its CTAs are on the GPU at the same time",
        )

    def check(done: int, executed: int) -> None:
        """Raise TimeoutError where who watches the time has had enough, or too many instructions are executed."""
        tell(done, total)
        if most_instructions is not None and instructions + executed > most_instructions:
            raise TimeoutError(f"it has executed more than {most_instructions:,} instructions")

    def run(first: int, numbers: Sequence[int], workspace: int, hot: int) -> int:
        """Run one wave and return its instructions; the next may have its memory."""
        wave = Wave(
            program.module, program.reachable, program.function, program.target, memory, variables, config, numbers, parameters,
            layout, shared_bytes, write, watcher or Watcher(), watcher is not None, workspace, registers,
            Schedule(schedule), unverified, hot, processors, unlaunched.cancel,
        )  # fmt: skip
        scheduler = Scheduler(wave, entry, partial(check, first), engine)
        wave.watcher.begin(wave)
        scheduler.run()
        wave.watcher.end(wave)
        wave.own.hand_on()
        return scheduler.instructions

    instructions, unlaunched = 0, Unlaunched(config, alone)
    unverified = {line for function in program.functions.values() for line in function.unverified}
    launching, own_workspace = engine.launching(program, config), _workspace(config, memory)
    with np.errstate(all="ignore"), launching as hot, own_workspace as workspace:
        while unlaunched:
            first = unlaunched.launched
            instructions += run(first, unlaunched.take(size), workspace, hot)
            done = unlaunched.launched
            try:
                check(done, 0)
            except TimeoutError as error:
                raise LaunchError(
                    f"stopped, {error}: {done} of {total} CTAs have run",
                    hint="--timeout gives a long run more time",
                ) from None
    counters = {"threads": config.threads, "thread_instructions": instructions}
    return Launched(counters, tuple(sorted(unverified)))


def _registers(program: Program, config: LaunchConfig) -> int:
    """Return what a thread has at first of the registers that it gives back or takes; 0 where that is ignored."""
    registers = at_entry(program.declared[program.entry], program.most_registers)
    limits = occupancy(program.target, config.cta_threads, registers=registers).limits
    if not limits["registers"]:
        raise PtxlabError(
            f"kernel {program.entry} needs {registers} registers for each of {config.cta_threads} threads, "
            f"{program.target.name} has {PARTITIONS * PARTITION_REGISTERS} for a CTA",
            hint="launch it with fewer threads; .maxntid and .minnctapersm in place of .maxnreg leave it room",
        )
    return registers


def _nobody(done: int, total: int) -> None:
    """Be told how far a launch is, and do nothing."""


@contextmanager
def _workspace(config: LaunchConfig, memory: GlobalMemory) -> Iterator[int]:
    """Give the address of a cooperative launch's workspace while it runs, 0 to any other launch."""
    if not config.cooperative:
        yield 0
        return
    address = memory.allocate(WORKSPACE_BYTES, "the workspace of the grid")
    try:
        yield address
    finally:
        memory.free(address)


class Unlaunched:
    """The CTAs of a launch that have not begun, cluster by cluster; ``launched`` counts the others.

    They are all of the grid, or those of the cluster alone that one is in.
    """

    def __init__(self, config: LaunchConfig, alone: int | None = None) -> None:
        self._order = _in_clusters(config)
        self._cluster = config.cluster_ctas
        if alone is not None:
            at = self._order.index(alone)
            self._order = self._order[at - at % self._cluster :][: self._cluster]
        self.launched = 0

    def __bool__(self) -> bool:
        return self.launched < len(self._order)

    def take(self, count: int) -> Sequence[int]:
        """Return the numbers of the next CTAs, up to so many."""
        numbers = self._order[self.launched : self.launched + count]
        self.launched += len(numbers)
        return numbers

    def cancel(self) -> int | None:
        """Return the first CTA of the next cluster, which will not be launched; None if there is none."""
        return next(iter(self.take(self._cluster)), None)


def _in_clusters(config: LaunchConfig) -> Sequence[int]:
    """Return the numbers of all CTAs, those of a cluster side by side in the order of their ranks."""
    if config.cluster_ctas == 1:
        return range(config.ctas)
    (x, y, z), (a, b, c) = config.grid, config.cluster_shape
    numbers = np.arange(config.ctas).reshape(z // c, c, y // b, b, x // a, a)
    order: list[int] = numbers.transpose(0, 2, 4, 1, 3, 5).reshape(-1).tolist()
    return order


def _wave_size(config: LaunchConfig, shared: int, local: int) -> int:
    """Return how many CTAs run together, with ``shared`` bytes each and ``local`` bytes a thread.

    They are whole clusters.
    """
    padded = -(-config.cta_threads // WARP) * WARP
    threads, nbytes = WAVE_THREADS, WAVE_MEMORY
    if config.cooperative:
        threads, nbytes = RESIDENT_THREADS, RESIDENT_MEMORY
    fitting = min(threads // padded, nbytes // max(1, shared + padded * local))
    cluster = config.cluster_ctas
    return max(cluster, min(config.ctas, fitting) // cluster * cluster)
