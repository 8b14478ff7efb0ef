"""A wave: the CTAs that run together, the threads in them, and the activations of functions.

Threads are numbered CTA by CTA; each CTA is padded to whole warps, and padding threads never live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ptxlab.emulator.fragments import FragmentCache
from ptxlab.emulator.prepare import special
from ptxlab.emulator.prepare.program import Deferred, Function, Program
from ptxlab.emulator.run.copies import AsyncCopies
from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.memory import GlobalMemory, Region, pitched
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import Dim3, LaunchConfig

if TYPE_CHECKING:
    from ptxlab.emulator.operations.control import Call
    from ptxlab.emulator.run.watch import Watcher

Array = npt.NDArray[Any]

# What shared memory holds before anything is written to it: NaN in every floating-point type, so
# that a read of unwritten shared memory does not pass for a zero.
UNWRITTEN = 0xFF


class Wave:
    """``ctas`` consecutive CTAs of a grid, starting with number ``first``.

    ``clock`` counts the instructions the wave has executed, each once for all threads it ran for.
    """

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        symbols: dict[str, int],
        config: LaunchConfig,
        first: int,
        ctas: int,
        parameters: bytes,
        shared_bytes: int,
        dynamic_base: int,
        write: Callable[[str], None],
        watcher: Watcher,
    ) -> None:
        self.program = program
        self.memory = memory
        self.symbols = symbols
        self.config = config
        self.first = first
        self.ctas = ctas
        self.cta_width: int = -(-config.cta_threads // WARP) * WARP
        self.width = ctas * self.cta_width
        self.parameters = parameters
        self.shared_bytes: int = shared_bytes
        self.dynamic_base: int = dynamic_base
        self.write = write
        self.watcher = watcher
        self.watched = program.watched
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
        self._specials: dict[str, Array] = {}
        self._templates: dict[str, list[Array | Deferred]] = {}

    def _existing(self) -> Lanes:
        threads = self.config.cta_threads
        if self.cta_width == threads:
            return Lanes(self.width)
        return Lanes(self.width, mask=np.arange(self.width) % self.cta_width < threads)

    @property
    def warps(self) -> int:
        """How many warps the wave has."""
        return self.width // WARP

    def special(self, name: str) -> Array:
        """Return special register ``name``, computed once."""
        value = self._specials.get(name)
        if value is None:
            value = self._specials[name] = special.TABLE[name](self)
        return value

    def thread(self, lane: int) -> str:
        """Name the thread at position ``lane`` of the wave by its CTA and thread index."""
        cta, inside = divmod(lane, self.cta_width)
        return f"thread {unravel(inside, self.config.block)} of CTA {unravel(self.first + cta, self.config.grid)}"

    def frame(self, function: Function, parent: Frame | None, local_base: int) -> Frame:
        """Start an activation of ``function`` with its constants and addresses in place."""
        template = self._templates.get(function.name)
        if template is None:
            template = [
                self._materialise(value) if isinstance(value, Deferred) else value
                for value in function.initial
            ]
            self._templates[function.name] = template
        registers = [
            _local_address(value, local_base) if isinstance(value, Deferred) else value
            for value in template
        ]
        self._reserve_local(local_base + function.local_bytes)
        return Frame(self, function, registers, parent, local_base)

    def _materialise(self, value: Deferred) -> Array | Deferred:
        if value.kind == "special":
            return self.special(value.name)
        if value.kind == "param":
            raw = self.parameters[value.offset : value.offset + value.dtype.itemsize]
            return np.frombuffer(raw, value.dtype)
        if value.kind == "symbol":
            return np.array([self.symbols[value.name] + value.offset], np.uint64).astype(
                value.dtype
            )
        if value.kind == "dynamic":
            base = self.dynamic_base
            return np.array([base + value.offset], value.dtype)
        return value

    def _local(self, nbytes: int) -> Region:
        pitch = pitched(nbytes)
        start = np.arange(self.width) * pitch
        return Region("local", nbytes, start, np.zeros(self.width * pitch, np.uint8))

    def _reserve_local(self, needed: int) -> None:
        """Let the deepest call have ``needed`` bytes; there is room for more, to grow into."""
        old = self.regions["local"]
        room = old.data.size // self.width
        if needed > room:
            grown = self._local(max(needed, 2 * room))
            grown.data.reshape(self.width, -1)[:, :room] = old.data.reshape(self.width, -1)
            self.regions["local"] = grown
        self.regions["local"].size = max(needed, old.size)


class Frame:
    """One activation of a function by some threads of a wave."""

    __slots__ = (
        "__weakref__", "call", "depth", "function", "local_base", "parent", "registers", "wave",
    )  # fmt: skip

    def __init__(
        self,
        wave: Wave,
        function: Function,
        registers: list[Array],
        parent: Frame | None,
        local_base: int,
    ) -> None:
        self.wave = wave
        self.function = function
        self.registers = registers
        self.parent = parent
        self.local_base = local_base
        self.call: Call | None = None
        self.depth: int = 0 if parent is None else parent.depth + 1


def _local_address(value: Deferred, base: int) -> Array:
    return np.array([base + value.offset], value.dtype)


def unravel(index: int, shape: Dim3) -> Dim3:
    """Return (x, y, z) of a linear index, x running fastest."""
    x, rest = index % shape[0], index // shape[0]
    return x, rest % shape[1], rest // shape[1]
