"""The dispatch loop: threads that go together run a routine in one call, from its beginning or that of a loop on.

A part without machine code is run in between. The dispatch loop ends where threads part, where something
is to be told, at blocks that are no part of the region, and so often that somebody can look at the clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Set
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.native.dispatch_program import program_of
from ptxlab.emulator.native.engine import (
    STOP,
    code_of,
    key_of,
    launching,
    steps,
    warm,
    warm_ahead,
)
from ptxlab.emulator.native.heat import PROCESS, Key
from ptxlab.emulator.native.region import (
    Builder,
    CompiledRegion,
    RegionBlock,
    around,
    has_machine_code,
    kind,
    reached,
)
from ptxlab.emulator.native.segment import Segment
from ptxlab.emulator.native.warp_operation import warp_operation
from ptxlab.emulator.run.code import BasicBlock, Converged
from ptxlab.emulator.run.engine import Engine
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.native.cores import pool
from ptxlab.native.dispatch_code import ARRAYS, AT, BUDGET, INSTRUCTIONS, TASKS

WORTH = 8
"""Times that threads come back to a block before the dispatch loop runs them from there."""

PAYS = 16
"""Tasks that a run of the dispatch loop should have."""

LONGEST = 1 << 16
"""Times until a dispatch loop is tried again that did not pay: twice as many each time, up to this."""

BUDGET_OF_THREADS = 1 << 28
"""Instructions of threads in one run, some hundredths of a second: as often somebody looks at the clock.

Those of a wave that do not go along count too: who goes along is a mask.
"""


def run_loop(group: Converged) -> tuple[int, BasicBlock | None]:
    """Run a group from the beginning of the kernel or of a loop, where it stands, if that pays.

    The group is all that lives, and nothing goes on besides. Return how many instructions each thread has
    executed, and which block is to be left then, None where the group stands at the beginning of one.
    """
    function, frame = group.activation.function, group.frame
    codes = code_of(function).blocks
    head = codes[group.block]
    head.turns += 1
    key = _head(group.stands_at(), function.name, frame)
    if head.turns < (1 if key in PROCESS.hot else WORTH):
        return 0, None
    loop = _loop(group)
    done, left = (0, None) if loop is None else loop.run(group)
    pays = loop is not None and (loop.tasks >= PAYS or loop.is_tired)
    if pays:
        codes[0].turns = WORTH
        PROCESS.hot |= {key, _head(function.blocks[0], function.name, frame)}
    head.rest = WORTH if pays else min(2 * head.rest, LONGEST)
    head.turns = WORTH if pays else -head.rest
    return done, left


def _head(block: BasicBlock, function: str, frame: Frame) -> Key:
    """Return what a block is known by from which the dispatch loop has paid."""
    return *key_of(block, function, frame), "loop"


def _loop(group: Converged) -> DispatchLoop | None:
    """Return the dispatch loop for a group where it stands, None if nothing can."""
    frame, region = group.frame, _region(group)
    if region is None or group.block not in region.blocks:
        return None
    loops: dict[tuple[bool, int], DispatchLoop] = frame.wave.own.loops
    loop = loops.get(region.name)
    if loop is None or loop.region is not region or loop.around != _around(frame):
        loop = loops[region.name] = DispatchLoop(region, frame)
    return loop if loop.enter(group) else None


def _region(group: Converged) -> CompiledRegion | None:
    """Return the region of a group's routine, built anew where there is more machine code or a wider register."""
    routine, registers = group.activation.function, group.frame.registers
    masked, head = not group.threads.everyone, group.block
    launched = masked, group.frame.wave.config.cluster_ctas > 1
    regions: dict[tuple[bool, bool, int], CompiledRegion] = code_of(routine).regions
    region = regions.get((*launched, head))
    per_lane = {slot for slot in group.stands_at().needed() if len(registers[slot]) > 1}
    choices: list[Collection[int]] = []
    if region is None:
        choices = [reached(routine), around(routine, head)]
    elif region.stale or per_lane & region.kinds.keys() - region.per_lane:
        choices, per_lane = [region.blocks.keys()], per_lane | region.per_lane
    for blocks in choices:
        for number in blocks:
            warm_ahead(routine, number, group.frame)
        if any(has_machine_code(routine, number, group.frame) for number in blocks):
            made = CompiledRegion(set(per_lane), masked)
            region = Builder(routine, group.frame, made).region(blocks)
        if region is not None:
            regions |= {(*launched, number): region for number in region.blocks}
            break
    return region


