"""What one launch tells its machine code: constants, memory, which threads there are."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import WARP, Target
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.memory import MemoryRange
from ptxlab.machine.values import Array

WINDOW, NOWHERE = 0x18, 0x7FFF0000
"""Where bank 0 has where shared memory begins among generic addresses: far from all buffers."""

PARAMETERS = 0x7FFE << 32
"""Where the parameters of a launch are among generic addresses: far from all buffers."""

WORKSPACE = 0x7FFD << 32
"""Where the CTAs of a grid wait for each other, of which nothing is known: far from all buffers."""

STACK = 1 << 14
"""The bytes of local memory that a thread may use, of which the stack begins at the end."""


@dataclass(frozen=True, slots=True)
class ConstantBank:
    """Where bank 0 has a launch's sizes, the stack's end and the parameters: read off compiled kernels."""

    block: int
    grid: int
    stack: int
    parameters: int
    generic: int | None = None
    """Where the generic address of the parameters is, and since Hopper behind it that of their last byte."""
    ends: int | None = None
    """Where it says where they end in this bank, before Hopper: there ``generic`` is where the bank is."""
    cluster: int | None = None
    """Where it says whether there are clusters."""
    cluster_sizes: int | None = None
    clusters: int | None = None
    """Where it says how many clusters the grid has in each direction."""
    ranks: int | None = None
    """Where it says how many CTAs a cluster has."""
    local: int = 0x20
    """Where it says where local memory begins among generic addresses."""
    descriptor: tuple[int, int] = (0x118, 0x11C)
    """Where the descriptor of global memory is, of which nothing is known but that it changes no address."""
    alias: int = 0x128
    """Where it says which of two fences orders what has several addresses."""
    reciprocals: int | None = None
    """Where one over the CTAs of a cluster along y is, an f32, and behind it that along z."""
    dynamic: int | None = None
    """Where it says how many bytes of dynamic shared memory a CTA has."""
    workspace: int = 0x8C
    """Where the upper word of the address is at which the CTAs of a grid wait for each other, and behind it the lower one."""
    constants: int = 0x50
    """Where it says where constant memory begins among generic addresses."""


_AMPERE = ConstantBank(0x0, 0xC, 0x28, 0x160, 0x40, 0x12C)
_TURING = replace(_AMPERE, ends=0x114)
_HOPPER = ConstantBank(
    0x0, 0xC, 0x28, 0x210, 0x198, None, 0x140, 0x144, 0x15C, 0x188,
    descriptor=(0x208, 0x20C), alias=0x18C, reciprocals=0x154, dynamic=0x2C, workspace=0x44, constants=0xD0,
)  # fmt: skip
_BLACKWELL = replace(
    ConstantBank(0x360, 0x370, 0x37C, 0x380, 0x348, None, 0x36C, 0x2A0, 0x2C0, 0x2CC, 0x2F8, (0x358, 0x35C), 0x2D8, 0x2B4, 0x2AC),
    workspace=0x254, constants=0x120,
)  # fmt: skip


def constant_bank(target: Target) -> ConstantBank:
    if target.capability >= 100:
        return _BLACKWELL
    if target.capability >= 90:
        return _HOPPER
    return _AMPERE if target.capability >= 80 else _TURING


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel's ``parameters`` as bytes, how it is launched, and the memory it may reach.

    ``banks`` are those of constant memory but 0. With ``floats``, numbers of floating point are computed too.
    ``running`` are the CTAs that begin, where those behind them wait for their turn: all where that is 0. ``assumed`` says of
    instructions, by number, whether what they are guarded by holds where it is not known.
    """

    target: Target
    config: LaunchConfig
    parameters: bytes
    regions: Sequence[MemoryRange]
    banks: Mapping[int, bytes] = field(default_factory=dict)
    floats: bool = False
    running: int = 0
    assumed: Mapping[int, bool] = field(default_factory=dict)

    def constants(self) -> dict[tuple[int, int], int]:
        """Return the words of constant memory that are known, by bank and offset."""
        bank = constant_bank(self.target)
        words = {bank.stack: STACK, WINDOW: 0, WINDOW + 4: NOWHERE}
        for axis in range(3):
            words[bank.block + 4 * axis] = self.config.block[axis]
            words[bank.grid + 4 * axis] = self.config.grid[axis]
        if bank.generic is not None and bank.ends is None:
            words |= {bank.generic: 0, bank.generic + 4: PARAMETERS >> 32}
        if bank.cluster is not None:
            words[bank.cluster] = int(self.config.cluster is not None)
        words |= {bank.workspace: WORKSPACE >> 32, bank.workspace + 4: WORKSPACE & 0xFFFFFFFF}
        if bank.ranks is not None:
            words[bank.ranks] = self.cluster
        for axis, size in enumerate(self.config.cluster or (1, 1, 1)):
            if bank.cluster_sizes is not None:
                words[bank.cluster_sizes + 4 * axis] = size
            if bank.clusters is not None:
                words[bank.clusters + 4 * axis] = self.config.grid[axis] // size
            if bank.reciprocals is not None and axis:
                words[bank.reciprocals + 4 * (axis - 1)] = int(reciprocal(size).view(np.uint32))
        words |= _words(self.parameters, bank.parameters)
        known = {(0, offset): word for offset, word in words.items()}
        for number, data in self.banks.items():
            known |= {(number, offset): word for offset, word in _words(data).items()}
        return known

    @property
    def cluster(self) -> int:
        return prod(self.config.cluster or (1,))

    @property
    def ctas(self) -> int:
        """The CTAs that begin."""
        return self.running or prod(self.config.grid)

    @property
    def shared_base(self) -> int:
        return MULTIPROCESSORS[self.target.capability].shared_base

    @property
    def threads(self) -> int:
        """The threads of a CTA, in whole warps."""
        return self.warps * WARP

    @property
    def warps(self) -> int:
        x, y, z = self.config.block
        return -(-x * y * z // WARP)

    def ctaid(self, cta: Any) -> tuple[Any, Any, Any]:
        """Return x, y and z of CTAs by number, x fastest."""
        gx, gy, _ = self.config.grid
        return cta % gx, cta // gx % gy, cta // (gx * gy)

    def alive(self, ctas: Sequence[int]) -> Array:
        """Say which threads there are: the last warp of a CTA may not be full."""
        x, y, z = self.config.block
        alive: Array = np.tile(np.arange(self.threads) < x * y * z, len(ctas))
        return alive


def reciprocal(size: int) -> np.float32:
    """Return the f32 nearest to one over the size of a cluster.

    What a driver has there nobody documents. Machine code multiplies the number of a CTA by it and cuts off, for its
    cluster's: this makes that right for all of a grid.
    """
    return np.float32(1 / size)


def _words(data: bytes, first: int = 0) -> dict[int, int]:
    padded = data + bytes(-len(data) % 4)
    words = struct.unpack(f"<{len(padded) // 4}I", padded)
    return {first + 4 * index: word for index, word in enumerate(words)}
