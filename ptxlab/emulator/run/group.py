"""A group: threads that stand at the same place of the program and run together."""

from __future__ import annotations

from ptxlab.emulator.run.lanes import Lanes
from ptxlab.emulator.run.wave import Frame


class Group:
    """Threads that stand at the beginning of the same block of the same activation.

    ``ran`` is when the group, or what it split from, had its last turn.
    """

    __slots__ = ("block", "frame", "lanes", "ran")

    def __init__(self, frame: Frame, block: int, lanes: Lanes, ran: int) -> None:
        self.frame = frame
        self.block = block
        self.lanes = lanes
        self.ran = ran

    def at(self, other: Group) -> bool:
        """Say whether the other group stands at the same place."""
        return self.frame is other.frame and self.block == other.block

    def part(self, lanes: Lanes, block: int | None = None) -> Group:
        """Return some of the threads as a group, at another block where one is given."""
        return Group(self.frame, self.block if block is None else block, lanes, self.ran)

    @property
    def priority(self) -> tuple[int, int]:
        """Order in which groups run, smallest first: the deepest call, then the order of the text.

        Threads with nothing left to do end at once, and are nobody's concern any more.
        """
        if self.frame.function.blocks[self.block].ends:
            return -(1 << 30), 0
        return -self.frame.depth, self.block
