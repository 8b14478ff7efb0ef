"""A watcher that counts what each instruction does, for all threads of a wave at once.

Patterns of addresses repeat themselves: CTAs do alike, and unrolled code goes through memory from one
register at many offsets. So a pattern that is the same in every CTA is analysed for one of them, and
an analysis is kept for the other offsets of the same register value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site, Watcher
from ptxlab.emulator.address_map import WINDOW_SIZE
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.run.access import WINDOWS
from ptxlab.emulator.run.memory import Allocation
from ptxlab.emulator.run.tensor_memory import CELL_BYTES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.isa.targets import WARP
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.shared_matrix import core_matrices
from ptxlab.observe.counters import SPACES, Counts
from ptxlab.observe.tensor_memory_use import MOVES
from ptxlab.observe.traffic import (
    SECTOR_BYTES,
    Conflict,
    Items,
    Traffic,
    collisions,
    merged,
    of_global,
    of_local,
    of_shared,
)
from ptxlab.observe.work import InstructionWork, work

ATOMIC = "atomic"
COPY = "asynchronous copy"
PRODUCT = "matrix multiply"
_REMEMBERED = 64
_OWNER_AT = 45
"""Bits of a position in memory, above which the thread's is."""

Costs = dict[str, Traffic]
"""What one instruction asks of each space, in all threads of a wave."""


@dataclass(slots=True)
class Tally:
    """What has been counted of one instruction; ``conflict`` is the worst, of the first CTA that has it.

    One that ``moves`` loads from Tensor Memory or stores to it.
    """

    work: InstructionWork
    moves: bool = False
    counts: Counts = field(default_factory=Counts)
    conflict: Conflict | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """An access to be accounted for: ``register`` as it was then, and the ``address`` read from it."""

    access: Access
    threads: Threads
    register: Array
    address: Array