def _around(frame: Frame) -> tuple[Any, ...]:
    """Return what tasks are made for besides registers; it stays as long as it is held."""
    wave = frame.wave
    local = wave.regions["local"]
    return wave.cores, id(wave.memory.table), id(local.data), local.size


class DispatchLoop:
    """A region and the registers that go through it, of frames of waves that hand on their memory."""

    def __init__(self, region: CompiledRegion, frame: Frame) -> None:
        self.region, self.around = region, _around(frame)
        self.pool = pool(frame.wave.cores)
        width = self.width = frame.wave.width
        self._lengths = {slot: width if slot in region.per_lane else 1 for slot in region.kinds}
        self._held: list[Any] = [frame.wave.memory.table, frame.wave.regions["local"].data]
        self._own: dict[int, list[Array]] = {slot: self._blank(slot) for slot in region.outputs}
        self._mask = np.ones(width, bool)
        self._table = np.zeros((len(frame.registers), ARRAYS), np.int64)
        self._registers = (ctypes.c_int64 * self._table.size).from_address(self._table.ctypes.data)
        self._blanks = self._table[:, 0].copy()
        never_read = np.zeros(width, np.uint64)
        self._held.append(never_read)
        for slot in region.kinds:
            own = self._own.get(slot, [never_read, never_read])
            self._blanks[slot] = id(own[0])
            self._table[slot, 1:] = [*map(id, own)]
        self._state = (ctypes.c_int64 * (TASKS + 1))()
        self._given: dict[int, Array] = {}
        self._program = program_of(region)
        masks = self._mask, np.ones(1, bool)
        self._operations, held = self._program.operations(frame.wave, region.per_lane, masks)
        self._held += [*masks, held]

    @property
    def tasks(self) -> int:
        """How many the last run has done."""
        return self._state[TASKS]

    @property
    def is_tired(self) -> bool:
        """Whether the last run has ended so that somebody can look at the clock."""
        return bool(self._state[INSTRUCTIONS] >= self._state[BUDGET])

    def _beside(self) -> bool:
        """Say whether all that it runs may run beside products that are under way."""
        return all(each.block.beside() for each in self.region.blocks.values())

    # ---- registers ----

    def _blank(self, slot: int) -> list[Array]:
        """Return the arrays that a register is written to in turn: one, if nobody reads and writes it at once."""
        dtype, length = self.region.outputs[slot], self._lengths[slot]
        if slot in self.region.carried:
            return [np.empty(length, dtype), np.empty(length, dtype)]
        return [np.empty(length, dtype)] * 2

    def enter(self, group: Converged) -> bool:
        """Take the registers of a frame as they are. False if one is of another kind than it was."""
        region, registers = self.region, group.frame.registers
        if region.masked:
            self._mask[...] = group.threads.mask
        self._given.clear()
        self._table[:, 0] = self._blanks
        for slot in group.stands_at().needed() & region.kinds.keys():
            if not self._take(slot, registers[slot]):
                return False
        self._state[AT] = self._program.first[group.block]
        return True

    def _take(self, slot: int, value: Array) -> bool:
        """Let an array be a register's value. False if it is of another kind than the region's."""
        if kind(value) != self.region.kinds[slot]:
            return False
        if len(value) != self._lengths[slot]:
            if len(value) != 1:
                self.region.per_lane.add(slot)
                self.region.stale = True
                return False
            value = value.repeat(self.width)
        value = np.ascontiguousarray(value)
        self._given[slot] = value
        self._registers[ARRAYS * slot] = id(value)
        return True

    def _tell(self, frame: Frame, slots: Set[int]) -> None:
        """Let a frame have registers as they are now."""
        for slot in slots & self._own.keys():
            now, own = self._registers[ARRAYS * slot], self._own[slot]
            if id(own[1]) == now:
                own.reverse()
            if id(own[0]) == now:
                # It is the frame's from now on, and never written again.
                frame.registers[slot] = self._given[slot] = own[0]
                own[:] = self._blank(slot) if own[1] is own[0] else [own[1], np.empty_like(own[0])]
                self._blanks[slot] = id(own[0])
                self._table[slot, 1:] = [*map(id, own)]

    # ---- running ----

    def run(self, group: Converged) -> tuple[int, BasicBlock | None]:
        """Run a group; return how many instructions each thread has executed, and the block to be left, if any."""
        state, frame = self._state, group.frame
        began = frame.wave.clock
        state[INSTRUCTIONS] = state[TASKS] = 0
        state[BUDGET] = max(1, BUDGET_OF_THREADS // self.width)
        frame.wave.background.go_on(self._beside)
        left = self._run(group)
        frame.wave.background.go_on()
        self._given.clear()
        done = state[INSTRUCTIONS] + (0 if left is None else left.instructions)
        frame.wave.clock = began + done
        return done, left

    def _run(self, group: Converged) -> BasicBlock | None:
        """Run until somebody else is to go on."""
        state, frame, began = self._state, group.frame, group.frame.wave.clock
        addresses = (
            ctypes.addressof(state),
            self._operations.ctypes.data,
            ctypes.addressof(self._registers),
        )
        while True:
            if frame.wave.copies.outside is not None:
                frame.wave.copies.outside.open()
            goes_on = self.pool.dispatch(*addresses)
            group.block, part = self._program.moments[state[AT]]
            block = self.region.blocks.get(group.block)
            if block is None:
                self._tell(frame, group.stands_at().needed())
                return None
            may_go = self._may_go(group, block, part)
            if may_go and not goes_on:
                return self._finished(group, block, part)
            if state[INSTRUCTIONS] >= state[BUDGET] or not may_go:
                self._tell(frame, block.block.needed())
                return None
            frame.wave.clock = began + state[INSTRUCTIONS]
            if code_of(group.activation.function).blocks[group.block].steps is None:
                self.region.stale |= warm(group, STOP) is not None
            if not self._by_arrays(frame, group.threads, block.parts[part]):
                return self._finished(group, block, part + 1)
            state[AT] += 1

    def _finished(self, group: Converged, region_block: RegionBlock, part: int) -> BasicBlock:
        """Go on to the end of a block without the dispatch loop."""
        done = sum(len(done_part.bounds) for done_part in region_block.parts[:part])
        block = region_block.block
        self._tell(group.frame, block.lasting()[done - 1] if done else block.needed())
        for left_part in region_block.parts[part:]:
            left_part(group.frame, group.threads)
        return block

    def _may_go(self, group: Converged, block: RegionBlock, part: int) -> bool:
        """Say whether nobody waits for others before a part."""
        participants, threads = block.block.participants, group.threads
        if part or participants is None:
            return True
        self._tell(group.frame, block.block.needed())
        return threads.where(participants(group.frame, threads, threads.mask)) is threads

    def _by_arrays(self, frame: Frame, threads: Threads, part: Any) -> bool:
        """Run a part that has no machine code. Say whether the loop may go on behind it."""
        wave = frame.wave
        self._tell(frame, part.reads | part.writes)
        changes = wave.changes
        (part.arrays if isinstance(part, Segment) else part)(frame, threads)
        if part in self.region.awaited and (step := warp_operation(part.bounds)) is not None:
            self.region.stale |= step.ready(wave)
        for slot in part.writes & self._lengths.keys():
            if not self._take(slot, frame.registers[slot]):
                return False
        return not wave.signals and wave.changes == changes


MACHINE_CODE = Engine(launching, steps, run_loop)
"""Machine code of this processor, for launches."""
