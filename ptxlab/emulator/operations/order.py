"""What has nothing to do here: fences, prefetches, sleep, and events for profilers; setmaxnreg and trap.

All threads see one memory, and every access is complete before the next begins, so a fence has
nothing to wait for. Source: PTX ISA, "membar, fence", "prefetch" and "Miscellaneous Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.warp import ALIGNED
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.register_pool import UNIT
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import WARP
from ptxlab.syntax.tree import Integer


def nothing(frame: Frame, threads: Threads) -> None:
    """Go on."""


def fence(context: Context, form: RowForm) -> Step:
    """Order memory accesses, which they are; proxies are not modelled."""
    return nothing


def prefetch(context: Context, form: RowForm) -> Step:
    """Take a hint; only its operand is checked."""
    [address] = context.operands(1)
    context.address(address)
    return nothing


def sleep(context: Context, form: RowForm) -> Step:
    """Let time pass, and other threads go on: the block of the instruction is one that polls."""
    [duration] = context.operands(1)
    context.source(duration, "u32")
    return nothing


def set_registers(context: Context, form: RowForm) -> Step:
    """Take registers from those that warps of the CTA have given back, or give some back."""
    [count] = context.operands(1)
    if not isinstance(count, Integer) or count.value % UNIT or not 24 <= count.value <= 256:
        context.reject("a number of registers is a multiple of 8 from 24 to 256", count)
    program, wanted = context.program, count.value
    program.most_registers = max(program.most_registers, wanted)
    takes = form["what"] == "inc"
    context.participants = Registers(wanted) if takes else ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        pool = frame.wave.pool
        if frame.wave.registers:
            (pool.take if takes else pool.give_back)(_warps(threads.mask), wanted)

    return run


@dataclass(frozen=True, slots=True)
class Registers:
    """Warps that wait until their CTA has registers enough for ``count`` a thread."""

    count: int

    where = "for registers of their CTA"
    gives_up = False

    def __call__(self, frame: Frame, threads: Threads, alive: Array) -> Array:
        """Return the lanes of the warps that get them now."""
        here = ALIGNED(frame, threads, alive)
        if not frame.wave.registers:
            return here
        served: Array = here & frame.wave.pool.served(_warps(here), self.count).repeat(WARP)
        return served

    def missing(self, frame: Frame, threads: Threads, alive: Array) -> str:
        """Say what the first warp asks for, and how little there is."""
        wave, warp = frame.wave, int(threads.index[0]) // WARP
        cta, inside = divmod(warp, wave.cta_width // WARP)
        held, free = int(wave.pool.held[cta, inside]), int(wave.pool.free[cta])
        return (
            f"a warp of {wave.cta(cta)} has {held} registers a thread and asks for {self.count}: that is "
            f"{self.count - held} more, and {free} are free"
        )


def _warps(mask: Array) -> Array:
    warps: Array = np.logical_or.reduce(mask.reshape(-1, WARP), axis=1)
    return warps


def event(context: Context, form: RowForm) -> Step:
    """Send a signal to a profiler."""
    return nothing


def trap(context: Context, form: RowForm) -> Step:
    """Abort execution; brkpt suspends it for a debugger, and none listens."""
    name, line = form.opcode, context.line

    def run(frame: Frame, threads: Threads) -> None:
        wave = frame.wave
        raise LaunchError(
            f"{name} in {wave.thread(int(threads.index[0]))}",
            location=wave.locate(line),
            hint="the program stops itself here, as a failed check or an unreachable place does",
        )

    return run


_PROXIES = {"alias": "sm_60 7.5", "async": "sm_90 8.0"}

_fenced = partial(row, operands="", step=fence, mix="synchronization", fidelity="ordering")
_order = partial(_fenced, effects=Effects(fence="memory"))
_order("membar.<scope>", scope="cta gl sys")
_proxy = Effects(fence="<proxy>", space="<space>")
_fenced("membar.proxy.<proxy>", needs=_PROXIES, effects=_proxy, proxy="alias async")
_order(
    "fence{.<sem>}.<scope>",
    needs={"cluster": "sm_90 7.8"},
    sem="sc acq_rel acquire release",
    scope="cta cluster gpu sys",
)
for _side in ("acquire.sync_restrict::shared::cluster", "release.sync_restrict::shared::cta"):
    _order(f"fence.{_side}.cluster", needs="sm_90 8.6")
    _fenced(
        f"fence.proxy.<proxy>.{_side}.cluster",
        needs="sm_90 8.6",
        effects=_proxy,
        proxy="async::generic",
    )
_order("fence.mbarrier_init.release.cluster", needs="sm_90 8.0")
_fenced("fence.proxy.<proxy>", needs="sm_70 7.5", effects=_proxy, proxy="alias")
_fenced(
    "fence.proxy.<proxy>.<sem>.sys",
    needs="sm_90 9.4",
    effects=_proxy,
    proxy="alias",
    sem="acquire release",
)
_fenced(
    "fence.proxy.<proxy>{.<space>}",
    needs=_PROXIES,
    effects=_proxy,
    proxy="async",
    space="global shared::cta shared::cluster",
)
_fenced(
    "griddepcontrol.<what>",
    needs="sm_90 7.8",
    effects=Effects(barrier="grid", meets="<what>"),
    what="wait launch_dependents",
)
row(
    "setmaxnreg.<what>.sync.aligned.u32",
    "#u32",
    step=set_registers,
    mix="control",
    fidelity="ordering",
    collective=True,
    needs="sm_90a sm_100f sm_110f sm_120f 8.0",
    what="inc dec",
)
row("trap", "", step=trap, mix="control")
row("brkpt", "", step=trap, mix="control")
row("nanosleep.u32", "u32", step=sleep, mix="control", fidelity="ordering", needs="sm_70 6.3")
row("pmevent", "#u32<16", step=event, mix="control", fidelity="ordering")
row("pmevent.mask", "#u32<65536", step=event, mix="control", fidelity="ordering")

_hint = partial(row, operands="[b8]", step=prefetch, mix="cache", fidelity="ordering")
_hint("prefetch{.<space>}.<level>", space="global local", level="L1 L2")
_KEPT = ("L2::evict_last", "L2::evict_normal")
_hint("prefetch{.global}.<level>", needs=dict.fromkeys(_KEPT, "sm_80 7.4"), level=" ".join(_KEPT))
_hint("prefetch{.global}.L1::32B.valid_addr", needs="sm_90 9.4")
_hint("prefetchu.L1")
_hint("prefetch{.<space>}.tensormap", needs="sm_90 8.0", space="const param")
