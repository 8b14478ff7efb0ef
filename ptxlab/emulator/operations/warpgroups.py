"""Warpgroups, and the factors that wgmma has them multiply: in shared memory or in registers.

Source: PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix_native import each
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.operations.warp import WholeWarps
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.run.transfer import MemoryAccess, Tiles
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARPGROUP
from ptxlab.matrix.canonical import MODES, UNIT_BYTES
from ptxlab.matrix.descriptor import WGMMA_DESCRIPTOR
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.shared_matrix import core_matrices, elements
from ptxlab.native.tensor_core.operands import WORDS


class Warpgroups(WholeWarps):
    """The whole warpgroups that an instruction acts on."""

    kind = "warpgroup"
    size = WARPGROUP

    def register(self, source: Source) -> Array:
        """Return an operand of all threads of the wave, a word for each."""
        return each(source.read(self.registers), self.threads.width)

    @property
    def firsts(self) -> Array:
        """The first thread of each."""
        firsts: Array = self.threads.index[:: self.size]
        return firsts

    def agreed(self, source: Source, what: str) -> Array:
        """Return an operand that all threads of a warpgroup agree on, [warpgroups]."""
        values = self.read(source)
        same = values == values[:, :1]
        if not same.all():
            first = self.wave.thread(self.first_thread(int(same.all(axis=1).argmin())))
            raise self.fault(
                f"{self.name}: {what} differs between the threads of the warpgroup of {first}",
                hint="all 128 threads must give the same",
            )
        return np.asarray(values[:, 0])


@dataclass(frozen=True, slots=True)
class SharedFactor:
    """A factor in shared memory: contiguous along ``major``, ``k`` or ``mn``."""

    operand: SharedOperand
    major: str
    descriptor: Source

    def issue(self, groups: Warpgroups) -> FactorInMemory:
        """Take the descriptors, and return what reads through them."""
        name, region = f"the descriptor of {self.operand.operand}", groups.wave.regions["shared"]
        words, starts = groups.agreed(self.descriptor, name), region.start[groups.firsts]
        operand, major = self.operand, self.major
        try:
            lines = UnitLines.of(region, operand, major, words, starts, WGMMA_DESCRIPTOR)
        except ValueError as error:
            location = groups.fault("").location
            raise Unsupported(f"{groups.name}: {error}", location=location) from None
        outside = lines.outside(region)
        if outside is not None:
            at, first, end = outside
            raise groups.fault(
                f"{groups.name}: {name} reaches from byte {first:#x} of shared memory to {end:#x}, of which a "
                f"CTA has {region.first:#x} to {region.size:#x}, in the warpgroup of "
                f"{groups.wave.thread(groups.first_thread(at))}",
                hint="all 64 rows of A and all n columns of B are read, wherever the offsets put them",
                kind="bounds",
            )
        return FactorInMemory(self, lines)

    def moved(self, groups: Warpgroups) -> list[MemoryAccess]:
        """Return what is read, one core matrix after the other."""
        units, region = core_matrices(self.issue(groups).lines.units), groups.wave.regions["shared"]
        words, which = np.unique(groups.agreed(self.descriptor, ""), return_inverse=True)
        fields = [WGMMA_DESCRIPTOR.decode(int(word)) for word in words]
        start = np.array([descriptor["start address"] for descriptor in fields], np.int64)[which]
        start += region.start[groups.firsts]
        swizzles = np.array([descriptor["swizzle"] for descriptor in fields])[which]
        moved = []
        for swizzle in dict.fromkeys(swizzles.tolist()):
            chosen = np.flatnonzero(swizzles == swizzle)
            first = units[chosen].reshape(-1) * UNIT_BYTES
            owner = np.repeat(chosen * groups.size, units[0].size)
            tiles = Tiles(swizzle, MODES[swizzle].span, 0, start[chosen])
            moved.append(MemoryAccess(region, first, UNIT_BYTES, owner, writes=False, tiles=tiles))
        return moved


@dataclass(frozen=True, slots=True)
class HeldFactor:
    """A factor in registers."""

    layout: FragmentLayout
    sources: Sequence[Source]

    def issue(self, groups: Warpgroups) -> FactorInRegisters:
        """Take the registers, and return what reads them."""
        return FactorInRegisters(self, groups)

    def moved(self, groups: Warpgroups) -> list[MemoryAccess]:
        """Return what is read in memory."""
        return []


@dataclass(frozen=True, slots=True)
class FactorInMemory:
    """A factor in shared memory as it will be, when it is read."""

    factor: SharedFactor
    lines: UnitLines

    def matrix(self) -> Array:
        """Return [rows, cols, warpgroups]."""
        return elements(self.factor.operand, self.factor.major, self.lines.read())

    @property
    def words(self) -> Sequence[int]:
        """Where machine code finds it."""
        return self.lines.words


@dataclass(frozen=True, slots=True)
class FactorInRegisters:
    """A factor in registers as they were."""

    factor: HeldFactor
    groups: Warpgroups

    def matrix(self) -> Array:
        """Return [rows, cols, warpgroups]."""
        return self.groups.matrix(self.factor.layout, self.factor.sources)

    @property
    def words(self) -> Sequence[int]:
        """What machine code is told in place of where it would find it."""
        return (0,) * WORDS

    def registers(self) -> list[Array]:
        return [self.groups.register(source) for source in self.factor.sources]
