"""Memory that a program has from the driver, or has told it of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ptxlab.arrays import Array


class MemoryKind(Enum):
    """Whose memory it is."""

    DEVICE = "device"
    HOST = "host"
    MANAGED = "managed"
    REGISTERED = "registered"


@dataclass(frozen=True, slots=True, eq=False)
class MemoryBlock:
    """``nbytes`` from ``address`` on; of host memory that the driver gave, ``owner`` holds them."""

    kind: MemoryKind
    address: int
    nbytes: int
    flags: int = 0
    owner: Array | None = None


class MemoryBlocks:
    """The memory that the GPU was asked for, by where it begins."""

    def __init__(self) -> None:
        self._blocks: dict[int, MemoryBlock] = {}

    def add(self, block: MemoryBlock) -> int:
        self._blocks[block.address] = block
        return block.address

    def take(self, address: int, *kinds: MemoryKind) -> MemoryBlock | None:
        """Remove and return the block of one of those ``kinds`` that begins at an address."""
        block = self._blocks.get(address)
        return self._blocks.pop(address) if block and block.kind in kinds else None

    def at(self, begin: int) -> MemoryBlock | None:
        return self._blocks.get(begin)