class Counting(Watcher):
    """Counts a launch, or several, in ``tallies``. ``barriers`` counts one of each CTA as one.

    The accesses an instruction is made of are one request of each space and direction. Constant memory and
    parameters, which have caches of their own, and what printf and its like read, are not counted.
    ``wmma`` leaves to the hardware which lane asks for what, so a request of it is all its bytes at once.
    """

    def __init__(self) -> None:
        self.tallies: dict[Site, Tally] = {}
        self.barriers = 0
        self._current: Tally | None = None
        self._requests: list[_Request] = []
        self._known: dict[tuple[object, ...], tuple[_Request, Costs]] = {}

    @property
    def unverified(self) -> tuple[int, ...]:
        """Of which lines that were executed nobody has measured the bits."""
        return tuple(sorted(self._wave.unverified.intersection(site.line for site in self.tallies)))

    def begin(self, wave: Wave) -> None:
        self._wave = wave
        self.module, self.target = wave.module, wave.target
        self._alive = wave.alive.mask.copy()
        self._threads: Threads | None = None

    def end(self, wave: Wave) -> None:
        """End a wave: none of its arrays comes again."""
        self._known.clear()

    def ended(self, threads: Threads) -> None:
        """Note who has ended: warps are whole without them."""
        self._alive &= ~threads.mask
        self._threads = None

    def synchronize(self, number: int, arrived: Array, released: Array) -> None:
        self.barriers += int(arrived.reshape(self._wave.ctas, -1).any(axis=1).sum())

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        tally = self.tallies.get(site)
        if tally is None:
            moves = effects_of(site.instruction).begins in MOVES
            tally = self.tallies[site] = Tally(work(site.instruction), moves)
        counts, does = tally.counts, tally.work
        if threads is not self._threads:
            self._threads = threads
            self._warps, self._partial = self._whole(threads)
        on = 0 if passing is None else passing.size
        counts.executed += self._warps
        counts.partial += self._partial
        counts.threads += threads.size
        counts.threads_on += on
        if does.flops or does.integer_ops:
            times = on // WARP if does.by_warp else on
            counts.flops += times * does.flops
            counts.integer_ops += times * does.integer_ops
        # What ends a block accesses nothing, but what it calls before that may: printf its format.
        self._current = None if form_of(site.instruction).row.exit else tally
        if self._current is None and passing is not None and passing is not threads:
            both_ways = _any(passing.mask) & _any(threads.mask & ~passing.mask)
            counts.splits += int(both_ways.sum())

    def access(self, access: Access, frame: Frame, threads: Threads) -> None:
        """Note an access; ``after`` accounts for all that the instruction has made."""
        if self._current is not None and access.space != "param":
            register = frame.registers[access.base.slot]
            address = access.base.read(frame.registers)
            self._requests.append(_Request(access, threads, register, address))

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        """Count what the copy engine and the tensor cores read and write on their own."""
        tally = self._current
        if tally is None:
            return
        if tally.work.kind == PRODUCT:
            for access in moved:
                _read_by_tensor_cores(tally.counts, access.first.reshape(1, -1), access.size)
        if tally.work.kind != COPY:
            return
        tally.counts.engine_copies += threads.size
        for access in moved:
            space = "global" if isinstance(access.memory, Allocation) else "shared"
            first = access.first
            if not access.writes:  # once for all CTAs that it is for
                first = np.unique(first + (access.owner.astype(np.int64) << _OWNER_AT))
            tally.counts.add(f"engine_{space}", first.size * access.size)

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        """Count what the tensor cores do with Tensor Memory."""
        tally, problem = self._current, access.problem
        if tally is None:
            return
        counts = tally.counts
        for first in access.shared.values():
            _read_by_tensor_cores(counts, core_matrices(first), UNIT_BYTES)
        counts.tmem_read += CELL_BYTES * sum(cells.size for cells in access.read.values())
        counts.tmem_written += CELL_BYTES * sum(cells.size for cells in access.written.values())
        if problem is None or access.adds is None:
            return
        added = access.written["D"][access.adds]
        counts.tmem_read += CELL_BYTES * added.size
        operations = "integer_ops" if problem.d_type == "s32" else "flops"
        counts.add(operations, threads.size * problem.operations)

    def tensor_memory(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        tally = self._current
        if tally is not None and tally.moves:
            tally.counts.add("tmem_stored" if writes else "tmem_loaded", CELL_BYTES * cells.size)

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        tally, requests = self._current, self._requests
        self._current, self._requests = None, []
        if tally is None or state_space(site.instruction.modifiers) == "const":
            return
        for writes in (False, True):
            together = [request for request in requests if request.access.writes == writes]
            if len(together) == 1:
                self._book(tally, together[0].access, self._costs(tally, together[0]))
            elif together:
                costs = self._analysed(tally, together, 0)
                self._book(tally, together[0].access, costs)

    # ---- warps ----

    def _whole(self, threads: Threads) -> tuple[int, int]:
        """Return how many warps have any of ``threads``, and how many of them lack a thread that lives."""
        if threads.everyone:
            return self._wave.warps, 0
        here = _any(threads.mask)
        missing = _any(self._alive & ~threads.mask)
        return int(here.sum()), int((here & missing).sum())

    # ---- memory ----

    def _book(self, tally: Tally, access: Access, costs: Costs) -> None:
        counts = tally.counts
        for name, traffic in costs.items():
            space = SPACES[name]
            counts.collisions += traffic.collisions
            counts.add(space.requests, traffic.requests)
            counts.add(space.units, traffic.units)
            counts.add(space.ideal, traffic.ideal)
            counts.add(space.written if access.writes else space.read, traffic.nbytes)
            self._keep_worst(tally, traffic.conflict)

    def _costs(self, tally: Tally, request: _Request) -> Costs:
        """Return what a single access costs, known of the same addresses moved by whole sectors or not."""
        access, threads = request.access, request.threads
        if access.space == "generic":  # an offset may lead into another window
            return self._analysed(tally, [request], 0)
        away = access.offset // SECTOR_BYTES * SECTOR_BYTES
        whom = None if threads.everyone else id(threads)
        what = (access.space, access.offset - away, access.nbytes, tally.work.kind == ATOMIC)
        key = (id(request.register), access.base, whom, *what)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            # The request is kept with its array and threads, so that no others get their numbers.
            known = self._known[key] = (request, self._analysed(tally, [request], -away))
        costs = known[1]
        return {space: costs[space].moved(away) for space in costs} if away else costs

    def _analysed(self, tally: Tally, requests: list[_Request], move: int) -> Costs:
        """Return what accesses that belong together cost in each space, their addresses moved."""
        spaces: dict[str, list[Items]] = {}
        for request in requests:
            for space, items in self._items(request, move):
                spaces.setdefault(space, []).append(items)
        return {space: self._cost(tally, space, items) for space, items in spaces.items()}

    def _items(self, request: _Request, move: int) -> Iterator[tuple[str, Items]]:
        """Yield the space and the items of a request, those of a generic one by their windows."""
        access, threads = request.access, request.threads
        address = request.address.astype(np.int64) + (access.offset + move)
        table = np.broadcast_to(address, (threads.width,)).reshape(-1, WARP)
        asked = None if threads.everyone else threads.mask.reshape(-1, WARP)
        if access.space != "generic":
            yield access.space.removesuffix("::cluster"), Items(table, access.nbytes, asked)
            return
        left = threads.mask.reshape(-1, WARP)
        for space, base in WINDOWS.items():
            inside = left & (table >= base) & (table < base + WINDOW_SIZE)
            if inside.any():
                left = left & ~inside
                if space != "param":
                    yield space, Items(table - base, access.nbytes, inside)
        if left.any():
            yield "global", Items(table, access.nbytes, left)

    def _cost(self, tally: Tally, space: str, several: list[Items]) -> Traffic:
        items, times = self._once(several[0] if len(several) == 1 else merged(several))
        if space == "shared":
            traffic = of_shared(items, whole=len(several) > 1)
        else:
            traffic = of_local(items) if space == "local" else of_global(items)
        again = collisions(items) if tally.work.kind == ATOMIC else 0
        nbytes = items.count * items.nbytes
        return replace(traffic, nbytes=nbytes, collisions=again).times(times)

    def _once(self, items: Items) -> tuple[Items, int]:
        """Return the items of one CTA and how many CTAs there are, if what all of them do costs alike."""
        ctas = self._wave.ctas
        table = items.addresses.reshape(ctas, -1)
        asked = np.ones((1, 1), bool) if items.asked is None else items.asked.reshape(ctas, -1)
        if ctas == 1 or (asked != asked[0]).any():
            return items, 1
        first = int(asked[0].argmax())
        for some in (table[:2], table):  # two CTAs are enough to see that they are not alike
            relative = some - (some[:, first : first + 1] & -SECTOR_BYTES)
            if not ((relative == relative[0]) | ~asked[0]).all():
                return items, 1
        width = items.addresses.shape[1]
        mask = None if items.asked is None else asked[0].reshape(-1, width)
        return Items(table[0].reshape(-1, width), items.nbytes, mask), ctas

    def _keep_worst(self, tally: Tally, conflict: Conflict | None) -> None:
        if conflict is None:
            return
        cta, warp = divmod(conflict.warp, self._wave.cta_width // WARP)
        worst = replace(conflict, cta=self._wave.numbers[cta], warp=warp)
        if tally.conflict is None or _severity(worst) < _severity(tally.conflict):
            tally.conflict = worst


def _read_by_tensor_cores(counts: Counts, first: Array, size: int) -> None:
    """Count items of shared memory [..., items], in the order in which tensor cores read them."""
    traffic = of_shared(Items(first.reshape(-1, first.shape[-1]), size))
    counts.tensor_shared += first.size * size
    counts.tensor_wavefronts += traffic.units
    counts.tensor_ideal += traffic.ideal


def _severity(conflict: Conflict) -> tuple[int, int, int]:
    """Order conflicts, the worst first; the order of execution does not matter between CTAs."""
    return -conflict.ways, conflict.cta, conflict.warp


def _any(mask: Array) -> Array:
    return np.asarray(mask.reshape(-1, WARP).any(axis=1))
