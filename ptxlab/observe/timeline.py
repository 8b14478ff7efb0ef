"""What a CTA, or the CTAs of a cluster, did in a launch, step by step: the records of a trace.

A step is an instruction that some of their warps execute together, or a copy that lands and tells an
mbarrier. Moments lie between steps: moment 0 is the beginning, moment n the end of step n - 1. They are
an order, and no time. Warps are counted through the CTAs, those of the first one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.pictured import Readable
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called

Warps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TracedInstruction:
    """An instruction, on ``line`` of the PTX; ``kind`` is its class in the instruction mix.

    ``source`` is where it comes from, where the PTX says so.
    """

    line: int
    text: str
    kind: str
    source: SourceLine | None


@dataclass(frozen=True, slots=True, order=True)
class SharedSpan:
    """Bytes ``start`` to ``end`` of the shared memory of a CTA, by its position in the cluster."""

    cta: int
    start: int
    end: int

    def overlaps(self, other: SharedSpan) -> bool:
        return self.cta == other.cta and self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True, order=True)
class TensorSpan:
    """Cells of the Tensor Memory of a CTA, by its position in the cluster: columns ``start`` to ``end``.

    They lie in ``lanes``, of which the first and the one behind the last are given.
    """

    cta: int
    start: int
    end: int
    lanes: tuple[int, int]

    def overlaps(self, other: TensorSpan) -> bool:
        """Say whether they have columns in common."""
        return self.cta == other.cta and self.start < other.end and other.start < self.end


@dataclass(slots=True)
class StepAccess:
    """An access of a step: of how many bytes, from the lowest address to the end of the highest one.

    Addresses count from the beginning of ``memory``, an allocation or shared memory of a CTA.
    """

    step: int
    verb: str
    memory: str
    low: int
    high: int
    nbytes: int


@dataclass(slots=True)
class Flight:
    """Asynchronous work that ``warps`` began in a step: a "copy", "store" or "shift", a "product", or a "commit".

    ``queue`` is how it is waited for: as one of the ``copies`` of cp.async, of the ``bulk_copies`` or
    ``products`` of warpgroups in groups, of what tensor cores do in ``tensor_work`` by a commit behind it, as one
    of ``tensor_stores`` to Tensor Memory, or by ``signals`` of mbarriers. It ``landed`` at a moment, and after it
    the steps in ``read`` read from shared memory, or Tensor Memory, what it wrote. ``mbarriers`` are those that
    hear of it, each with its phase when it began; ``group`` is the number of its group, or commit, among those of
    its warps. In global memory it is at bytes ``low`` to ``high`` of the allocation ``far``; cells of Tensor
    Memory are ``cells_written`` and ``cells_read``. ``shape`` is what a product of ``tensor_work`` multiplies, and
    ``adds`` whether it adds to what is there.
    """

    queue: str
    work: str
    step: int
    warps: Warps
    nbytes: int = 0
    landed: int | None = None
    group: int | None = None
    committed: int | None = None
    writes: list[SharedSpan] = field(default_factory=list)
    reads: list[SharedSpan] = field(default_factory=list)
    far: str = ""
    low: int = 0
    high: int = 0
    mbarriers: list[tuple[int, int]] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    cells_written: list[TensorSpan] = field(default_factory=list)
    cells_read: list[TensorSpan] = field(default_factory=list)
    shape: str = ""
    adds: bool = False


@dataclass(slots=True)
class BarrierPhase:
    """A barrier of a CTA, or of the cluster, from its first arrival until it is complete.

    ``arrivals`` are steps; ``name`` is its operands in the PTX.
    """

    cta: int | None
    name: str
    arrivals: list[int]
    complete: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Warps that stood at an instruction, executed later in a step, from a moment to another.

    ``mbarrier`` is the one whose phase they waited for, None at other barriers.
    """

    warps: Warps
    since: int
    until: int
    step: int
    mbarrier: int | None = None


