"""A launch on the emulator, checked: races, missing waits, barriers, bounds, unwritten memory.

Checks go by the order that a program enforces, not by the one in which the emulator runs it, so
what they find does not depend on luck. They see the paths that this launch takes, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Arguments, Kernel
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.operations.tensor_map import MAP_READ, MAP_REST
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import Allocation, Part, Region
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.async_copies import AsyncCopies
from ptxlab.observe.asynchronous import Asynchronous, has_asynchronous
from ptxlab.observe.barrier_use import BarrierUse
from ptxlab.observe.check_context import CheckContext, entries
from ptxlab.observe.check_report import CHECKS, CheckReport, Finding, ordered
from ptxlab.observe.clocks import Clocks
from ptxlab.observe.global_races import GlobalRaces
from ptxlab.observe.grid_order import CAVEAT, GridOrder
from ptxlab.observe.history import History
from ptxlab.observe.map_use import BoxUse, MapUse
from ptxlab.observe.ordering import AccessKind, Touch
from ptxlab.observe.overruns import Overruns
from ptxlab.observe.races import Races, Stored
from ptxlab.observe.registers import RegisterStates
from ptxlab.observe.releases import EarlyArrivals, Fences, Flags, is_flag
from ptxlab.observe.unwritten import LocalMemory, Reads, SharedMemory
from ptxlab.syntax.tree import PtxModule, SourceText
from ptxlab.tensormap.tensor_map import TensorMap


def check(
    kernel: Kernel,
    config: LaunchConfig,
    args: Arguments = (),
    checks: Sequence[str] = CHECKS,
) -> CheckReport:
    """Launch ``kernel`` of the emulator and return what is wrong with the launch.

    The ``args`` are those of ``kernel.launch``; buffers hold afterwards what the kernel left. A fault
    stops the launch, as it does on a GPU, and what would have followed is not checked. Raises
    PtxlabError for arguments that do not fit, and for a kernel that is on a GPU.
    """
    checker = Checker(checks)
    fault: LaunchError | Unsupported | None = None
    try:
        kernel.watch(checker).run(config, args)
    except (LaunchError, Unsupported) as error:
        fault = error
    return checker.report(kernel.name, fault)


def incomplete(path: str, checks: Sequence[str], error: Unsupported) -> CheckReport:
    """Return the report on a program that could not even be loaded, as it holds what is not modelled."""
    return CheckReport(None, tuple(checks), (), (str(error),), SourceText("", path))


_CHECKED = {"tensor memory leak": "async"}
"""By which check a fault of a kind is told, where that is not called as the fault is."""


class Checker(Watcher):
    """Follows a launch and tells each check what it needs to know."""

    poison = 0xFF
    """NaN in every floating-point type, so that what is made of it does not pass for a number."""

    def __init__(self, checks: Sequence[str]) -> None:
        self._checks = tuple(name for name in CHECKS if name in checks)
        self._context = CheckContext()
        self._fence: Site | None = None
        self._module: PtxModule | None = None
        self._copying = False
        self._reads = Reads(self._context)
        self._global = GlobalRaces(self._context)
        self._maps = MapUse(self._context, self._global)
        self._overruns = Overruns(self._context)
        self._boxes = BoxUse(self._context)

    # ---- what the launch does ----

    def begin(self, wave: Wave) -> None:
        self._module = wave.module
        self._wave = wave
        context = self._context
        context.begin(wave)
        self._global.begin(wave)
        self._maps.begin(wave)
        self._shared = SharedMemory(context, self._reads)
        asynchronous = has_asynchronous(wave.functions) or wave.config.cluster_ctas > 1
        clocks = Clocks(wave, context.agents, layers=1 + asynchronous)
        self._order = History(wave, context.shadow, clocks)
        self._races = Races(context, self._order)
        fences = self._fences = Fences(clocks, wave.functions, wave.width)
        self._flags = Flags(clocks, fences, wave.width)
        self._async: Asynchronous | None = None
        if asynchronous:
            self._async = Asynchronous(
                context, clocks, self._races, self._shared, self._maps, fences
            )
        self._copies = AsyncCopies(context, self._races)
        self._grids = GridOrder(context)
        self._barriers = BarrierUse(context)
        self._early = EarlyArrivals(clocks, wave)
        self._local = LocalMemory(context)
        self._registers = RegisterStates(context, self._local, self._reads)

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self._context.site, self._context.frame = site, frame
        self._registers.see(site, frame, threads, passing)
        if passing is None:
            return
        self._passing = passing
        form = form_of(site.instruction)
        effects = form.effects
        if effects.fence == "memory":
            self._fences.fence(effects, passing.index)
        elif form.row.mix == "warp":
            self._flags.meet(passing)
        if self._async is not None:
            self._async.before(site, frame, passing)
        self._copying = effects.begins == "copies"
        if "copies" in (effects.commits, effects.waits):
            self._copies.control(site, passing)
        elif effects.barrier == "cta":
            self._barriers.arrive(site, passing)
            if effects.meets == "arrive":
                self._early.arrive(site, frame, passing)
        elif effects.barrier == "grid":
            self._grids.control(effects, passing)
        else:
            self._global.execute(site.instruction, passing)
            if self._fence is None and _orders_memory(effects):
                self._fence = site

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        for part in parts:
            memory = part.memory
            if access.writes and memory.name != "local":
                self._registers.use_stored(_threads_of(threads, part), access.nbytes)
            if isinstance(memory, Allocation):
                self._touch_global(
                    access, memory, *_placed(access, threads, part), _rows(items, part)
                )
            elif memory.name == "shared":
                self._touch_shared(
                    access, memory, *_placed(access, threads, part), _rows(items, part)
                )
            elif memory.name == "local":
                self._touch_local(access, memory, *_placed(access, threads, part))

    def _touch_local(self, access: Access, memory: Region, threads: Array, first: Array) -> None:
        if access.writes:
            written = self._registers.stored(threads, access.nbytes)
            self._local.write(memory, first, access.nbytes, written)
        else:
            self._registers.load(threads, self._local.read(memory, first, access.nbytes))

    def _touch_global(
        self,
        access: Access,
        memory: Allocation,
        threads: Array,
        first: Array,
        items: Array | None,
    ) -> None:
        if self._async is not None:
            self._async.stores.touch(memory, threads, first, access.nbytes, writes=access.writes)
            if access.verb == MAP_READ and effects_of(self._context.site.instruction).begins:
                self._maps.use(memory, threads, first, access.nbytes)
        self._grids.touch(memory, threads, first, writes=access.writes)
        if memory.writable:
            self._global.touch(memory, threads, first, access.nbytes, access.writes, items)
        if not self._copying and not (access.writes and self._copies.in_flight):
            return
        start = first.astype(np.uint64) + np.uint64(memory.address)
        if self._copying:
            self._copies.read(start, access.nbytes, threads)
        else:
            self._copies.write(start, access.nbytes, threads)

    def _touch_shared(
        self, access: Access, memory: Region, threads: Array, first: Array, items: Array | None
    ) -> None:
        context, instruction = self._context, self._context.site.instruction
        effects = effects_of(instruction)
        if (first % context.wave.shared_pitch < context.wave.reserved).all():
            return  # what ptxas notes there of columns that are taken is its own matter
        self._overruns.touch(threads, first, access.nbytes)
        granules, count = context.shadow.cover(first, access.nbytes)
        if self._async is not None and access.writes:
            self._async.layouts.written(granules)
        if self._copying:
            self._copies.start(threads, first, access.nbytes)
            self._shared.write(granules)
            return
        if self._async is not None:
            self._async.touch(threads, first, access.nbytes, writes=access.writes)
        if is_flag(instruction):
            self._flags.access(instruction, Threads(context.wave.width, index=threads), first)
        kind = AccessKind(access.writes, effects.strong)
        touch = Touch(kind, context.number(context.site), entries(threads, count), granules)
        if (not access.writes or effects.atomic) and access.verb != MAP_REST:
            states = self._shared.read(touch)
            if states is not None:
                self._registers.load(threads, states.reshape(threads.size, count))
        if access.writes:
            self._shared.write(granules)
        self._copies.touch(touch)
        stored = None
        if items is not None:
            rows = np.ascontiguousarray(items).view(np.uint8).reshape(-1, access.nbytes)
            stored = Stored(threads, rows, memory.data.reshape(-1, context.shadow.size))
        self._races.see(touch, stored)

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        self._registers.settle(site, frame)
        if self._copying:
            self._copies.settle()

    def exchange(self, frame: Frame, threads: Threads, source: Array, taking_part: Array) -> None:
        self._registers.exchange(frame, threads, source, taking_part)

    def synchronize(self, number: int, arrived: Array, released: Array) -> None:
        self._barriers.synchronize(arrived, released)
        self._global.synchronize(arrived)
        self._order.synchronize(released, counted=self._barriers.counted(released))
        if (arrived & ~released).any():
            self._early.complete(number, released)

    def synchronize_warps(self, together: Array) -> None:
        self._order.synchronize_warps(together)

    def arrive(self, threads: Threads, words: Array) -> None:
        if self._async is not None:
            self._async.arrive(self._context.site, threads, words)
            self._global.release(threads)

    def done(self, words: Array, threads: Threads | None) -> None:
        if threads is not None:
            self._copies.wait_all(threads)
            self._global.release(threads)
        if self._async is not None:
            self._async.done(words, threads)

    def complete(self, words: Array) -> None:
        if self._async is not None:
            self._async.complete(words)

    def waited(self, threads: Threads, words: Array) -> None:
        if self._async is not None:
            self._async.mbarrier_order.waited(threads, words)
            self._global.acquire(threads)

    def clusters_met(self, arrived: Array) -> None:
        if self._async is not None:
            self._async.mbarrier_order.clusters_met(arrived)

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        if self._async is not None:
            self._async.begun(threads, moved, told)
        for access in moved:
            if isinstance(access.memory, Allocation):
                owners = threads.index[access.owner]
                self._grids.touch(access.memory, owners, access.first, writes=access.writes)
                if access.writes:
                    self._global.touch(access.memory, owners, access.first, access.size, True, None)

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        if self._async is not None:
            self._async.issued(threads, access)

    def tensor_memory(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        if self._async is not None:
            self._async.tensor_memory.touch(threads, cells, writes=writes)

    def columns(self, cta: int, start: int, count: int, *, taken: bool) -> None:
        if taken and self._async is not None:
            owners = self._passing.index
            lanes = owners[self._context.wave.cta_of[owners] == cta]
            started = self._async.mbarrier_order.started(lanes[:1])
            self._async.tensor_memory.allocated(cta, lanes, met=bool(started[0]))

    def box(
        self, thread: int, tensor_map: TensorMap, coordinates: Sequence[int], *, outside: bool
    ) -> None:
        self._boxes.see(thread, tensor_map, coordinates, outside=outside)

    def ended(self, threads: Threads) -> None:
        self._context.ended |= threads.mask
        over = self._order.ended(threads)
        if self._async is not None:
            self._async.ended(threads, over)

    def end(self, wave: Wave) -> None:
        self._copies.end()

    # ---- what came out ----

    def report(self, kernel: str, fault: LaunchError | Unsupported | None) -> CheckReport:
        """Return the findings, what stopped the launch among them if it is one."""
        module = self._module
        if module is None:
            return CheckReport(kernel, self._checks, (), (str(fault),), SourceText("", ""))
        self._reads.tell()
        self._boxes.tell()
        if isinstance(fault, LaunchError) and fault.kind == "deadlock" and self._async is not None:
            self._async.stuck()
        findings = [self._hedged(finding) for finding in self._context.findings]
        unchecked = []
        kind = _CHECKED.get(fault.kind, fault.kind) if isinstance(fault, LaunchError) else ""
        if isinstance(fault, LaunchError) and kind in self._checks:
            findings.append(self._of_fault(fault, kind))
            unchecked.append("what follows where the launch stopped")
        elif fault is not None:
            unchecked.append(f"what follows where the launch stopped: {fault}")
        chosen = ordered(finding for finding in findings if finding.kind in self._checks)
        caveats = (CAVEAT,) if "race" in self._checks and self._grids.controls else ()
        unverified = tuple(sorted(self._wave.unverified))
        return CheckReport(
            kernel, self._checks, chosen, tuple(unchecked), module.source, caveats, unverified
        )

    def _of_fault(self, fault: LaunchError, kind: str) -> Finding:
        assert fault.location is not None
        line = fault.location.line
        words = fault.message, fault.hint or ""
        source, lane = self._context.source(line), None
        if fault.access is not None:
            lane = self._wave.lane_in(fault.access.cta, fault.access.thread)
        computed = self._context.computed(lane)
        return Finding(
            kind, "fault", "error", line, *words, 1, "faults", source=source, computed=computed
        )

    def _hedged(self, finding: Finding) -> Finding:
        fence = self._fence
        followed = finding.kind != "race" or finding.rule.startswith("global")
        if fence is None or followed or finding.severity == "info":
            return finding
        name = f"{fence.instruction.name} on line {fence.line}"
        hint = f"{finding.hint}; what the {name} and a flag in global memory order is not followed here"
        return replace(finding, hint=hint)


def _threads_of(threads: Threads, part: Part) -> Threads:
    return (
        threads if part.where is None else Threads(threads.width, index=threads.index[part.where])
    )


def _placed(access: Access, threads: Threads, part: Part) -> tuple[Array, Array]:
    """Return the threads of a part, and the first byte that each of them accesses."""
    index, first = _threads_of(threads, part).index, part.index * access.nbytes
    return index, first if first.size == index.size else np.broadcast_to(first, index.shape)


def _rows(items: Array | None, part: Part) -> Array | None:
    """Return what a part stores of ``items``: one for each of its threads, or one for all."""
    if items is None or items.shape[0] == 1 or part.where is None:
        return items
    return items[part.where]


def _orders_memory(effects: Effects) -> bool:
    """Say whether an operation orders memory by a flag in global memory, which races in shared memory do not follow."""
    ordering = effects.acquires or effects.releases
    if effects.fence or effects.asynchronous:
        ordering = effects.fence == "memory"
    return ordering and effects.scope != "cluster"
