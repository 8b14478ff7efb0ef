"""A wave: the CTAs that run together, the threads in them, and whoever watches them.

Threads are numbered CTA by CTA; each CTA is padded to whole warps, and padding threads never live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ptxlab.emulator.fragments import FragmentCache
from ptxlab.emulator.prepare.scope import Site
from ptxlab.emulator.run.copies import AsyncCopies
from ptxlab.emulator.run.memory import Access, GlobalMemory, Part, Region, pitched
from ptxlab.emulator.run.registers import Array, Deferred, FrameLayout
from ptxlab.emulator.run.threads import Threads
from ptxlab.errors import Location
from ptxlab.isa.targets import WARP, Target
from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.syntax.tree import Module

# What shared memory holds before anything is written to it: NaN in every floating-point type, so
# that a read of unwritten shared memory does not pass for a zero.
UNWRITTEN = 0xFF


class Wave:
    """The CTAs that have these ``numbers`` in the grid, and what they share.

    ``watched`` says that somebody is told what happens. ``clock`` counts the instructions the wave
    has executed, each once for all threads it ran for. ``constants`` are the registers that all frames
    of a layout begin with.
    """

    def __init__(
        self,
        module: Module,
        target: Target,
        memory: GlobalMemory,
        symbols: dict[str, int],
        config: LaunchConfig,
        numbers: Sequence[int],
        parameters: bytes,
        shared_bytes: int,
        dynamic_base: int,
        write: Callable[[str], None],
        watcher: Watcher | None,
    ) -> None:
        self.module = module
        self.target = target
        self.memory = memory
        self.symbols = symbols
        self.config = config
        self.numbers = numbers
        ctas = self.ctas = len(numbers)
        self.cta_width: int = -(-config.cta_threads // WARP) * WARP
        self.width = ctas * self.cta_width
        self.parameters = parameters
        self.shared_bytes: int = shared_bytes
        self.dynamic_base: int = dynamic_base
        self.write = write
        self.watched = watcher is not None
        self.watcher = watcher or Watcher()
        self.clock = 0
        self.cta_of = np.repeat(np.arange(ctas), self.cta_width)
        pitch = pitched(shared_bytes)
        self.regions = {
            "shared": Region(
                "shared",
                shared_bytes,
                self.cta_of * pitch,
                np.full(ctas * pitch, UNWRITTEN, np.uint8),
            ),
            "local": self._local(0),
            "param": Region(
                "param",
                len(parameters),
                np.zeros(1, np.int64),
                np.frombuffer(parameters.ljust(pitched(len(parameters)), b"\0"), np.uint8),
            ),
        }
        self.copies = AsyncCopies(self.width)
        self.fragments = FragmentCache()
        self.alive = self._existing()
        self.constants: dict[FrameLayout, list[Array | Deferred]] = {}

    def _existing(self) -> Threads:
        threads = self.config.cta_threads
        if self.cta_width == threads:
            return Threads(self.width)
        return Threads(self.width, mask=np.arange(self.width) % self.cta_width < threads)

    @property
    def warps(self) -> int:
        """How many warps the wave has."""
        return self.width // WARP

    def thread(self, lane: int) -> str:
        """Name the thread at position ``lane`` of the wave by its CTA and thread index."""
        cta, inside = divmod(lane, self.cta_width)
        return f"thread {unravel(inside, self.config.block)} of {self.cta(cta)}"

    def cta(self, position: int) -> str:
        """Name the CTA at ``position`` of the wave by its index in the grid."""
        return f"CTA {unravel(self.numbers[position], self.config.grid)}"

    def locate(self, line: int) -> Location:
        """Return the place of ``line`` in the PTX text, for error messages."""
        return locate(self.module, line)

    def _local(self, nbytes: int) -> Region:
        pitch = pitched(nbytes)
        start = np.arange(self.width) * pitch
        return Region("local", nbytes, start, np.zeros(self.width * pitch, np.uint8))

    def reserve_local(self, needed: int) -> None:
        """Give every thread at least ``needed`` bytes of local memory."""
        """Let the deepest call have ``needed`` bytes; there is room for more, to grow into."""
        old = self.regions["local"]
        room = old.data.size // self.width
        if needed > room:
            grown = self._local(max(needed, 2 * room))
            grown.data.reshape(self.width, -1)[:, :room] = old.data.reshape(self.width, -1)
            self.regions["local"] = grown
        self.regions["local"].size = max(needed, old.size)


class Frame:
    """The registers and the local memory of an activation of a function by some threads of a wave."""

    __slots__ = ("__weakref__", "layout", "local_base", "registers", "wave")

    def __init__(
        self, wave: Wave, layout: FrameLayout, registers: list[Array], local_base: int
    ) -> None:
        self.wave = wave
        self.layout = layout
        self.registers = registers
        self.local_base = local_base


class Watcher:
    """Is told what happens in a launch, instruction by instruction.

    Each method does nothing until a subclass wants to know.

    ``threads`` are the threads that stand at an instruction, ``passing`` those of them that its guard
    lets execute it, None for none. Other threads may have been anywhere.
    """

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

    def synchronize(self, arrived: Array, released: Array) -> None:
        """See a barrier complete, in one CTA or several: masks of the wave's threads.

        All that ``arrived`` did before is visible to those ``released`` from now on.
        """

    def synchronize_warps(self, together: Array) -> None:
        """See the threads of a mask pass bar.warp.sync, those of each warp with each other."""

    def ended(self, threads: Threads) -> None:
        """See threads end."""

    def end(self, wave: Wave) -> None:
        """End a wave; not told when the launch failed."""


def locate(module: Module, line: int) -> Location:
    """Return the place of ``line`` in the PTX text of a module."""
    text = module.source.line(line)
    return Location(module.source.path, line, len(text) - len(text.lstrip()) + 1, text)


def unravel(index: int, shape: Dim3) -> Dim3:
    """Return (x, y, z) of a linear index, x running fastest."""
    x, rest = index % shape[0], index // shape[0]
    return x, rest % shape[1], rest // shape[1]
