"""A wave: the CTAs that run together, the threads in them, their frames, and whoever watches them.

Threads are numbered CTA by CTA; each CTA is padded to whole warps, and padding threads never live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import RANK_SHIFT
from ptxlab.emulator.fragments import FragmentCache
from ptxlab.emulator.prepare.effects import Queue
from ptxlab.emulator.prepare.program import Access, BoundFunction
from ptxlab.emulator.prepare.registers import FrameLayout, InFrame, InWave, VariableAddress, address
from ptxlab.emulator.prepare.scope import MODULE_SPACES, SharedLayout, Site
from ptxlab.emulator.run.background import Background
from ptxlab.emulator.run.clusters import ClusterBarriers
from ptxlab.emulator.run.in_flight import Groups, Schedule, Signals
from ptxlab.emulator.run.mbarriers import OBJECT_BYTES, Mbarriers
from ptxlab.emulator.run.memory import GlobalMemory, Part, Region, pitched
from ptxlab.emulator.run.register_pool import RegisterPool
from ptxlab.emulator.run.tensor_memory import TensorMemory
from ptxlab.emulator.run.tensor_work import TensorCoreAccess, TensorWork
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import CompletionSignal, MemoryAccess
from ptxlab.emulator.run.wave_memory import WaveMemory
from ptxlab.errors import LaunchError, Location
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import WARP, WARPGROUP, Target
from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.syntax.lexer import locate_line
from ptxlab.syntax.tree import Function, PtxModule
from ptxlab.tensormap.tensor_map import TensorMap

NEVER = -1
"""The heat of a wave whose blocks stay as they are: see ``emulator.native.engine``."""

LANDINGS: tuple[Queue, ...] = (
    "copies", "bulk_copies", "products", "signals", "tensor_work", "tensor_stores",
)  # fmt: skip
"""The queues of which who watches is told when their work lands."""


@dataclass(eq=False)
class Wave:
    """The CTAs that have these ``numbers`` in the grid, cluster by cluster, and what they share.

    ``functions`` are those of the module that they can enter, ``prepared`` by name. ``watched`` says that somebody is told what
    happens. ``clock`` counts the instructions the wave has executed, each once for all threads it ran for.
    ``shared`` says where shared variables are, of the ``shared_bytes`` that a CTA has. ``constants`` are the
    registers that all frames of a layout begin with. A thread has so many ``registers`` at first, where they
    can be given back; 0 where not. At ``workspace`` is what the CTAs of a cooperative launch wait for each
    other with, 0 in another. At generic addresses of parameters there are these tensor ``maps``.

    Asynchronous work is in ``copies`` (cp.async), ``bulk_copies``, ``products`` (wgmma), ``tensor_work`` and
    ``tensor_stores`` (tcgen05) and ``signals``; it lands by the ``schedule``. Of the lines ``unverified`` nobody
    has measured the bits: they are those of the nearest rule that is known. From the heat ``hot`` on blocks
    become machine code, which uses so many ``cores``. ``cancel`` gives the first CTA of a cluster that then
    is not launched; the clusters that were ``refused`` may not ask again.
    """

    module: PtxModule
    functions: Sequence[Function]
    prepared: Callable[[str], BoundFunction]
    target: Target
    memory: GlobalMemory
    symbols: dict[str, int]
    config: LaunchConfig
    numbers: Sequence[int]
    parameters: bytes
    shared: SharedLayout
    shared_bytes: int
    write: Callable[[str], None]
    watcher: Watcher
    watched: bool
    workspace: int
    registers: int
    schedule: Schedule
    unverified: set[int]
    hot: int
    cores: int
    cancel: Callable[[], int | None]

    def __post_init__(self) -> None:
        ctas = self.ctas = len(self.numbers)
        self.cta_width = -(-self.config.cta_threads // WARP) * WARP
        self.width = ctas * self.cta_width
        self.clock = 0
        self.multiprocessor = MULTIPROCESSORS[self.target.capability]
        # What is reserved below, machine code has among its own.
        reserved = self.multiprocessor.shared_base
        base = self.shared_base = 0 if self.module.lifted else reserved
        self.reserved = reserved - base
        # Who watches may look at a wave's memory when it has ended.
        begun = WaveMemory if self.watched else WaveMemory.of
        self.own = own = begun(
            ctas, self.cta_width, self.shared_bytes, base, self.config.cluster_ctas
        )
        if self.watcher.poison:
            own.shared.data.fill(self.watcher.poison)
            own.shared.data.reshape(ctas, -1)[:, : self.reserved] = 0
        self.cta_of, self.shared_pitch = own.cta_of, own.shared_pitch
        size = len(self.parameters)
        given = np.frombuffer(self.parameters.ljust(pitched(size), b"\0"), np.uint8)
        self.regions = {
            "shared": own.shared,
            "local": own.local,
            "param": Region("param", size, given, np.zeros(1, np.int64), np.zeros(1, np.int64)),
        }
        self.mbarriers = Mbarriers(self.regions["shared"].items(OBJECT_BYTES), self.width)
        self.background = Background(self.mbarriers.valid, ctas, may_see=self.watched)
        self.clusters = ClusterBarriers(self.width, self.cta_width * self.config.cluster_ctas)
        self.copies, self.bulk_copies = (Groups(self.width, self.schedule) for _ in range(2))
        if own.copies is not None:
            own.copies.begin(self.copies, self.cores)
        self.products = Groups(self.width, self.schedule, WARPGROUP)
        self.signals = Signals(self.schedule)
        self.refused = np.zeros(ctas, bool)
        self.tensor_memory = TensorMemory(ctas, self.background, self.watcher.poison)
        self.tensor_work = TensorWork(ctas, self.schedule)
        self.tensor_stores = Groups(self.width, self.schedule)
        self.pool = RegisterPool(ctas, self.cta_width // WARP, self.registers)
        if self.watched:
            self.mbarriers.tell = self.watcher.complete
            self.clusters.tell = self.watcher.clusters_met
            for queue in LANDINGS:
                getattr(self, queue).tell = partial(self.watcher.landed, queue)
        self.fragments = FragmentCache()
        lives = np.arange(self.cta_width) < self.config.cta_threads
        self.alive = Threads(self.width, mask=None if lives.all() else np.tile(lives, ctas))
        self.constants: dict[FrameLayout, list[Array]] = {}
        self.maps: dict[int, bytes] = {}

    @cached_property
    def rank_of(self) -> Array:
        return self.cta_of % self.config.cluster_ctas

    @cached_property
    def cluster_start(self) -> Array:
        """Where the shared memory of the first CTA of each thread's cluster begins, as that of a CTA in its region."""
        start: Array = self.regions["shared"].start - self.rank_of * self.shared_pitch
        return start

    @property
    def changes(self) -> int:
        """Grows with whatever may end a wait, but barriers of a CTA and the end of threads."""
        of_barriers = self.mbarriers.changes + self.clusters.changes
        return of_barriers + self.tensor_memory.changes + self.pool.changes

    @property
    def warps(self) -> int:
        return self.width // WARP

    def thread(self, lane: int) -> str:
        """Name the thread at position ``lane`` of the wave by its CTA and thread index."""
        cta, inside = self.numbered(lane)
        return self.member(cta * self.cta_width + inside)

    def member(self, thread: int) -> str:
        """Name a thread of the grid, whose CTAs are padded to whole warps."""
        cta, inside = divmod(thread, self.cta_width)
        block, grid = self.config.block, self.config.grid
        return f"thread {unravel(inside, block)} of CTA {unravel(cta, grid)}"

    def numbered(self, lane: int) -> tuple[int, int]:
        """Return the number in the grid of the CTA of the thread at a position of this wave, and its own there."""
        cta, inside = divmod(lane, self.cta_width)
        return self.numbers[cta], inside

    def lane(self, thread: int) -> int:
        """Return the position in this wave of a thread of the grid that is one of its own."""
        return self.lane_in(*divmod(thread, self.cta_width))

    def lane_in(self, cta: int, thread: int) -> int:
        """Return the position in this wave of a thread of a CTA, by their numbers."""
        return int(np.flatnonzero(np.asarray(self.numbers) == cta)[0]) * self.cta_width + thread

    def cta(self, position: int) -> str:
        """Name the CTA at ``position`` of the wave by its index in the grid."""
        return f"CTA {unravel(self.numbers[position], self.config.grid)}"

    def shared_address(self, offset: int) -> Array:
        """Return the address of a byte of each CTA's own shared memory: above it is the CTA's rank."""
        offset += self.shared_base
        if self.config.cluster_ctas == 1:
            return address(offset)
        return (self.rank_of << RANK_SHIFT).astype(np.uint64) + np.uint64(offset)

    def initial(self, value: InWave | VariableAddress) -> Array:
        """Return what a register holds from the beginning of the wave on."""
        if isinstance(value, InWave):
            return value.value(self)
        variable, offset = value.variable, value.offset
        if variable.space in MODULE_SPACES:
            return address(self.symbols[variable.name] + offset)
        return self.shared_address(self.shared.starts[variable] + offset)

    def finish(self) -> None:
        """Have all that is under way land when every thread has ended.

        Raise LaunchError for Tensor Memory that nobody has given back.
        """
        self.bulk_copies.wait_all(self.alive)
        self.tensor_work.wait_all(Threads(self.ctas))
        self.background.finish()
        left = self.tensor_memory.left()
        if left is not None:
            cta, columns, line = left
            raise LaunchError(
                f"{self.cta(cta)} has ended with {columns} columns of Tensor Memory that it allocated here",
                location=self.locate(line),
                hint="tcgen05.dealloc gives them back: a launch that leaves some fails",
                kind="tensor memory leak",
            )

    def locate(self, line: int) -> Location:
        """Return the place of ``line`` in the PTX text, for error messages."""
        return locate_line(self.module.source, line)

    def reserve_local(self, needed: int) -> None:
        """Give every thread at least ``needed`` bytes of local memory."""
        self.regions["local"] = self.own.reserve_local(needed)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Frame:
    """The registers and the local memory of an activation of a function by some threads of a wave.

    Of registers that products have written, and nothing has touched since, ``sums`` has the arrays by those of a D:
    nobody else does, so that the next product may write into them.
    """

    wave: Wave
    layout: FrameLayout
    registers: list[Array]
    local_base: int
    sums: dict[frozenset[int], Sequence[Array]] = field(default_factory=dict, init=False)
    _repeated: dict[int, tuple[Array, Array]] = field(default_factory=dict, init=False)

    @classmethod
    def begin(cls, wave: Wave, layout: FrameLayout, local_base: int) -> Frame:
        """Return a frame whose constants and addresses are in place; local memory is at ``local_base``."""
        common = wave.constants.get(layout)
        if common is None:
            common = wave.constants[layout] = cast("list[Array]", layout.initial.copy())
            for slot, value in layout.varying.items():
                if not isinstance(value, InFrame):
                    common[slot] = wave.initial(value)
        registers = common.copy()
        for slot, value in layout.varying.items():
            if isinstance(value, InFrame):
                registers[slot] = address(local_base + value.offset)
        wave.reserve_local(local_base + layout.local_bytes)
        return cls(wave, layout, registers, local_base)

    def leave_sums(self, slots: Set[int]) -> None:
        """Have products done that are under way to registers, whose arrays are left as they are then."""
        touched = [own for own in self.sums if not slots.isdisjoint(own)] if self.sums else ()
        if touched:
            self.wave.background.finish()
            for own in touched:
                del self.sums[own]

    def repeated(self, slot: int) -> Array:
        """Return a register that all threads share with one element per thread."""
        value = self.registers[slot]
        shared, each = self._repeated.get(slot, (None, value))
        if shared is not value:
            each = value.repeat(self.wave.width, axis=0)
            self._repeated[slot] = value, each
        return each


