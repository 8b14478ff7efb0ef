"""ldmatrix, stmatrix and movmatrix on whole warps, with the fragment layouts of ``ptxlab.matrix``.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store
instruction: stmatrix", "Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.fragments import from_registers, to_registers
from ptxlab.emulator.operations.matrix_move_native import natively
from ptxlab.emulator.operations.memory import gather, memory_operand, scatter
from ptxlab.emulator.operations.warp import ALIGNED, WholeWarps
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.row import RowForm, UnknownForm, row
from ptxlab.emulator.run.access import translate
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import MOVMATRIX, ROW_BYTES, SIGNED, LdMatrix, RowMove, StMatrix
from ptxlab.syntax.tree import Operand


def _rows(context: Context, asked: RowForm, address: Operand, verb: str) -> Access:
    """Return the access to a row of a matrix, and have whole warps arrive at it."""
    assert isinstance(asked.matrix, RowMove)
    context.participants = ALIGNED
    what, writes = f"{asked.opcode} row {verb}", verb == "write"
    access = memory_operand(context, asked, address, asked.matrix.row_bytes, what, writes=writes)
    if access.space not in ("shared", "generic"):
        raise UnknownForm("reaches shared memory only")
    return access


def load_matrix(context: Context, asked: RowForm) -> Step:
    """Load one, two or four matrices, a row for each of the first lanes."""
    form = asked.matrix
    assert isinstance(form, LdMatrix)
    target, address = context.operands(2)
    destinations = context.destinations(target, "b32")
    access = _rows(context, asked, address, "read")
    all_addresses = form.needs_all_addresses(context.target)
    asked_rows, order = form.matrices * form.rows, _order(form.fragment)

    def run(frame: Frame, threads: Threads) -> None:
        warps = WholeWarps(frame, threads, "ldmatrix", access.line)
        if all_addresses:
            translate(access, frame, threads)
        rows = gather(access, frame, _suppliers(threads, asked_rows))
        if rows.shape[0] == 1:
            rows = np.repeat(rows, warps.count * asked_rows)
        elements = _unpacked(rows.view(np.uint8).reshape(warps.count, form.matrices, -1), form)
        if order is not None:
            elements = elements[..., order]
        words = np.ascontiguousarray(elements).view(np.uint32).reshape(warps.count, -1, WARP)
        for position, destination in enumerate(destinations):
            warps.write(destination, words[:, position])

    places = range(form.fragment.rows * form.cols) if order is None else order.tolist()
    return natively(form, run, access, destinations, places, all_addresses=all_addresses)


def store_matrix(context: Context, asked: RowForm) -> Step:
    """Store one, two or four matrices, a row for each of the first lanes."""
    form = asked.matrix
    assert isinstance(form, StMatrix)
    address, value = context.operands(2)
    sources = context.sources(value, "b32")
    access = _rows(context, asked, address, "write")
    order = _order(form.fragment)

    def run(frame: Frame, threads: Threads) -> None:
        warps = WholeWarps(frame, threads, "stmatrix", access.line)
        words = np.stack([warps.read(source) for source in sources], axis=1)
        elements = words.view(np.dtype(f"u{form.bits // 8}"))
        if order is not None:
            elements = elements[..., np.argsort(order)]
        rows = np.ascontiguousarray(elements).reshape(-1).view(ITEM[ROW_BYTES])
        scatter(access, frame, _suppliers(threads, form.matrices * form.rows), rows)

    return run


def move_matrix(context: Context, asked: RowForm) -> Step:
    """Transpose an 8x8 matrix of 16-bit elements in registers, one register a lane."""
    target, value = context.operands(2)
    destination, source = context.destination(target, "b32"), context.source(value, "b32")
    line = context.line
    context.participants = ALIGNED

    def run(frame: Frame, threads: Threads) -> None:
        warps = WholeWarps(frame, threads, "movmatrix", line)
        matrix = from_registers(MOVMATRIX.source, [warps.read(source)])
        [result] = to_registers(MOVMATRIX.destination, matrix)
        warps.write(destination, result)

    return run


def _suppliers(threads: Threads, count: int) -> Threads:
    """Return the lanes whose addresses count: the first ``count`` of every active warp."""
    if count == WARP:
        return threads
    lane = np.arange(threads.width) % WARP
    return Threads(threads.width, mask=threads.mask & (lane < count))


def _unpacked(rows: Array, form: LdMatrix) -> Array:
    """Return the elements [..., rows * columns] of rows of bytes, one an 8- or 16-bit word."""
    if form.packed_bits == form.bits:
        return rows.view(np.dtype(f"u{form.bits // 8}"))
    used = form.cols * form.packed_bits // 8
    packed = rows.reshape(*rows.shape[:-1], form.rows, form.row_bytes)[..., :used]
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    by_element = bits.reshape(*rows.shape[:-1], form.rows * form.cols, form.packed_bits)
    elements = np.packbits(by_element, axis=-1, bitorder="little")[..., 0]
    return (elements ^ 8) - np.uint8(8) if form.dtype == SIGNED else elements


@cache
def _order(layout: FragmentLayout) -> Array | None:
    """Return the number of the element at each place (register, lane, element); None if in order."""
    order = layout.numbers().transpose(1, 0, 2).reshape(-1)
    return None if (order == np.arange(order.size)).all() else order


_moved = partial(row, operands="", mix="matrix move", collective=True)
_moved("ldmatrix.*", step=load_matrix)
_moved("stmatrix.*", step=store_matrix)
_moved("movmatrix.*", step=move_matrix)
