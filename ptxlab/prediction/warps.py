"""A warp in the model of an SM: what it issues, what it asks for, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptxlab.prediction.mbarriers import Operation
from ptxlab.prediction.tma import Copy

PARTITIONS = 4
"""Sub-partitions of an SM, each with warps of its own."""

NEVER = float("inf")

Served = tuple[int, int, tuple[int, ...]]
"""What one warp asks for: passes through shared memory, lines, and the sectors by number."""

Orders = tuple[Operation | Copy, ...]
"""What it asks of mbarriers, barriers named by a register, and the tensor memory accelerator."""


@dataclass(slots=True, eq=False)
class Warp:
    """A warp: ``trace`` are the numbers of the instructions it issues, ``asks`` what each asks for.

    ``orders`` is what is asked of what is asynchronous, by place in the trace.
    """

    cta: int
    trace: Sequence[int]
    asks: Sequence[Served | None]
    orders: Mapping[int, Orders] = field(default_factory=dict)
    part: int = 0
    at: int = 0
    ready: float = 0
    fixed: float = 0
    """When the stall of the instruction before is over."""
    issued: float = 0
    waits_for: str = ""
    blocked: str = ""
    board: list[float] = field(default_factory=lambda: [0.0] * 6)
    far: list[bool] = field(default_factory=lambda: [False] * 6)
    marks: list[int] = field(default_factory=list)
    """Steps of the trace that are still to be told the time of; when none is left all stop."""
    passed: list[float] = field(default_factory=list)
    met: int = 0
    """How often it arrived at the barrier of its cluster."""
    copies: float = 0
    groups: list[float] = field(default_factory=list)
    product: float = 0.0
    products: list[float] = field(default_factory=list)
    """When groups of a warpgroup's products are there."""

    def hold(self, board: int | None, until: float, far: bool = False) -> None:
        """Hold a scoreboard, if any, until some time; ``far`` is what comes from beyond the SM."""
        if board is not None and until > self.board[board]:
            self.board[board], self.far[board] = until, far

    def pause(self, why: str, until: float) -> None:
        """Have it issue nothing before some time."""
        if until > self.ready:
            self.ready, self.waits_for = until, why

    def sleep(self, why: str) -> None:
        """Have it wait for nobody knows how long; what it would have waited for anyway goes on."""
        self.fixed, self.ready, self.waits_for = self.ready, NEVER, why
