"""A group: threads that stand at the same place of the program and run together."""

from __future__ import annotations

from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.wave import Frame


class Group:
    """Threads that stand at the beginning of the same block of the same activation."""

    __slots__ = ("block", "frame", "lanes")

    def __init__(self, frame: Frame, block: int, lanes: Lanes) -> None:
        self.frame = frame
        self.block = block
        self.lanes = lanes

    def at(self, other: Group) -> bool:
        """Say whether the other group stands at the same place."""
        return self.frame is other.frame and self.block == other.block

    def part(self, lanes: Lanes, block: int | None = None) -> Group:
        """Return some of the threads as a group, at another block where one is given."""
        return Group(self.frame, self.block if block is None else block, lanes)

    @property
    def priority(self) -> tuple[int, int]:
        """Order in which groups run, smallest first: the deepest call, then the order of the text."""
        return -self.frame.depth, self.block