class Watcher:
    """Is told what happens in a launch, instruction by instruction.

    Each method does nothing until a subclass wants to know.

    ``threads`` are the threads that stand at an instruction, ``passing`` those of them that its guard
    lets execute it, None for none. Other threads may have been anywhere.

    ``poison`` is each byte of what has no value: of shared memory that nobody has written, and of a
    register of a lane that takes no part in a shuffle. GPUs give 0 of the lane (apache/tvm issue 12274,
    PaddlePaddle/CINN pull request 938), which NVIDIA's sample ``reduction`` needs; of shared memory nobody
    says. Another byte is for whoever looks for their use, and then memory that is discarded has it too.
    """

    poison = 0

    def begin(self, wave: Wave) -> None:
        """Begin a wave: its CTAs run from their beginning to their end before the next wave."""

    def before(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        """See an instruction about to be executed."""

    def after(self, site: Site, frame: Frame, threads: Threads, passing: Threads | None) -> None:
        """See the registers after an instruction; not told of those that end a block."""

    def access(self, access: Access, frame: Frame, threads: Threads) -> None:
        """See ``threads`` access memory, each at its own address, before it is known to be there.

        An instruction makes one access, or several where it is made of several: a copy reads and
        writes, and reads byte by byte in threads that copy less than a whole item.
        """

    def touch(
        self, access: Access, threads: Threads, parts: list[Part], items: Array | None
    ) -> None:
        """See the same access again when all of it is known to be there, part by part.

        ``items`` are what it stores, one for each of the lanes or one for all; None for a load, an
        atomic and a copy.
        """

    def exchange(self, frame: Frame, threads: Threads, source: Array, taking_part: Array) -> None:
        """See each of ``threads`` read a register of the thread ``source`` of its warp has for it.

        ``taking_part`` says whether that thread lives and stands there too, named by the membermask.
        """

    def synchronize(self, number: int, arrived: Array, released: Array) -> None:
        """See barrier ``number`` complete, in one CTA or several: masks of the wave's threads.

        All that ``arrived`` did before they came is visible to those ``released`` from now on.
        """

    def synchronize_warps(self, together: Array) -> None:
        """See the threads of a mask pass bar.warp.sync, those of each warp with each other."""

    def arrive(self, threads: Threads, words: Array) -> None:
        """See each of ``threads`` name the mbarrier in a word of shared memory, before it is acted on.

        The instruction at hand makes it, unmakes it, arrives, or changes how many bytes it expects.
        """

    def committed(self, words: Array) -> None:
        """See commits arrive at the mbarriers in these words: what they stand behind lands first."""

    def done(self, words: Array, threads: Threads | None) -> None:
        """See asynchronous work done that the mbarriers in these words hear of now.

        It is what cp.async began for ``threads``, who arrive; for None copies that complete bytes.
        """

    def complete(self, words: Array) -> None:
        """See phases of mbarriers complete."""

    def waited(self, threads: Threads, words: Array) -> None:
        """See ``threads`` told that a phase they asked for is complete."""

    def clusters_met(self, arrived: Array) -> None:
        """See the barriers of clusters complete, at which the threads of a mask have arrived."""

    def begun(
        self, threads: Threads, moved: list[MemoryAccess], told: CompletionSignal | None
    ) -> None:
        """See asynchronous work begin that ``threads`` have asked for: what it reads and what it writes.

        Mbarriers are ``told`` when it is done; for None the threads wait for a group that it is in.
        """

    def issued(self, threads: Threads, access: TensorCoreAccess) -> None:
        """See each of ``threads`` have tensor cores work on Tensor Memory: what they access, some time later."""

    def columns(self, cta: int, start: int, count: int, *, taken: bool) -> None:
        """See columns of Tensor Memory allocated in the CTA at a position of the wave, or given back."""

    def tensor_memory(self, threads: Threads, cells: Array, *, writes: bool) -> None:
        """See whole warps read cells [warps, ...] of Tensor Memory, or write them or give them back."""

    def box(
        self, thread: int, tensor_map: TensorMap, coordinates: Sequence[int], *, outside: bool
    ) -> None:
        """See a thread have a box copied, which may lie wholly outside its tensor."""

    def landed(self, queue: str, turn: int, threads: Threads | None) -> None:
        """See work land, the ``turn``th in a queue of the wave, that some of its threads or all had begun.

        In the queue of tensor cores threads stand for CTAs, of a pair for the even one.
        """

    def ended(self, threads: Threads) -> None:
        """See threads end."""

    def end(self, wave: Wave) -> None:
        """End a wave; not told when the launch failed."""


def unravel(index: int, shape: Dim3) -> Dim3:
    """Return (x, y, z) of a linear index, x running fastest."""
    x, rest = index % shape[0], index // shape[0]
    return x, rest % shape[1], rest // shape[1]
