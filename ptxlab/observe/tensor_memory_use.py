"""Cells of Tensor Memory that tensor cores still have: no warp may touch them before it knows the work done.

What a thread has had tensor cores do is over for those who have waited for an mbarrier that a commit behind
it tells, or have heard of it from one who has. A warp loads and stores as one, so that it is enough if one of
its threads knows. What a warp itself loads or stores is over when it has waited for that, for itself and for
those who have heard of it since.

By the letter of PTX tcgen05.fence stands on both sides of where threads meet. Public programs that are right leave
it out, so that it is information; so is an address that names the lanes of another warp, of which the GPU takes
the warp's own.

Source: PTX ISA, "tcgen05 memory consistency model" and "Access restrictions" of Tensor Memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.emulator.run.tensor_memory import CELL_BYTES, COLUMNS, CTA_CELLS
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Wave
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.choices import operand_value
from ptxlab.observe.clocks import Clocks
from ptxlab.syntax.tree import Address


@dataclass(frozen=True, slots=True)
class _Operation:
    """What a thread of a warp has had tensor cores do, when, and in which turn of what is followed here."""

    site: Site
    warp: int
    engine: int
    time: int
    turn: int


MOVES: tuple[Queue, ...] = ("tensor_loads", "tensor_stores")
"""The queues of what warps load and store."""

_FENCES = ("before_thread_sync", "after_thread_sync")

_DOES = {"RAW": "reads", "WAR": "overwrites", "WAW": "overwrites"}
_DID = {"RAW": "writes", "WAR": "reads", "WAW": "writes"}
_WAITS = {"tensor_loads": "tcgen05.wait::ld", "tensor_stores": "tcgen05.wait::st"}
_PEER = (
    "PTX wants barrier.cluster.arrive and .wait before tcgen05.alloc; GPUs are known to mind only where columns are "
    "given back before the other CTA has its own"
)


@dataclass(slots=True)
class _Move:
    """What a warp loads, stores or allocates, from ``begun`` on.

    ``over`` is when that is done for itself, None where it is not.
    """

    site: Site
    warp: int
    begun: int
    turn: int
    over: int | None = None


class _Moves:
    """What warps have begun in a queue: of each cell the last move, by number."""

    def __init__(self, wave: Wave) -> None:
        self.cells = np.zeros(wave.ctas * CTA_CELLS, np.int32)
        self.moves: list[_Move | None] = [None]
        self._under_way: dict[int, list[_Move]] = {}

    def begin(self, site: Site, warps: Array, cells: Array, time: int, turn: int) -> None:
        numbers = len(self.moves) + np.arange(warps.size)
        for warp in warps.tolist():
            move = _Move(site, warp, time, turn)
            self.moves.append(move)
            self._under_way.setdefault(warp, []).append(move)
        self.cells[cells] = numbers[:, np.newaxis]

    def wait(self, warps: Array, time: int) -> None:
        for warp in warps.tolist():
            for move in self._under_way.pop(warp, ()):
                move.over = time

    def of(self, cells: Array) -> Iterator[tuple[_Move, Array]]:
        """Yield the moves that have some of the cells, and which of these each has, a mask."""
        numbers = self.cells[cells]
        if numbers.any():
            for number in np.unique(numbers).tolist():
                move = self.moves[number]
                if move is not None:
                    yield move, numbers == number


class TensorMemoryUse:
    """Of each cell of a wave the operation that last wrote it, and the one that last read it, by number."""

    def __init__(self, context: CheckContext, clocks: Clocks) -> None:
        self._context = context
        self._clocks = clocks
        self._operations: list[_Operation | None] = [None]
        self._written, self._read = np.zeros((2, context.wave.ctas * CTA_CELLS), np.int32)
        self._moves = {queue: _Moves(context.wave) for queue in MOVES}
        self._allocated: dict[int, _Move] = {}
        self._turn = 0
        self._fenced = {when: np.zeros(context.wave.warps, np.int64) for when in _FENCES}
        self._arrived = np.zeros(context.wave.warps, np.int64)
        """When each warp last arrived at a barrier in a relaxed way: those who wait there come behind, and know nothing."""

    def arrive(self, threads: Threads) -> None:
        """See threads arrive at a barrier in a relaxed way."""
        self._arrived[threads.index // WARP] = self._clocks.now

    def fence(self, when: str, threads: Threads) -> None:
        """See threads fence what they have had done before they meet others, or what they do after."""
        self._turn += 1
        if when in self._fenced:
            self._fenced[when][threads.index // WARP] = self._turn

    def issue(self, threads: Threads, engines: Array, access: TensorCoreAccess) -> None:
        """See operations begin, one of each engine, which ``threads`` issue."""
        self._turn += 1
        first = len(self._operations)
        site, time = self._context.site, self._clocks.now
        warps = (threads.index // WARP).tolist()
        self._operations += [
            _Operation(site, warp, engine, time, self._turn)
            for warp, engine in zip(warps, engines.tolist(), strict=True)
        ]
        numbers = first + np.arange(engines.size).repeat(access.group)
        issuers = threads.index.repeat(access.group)[:, np.newaxis]
        for table, several in ((self._read, access.read), (self._written, access.written)):
            for cells in several.values():
                writes = table is self._written
                flat = cells.reshape(len(cells), -1)
                self._after_moves(issuers, flat, writes=writes, engine=True)
                if writes:  # what moved here before is in order with what comes behind
                    for moves in self._moves.values():
                        moves.cells[flat] = 0
                table[cells] = numbers.reshape(-1, *(1,) * (cells.ndim - 1))

    def touch(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        """See whole warps read cells [warps, ...], or write them or give them back."""
        self._turn += 1
        warps, flat = threads.index[::WARP], cells.reshape(len(cells), -1)
        site = self._context.site
        moves = self._moves.get(effects_of(site.instruction).begins)
        lanes = warps[:, np.newaxis] + np.arange(WARP)
        if moves is not None:
            self._named_lanes(threads)
            self._after_moves(lanes, flat, writes=writes, engine=False)
            moves.begin(site, warps // WARP, flat, self._clocks.now, self._turn)
        else:
            self._give_back(lanes, flat)
        if len(self._operations) == 1:
            return
        self._hold(warps, flat, "WAW" if writes else "RAW", self._written)
        if writes:
            self._hold(warps, flat, "WAR", self._read)

    def allocated(self, cta: int, lanes: Array, *, met: bool) -> None:
        """See a warp, ``lanes``, get columns for its CTA, which the others of its cluster may have ``met``."""
        context, warp, now = self._context, int(lanes[0]) // WARP, self._clocks.now
        self._allocated[cta] = _Move(context.site, warp, now, self._turn, now)
        if context.wave.tensor_memory.group == 2 and not met:
            message = (
                f"the warp of {context.thread(warp * WARP)} asks for columns of Tensor Memory for a pair, of which "
                f"{context.wave.cta(cta ^ 1)} need not have started"
            )
            words = message, _PEER
            context.find("async", "info", "pair", WARP, words, unit="threads")

    def _give_back(self, by: Array, cells: Array) -> None:
        """Report what nothing orders before warps ``by`` give cells back: others' moves, and a pair's allocation.

        Of moves it is enough that they began: who goes on with what it has loaded has waited for it. Nor need memory
        be handed over, so that a barrier at which a warp arrives in a relaxed way will do.
        """
        for queue, rule in zip(MOVES, ("WAR", "WAW"), strict=True):
            for move, here in self._moves[queue].of(cells):
                if self._arrived[move.warp] >= move.begun:
                    continue
                rows = np.flatnonzero(here.any(axis=1))
                rows = rows[~self._has_heard(by[rows], move.warp, move.begun)]
                if rows.size:
                    self._find_given_back(rule, move, by[rows], cells[rows], here[rows])
        for lanes, of_warp in zip(by, cells, strict=True):
            self._hold_peer(int(lanes[0]) // WARP, int(of_warp[0]) // CTA_CELLS)

    def _find_given_back(
        self, rule: str, move: _Move, by: Array, cells: Array, here: Array
    ) -> None:
        context, work = self._context, effects_of(move.site.instruction).work
        message = (
            f"{rule}: the warp of {context.thread(by[0, 0])} gives back {_named(cells[0][here[0]][0])}, and nothing "
            f"orders that behind the {work} of line {move.site.line} by the warp of {context.thread(move.warp * WARP)}"
        )
        hint = (
            f"a barrier of all warps (bar.sync) between line {move.site.line} and tcgen05.dealloc"
        )
        count = CELL_BYTES * int(here.sum())
        context.find("async", "error", rule, count, (message, hint), move.site)

    def _hold_peer(self, warp: int, cta: int) -> None:
        """Report a warp that gives columns back and has not heard that the other CTA of the pair has its own."""
        context, peer = self._context, self._allocated.get(cta ^ 1)
        if context.wave.tensor_memory.group == 1 or peer is None or peer.over is None:
            return
        lanes = warp * WARP + np.arange(WARP)
        if not self._has_heard(lanes[np.newaxis], peer.warp, peer.over).all():
            message = (
                f"the warp of {context.thread(warp * WARP)} gives back columns of Tensor Memory, and nothing orders "
                f"that behind the tcgen05.alloc of line {peer.site.line} in {context.wave.cta(cta ^ 1)}"
            )
            hint = "a barrier.cluster of the pair between tcgen05.alloc and tcgen05.dealloc"
            words = message, hint
            context.find("async", "error", "gives back", WARP, words, peer.site, unit="threads")

    def wait(self, queue: Queue, threads: Threads) -> None:
        """See whole warps wait for what they have loaded, or stored."""
        self._moves[queue].wait(threads.index[::WARP] // WARP, self._clocks.now)

    def _after_moves(self, by: Array, cells: Array, *, writes: bool, engine: bool) -> None:
        """Report reads, or writes, of what warps are still loading or storing: their own stores are in order.

        Each row of ``cells`` is accessed by threads ``by`` that do so as one.
        """
        if writes:
            self._hold_moves("tensor_loads", "WAR", by, cells)
        if engine or not writes:
            self._hold_moves("tensor_stores", "WAW" if writes else "RAW", by, cells)

    def _hold_moves(self, queue: Queue, rule: str, by: Array, cells: Array) -> None:
        """Report moves that have not been waited for, or of whose end who accesses cells has not heard."""
        context = self._context
        for move, here in self._moves[queue].of(cells):
            rows = np.flatnonzero(here.any(axis=1))
            if move.over is not None:
                heard = self._has_heard(by[rows], move.warp, move.over)
                here_now = by[rows[heard], 0] // WARP
                self._fenced_since(move, here_now, _FENCES)
                rows = rows[~heard]
            if not rows.size:
                continue
            work, line = effects_of(move.site.instruction).work, move.site.line
            message = (
                f"{rule}: this {effects_of(context.site.instruction).work} {_DOES[rule]} "
                f"{_named(cells[rows[0]][here[rows[0]]][0])}, which the {work} of line {line} by the warp of "
                f"{context.thread(move.warp * WARP)} {_DID[rule]} until it is waited for"
            )
            hint = f"{_WAITS[queue]} between the two, by the warp of line {line}"
            if move.over is not None:
                message += f", and nothing orders that wait before this, by {context.thread(by[rows[0], 0])}"
                hint = (
                    f"behind {_WAITS[queue]} of that warp a barrier of both, or its arrival at an mbarrier for "
                    "whose phase the other one waits"
                )
            count = CELL_BYTES * int(here[rows].sum())
            context.find("async", "error", rule, count, (message, hint), move.site)

    def _has_heard(self, by: Array, warp: int, time: int) -> Array:
        """Say which rows of threads have heard of a thread of a warp since a time; a warp has of itself."""
        lanes = warp * WARP + np.arange(WARP)
        heard, who = np.broadcast_arrays(lanes, by[:, :, np.newaxis])
        known = self._clocks.of(heard.reshape(-1), who.reshape(-1)).reshape(heard.shape)
        result: Array = (known > time).any(axis=(1, 2)) | (by[:, 0] // WARP == warp)
        return result

    def _hold(self, warps: Array, cells: Array, rule: str, table: Array) -> None:
        """Report the warps, by their first threads, that do not know what the ``table`` says is done."""
        moves = effects_of(self._context.site.instruction).begins in self._moves
        numbers = table[cells]
        for number in np.unique(numbers).tolist():
            operation = self._operations[number]
            if operation is None:
                continue
            here = numbers == number
            touching = np.flatnonzero(here.any(axis=1))
            lanes = warps[touching, np.newaxis] + np.arange(WARP)
            engines = np.full(lanes.size, operation.engine)
            known = self._clocks.of(engines, lanes.reshape(-1)).reshape(lanes.shape).max(axis=1)
            if moves:
                late = warps[touching[known > operation.time]] // WARP
                self._fenced_since(operation, late, _FENCES[1:])
            early = touching[known <= operation.time]
            if early.size:
                cell = int(cells[early[0]][here[early[0]].argmax()])
                self._find(rule, operation, int(warps[early[0]]), cell, int(here[early].sum()))

    def _find(self, rule: str, operation: _Operation, thread: int, cell: int, count: int) -> None:
        context, line = self._context, operation.site.line
        moves = effects_of(context.site.instruction).begins in self._moves
        does = _DOES[rule] if moves else "gives back"
        work = effects_of(operation.site.instruction).work
        message = (
            f"{rule}: the warp of {context.thread(thread)} {does} {_named(cell)}, which "
            f"the {work} of line {line} {_DID[rule]} until it is waited for"
        )
        hint = (
            f"between the two: tcgen05.commit behind line {line}, in the thread that issued it, then a wait for "
            "the phase of its mbarrier (mbarrier.try_wait)"
        )
        context.find("async", "error", rule, CELL_BYTES * count, (message, hint), operation.site)

    def _fenced_since(self, done: _Operation | _Move, warps: Array, fences: Sequence[str]) -> None:
        """Tell of warps that access what another one has ``done``, without ``fences`` since."""
        context = self._context
        others, work = warps[warps != done.warp], effects_of(done.site.instruction).work
        for when in fences if others.size else ():
            of = np.array([done.warp]) if when == _FENCES[0] else others
            missing = of[self._fenced[when][of] < done.turn]
            if not missing.size:
                continue
            who = context.thread(int(missing[0]) * WARP)
            does = effects_of(context.site.instruction).work
            message = (
                f"this {does} accesses what the {work} of line {done.site.line} does, by another warp, and "
                f"the warp of {who} has executed no tcgen05.fence::{when} between"
            )
            hint = (
                "PTX wants one before and one after where threads meet, and a commit has the first with it; GPUs are "
                "not known to mind"
            )
            words = message, hint
            context.find(
                "async", "info", "thread sync", others.size, words, done.site, unit="warps"
            )

    def _named_lanes(self, threads: Threads) -> None:
        """Tell of warps whose address names lanes that are another's."""
        context = self._context
        site, wave = context.site, context.wave
        [address] = (o for o in site.instruction.operands if isinstance(o, Address))
        base = address.base
        given = None if base is None else operand_value(site, context.frame, base, "u32")
        if given is None:
            return
        first = np.broadcast_to(given, (threads.width,))[threads.index[::WARP]] + address.offset
        own = threads.index[::WARP] % wave.cta_width % WARPGROUP
        other = np.flatnonzero((first >> 16) % WARPGROUP // WARP != own // WARP)
        if other.size:
            at = int(other[0])
            lane = int((first[at] >> 16) % WARPGROUP)
            message = (
                f"the address names lane {lane} of Tensor Memory, and the warp of "
                f"{context.thread(int(threads.index[at * WARP]))} accesses lanes {int(own[at])} to "
                f"{int(own[at]) + WARP - 1}, its own"
            )
            hint = "the lane of an address is that of the warp's first: its place in four warps times 32"
            words = message, hint
            context.find("async", "info", "quarter", other.size, words, unit="warps")


def _named(cell: int) -> str:
    lane, column = divmod(int(cell) % CTA_CELLS, COLUMNS)
    return f"column {column} of lane {lane} of Tensor Memory"
