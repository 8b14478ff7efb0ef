"""tcgen05.ld, tcgen05.st and tcgen05.wait: between Tensor Memory and the registers of whole warps.

A warp reaches the 32 lanes of its place in the warpgroup: the bits of an address above those that count
the lanes of a quarter are ignored. What is loaded is in its registers at once. What is stored can be
read when the warp has waited for it, and may be there before, as the schedule says.

Source: PTX ISA, "Tensorcore 5th Generation Instructions: tcgen05.ld, tcgen05.st, tcgen05.wait" and "Access
restrictions" of Tensor Memory; that lane bits are ignored is said in public kernels for sm_100.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.tensor_memory_allocate import TensorWarps
from ptxlab.emulator.operations.warp import ALIGNED
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import find, matrix_form
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.syntax.tree import Integer, Operand

if TYPE_CHECKING:  # it makes tables that most programs can spare
    from ptxlab.matrix.tensor_memory import TensorMemoryMove

_LOW = np.uint32(0xFFFF)
_HIGH = np.uint32(16)


@dataclass(frozen=True, slots=True)
class _Access:
    """The address of a load or store, and the cells that it reaches from there.

    ``offsets`` are those of each register, [registers, 32 threads, cells]: two cells are packed into one
    register. ``width`` counts the columns.
    """

    base: Source
    offset: int
    offsets: Array
    lanes: int
    width: int
    line: int
    name: str

    @classmethod
    def of(
        cls, context: Context, form: TensorMemoryMove, address: Operand, second: Operand | None
    ) -> _Access:
        base, offset = context.address(address)
        distance = second.value if isinstance(second, Integer) else 0
        offsets = _offsets(form, distance)
        width = int((offsets % COLUMNS).max()) + 1
        return cls(base, offset, offsets, form.layout.rows, width, context.line, form.family)

    def cells(self, warps: TensorWarps) -> Array:
        """Return which cells of the wave the warps reach, [registers, warps, 32, cells]."""
        wave = warps.wave
        address = (warps.agreed(self.base, "taddr") + self.offset) & 0xFFFFFFFF
        lane, column = (address >> 16) % WARP, address & 0xFFFF
        wrong = lane % self.lanes != 0
        if wrong.any():
            at = int(wrong.argmax())
            raise warps.fault_of(
                at,
                f"taddr {int(address[at]):#x} names lane {int(lane[at])} of the warp",
                hint=f"{self.lanes} lanes are reached, from a multiple of as many on",
                kind="alignment",
            )
        outside = wave.tensor_memory.outside(warps.cta, column, self.width)
        if outside.any():
            at = int(outside.argmax())
            first = int(column[at])
            raise warps.fault_of(
                at,
                f"columns {first} to {first + self.width - 1} of Tensor Memory, which are not all allocated",
            )
        quarter = warps.first % wave.cta_width % WARPGROUP
        first = warps.cta * CTA_CELLS + (quarter + lane) * COLUMNS + column
        cells: Array = self.offsets[:, np.newaxis] + first[:, np.newaxis, np.newaxis]
        return cells


@cache
def _offsets(form: TensorMemoryMove, distance: int) -> Array:
    """Return the cells of each register, [registers, 32, cells], from the first lane and column on.

    The second of two accesses is ``distance`` columns away.
    """
    layout = form.layout
    lane, column = np.moveaxis(layout.table(), -1, 0)
    second = np.asarray(layout.matrix(np.arange(WARP))) > 0
    column = column + distance * second[:, np.newaxis, np.newaxis]
    offsets = (lane * COLUMNS + column).transpose(1, 0, 2)
    return np.ascontiguousarray(offsets)


def load(context: Context, asked: RowForm) -> Step:
    """Load registers, and reduce what each thread has loaded if the instruction says so."""
    form = cast("TensorMemoryMove", matrix_form(context, asked))
    registers, *rest = context.instruction.operands
    destinations = context.destinations(registers, "b32")
    reduced = context.destination(rest.pop(0), "b32") if form.reduction else None
    access = _Access.of(context, form, rest[0], rest[1] if len(rest) > 1 else None)
    reduction = _reduction(form.reduction) if form.reduction else None
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = TensorWarps(frame, threads, access.name, access.line)
        reached = access.cells(warps)
        if frame.wave.watched:
            frame.wave.watcher.tensor_memory(threads, reached.swapaxes(0, 1), writes=False)
        cells = frame.wave.tensor_memory.cells.take(reached)
        words = cells[..., 0]
        if form.packed:
            words = (words & _LOW) | (cells[..., 1] << _HIGH)
        for destination, value in zip(destinations, words, strict=True):
            warps.write(destination, value)
        if reduced is not None and reduction is not None:
            warps.write(reduced, reduction(words))

    return run


def _reduction(text: str) -> Callable[[Array], Array]:
    """Return how words [registers, ...] are reduced: ``min.abs.NaN.f32``, whose NaN and zeros are those of min."""
    operation, *modifiers, kind = text.split(".")
    plain = tuple(part for part in modifiers if part != "abs")
    compute = find(operation, (*plain, kind)).compute
    dtype = np.dtype({"f32": np.float32, "u32": np.uint32, "s32": np.int32}[kind])

    def reduced(words: Array) -> Array:
        if "abs" in modifiers:
            words = words & np.uint32(0x7FFFFFFF)
        reduced_words: Array = reduce(compute, words.view(dtype))
        return np.ascontiguousarray(reduced_words).view(np.uint32)

    return reduced


def store(context: Context, asked: RowForm) -> Step:
    """Store registers. What is in the upper halves of cells that take 16 bits, the PTX ISA leaves open."""
    form = cast("TensorMemoryMove", matrix_form(context, asked))
    address, *second, registers = context.instruction.operands
    sources = context.sources(registers, "b32")
    access = _Access.of(context, form, address, second[0] if second else None)
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = TensorWarps(frame, threads, access.name, access.line)
        cells = access.cells(warps)
        if frame.wave.watched:
            frame.wave.watcher.tensor_memory(threads, cells.swapaxes(0, 1), writes=True)
        words = np.stack([warps.read(source) for source in sources])[..., np.newaxis]
        if form.packed:
            halves = np.concatenate([words & _LOW, words >> _HIGH], axis=-1)
            words = halves | (frame.wave.tensor_memory.blank & ~_LOW)
        memory = frame.wave.tensor_memory

        def land(chosen: Array | None) -> None:
            some = slice(None) if chosen is None else np.unique(chosen // WARP)
            memory.cells[cells[:, some]] = words[:, some]

        frame.wave.tensor_stores.start(threads.apart(), land)

    return run


def wait_for_stores(context: Context, asked: RowForm) -> Step:
    """Wait until all stores of the threads can be read."""
    context.participants = ALIGNED
    return lambda frame, threads: frame.wave.tensor_stores.wait_all(threads)


def wait_for_loads(context: Context, asked: RowForm) -> Step:
    """Wait for registers, which have what was loaded."""
    context.participants = ALIGNED
    return nothing


_move = partial(row, operands="", mix="matrix move", collective=True)
_move("tcgen05.ld.*", step=load, effects=Effects(begins="tensor_loads", work="load"))
_move("tcgen05.st.*", step=store, effects=Effects(begins="tensor_stores", work="store"))
_wait = partial(row, operands="", mix="synchronization", collective=True)
_wait(
    "tcgen05.wait::ld.*",
    step=wait_for_loads,
    fidelity="ordering",
    effects=Effects(waits="tensor_loads"),
)
_wait("tcgen05.wait::st.*", step=wait_for_stores, effects=Effects(waits="tensor_stores"))
