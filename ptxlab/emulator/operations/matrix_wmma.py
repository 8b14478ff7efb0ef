"""wmma.load, wmma.mma and wmma.store on whole warps, with the layouts of ``ptxlab.matrix.wmma``.

Source: PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "Warp-level Matrix
Multiply-and-Accumulate Instruction: wmma.mma", "Warp-level Matrix Store Instruction: wmma.store".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ptxlab.emulator.operations.matrix import (
    MatrixMultiply,
    multiply_operands,
    named_form,
)
from ptxlab.emulator.operations.memory import gather, memory_operand, scatter
from ptxlab.emulator.operations.warp import ALIGNED, by_warp, require_whole_warps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import require_form
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, UnknownForm, row
from ptxlab.emulator.run.memory import ITEM, Access
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError, did_you_mean
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.wmma import WMMA_MOVES, WmmaMove
from ptxlab.syntax.tree import Instruction, Integer

LINE_ALIGNMENT = 16
"""Rows, or columns, start at multiples of this many bytes, or of a lane's share if that is less."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: ``access`` to one unit of it, its first address and its stride.

    A unit is an element, or for elements narrower than a byte what one register packs of them;
    ``layout`` is that of units. The address of every unit is made in register ``address``.
    ``stride`` counts elements from one row (column, if not ``row_major``) to the next.
    """

    form: WmmaMove
    access: Access
    first: Source
    stride: Source
    address: int

    @property
    def layout(self) -> FragmentLayout:
        """The layout of the units over the warp."""
        return _units(self.form.layout)

    def point(self, frame: Frame, threads: Threads, register: int, unit: int) -> None:
        """Let every lane address the unit it holds as ``unit`` of ``register``."""
        row, col = self.layout.table()[:, register, unit].T
        line, place = (row, col) if self.form.order == "row" else (col, row)
        first = self.first.read(frame.registers).astype(np.int64)
        pitch = self.pitch(frame)
        warps = frame.wave.warps
        offset = np.tile(line, warps) * pitch + np.tile(place, warps) * self.access.nbytes
        frame.registers[self.address] = (first + offset).view(np.uint64)

    def pitch(self, frame: Frame) -> Array:
        """Return the bytes from one row (or column) to the next."""
        stride = self.stride.read(frame.registers).astype(np.int64)
        return stride * self.form.layout.bits // 8

    def check(self, frame: Frame, threads: Threads, warps: Array | None) -> None:
        """Raise LaunchError where a warp's lanes disagree, or a line is not aligned."""
        layout = self.form.layout
        share = layout.registers_per_lane * layout.register_bits // 8
        alignment = min(LINE_ALIGNMENT, share)
        named = (("address", self.first), ("stride", self.stride))
        for name, source in named:
            values = by_warp(source.read(frame.registers), frame, warps)
            if (values != values[:, :1]).any():
                raise self._wrong(frame, f"the {name} differs between the threads of a warp", "")
        first = by_warp(self.first.read(frame.registers), frame, warps).astype(np.uint64)
        start = first + np.uint64(self.access.offset % (1 << 64))
        pitch = by_warp(self.pitch(frame), frame, warps).view(np.uint64)
        if ((start | pitch) % np.uint64(alignment)).any():
            line = "row" if self.form.order == "row" else "column"
            what = f"a {line} does not start at a multiple of {alignment} bytes"
            raise self._wrong(frame, what, "alignment")

    def _wrong(self, frame: Frame, what: str, kind: str) -> LaunchError:
        location = frame.wave.locate(self.access.line)
        return LaunchError(f"{self.form.opcode}: {what}", location=location, kind=kind)


