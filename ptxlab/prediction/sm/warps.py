"""A warp in the model of an SM: what it issues, what it asks for, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ptxlab.prediction.sm.mbarriers import Operation
from ptxlab.prediction.sm.requests import Request, Served
from ptxlab.prediction.sm.run import Run
from ptxlab.prediction.sm.tensor_work import Queued
from ptxlab.prediction.sm.timing import InstructionTiming
from ptxlab.prediction.sm.tma import Copy

NEVER = float("inf")

Orders = tuple[Operation | Copy | Queued, ...]
"""What one asks of mbarriers, barriers named by a register, the tensor memory accelerator and the tensor core."""

Asked = tuple[Orders, ...]
"""What each warp asks of them."""


class Window:
    """The time from when the last of all warps has come to the first of its marks until the first has to its last.

    Where the first are so far ahead that they have before, it opens when half of all have come to the first of theirs:
    what the warps that are behind take when the others have ended is none of a turn's, as other CTAs have begun then.
    ``opened`` and ``closed`` are what came of the SM until then.
    """

    def __init__(self, warps: int) -> None:
        self._behind, self._half = warps, warps // 2
        self.opened: Run | None = None
        self.closed: Run | None = None

    def come(self, warp: Warp, until: Callable[[], Run]) -> None:
        """Hear that a warp has come to a mark."""
        if self.closed is not None:
            return
        if warp.marks:
            self._behind -= 1
            if self._behind in (0, self._half):
                self.opened = until()
        else:
            self.closed = until()

    @property
    def between(self) -> tuple[Run, Run] | None:
        """What came of the SM until it opened, and until it closed; None where it did not before."""
        opened, closed = self.opened, self.closed
        return (opened, closed) if opened and closed and opened.issued < closed.issued else None


NOTHING: tuple[Served, Orders] = ((0, 0, [], []), ())
"""What an instruction asks for that asks for nothing."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """What an instruction, by ``number``, would load in ``turns`` more turns of a loop.

    It did in one turn what ``first`` says, and ``apart`` turns later what ``last`` does.
    """

    number: int
    turns: int
    apart: int
    first: Request
    last: Request

    def sectors(self, warp: int, most: int) -> list[int]:
        """Return the last sectors that a warp would load, ``most`` or a few more, as they go on evenly."""
        first, last = self.first.sectors(warp), self.last.sectors(warp)
        if not first or not last:
            return []
        stride = (last[0] - first[0]) / self.apart
        if abs(stride) >= 1:
            behind = range(max(1, self.turns - most // len(last)), self.turns + 1)
            offsets = [int(stride * turn) for turn in behind]
        else:  # several turns share a sector
            end, sign = int(abs(stride) * self.turns), 1 if stride > 0 else -1
            offsets = [sign * n for n in range(max(1, end - most // len(last)), end + 1)]
        return [sector + offset for offset in offsets for sector in last]


@dataclass(slots=True, eq=False)
class Warp:
    """A warp, by its ``number`` on the SM: ``trace`` are the numbers of the instructions it issues.

    ``asks`` is what all warps ask for with it, of memory or of what is asynchronous, by place in the trace.
    """

    cta: int
    trace: Sequence[int]
    asks: Mapping[int, Request | Asked] = field(default_factory=dict)
    number: int = 0
    skips: Mapping[int, Sequence[Skipped]] = field(default_factory=dict)
    """Loads of turns that are left out before a place of the trace."""
    apart: int = 0
    """Sectors by which what it asks for lies behind what ``asks`` says."""
    part: int = 0
    timed: Sequence[InstructionTiming] = ()
    """The timings of the instructions it issues."""
    at: int = 0
    ready: float = 0
    fixed: float = 0
    """When the stall of the instruction before is over."""
    issued: float = 0
    waits_for: str = ""
    lacking: float = 0
    """Until when a pipe, a queue or a port is known not to take what it issues next."""
    blocked: str = ""
    board: list[float] = field(default_factory=lambda: [0.0] * 6)
    far: list[bool] = field(default_factory=lambda: [False] * 6)
    marks: list[int] = field(default_factory=list)
    """Places in the trace at which is still to be told what came of it until then."""
    ends: int | None = None
    """The place at which all stop."""
    passed: dict[int, Run] = field(default_factory=dict)
    window: Window | None = None
    """What hears of the marks in place of ``passed``."""
    met: int = 0
    """How often it arrived at the barrier of its cluster."""
    copies: float = 0
    stored: float = 0.0
    """When what it stored has left the SM."""
    groups: list[float] = field(default_factory=list)
    product: float = 0.0
    products: list[float] = field(default_factory=list)
    """When groups of a warpgroup's products are there."""

    def asked(self) -> tuple[Served, Orders]:
        """Return what its next instruction asks for."""
        asks = self.asks.get(self.at)
        if asks is None:
            return NOTHING
        if isinstance(asks, Request):
            return asks.served(self.number, self.apart), ()
        return NOTHING[0], asks[self.number]

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
