"""wmma.load and wmma.store on whole warps, with the layouts of ``ptxlab.matrix.wmma``.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load" and "Warp-level Matrix Store
Instruction: wmma.store".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.matrix import word_type
from ptxlab.emulator.operations.memory import gather, memory_operand, scatter
from ptxlab.emulator.operations.warp import ALIGNED, WholeWarps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import Source
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.wmma_move import WmmaMove
from ptxlab.syntax.tree import Integer, Operand

LINE_ALIGNMENT = 16
"""Rows, or columns, start at multiples of this many bytes, or of a lane's share if that is less."""


@dataclass(frozen=True, slots=True)
class WmmaMatrix:
    """A matrix in memory: ``access`` to one unit of it, its first address and its stride.

    A unit is an element, or for elements narrower than a byte what one register packs of them;
    ``layout`` is that of units. The address of every unit is made in register ``address``.
    ``stride`` counts elements from one row to the next, or column where ``form`` says so.
    """

    form: WmmaMove
    layout: FragmentLayout
    access: Access
    first: Source
    stride: Source
    address: int

    def units(self, frame: Frame, register: int) -> Iterator[int]:
        """Count what ``register`` packs, and let every lane address the unit that it holds there."""
        first, pitch = self.first.read(frame.registers).astype(np.int64), self._pitch(frame)
        for unit in range(self.layout.elements_per_register):
            row, col = self.layout.table()[:, register, unit].T
            line, within = (row, col) if self.form.order == "row" else (col, row)
            inside = np.tile(within, frame.wave.warps) * self.access.nbytes
            offset = np.tile(line, frame.wave.warps) * pitch + inside
            frame.registers[self.address] = (first + offset).view(np.uint64)
            yield unit

    def _pitch(self, frame: Frame) -> Array:
        """Return the bytes from one row (or column) to the next."""
        stride = self.stride.read(frame.registers).astype(np.int64)
        return stride * self.form.layout.bits // 8

    def check(self, frame: Frame, threads: Threads) -> None:
        """Raise LaunchError for a partial warp, one whose lanes disagree, or a misaligned line."""
        warps = WholeWarps(frame, threads, self.form.opcode, self.access.line)
        for name, source in (("address", self.first), ("stride", self.stride)):
            values = warps.read(source)
            if (values != values[:, :1]).any():
                raise warps.fault(f"{warps.name}: the {name} differs between the threads of a warp")
        layout = self.form.layout
        share = layout.registers_per_lane * layout.register_bits // 8
        alignment = min(LINE_ALIGNMENT, share)
        start = warps.read(self.first).astype(np.uint64)
        start = start + np.uint64(self.access.offset % (1 << 64))
        pitch = warps.split(self._pitch(frame)).view(np.uint64)
        if ((start | pitch) % np.uint64(alignment)).any():
            line = "row" if self.form.order == "row" else "column"
            what = f"a {line} does not start at a multiple of {alignment} bytes"
            raise warps.fault(f"{warps.name}: {what}", kind="alignment")


def _load(context: Context, matrix: WmmaMatrix, fragment: Operand) -> Step:
    """Let each lane read its elements of a matrix."""
    layout = matrix.layout
    destinations = context.destinations(fragment, word_type(matrix.form.layout))
    word = np.dtype(f"u{layout.register_bits // 8}")

    def run(frame: Frame, threads: Threads) -> None:
        matrix.check(frame, threads)
        loaded: list[Array] = []
        for register in range(layout.registers_per_lane // layout.copies):
            units = [gather(matrix.access, frame, threads) for _ in matrix.units(frame, register)]
            loaded.append(np.stack(units, axis=-1).reshape(-1).view(word))
        for destination, words in zip(destinations, loaded * layout.copies, strict=True):
            slot = destination.slot
            frame.registers[slot] = threads.spread(frame.registers[slot], words)

    return run


def _store(context: Context, matrix: WmmaMatrix, fragment: Operand) -> Step:
    """Let each lane write its elements of a matrix."""
    sources = context.sources(fragment, word_type(matrix.form.layout))

    def run(frame: Frame, threads: Threads) -> None:
        matrix.check(frame, threads)
        for register, source in enumerate(sources):
            words = np.ascontiguousarray(threads.pick(source.read(frame.registers)))
            units = words.view(ITEM[matrix.access.nbytes]).reshape(len(words), -1)
            for unit in matrix.units(frame, register):
                scatter(matrix.access, frame, threads, np.ascontiguousarray(units[:, unit]))

    return run


@cache
def _units(layout: FragmentLayout) -> FragmentLayout:
    """Return the layout with elements narrower than a byte taken a register at a time."""
    if layout.bits >= 8:
        return layout
    packed = layout.elements_per_register
    sizes = {"a": (layout.rows, layout.cols // packed), "b": (layout.rows // packed, layout.cols)}
    rows, cols = sizes[layout.kind]
    return replace(layout, rows=rows, cols=cols, dtype="b32", bits=32)


def move_fragment(context: Context, asked: RowForm) -> Step:
    """Load or store the fragment of a warp's matrix."""
    form = asked.matrix
    assert isinstance(form, WmmaMove)
    operands = context.instruction.operands
    layout, stores = form.layout, form.layout.operand == "D"
    compact = layout.cols if form.order == "row" else layout.rows
    address, fragment = operands[:2] if stores else operands[1::-1]
    [stride] = operands[2:] or [Integer(compact)]
    units = _units(layout)
    access = memory_operand(context, asked, address, units.bits // 8, form.opcode, writes=stores)
    if access.space not in ("shared", "global", "generic"):
        raise UnknownForm("reaches shared and global memory only")
    slot = context.new_slot("u64")
    # The address is made of the operand's, a unit at a time: see Matrix.units.
    by_unit = replace(access, base=Source(slot, np.dtype(np.uint64)))
    matrix = WmmaMatrix(form, units, by_unit, access.base, context.source(stride, "u32"), slot)
    context.participants = ALIGNED
    return (_store if stores else _load)(context, matrix, fragment)


for _verb in ("load", "store"):
    row(f"wmma.{_verb}.*", "", step=move_fragment, mix="matrix move", collective=True)
