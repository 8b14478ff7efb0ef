"""A launch recorded: registers and shared memory of a CTA after every step, beside what a trace has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Arguments, Kernel
from ptxlab.emulator import Site
from ptxlab.emulator.operations.tensor_map import MAP_READ
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.memory import Part
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import PtxlabError
from ptxlab.instrument.sites import calls
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.observe.recorded_operands import factors, tensor_factors
from ptxlab.observe.recorded_state import NOTHING, MemoryLog, RegisterLog, SharedLog, cells_of
from ptxlab.observe.recording import Factor, Recording
from ptxlab.observe.trace import Tracer, follow
from ptxlab.tensormap.encoding import MAP_BYTES, decode


def step(
    kernel: Kernel,
    config: LaunchConfig,
    args: Arguments = (),
    cta: Dim3 = (0, 0, 0),
    warps: Sequence[int] | None = None,
    most: int = sys.maxsize,
    told: AbstractContextManager[None] | None = None,
) -> Recording:
    """Launch ``kernel`` of the emulator and return what CTA ``cta`` held, step by step.

    Registers are those of its ``warps``, all unless told. Everything else is as ``trace`` has it. Raises
    PtxlabError for a warp that the CTA has not, and as ``trace`` does.
    """
    has = -(-config.cta_threads // WARP)
    chosen = tuple(range(has)) if warps is None else tuple(dict.fromkeys(warps))
    for warp in chosen:
        if warp >= has:
            raise PtxlabError(
                f"there is no warp {warp}, a CTA of {config.cta_threads} threads has {has}"
            )
    recorder = StepRecorder(cta, chosen, most)
    fault = follow(recorder, kernel, config, args, told)
    return recorder.recording(kernel.name, fault)


class StepRecorder(Tracer):
    """Traces, and looks at the registers of ``warps`` of the CTA and at its shared memory at every step."""

    def __init__(self, cta: Dim3, warps: Sequence[int], most: int) -> None:
        super().__init__(cta, most)
        self._warps = tuple(warps)
        self._map = bytearray()
        self._swizzles: dict[int, str] = {}
        self._factors: dict[int, tuple[Factor, ...]] = {}
        self._cells: MemoryLog | None = None
        self._filled = False
        self._over = True  # the last instruction is, and what it changed has been seen

    def begin(self, wave: Wave) -> None:
        super().begin(wave)
        if self._live:
            self._position = wave.numbers.index(self._number)
            self._registers = RegisterLog(self._context, self._position, self._warps)
            self._shared = SharedLog(self._context, self._position)

    def end(self, wave: Wave) -> None:
        if self._live:
            self._shared.look()
            self._look_at_cells()
        super().end(wave)

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        if self._live and not self._over:
            self._registers.doubt()
        self._over = False
        self._look(site, frame, threads)
        super().before(site, frame, threads, passing)
        if self._live and self._context.warps(threads.mask):
            self._registers.turn(threads, passing)
            self._map.clear()
            if self._flights.beginning is not None and passing is not None:
                self._read(site, frame, passing)

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        super().after(site, frame, threads, passing)
        self._look(site, frame, threads)
        self._over = True

    def _look(self, site: Site, frame: Frame, threads: Threads) -> None:
        if self._live:
            self._shared.look()
            self._look_at_cells()
            self._registers.look(site, frame, threads)

    def landed(self, queue: str, turn: int, threads: Threads | None) -> None:
        super().landed(queue, turn, threads)
        if self._live and queue == "products":
            self._registers.doubt()
        if self._live and queue in ("tensor_work", "tensor_stores"):
            self._filled = True
        elif self._live and queue == "signals":  # of a commit: what was behind it has landed
            self._look_at_cells()

    def _look_at_cells(self) -> None:
        """Look at Tensor Memory, if something has come there."""
        if self._filled:
            if self._cells is None:
                cells = cells_of(self._context.wave, self._position)
                self._cells = MemoryLog(self._context, cells)
            self._cells.look()
            self._filled = False

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        super().issued(threads, access)
        if self._live and self._flights.beginning is not None:
            factors = tuple(tensor_factors(access, threads, self._context.wave, self._position))
            if factors:
                self._factors[len(self._flights.traced) - 1] = factors

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        super().touch(access, threads, parts, items)
        if not self._live:
            return
        for part in parts:
            index = threads.index if part.where is None else threads.index[part.where]
            first = np.broadcast_to(part.index, index.shape) * access.nbytes
            if part.memory.name == "shared":
                mine = self._context.follows(index)
                copies = self._flights.beginning is not None
                self._shared.access(access, index[mine], first[mine], copies=copies)
            elif access.verb == MAP_READ and len(self._map) < MAP_BYTES:
                self._map += part.memory.data[first[0] : first[0] + access.nbytes].tobytes()

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        super().begun(threads, moved, told)
        if self._live and len(self._map) == MAP_BYTES:
            swizzle = decode(bytes(self._map)).swizzle
            if swizzle != "none":
                self._swizzles[len(self._flights.traced) - 1] = swizzle

    def _read(self, site: Site, frame: Frame, threads: Threads) -> None:
        """Note what a product reads of shared memory; what its descriptors say wrongly stops the launch."""
        if effects_of(site.instruction).begins == "products":
            with suppress(ValueError):
                operands = tuple(factors(site, frame, threads, self._position))
                self._factors[len(self._flights.traced) - 1] = operands

    def recording(self, kernel: str, fault: str | None) -> Recording:
        known, context = self._registers.known, self._context
        inlined = calls(context.wave.module, context.wave.functions)
        return Recording(
            timeline=self.timeline(kernel, fault),
            rank=self._position - context.first,
            warps=self._warps,
            registers=known.infos(),
            operands=tuple(known.operands(self._parts.of(site)) for site in self._places),
            calls=tuple(inlined.get(site.line, ()) for site in self._places),
            turns=self._registers.turns(),
            changes=self._registers.changes(),
            shared_bytes=context.wave.shared_bytes,
            shared_base=context.wave.shared_base,
            variables={
                variable.name: start for variable, start in context.wave.shared.starts.items()
            },
            shared=self._shared.changes(),
            cells=NOTHING if self._cells is None else self._cells.changes(),
            accesses=self._shared.accesses(),
            swizzles=self._swizzles,
            factors=self._factors,
        )