class LoadFragment:
    """wmma.load: each lane reads its elements of a matrix."""

    __slots__ = ("_destinations", "_matrix")

    participants = ALIGNED

    def __init__(self, matrix: Matrix, destinations: list[Destination]) -> None:
        self._matrix = matrix
        self._destinations = destinations

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        matrix = self._matrix
        warps = require_whole_warps(frame, threads, matrix.form.opcode, matrix.access.line)
        matrix.check(frame, threads, warps)
        layout = matrix.layout
        loaded: list[Array] = []
        for register in range(layout.registers_per_lane // layout.copies):
            units = []
            for unit in range(layout.elements_per_register):
                matrix.point(frame, threads, register, unit)
                units.append(gather(matrix.access, frame, threads))
            word = np.dtype(f"u{layout.register_bits // 8}")
            loaded.append(np.stack(units, axis=-1).reshape(-1).view(word))
        for destination, words in zip(self._destinations, loaded * layout.copies, strict=True):
            slot = destination.slot
            frame.registers[slot] = threads.spread(frame.registers[slot], words)


class StoreFragment:
    """wmma.store: each lane writes its elements of a matrix."""

    __slots__ = ("_matrix", "_sources")

    participants = ALIGNED

    def __init__(self, matrix: Matrix, sources: list[Source]) -> None:
        self._matrix = matrix
        self._sources = sources

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        matrix = self._matrix
        warps = require_whole_warps(frame, threads, matrix.form.opcode, matrix.access.line)
        matrix.check(frame, threads, warps)
        layout = matrix.layout
        for register, source in enumerate(self._sources):
            words = np.ascontiguousarray(threads.pick(source.read(frame.registers)))
            units = words.view(ITEM[matrix.access.nbytes]).reshape(len(words), -1)
            for unit in range(layout.elements_per_register):
                matrix.point(frame, threads, register, unit)
                scatter(matrix.access, frame, threads, np.ascontiguousarray(units[:, unit]))


@cache
def _units(layout: FragmentLayout) -> FragmentLayout:
    """Return the layout with elements narrower than a byte taken a register at a time."""
    if layout.bits >= 8:
        return layout
    packed = layout.elements_per_register
    sizes = {"a": (layout.rows, layout.cols // packed), "b": (layout.rows // packed, layout.cols)}
    rows, cols = sizes[layout.kind]
    return replace(layout, rows=rows, cols=cols, dtype="b32", bits=32)


_MOVES = {form.name: form for form in WMMA_MOVES}


def warp_matrix(context: Context, instruction: Instruction, asked: Form) -> Step:
    """Load, multiply or store the fragments of a warp's matrices."""
    if asked.modifiers[:1] == ("mma",):
        form = named_form(context, instruction.name)
        if len(instruction.operands) != 4:
            context.reject(f"{instruction.name} takes 4 operands")
        destinations, sources = multiply_operands(context, form, list(instruction.operands))
        return MatrixMultiply(form, context.target, destinations, sources, context.line)
    return _move(context, instruction, asked)


def _move(context: Context, instruction: Instruction, asked: Form) -> Step:
    names = [n for n in asked.modifiers if n not in ("shared", "shared::cta", "global")]
    name = ".".join([instruction.opcode, *names[:-1], "shared", *names[-1:]])
    form = _MOVES.get(name)
    if form is None:
        context.refuse(instruction.name, hint=did_you_mean(name, _MOVES, most=3))
    require_form(context, form)
    layout = form.layout
    stores = layout.operand == "D"
    operands = list(instruction.operands)
    if len(operands) not in (2, 3):
        context.reject(f"{form.opcode} takes 2 operands and a stride, found {len(operands)}")
    fragment, address = (operands[1], operands[0]) if stores else (operands[0], operands[1])
    unit = _units(layout)
    access = memory_operand(context, asked, address, unit.bits // 8, form.opcode, writes=stores)
    if access.space not in ("shared", "global", "generic"):
        raise UnknownForm("reaches shared and global memory only")
    slot = context.new_slot("u64")
    compact = layout.cols if form.order == "row" else layout.rows
    [stride] = operands[2:] or [Integer(compact)]
    # The address is made of the operand's, a unit at a time: see Matrix.point.
    by_unit = replace(access, base=Source(slot, np.dtype(np.uint64)))
    matrix = Matrix(form, by_unit, access.base, context.source(stride, "u32"), slot)
    register_type = f"b{layout.register_bits}"
    elements = context.elements(fragment, layout.registers_per_lane)
    if stores:
        return StoreFragment(matrix, [context.source(e, register_type) for e in elements])
    return LoadFragment(matrix, [context.destination(e, register_type) for e in elements])


row("wmma.*", "", step=warp_matrix, mix="matrix move", collective=True)