@dataclass(frozen=True, slots=True)
class MbarrierMoment:
    """What an mbarrier holds from a moment on: its phase, and what that lacks."""

    at: int
    phase: int
    pending: int
    tx: int


@dataclass(slots=True)
class TracedMbarrier:
    """An mbarrier at an address in shared memory, from when it is made on until it is ``unmade``."""

    cta: int
    address: int
    name: str
    expected: int
    states: list[MbarrierMoment]
    unmade: int | None = None


@dataclass(frozen=True, slots=True)
class TileFill:
    """A tile filled, or read, by ``flights`` that are waited for together, as the ``number``-th ones."""

    number: int
    flights: tuple[int, ...]
    since: int
    landed: int | None
    nbytes: int
    read: tuple[int, ...]

    @classmethod
    def of(
        cls, number: int, flights: Sequence[Flight], together: Sequence[int], nbytes: int
    ) -> TileFill:
        """Return the fill that the flights ``together``, by their numbers, are, of so many bytes."""
        chosen = [flights[at] for at in together]
        landed = [flight.landed for flight in chosen]
        return cls(
            number,
            tuple(together),
            min(flight.step for flight in chosen),
            None if None in landed else max(landing for landing in landed if landing is not None),
            nbytes,
            tuple(sorted({step for flight in chosen for step in flight.read})),
        )


@dataclass(frozen=True, slots=True)
class FilledTile:
    """Shared memory that asynchronous copies fill, or read, again and again."""

    span: SharedSpan
    name: str
    fills: tuple[TileFill, ...]


@dataclass(frozen=True, slots=True)
class FilledColumns:
    """Columns of Tensor Memory that tensor cores and stores fill again and again: an accumulator, or operands.

    A fill is all that is written there before somebody else reads it.
    """

    span: TensorSpan
    fills: tuple[TileFill, ...]


@dataclass(slots=True)
class AllocatedColumns:
    """Columns of the Tensor Memory of a CTA, from the moment they are allocated until they are given back."""

    cta: int
    start: int
    end: int
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline(Readable):
    """What the ``ctas`` did, which are one or the cluster of one, in the order of their ranks.

    Step n is the instruction ``places[executed[n]]``, executed by the warps ``together[who[n]]``, or -1
    and no warps for a copy that lands.
    ``cut`` says that more happened than was to be kept, ``fault`` why the launch stopped. Of the lines
    ``unverified`` nobody has measured the bits. Where ``machine_code`` ran, ``text`` is its listing.
    """

    kernel: str
    target: str
    schedule: str
    config: LaunchConfig
    ctas: tuple[Dim3, ...]
    path: str
    text: tuple[str, ...]
    places: tuple[TracedInstruction, ...]
    together: tuple[Warps, ...]
    executed: tuple[int, ...]
    who: tuple[int, ...]
    accesses: tuple[StepAccess, ...]
    flights: tuple[Flight, ...]
    tiles: tuple[FilledTile, ...]
    columns: tuple[FilledColumns, ...]
    allocations: tuple[AllocatedColumns, ...]
    barriers: tuple[BarrierPhase, ...]
    waits: tuple[Wait, ...]
    mbarriers: tuple[TracedMbarrier, ...]
    cut: bool
    fault: str | None
    unverified: tuple[int, ...]
    machine_code: bool

    def __repr__(self) -> str:
        ctas = ", ".join(map(str, self.ctas))
        steps = f"{len(self.executed)} steps of CTA {ctas}"
        return f"<timeline of {called(self.kernel)} on {self.target}: {steps}, {self.config!r}>"


def united(spans: Iterable[SharedSpan], gap: int = 0) -> list[SharedSpan]:
    """Return spans with those joined that overlap or, at a ``gap`` of 0, touch each other."""
    joined: list[SharedSpan] = []
    for span in sorted(spans):
        last = joined[-1] if joined else None
        if last is not None and last.cta == span.cta and span.start <= last.end - gap:
            joined[-1] = SharedSpan(last.cta, last.start, max(last.end, span.end))
        else:
            joined.append(span)
    return joined
