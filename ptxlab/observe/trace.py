"""A launch traced: what the warps of a CTA or cluster do, step by step, and what works for them.

The order is the one in which the emulator executes instructions, one of the orders that a GPU may have
too. Asynchronous work lands when the schedule of the launch says, as late as it may unless told.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Arguments, Kernel
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run import memory
from ptxlab.emulator.run.tensor_memory import CELL_BYTES, CTA_CELLS, tensor_address
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import LANDINGS, Frame, Wave, unravel
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.instrument.sites import sources
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.observe.timeline import StepAccess, Timeline, TracedInstruction
from ptxlab.observe.trace_barriers import BarrierTrace, MbarrierTrace, Waits
from ptxlab.observe.trace_context import TraceContext
from ptxlab.observe.trace_flights import Flights, tiles
from ptxlab.observe.trace_parts import LiftedParts
from ptxlab.observe.trace_tensor_memory import filled_columns
from ptxlab.syntax.printer import instruction_text
from ptxlab.syntax.tree import Instruction, PtxModule

COMMIT = "commit"
"""The work of a flight that stands for a tcgen05.commit, which lands when it arrives."""


def trace(
    kernel: Kernel,
    config: LaunchConfig,
    args: Arguments = (),
    cta: Dim3 = (0, 0, 0),
    most: int = sys.maxsize,
    told: AbstractContextManager[None] | None = None,
) -> Timeline:
    """Launch ``kernel`` of the emulator and return what CTA ``cta``, or its cluster, did.

    The ``args`` are those of ``kernel.launch``; buffers hold afterwards what the kernel left. Of a
    launch that stops is kept what came before, of one of more than ``most`` steps the first ones. It is made
    within ``told``, which may tell otherwise why it stopped.
    Raises PtxlabError for arguments that do not fit, a CTA that the grid has not, and a kernel that is
    on a GPU.
    """
    tracer = Tracer(cta, most)
    fault = follow(tracer, kernel, config, args, told)
    return tracer.timeline(kernel.name, fault)


def follow(
    tracer: Tracer,
    kernel: Kernel,
    config: LaunchConfig,
    args: Arguments,
    told: AbstractContextManager[None] | None,
) -> str | None:
    """Launch ``kernel`` with a tracer that watches; return why the launch stopped, None if it did not."""
    if any(at >= size for at, size in zip(tracer.cta, config.grid, strict=True)):
        raise PtxlabError(f"there is no CTA {tracer.cta} in a grid of {config.grid}")
    try:
        with told or nullcontext():
            kernel.watch(tracer).run(config, args)
    except (LaunchError, Unsupported) as error:
        if not tracer.began:
            raise
        return str(error)
    return None


class Tracer(Watcher):
    """Follows one CTA, or the cluster that it is in, until ``most`` steps have been executed."""

    def __init__(self, cta: Dim3, most: int) -> None:
        self.cta = cta
        self._most = most
        self._live = False
        self._cut = False
        self.began = False

    def begin(self, wave: Wave) -> None:
        (x, y, _), (i, j, k) = wave.config.grid, self.cta
        self._number = i + x * (j + y * k)
        self._live = self._number in wave.numbers
        if not self._live:
            wave.watched = False
            return
        self.began = True
        context = self._context = TraceContext(wave, self._number)
        self._places: dict[Site, int] = {}
        self._parts = LiftedParts(lifted=wave.module.lifted)
        self._accesses: list[StepAccess] = []
        self._flights = Flights(context)
        self._waits = Waits(context)
        self._barriers = BarrierTrace(context, self._waits)
        self._mbarriers = MbarrierTrace(context)

    def end(self, wave: Wave) -> None:
        if self._live:
            self._mbarriers.look()
        self._live = False

    # ---- instructions ----

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        context, instruction = self._context, site.instruction
        self._mbarriers.look()
        self._flights.beginning = None
        self._site = site
        warps = context.warps(threads.mask)
        if not warps:
            return
        if not self._parts.goes_on(site, warps, context.step):
            if context.now >= self._most:
                self._cut, self._live, context.wave.watched = True, False, False
                return
            context.add(self._places.setdefault(site, len(self._places)), warps)
            self._waits.begin_step(warps)
            self._parts.begin(site, warps, context.step)
        acting = () if passing is None else context.warps(passing.mask)
        if passing is None or not acting:
            return
        effects = effects_of(instruction)
        if effects.begins == "tensor_work":
            return  # an instruction may begin several operations: see ``issued``
        if effects.begins in LANDINGS:
            self._flights.begin(effects.begins, effects.work, passing, acting)
        elif effects.behind == "tensor_work":
            self._flights.commit(effects.behind, acting)
            self._flights.begin("signals", COMMIT, passing, acting)
        elif effects.commits:
            self._flights.commit(effects.commits, acting)
        elif effects.barrier == "cta":
            self._barriers.meet(instruction, acting)
        elif effects.barrier == "cluster":
            self._barriers.meet_cluster(effects, acting)

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        if self._live:
            self._mbarriers.look()

    def touch(
        self, access: Access, threads: Threads, parts: list[memory.Part], items: Array | None
    ) -> None:
        if not self._live:
            return
        for part in parts:
            index = threads.index if part.where is None else threads.index[part.where]
            where, first = part.memory, np.broadcast_to(part.index, index.shape) * access.nbytes
            first = first[self._context.follows(index)]
            if not first.size or where.name in ("local", "param"):
                continue
            self._see(access, where, first)
            if self._flights.beginning is not None:
                self._flights.move(where, first, access.nbytes, writes=access.writes)
            elif where.name == "shared":
                self._flights.access(first, writes=access.writes)

    def _see(self, access: Access, where: memory.Bytes, first: Array) -> None:
        context, name, base = self._context, where.name, 0
        low, high = int(first.min()), int(first.max()) + access.nbytes
        if name == "shared":
            cta = low // context.wave.shared_pitch
            base = cta * context.wave.shared_pitch
            name = _of_rank("shared memory", context, cta - context.first)
        nbytes = first.size * access.nbytes
        self._accesses.append(
            StepAccess(context.step, access.verb, name, low - base, high - base, nbytes)
        )

    def _see_cells(self, cells: Array, *, writes: bool) -> None:
        """See warps load or store cells of Tensor Memory, or give them back."""
        context, ctas = self._context, cells // CTA_CELLS
        moves = bool(effects_of(self._site.instruction).work)
        for cta in np.unique(ctas).tolist() if moves else ():
            own = cells[ctas == cta]
            low, high = (tensor_address(int(cell)) for cell in (own.min(), own.max()))
            memory = _of_rank("Tensor Memory", context, cta - context.first)
            verb, nbytes = "write" if writes else "read", CELL_BYTES * own.size
            self._accesses.append(StepAccess(context.step, verb, memory, low, high + 1, nbytes))
        self._flights.cells(cells, writes=writes)

    # ---- asynchronous work, barriers ----

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        flight = self._flights.beginning
        if not self._live or flight is None:
            return
        self._flights.begun(threads, moved)
        if told is not None:
            flight.mbarriers = self._mbarriers.known(told.words)

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        if self._live:
            self._flights.issue(effects_of(self._site.instruction).work, threads, access)

    def tensor_memory(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        if self._live:
            mine = self._context.follows(threads.index[::WARP])
            if mine.any():
                self._see_cells(cells[mine], writes=writes)

    def columns(self, cta: int, start: int, count: int, *, taken: bool) -> None:
        if self._live:
            self._flights.tensor_memory.columns(cta, start, count, taken=taken)

    def committed(self, words: Array) -> None:
        if self._live and self._mbarriers.touch(words):
            self._context.add(TraceContext.LANDING, ())

    def landed(self, queue: str, turn: int, threads: Threads | None) -> None:
        if self._live:
            self._flights.landed(queue, turn, threads)
            self._mbarriers.look()

    def done(self, words: Array, threads: Threads | None) -> None:
        if self._live and self._mbarriers.touch(words):
            self._context.add(TraceContext.LANDING, ())

    def arrive(self, threads: Threads, words: Array) -> None:
        if not self._live:
            return
        flight = self._flights.beginning
        if flight is not None and flight.work == COMMIT:
            flight.mbarriers = self._mbarriers.known(words)
        self._mbarriers.touch(words)

    def complete(self, words: Array) -> None:
        if self._live:
            self._mbarriers.complete(words)

    def waited(self, threads: Threads, words: Array) -> None:
        if not self._live:
            return
        mine = self._context.follows(threads.index)
        warps, words = self._context.warp_of(threads)[mine], words[mine]
        for word in np.unique(words).tolist():
            number, moment = self._mbarriers.passed(word)
            self._waits.over(np.unique(warps[words == word]).tolist(), moment, number)

    def synchronize(self, number: int, arrived: Array, released: Array) -> None:
        if self._live:
            self._barriers.synchronize(arrived, released)

    def clusters_met(self, arrived: Array) -> None:
        if self._live:
            self._barriers.clusters_met(arrived)

    # ---- what came out ----

    def timeline(self, kernel: str, fault: str | None) -> Timeline:
        context, flights = self._context, self._flights.traced
        wave, source = context.wave, context.wave.module.source
        origins = sources(wave.module, wave.functions)
        numbers = wave.numbers[context.first : context.first + context.count]
        return Timeline(
            kernel=kernel,
            target=wave.target.name,
            schedule=wave.schedule.text,
            config=wave.config,
            ctas=tuple(unravel(number, wave.config.grid) for number in numbers),
            path=source.path,
            text=tuple(source.text.split("\n")),
            places=tuple(
                TracedInstruction(
                    site.line,
                    " ".join(_text(wave.module, site.instruction).split()),
                    self._parts.kind(site),
                    origins.get(site.line),
                )
                for site in self._places
            ),
            together=tuple(context.together),
            executed=tuple(context.executed),
            who=tuple(context.who),
            accesses=tuple(self._accesses),
            flights=tuple(flights),
            tiles=tiles(flights, context.name),
            columns=filled_columns(flights),
            allocations=tuple(self._flights.tensor_memory.allocations),
            barriers=tuple(self._barriers.traced),
            waits=tuple(self._waits.traced),
            mbarriers=tuple(self._mbarriers.traced),
            cut=self._cut,
            fault=fault,
            unverified=tuple(
                sorted(wave.unverified.intersection(site.line for site in self._places))
            ),
            machine_code=wave.module.lifted,
        )


def _text(module: PtxModule, instruction: Instruction) -> str:
    """Return an instruction as it is written: what was lifted, as that of machine code that it is part of."""
    line = instruction.position.line
    return module.source.line(line) if module.lifted and line else instruction_text(instruction)


def _of_rank(memory: str, context: TraceContext, cta: int) -> str:
    return f"{memory} of rank {cta}" if context.count > 1 else memory
