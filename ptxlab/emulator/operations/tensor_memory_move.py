"""tcgen05.ld, tcgen05.st and tcgen05.wait: between Tensor Memory and the registers of whole warps.

A warp reaches the 32 lanes of its place in the warpgroup: the bits of an address above those that count
the lanes of a quarter are ignored. What is loaded is in its registers at once. What is stored can be
read when the warp has waited for it, and may be there before, as the schedule says.

Source: PTX ISA, "Tensorcore 5th Generation Instructions: tcgen05.ld, tcgen05.st, tcgen05.wait" and "Access
restrictions" of Tensor Memory; that lane bits are ignored is said in public kernels for sm_100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.order import nothing
from ptxlab.emulator.operations.structured_sparsity import (
    GROUP,
    KEPT,
    largest_two,
    packed_indices,
    sizes,
)
from ptxlab.emulator.operations.tensor_memory_allocate import TensorWarps
from ptxlab.emulator.operations.warp import ALIGNED
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import find, matrix_form
from ptxlab.emulator.prepare.registers import Destination, Source
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.tensor_memory import COLUMNS, CTA_CELLS
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.naming import named
from ptxlab.numbers.formats import F32
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
    return _load(context, form, context.destinations(registers, "b32"), rest, form.reduction)


def load_compressed(context: Context, asked: RowForm) -> Step:
    """Load two of every four columns, and which of them these are."""
    form = named(f"tcgen05.ld.sync.aligned.32x32b.{asked['num']}.b32")
    metadata, kept, *rest = context.instruction.operands
    count = int(asked["num"][1:])
    for operand, registers in ((metadata, -(-count // 32)), (kept, count // KEPT)):
        if len(context.elements(operand)) != registers:
            context.reject(f"there are {registers} registers in braces here", operand)
    destinations = [d for operand in (metadata, kept) for d in context.destinations(operand, "b32")]
    modifiers = (asked["op"], asked["abs"], asked["NaN"], "f32")
    reduction = ".".join(filter(None, modifiers)) if "red" in asked.modifiers else ""
    compress = partial(_compressed, least=asked["op"] == "min", magnitude=bool(asked["abs"]))
    return _load(context, cast("TensorMemoryMove", form), destinations, rest, reduction, compress)


def _compressed(words: Array, *, least: bool, magnitude: bool) -> Array:
    """Return indices of two bits, and below them the two largest of four words each, [registers, ...]."""
    groups = np.moveaxis(words, 0, -1).reshape(-1, len(words) // GROUP, GROUP)
    chosen = largest_two(sizes(groups, F32, least=least, magnitude=magnitude))
    kept = np.take_along_axis(groups, chosen, axis=-1).reshape(len(groups), -1)
    columns = np.concatenate([packed_indices(chosen.reshape(len(groups), -1), 2), kept], axis=1)
    return np.ascontiguousarray(columns.T).reshape(-1, *words.shape[1:])


def _load(
    context: Context,
    form: TensorMemoryMove,
    destinations: Sequence[Destination],
    rest: list[Operand],
    reduced_by: str,
    change: Callable[[Array], Array] = np.asarray,
) -> Step:
    """Load what ``change`` makes of the words that ``form`` reaches, and a reduction of them."""
    reduced = context.destination(rest.pop(0), "b32") if reduced_by else None
    access = _Access.of(context, form, rest[0], rest[1] if len(rest) > 1 else None)
    reduction = _reduction(reduced_by) if reduced_by else None
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
        for destination, value in zip(destinations, change(words), strict=True):
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
for _red, _nan in (("", ""), (".red", "{.NaN}")):
    _move(
        f"tcgen05.ld{_red}.spcompress.sync.aligned.32x32b.<num>.<op>.sp::2:4{{.abs}}{_nan}.f32.b2",
        step=load_compressed,
        operands="@registers",
        needs="sm_107a 9.4",
        fidelity="unverified",
        effects=Effects(begins="tensor_loads", work="load"),
        num="x4 x8 x16 x32 x64 x128",
        op="min max",
    )
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
