"""Which registers each thread has written, and what becomes of the values of those it has not.

PTX ISA, "Register State Space", gives them no initial value. To move a register is no use of it; what
is computed from an unwritten one is as unwritten, and an error where it arrives: at a store, in an address,
in what decides where threads go, or in what a function returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.matrix.ldmatrix import RowMove
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.observe.check_context import CheckContext, Wording
from ptxlab.observe.choices import moved, taken, worst
from ptxlab.observe.unwritten import UNREAD, LocalMemory, Reads, State
from ptxlab.observe.value_flow import NamedRegister, ValueFlow, flow_of, loaded_rows, multiplied

_HINT = "a register or local variable has no initial value: write it first on every path"


class RegisterStates:
    """The state of each register of each activation of a function."""

    def __init__(self, context: CheckContext, local: LocalMemory, reads: Reads) -> None:
        self._context = context
        self._local = local
        self._reads = reads
        self._flows: dict[Site, ValueFlow] = {}
        self._states: WeakKeyDictionary[Frame, list[State]] = WeakKeyDictionary()
        self._new = np.where(context.wave.alive.mask, np.int32(UNREAD), np.int32(0))
        self._stored: list[tuple[NamedRegister | None, State]] = []
        self._carried: State = None  # what the lanes of a shuffle give
        self._loaded: list[tuple[Array, Array]] = []

    def see(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        flow = self._flows.get(site)
        if flow is None:
            flow = self._flows[site] = flow_of(
                site, frame.layout, self._context.names.seen_from(site.scope)
            )
        states = self._states.get(frame)
        if states is None:
            states = self._states[frame] = [self._new] * len(frame.registers)
            for slot in frame.layout.parameters:
                states[slot] = None
            self._local.enter(frame, threads)
        self._use(flow.guard, states, threads)
        self._stored.clear()
        if passing is None:
            return
        self._use(flow.used, states, passing)
        if flow.stored:
            stored = [
                (register, None if register is None else states[register[0]])
                for register in flow.stored
            ]
            if any(state is not None for _, state in stored):
                self._stored += stored
        tainted = {}
        for register in flow.sources:
            state = states[register[0]]
            if state is not None and (passing.mask & (state != 0)).any():
                tainted[register] = np.where(passing.mask, state, 0)
        results: dict[int, Array] = {}
        if tainted:
            results = self._results(site, flow, tainted, frame)
        self._carried = None if flow.exchanged is None else results.get(flow.exchanged)
        for slot in flow.writes:
            self._write(states, slot, passing, results.get(slot))

    def _write(self, states: list[State], slot: int, threads: Threads, result: State) -> None:
        """Note that ``threads`` have written a register, with the state that their values have."""
        if result is None and (threads.full or threads.everyone):
            states[slot] = None
            return
        before = states[slot]
        if before is None and result is None:
            return
        new = np.where(
            threads.mask, 0 if result is None else result, 0 if before is None else before
        )
        states[slot] = new if new.any() else None

    def _use(
        self, registers: Iterable[NamedRegister], states: list[State], threads: Threads
    ) -> None:
        for slot, name in registers:
            if states[slot] is not None:
                self._arrive(name, states[slot], threads)

    def _arrive(self, name: str, state: State, threads: Threads) -> None:
        """See the value of a register used by the instruction at hand."""
        if state is not None:
            states = self._read(name, np.where(threads.mask, worst(state), 0))
            if states.any():
                self._reads.arrive(states[states != 0])

    def _read(self, name: str, state: Array) -> Array:
        """Return a state with what was only moved till here read by the instruction at hand."""
        unread = state == UNREAD
        if not unread.any():
            return state

        here = worst(unread)
        thread = int(here.argmax())

        def words() -> Wording:
            who = self._context.thread(thread)
            return f"{who} uses register {name}, which holds nothing it has written", _HINT

        number = self._reads.note(name, int(here.sum()), thread, words, "threads")
        return np.where(unread, np.int32(number), state)

    # ---- what results are made of ----

    def _results(
        self,
        site: Site,
        flow: ValueFlow,
        tainted: Mapping[NamedRegister, Array],
        frame: Frame,
    ) -> dict[int, Array]:
        """Return the states of the results, where some sources have those that are ``tainted``."""
        form = form_of(site.instruction)
        if flow.moves and flow.exchanged is None:
            return moved(site, {slot: state for (slot, _), state in tainted.items()})
        reads = taken(site, frame, {slot: state for (slot, _), state in tainted.items()})
        results: dict[int, Array] = {}
        for (slot, name), state in tainted.items():
            read = np.where(reads.get(slot, np.True_), worst(state), 0)
            if read.any():
                passed = flow.moves or (form.effects.passes == "chosen" and slot in reads)
                results[slot] = read if passed else self._read(name, read)
        if not results:
            return {}
        product = isinstance(form.matrix, MatrixInstruction) and not form.effects.begins
        apart = multiplied(site, results) if product else None
        if apart is not None:
            return apart
        together = reduce(np.maximum, results.values())
        if flow.by_warp:
            together = np.repeat(together.reshape(-1, WARP).max(axis=1), WARP)
        return dict.fromkeys(flow.writes, together)

    def exchange(self, frame: Frame, threads: Threads, source: Array, taking_part: Array) -> None:
        """See ``threads`` read a register of the thread ``source``, which is not ``taking_part`` in all."""
        site = self._context.site
        result = np.int32(0) if self._carried is None else self._carried[source]
        lost = threads.mask & ~taking_part
        if lost.any():
            reader = int(lost.argmax())

            def words() -> Wording:
                return (
                    f"{self._context.thread(reader)} reads a register of lane "
                    f"{int(source[reader]) % WARP}, which does not take part",
                    "a lane that has ended, or that the membermask does not name, gives nothing",
                )

            number = self._reads.note("lane", int(lost.sum()), reader, words, "threads")
            result = np.where(lost, np.int32(number), result)
        slot = self._flows[site].exchanged
        if slot is not None:
            self._write(self._states[frame], slot, threads, np.broadcast_to(result, lost.shape))

    # ---- memory ----

    def stored(self, threads: Array, nbytes: int) -> Array:
        """Return the states of the ``nbytes`` that ``threads`` store: [threads, bytes]; [threads, 1] if all are 0."""
        if not self._stored:
            return np.zeros((threads.size, 1), np.int32)
        size = nbytes // len(self._stored)
        states = np.zeros((len(self._stored), size, threads.size), np.int32)
        for register, (_, state) in zip(states, self._stored, strict=True):
            if state is not None:
                lower = _lower(state, size)[..., threads]
                register[:] = lower if lower.ndim == 1 else lower.reshape(size, 8, -1).max(axis=1)
        return states.reshape(nbytes, -1).T

    def use_stored(self, threads: Threads, nbytes: int) -> None:
        """See the ``nbytes`` that the instruction at hand stores used: they go to where others read them."""
        whole = form_of(self._context.site.instruction).matrix is not None  # other lanes' too
        size = None if whole or not self._stored else nbytes // len(self._stored)
        for register, state in self._stored:
            if register is not None and state is not None:
                self._arrive(register[1], _lower(state, size), threads)

    def load(self, threads: Array, states: Array) -> None:
        """See ``threads`` load what has these ``states``: [threads, parts that are equally large]."""
        if not states.any():
            return
        if self._flows[self._context.site].loads:
            self._loaded.append((threads, states))
            return
        # By an atomic, or a function that the host provides, which use what they read.
        spread = np.zeros(self._context.wave.width, np.int32)
        spread[threads] = states.max(axis=1)
        self._arrive("", spread, Threads(spread.size, index=threads))

    def settle(self, site: Site, frame: Frame) -> None:
        """End an instruction: what it has loaded is as unwritten as it was in memory."""
        if not self._loaded:
            return
        results, states = self._flows[site].loads, self._states[frame]
        for threads, loaded in self._loaded:
            if isinstance(form_of(site.instruction).matrix, RowMove):
                rows = np.zeros_like(self._new)
                rows[threads] = loaded.max(axis=1)
                columns = loaded_rows(site, rows)[..., None]
            else:
                parts = _by_register(loaded, len(results))
                columns = np.zeros((self._new.size, *parts.shape[1:]), np.int32)
                columns[threads] = parts
            for slot, column in zip(results, np.moveaxis(columns, 0, -1), strict=True):
                if slot is not None and column.any():
                    whole = len(column) == frame.registers[slot].itemsize
                    now = np.repeat(column, 8, axis=0) if whole else worst(column)
                    before = states[slot]
                    states[slot] = now if before is None else np.maximum(before, now)
        self._loaded.clear()


def _lower(state: Array, size: int | None) -> Array:
    """Return the state of the lower bytes of a register, of which a store takes so many, or all."""
    return state if state.ndim == 1 or size is None else state[: 8 * size]


def _by_register(states: Array, registers: int) -> Array:
    """Return the states of what was loaded, [threads, registers, parts], from those of its equal parts."""
    threads, parts = states.shape
    if parts % registers == 0:
        return states.reshape(threads, registers, -1)
    if registers % parts == 0:
        return np.repeat(states, registers // parts, axis=1)[..., None]
    return np.repeat(states.max(axis=1)[:, None], registers, axis=1)[
        ..., None
    ]  # wmma loads part by part
