"""Looking at registers in the middle of a launch: what is asked for, what is found, and how.

The emulator looks at its registers directly. For a GPU the kernel is rewritten to store them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ptxlab.arrays import Array, Mask, Words
from ptxlab.device.protocol import Dump, Dumped, DumpedLaunch, LaunchResult, Module
from ptxlab.device.snapshot import MbarrierSnapshot, SharedSnapshot
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.prepare.scope import names_in
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.instrument.places import DumpPlace, find_places
from ptxlab.instrument.rewrite import Probe, dump_nth
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax import locate
from ptxlab.syntax import tree as ptx
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function

_GOING_AWAY = {
    "bra": "threads go on elsewhere",
    "brx": "threads go on elsewhere",
    "ret": "threads leave the function",
    "exit": "threads have ended",
    "trap": "the launch has stopped",
}


def places_of(module: ptx.PtxModule, kernel: Function, dump: Dump) -> tuple[DumpPlace, ...]:
    """Return the places that ``dump`` asks about.

    Raises PtxlabError for what is not there, and for one that nobody is behind after it.
    """
    if dump.nth < 1:
        raise PtxlabError(f"a place is passed for the first time, not for time {dump.nth}")
    bare = dump.thread is not None
    places = find_places(module, kernel, dump.at, dump.registers, dump.of, needs_registers=not bare)
    for place in places:
        instruction = place.instruction
        reason = _GOING_AWAY.get(instruction.opcode)
        if reason and not dump.before:
            raise PtxlabError(
                f"no registers can be looked at after {place.name}: {reason}",
                location=locate(module.source, instruction.position),
                hint="look before it: --before",
            )
        if instruction.name.startswith("wgmma.mma_async") and not dump.before:
            raise PtxlabError(
                f"no registers can be looked at after {instruction.name}: nobody has waited for it",
                location=locate(module.source, instruction.position),
                hint="look at wgmma.wait_group, or before it: --before",
            )
    return places


class DumpRecorder(Watcher):
    """Keeps the registers of every thread at ``places``, the nth time it is at one of them.

    After a barrier or a call a thread is looked at when it comes to what is next, or ends.
    """

    def __init__(self, dump: Dump, places: Sequence[DumpPlace], threads: int) -> None:
        self._dump = dump
        # Several that stand on one line of machine code have one position: they are told apart themselves.
        self._places = {id(p.first if dump.before else p.instruction): p.registers for p in places}
        self._wave: Wave
        self._due: list[tuple[Site, Frame, Mask]] = []
        self.words: Words = np.zeros((threads, len(places[0].registers)), np.uint64)
        self.passes: Words = np.zeros(threads, np.uint64)
        self.shared: SharedSnapshot | None = None

    def begin(self, wave: Wave) -> None:
        self._wave = wave

    def before(self, site: Site, frame: Frame, lanes: Threads, passing: Threads | None) -> None:
        """Look, if it is to be before the instruction, and at those who come from a place."""
        self._catch_up(lanes, frame)
        if id(site.instruction) not in self._places:
            return
        if self._dump.before:
            self._look(site, frame, lanes.mask)
        else:
            self._due.append((site, frame, lanes.mask))

    def after(self, site: Site, frame: Frame, lanes: Threads, passing: Threads | None) -> None:
        self._catch_up(lanes, frame)

    def ended(self, lanes: Threads) -> None:
        self._catch_up(lanes)

    def _catch_up(self, lanes: Threads, at: Frame | None = None) -> None:
        """Look at those of ``lanes`` who come from a place in the frame, or in any."""
        due, self._due = self._due, []
        for site, frame, mask in due:
            if at is None or frame is at:
                if (here := mask & lanes.mask).any():
                    self._look(site, frame, here)
                mask = mask & ~lanes.mask
            if mask.any():
                self._due.append((site, frame, mask))

    def _look(self, site: Site, frame: Frame, lanes: Mask) -> None:
        registers = self._places[id(site.instruction)]
        standing = lanes & self._wave.alive.mask
        cta, inside = np.divmod(np.flatnonzero(standing), self._wave.cta_width)
        threads = np.array(self._wave.numbers)[cta] * self._wave.config.cta_threads + inside
        self.passes[threads] += np.uint64(1)
        now = self.passes[threads] == self._dump.nth
        if now.any():
            mine = np.flatnonzero(now & (threads == self._dump.thread))
            if mine.size:
                self.shared = _snapshot(self._wave, int(cta[mine[0]]), site)
            for column, name in enumerate(registers):
                register = site.register(name)
                if register is not None:  # else no instruction uses it: it is what it was, 0
                    value = _words(frame.registers[register.slot])
                    everyone = np.broadcast_to(value, (self._wave.width,))
                    self.words[threads[now], column] = everyone[standing][now]


def _snapshot(wave: Wave, cta: int, site: Site) -> SharedSnapshot:
    """Return what a CTA of the wave has in shared memory, with the variables that have a name at the site."""
    variables: dict[str, int] = {}
    for scope in site.scope.outward():
        for name, variable in scope.variables.items():
            if variable in wave.shared.starts:
                variables.setdefault(name, wave.shared.starts[variable])
    region, first = wave.regions["shared"], cta * wave.shared_pitch
    end = first + wave.shared_bytes
    data = region.data[first:end].copy()
    words = slice(first // OBJECT_BYTES, end // OBJECT_BYTES)
    objects, state = wave.mbarriers.among(words)
    fields = zip(
        *(each.tolist() for each in (state.phase, state.pending, state.expected, state.tx)),
        strict=True,
    )
    places = (objects * OBJECT_BYTES).tolist()
    mbarriers = {at: MbarrierSnapshot(*each) for at, each in zip(places, fields, strict=True)}
    memory, rank = wave.tensor_memory, cta % wave.config.cluster_ctas
    held = memory.of_cta(cta), memory.columns_of(cta)
    return SharedSnapshot(data, variables, mbarriers, *held, rank)


def _words(value: Array) -> Words:
    """Return register values as 64-bit words, zero-extended."""
    if value.dtype == bool:
        return value.astype(np.uint64)
    return value.view(f"u{value.dtype.itemsize}").astype(np.uint64)


def launch_rewritten(
    module: Module, kernel: Function, dump: Dump, config: LaunchConfig, parameters: bytes
) -> LaunchResult:
    """Launch ``kernel`` of ``module`` rewritten to store what ``dump`` asks for.

    Raises Unsupported for a place in a device function, which knows no buffer to store to.
    """
    if dump.thread is not None:
        raise Unsupported(
            "shared memory cannot be looked at on a GPU", hint="--device emulator can"
        )
    device, tree = module.device, module.tree
    assert tree is not None
    places = places_of(tree, kernel, dump)
    for place in places:
        if place.function != kernel.name:
            raise Unsupported(
                f"cannot dump registers of the device function {called(place.function)} on a GPU",
                location=locate(tree.source, place.instruction.position),
                hint="--device emulator can",
            )
    probes = [Probe(p.instruction.position, p.registers, not dump.before) for p in places]
    rewritten = device.load(dump_nth(tree, kernel.name, probes, dump.nth))
    _copy_variables(module, rewritten)
    with device.zeros((config.threads, 1 + len(places[0].registers)), "u64") as buffer:
        stored = rewritten.kernel(kernel.name)
        given = parameters.ljust(stored.parameters[-1].offset, b"\0")
        result = stored.launch_packed(config, given + buffer.address.to_bytes(8, "little"))
        words = buffer.numpy()
    _copy_variables(rewritten, module)
    launch = DumpedLaunch.of(module, config, result)
    return replace(result, dump=Dumped(dump, places, words[:, 1:], words[:, 0], launch))


def _copy_variables(module: Module, to: Module) -> None:
    """Give the variables of one module to a copy of it, except those that began with addresses in it."""
    device = module.device
    for name, (_, declarator) in module.variables.items():
        if not any(names_in(declarator.initializer)):
            here, there = module.variable(name), to.variable(name)
            if here.nbytes:
                device.write(there.address, device.read(here.address, here.nbytes))
