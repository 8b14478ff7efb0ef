"""What single threads have the tensor cores do: who issues it, for which CTAs, and when it is over.

Every thread that executes such an instruction issues one operation; programs elect one thread. Operations
of a CTA, or a pair of CTAs, begin in the order of their issue (``run.tensor_work``), and tcgen05.commit has
an mbarrier told when those of its thread are done.

Source: PTX ISA, "TensorCore 5th Generation Instructions: tcgen05.commit, tcgen05.fence" and "tcgen05
memory consistency model".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.bulk import CASTS, CASTS_SINCE, BulkCopies
from ptxlab.emulator.operations.mbarrier import Objects
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.tensor_memory_allocate import enter
from ptxlab.emulator.operations.unit_lines import UnitLines
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import matrix_form, require
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import CLUSTER, translate
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.mbarriers import Arrive
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS, LANES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.isa.legality import parse_needs
from ptxlab.matrix.descriptor import TCGEN05_DESCRIPTOR
from ptxlab.matrix.form import SharedOperand

TensorAddress = tuple[Source, int]
"""An address of Tensor Memory: a register and what is added."""

matrix_descriptor = lru_cache(maxsize=1024)(TCGEN05_DESCRIPTOR.decode)
"""The fields of a descriptor of shared memory: a loop has the same few again and again."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Where something begins in Tensor Memory, in each of the CTAs that it is in: an entry each."""

    cta: Array
    lane: Array
    column: Array

    def at(self, lane: Array, column: Array) -> Array:
        """Return the cells [entries, ...] of the wave that lie so far from there."""
        first = self.cta * CTA_CELLS + self.lane * COLUMNS + self.column
        inside = lane * COLUMNS + column
        cells: Array = first.reshape(-1, *(1,) * inside.ndim) + inside
        return cells

    def same(self, other: Cells) -> bool:
        """Say whether both are at the same places."""
        pairs = ((self.cta, other.cta), (self.lane, other.lane), (self.column, other.column))
        return all(np.array_equal(mine, others) for mine, others in pairs)

    def part(self, chosen: Array | slice) -> Cells:
        return Cells(self.cta[chosen], self.lane[chosen], self.column[chosen])


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction by which a thread has the tensor cores of ``group`` CTAs do something."""

    name: str
    group: int
    line: int

    @classmethod
    def of(cls, context: Context, asked: RowForm) -> Operation:
        form = matrix_form(context, asked)
        return cls(form.family, 2 if "cta_group::2" in asked.modifiers else 1, context.line)

    def issued(self, frame: Frame, threads: Threads) -> Iterator[Issued]:
        """Return the operations that threads issue, those of different CTAs together."""
        cta = frame.wave.cta_of[threads.index]
        turn = np.arange(cta.size) - np.searchsorted(cta, cta - cta % self.group)
        for number in range(int(turn.max()) + 1):
            index = threads.index[turn == number]
            if index.size:
                yield Issued(self, frame, Threads(threads.width, index=index))


class Issued:
    """Operations that threads have issued, one each, of different CTAs or pairs.

    ``ctas`` are those that each is for, [operations, group].
    """

    def __init__(self, operation: Operation, frame: Frame, threads: Threads) -> None:
        self.operation = operation
        self.frame = frame
        self.wave: Wave = frame.wave
        self.threads = threads
        own = self.wave.cta_of[threads.index]
        self.ctas = (own - own % operation.group)[:, np.newaxis] + np.arange(operation.group)
        enter(self.wave, operation.group, operation.name, operation.line)

    def part(self, chosen: Array) -> Issued:
        """Return those of a mask."""
        if chosen.all():
            return self
        threads = Threads(self.threads.width, index=self.threads.index[chosen])
        return Issued(self.operation, self.frame, threads)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.operation.name

    def values(self, source: Source) -> Array:
        """Return an operand of each operation, as it is now."""
        value = self.threads.pick(source.read(self.frame.registers))
        return value.repeat(self.threads.size // len(value))

    @staticmethod
    def distinct(words: Array) -> list[tuple[int, int]]:
        """Return each value among those of the operations, and the first position that has it."""
        given = words.tolist()
        return [(word, given.index(word)) for word in dict.fromkeys(given)]

    def cells(
        self, start: TensorAddress, width: int, what: str, *, lanes: Sequence[int] = (0,)
    ) -> Cells:
        """Return where something of so many columns begins in Tensor Memory, which is one of ``lanes``.

        Lane bits above those of 128 lanes are ignored. Raise LaunchError for what cannot be there.
        """
        base, offset = start
        address = (self.values(base).astype(np.int64) + offset) & 0xFFFFFFFF
        memory = self.wave.tensor_memory
        key = address.tobytes(), self.ctas.tobytes(), width, tuple(lanes)
        known = memory.known.get(key)
        if known is None:
            known = memory.known[key] = self._cells(address, width, what, lanes)
        assert isinstance(known, Cells)
        return known

    def _cells(self, address: Array, width: int, what: str, lanes: Sequence[int]) -> Cells:
        lane, column = (address >> 16) % LANES, address & 0xFFFF
        wrong = ~np.isin(lane, lanes)
        if wrong.any():
            at = int(wrong.argmax())
            raise self.fault(
                at,
                f"{what} begins at lane {int(lane[at])} of Tensor Memory",
                hint=f"it begins at lane {' or '.join(map(str, lanes))}",
                kind="alignment",
            )
        for ctas in self.ctas.T:
            outside = self.wave.tensor_memory.outside(ctas, column, width)
            if outside.any():
                at = int(outside.argmax())
                first = int(column[at])
                raise self.fault(
                    at,
                    f"{what} takes columns {first} to {first + width - 1} of Tensor Memory, which are not "
                    f"all allocated in {self.wave.cta(int(ctas[at]))}",
                    hint=f"columns are 0 to {COLUMNS - 1}, tcgen05.alloc says which may be used",
                )
        group = self.operation.group
        return Cells(self.ctas.reshape(-1), lane.repeat(group), column.repeat(group))

    def of_ctas(self, chosen: Array | None) -> Array | slice:
        """Return the positions, among all CTAs, of those of the operations at the positions ``chosen``."""
        group = self.operation.group
        if chosen is None:
            return slice(None)
        positions: Array = chosen[:, np.newaxis] * group + np.arange(group)
        return positions.reshape(-1)

    def fault(
        self, at: int, what: str, *, hint: str | None = None, kind: str = "bounds"
    ) -> LaunchError:
        """Return the error of the operation at a position."""
        thread = self.wave.thread(int(self.threads.index[at]))
        return LaunchError(
            f"{self.name}: {what}, issued by {thread}",
            location=self.wave.locate(self.operation.line),
            hint=hint,
            kind=kind,
        )

    def misdescribed(self, at: int, operand: str, word: int, error: ValueError) -> LaunchError:
        """Return the error of the shared memory descriptor of an operand of the operation at a position."""
        what = f"the descriptor of {operand}, {word:#018x}: {error}"
        hint = (
            "ptxlab layout 128x64 --descriptor tcgen05 --dtype f16 --swizzle 128B prints a tile's"
        )
        return self.fault(at, what, hint=hint, kind="async")

    def unsupported(self, what: object) -> Unsupported:
        """Return the error of what is not modelled."""
        return Unsupported(f"{self.name}: {what}", location=self.wave.locate(self.operation.line))

    def start(
        self, land: Callable[[Array | None], None], access: Callable[[], TensorCoreAccess]
    ) -> None:
        """Have the operations done in their turn: those at the positions that ``land`` is given.

        What they ``access`` is asked for if somebody watches.
        """
        if self.wave.watched:
            self.wave.watcher.issued(self.threads, access())
        units = Threads(self.wave.ctas, index=self.ctas[:, 0])
        self.wave.tensor_work.start(units, land)

    def lines(self, operand: SharedOperand, major: str, descriptors: Array) -> UnitLines:
        """Return the matrices in the wave's shared memory that descriptors lead to, those of all CTAs.

        Each CTA of an operation reads at the same place of its own memory.
        """
        for word, at in self.distinct(descriptors):
            try:
                matrix_descriptor(word)
            except ValueError as error:
                raise self.misdescribed(at, operand.operand, word, error) from None
        region, group = self.wave.regions["shared"], self.operation.group
        starts = self.ctas.reshape(-1) * self.wave.shared_pitch - self.wave.shared_base
        words = descriptors.repeat(group)
        try:
            lines = UnitLines.of(region, operand, major, words, starts, TCGEN05_DESCRIPTOR)
        except ValueError as error:
            raise self.unsupported(error) from None
        outside = lines.outside(region)
        if outside is not None:
            at, first, end = outside
            raise self.fault(
                at // group,
                f"the descriptor of {operand.operand} reaches from byte {first:#x} of shared memory to {end:#x}, of which a CTA has "
                f"{region.first:#x} to {region.size:#x}",
            )
        return lines


# ---- commit and fence -----------------------------------------------------------------------


def commit(context: Context, asked: RowForm) -> Step:
    """Have an mbarrier, or one in each of several CTAs, told when all is done that the thread has issued.

    Whatever says where it is, ptxas takes the lower 32 bits, which both kinds of address have in common.
    """
    operation = Operation.of(context, asked)
    barrier, *masks = context.instruction.operands
    base, _ = context.address(barrier, 32)
    objects = Objects(replace(Objects.of(context, asked, barrier).access, space=CLUSTER, base=base))
    # Of a multicast, the rank that a CTA has is put above the bits of the offset.
    cast = next((name for name in asked.modifiers if name in CASTS), None)
    if cast in CASTS_SINCE:
        require(context, asked.name, parse_needs(CASTS_SINCE[cast]))
    mask = context.source(masks[0], CASTS[cast]) if cast else None

    def run(frame: Frame, threads: Threads) -> None:
        wave = frame.wave
        until = wave.tensor_work.turn
        copies = BulkCopies.of(frame, threads, mask)
        issued = list(operation.issued(frame, threads))
        if not copies.thread.size:
            return
        owners = copies.owners
        [part] = translate(objects.access, frame, owners, copies.address(objects.access, frame))
        index = np.broadcast_to(part.index, copies.thread.shape)
        units = Threads(
            wave.ctas, index=np.unique(np.concatenate([issue.ctas[:, 0] for issue in issued]))
        )

        if wave.watched:
            wave.watcher.arrive(owners, index)

        def land() -> None:
            if wave.watched:
                wave.watcher.committed(index)
            wave.tensor_work.wait_all(units, until)
            ones = np.ones(index.size, np.int64)
            arrive = Arrive(ones, np.zeros_like(ones))
            objects.landed(frame, owners.index, lambda barriers: barriers.arrive(index, arrive))

        wave.signals.start(land)

    return run


def fence(context: Context, asked: RowForm) -> Step:
    """Order what threads issue with how they meet: work that is issued waits in one queue."""
    matrix_form(context, asked)
    return nothing


row(
    "tcgen05.commit.*",
    "",
    step=commit,
    mix="synchronization",
    effects=Effects(mbarrier="arrive", behind="tensor_work", scope="cluster"),
)
for _when in ("before", "after"):
    row(
        f"tcgen05.fence::{_when}_thread_sync.*",
        "",
        step=fence,
        mix="synchronization",
        fidelity="ordering",
        effects=Effects(fence=f"{_when}_thread_sync"),
    )
