"""ldmatrix, stmatrix and movmatrix on whole warps, with the fragment layouts of ``ptxlab.matrix``.

Source: PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store
instruction: stmatrix", "Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TypeVar

import numpy as np

from ptxlab.emulator.fragments import from_registers, to_registers
from ptxlab.emulator.operations.memory import gather, memory_operand, scatter, two_operands
from ptxlab.emulator.operations.warp import (
    ALIGNED,
    by_warp,
    require_whole_warps,
    write_warps,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import require_form
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, UnknownForm, row
from ptxlab.emulator.run.access import require_valid
from ptxlab.emulator.run.memory import ITEM, Access
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, ROW_BYTES, STMATRIX, LdMatrix, StMatrix
from ptxlab.syntax.tree import Instruction, Operand


class LoadMatrix:
    """ldmatrix: one, two or four matrices, a 16-byte row for each of the first lanes."""

    __slots__ = ("_access", "_all_addresses", "_destinations", "_form", "_order")

    participants = ALIGNED

    def __init__(
        self,
        form: LdMatrix,
        access: Access,
        destinations: list[Destination],
        *,
        all_addresses: bool,
    ) -> None:
        self._form = form
        self._order = _order(form.fragment)
        self._access = access
        self._destinations = destinations
        self._all_addresses = all_addresses

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        form = self._form
        warps = require_whole_warps(frame, threads, "ldmatrix", self._access.line)
        count = frame.wave.warps if warps is None else warps.shape[0]
        asked = form.matrices * form.rows
        if self._all_addresses:
            require_valid(self._access, frame, threads)
        rows = gather(self._access, frame, _suppliers(frame, threads, asked))
        if rows.shape[0] == 1:
            rows = np.repeat(rows, count * asked)
        elements = _unpacked(rows.view(np.uint8).reshape(count, form.matrices, -1), form)
        if self._order is not None:
            elements = elements[..., self._order]
        words = np.ascontiguousarray(elements).view(np.uint32).reshape(count, -1, WARP)
        for position, destination in enumerate(self._destinations):
            write_warps(frame, threads, destination, words[:, position])


class StoreMatrix:
    """stmatrix: one, two or four matrices, a 16-byte row for each of the first lanes."""

    __slots__ = ("_access", "_form", "_order", "_sources")

    participants = ALIGNED

    def __init__(self, form: StMatrix, access: Access, sources: list[Source]) -> None:
        self._form = form
        self._order = _order(form.fragment)
        self._access = access
        self._sources = sources

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        form = self._form
        warps = require_whole_warps(frame, threads, "stmatrix", self._access.line)
        words = np.stack(
            [by_warp(source.read(frame.registers), frame, warps) for source in self._sources],
            axis=1,
        )
        elements = words.view(np.dtype(f"u{form.bits // 8}"))
        if self._order is not None:
            elements = elements[..., np.argsort(self._order)]
        rows = np.ascontiguousarray(elements).reshape(-1).view(ITEM[ROW_BYTES])
        scatter(self._access, frame, _suppliers(frame, threads, form.matrices * form.rows), rows)


class MoveMatrix:
    """movmatrix: the transpose of an 8x8 matrix of 16-bit elements, one register a lane."""

    __slots__ = ("_destination", "_line", "_source")

    participants = ALIGNED

    def __init__(self, destination: Destination, source: Source, line: int) -> None:
        self._destination = destination
        self._source = source
        self._line = line

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        warps = require_whole_warps(frame, threads, "movmatrix", self._line)
        words = by_warp(self._source.read(frame.registers), frame, warps)
        matrix = from_registers(MOVMATRIX.source, [words])
        [result] = to_registers(MOVMATRIX.destination, matrix)
        write_warps(frame, threads, self._destination, result)


def _suppliers(frame: Frame, threads: Threads, count: int) -> Threads:
    """Return the lanes whose addresses count: the first ``count`` of every active warp."""
    if count == WARP:
        return threads
    lane = np.arange(frame.wave.width) % WARP
    return Threads(frame.wave.width, mask=threads.mask & (lane < count))


def _unpacked(rows: Array, form: LdMatrix) -> Array:
    """Return the elements [..., rows * columns] of rows of bytes, one an 8- or 16-bit word."""
    if form.packed_bits == form.bits:
        return rows.view(np.dtype(f"u{form.bits // 8}"))
    used = form.cols * form.packed_bits // 8
    packed = rows.reshape(*rows.shape[:-1], form.rows, ROW_BYTES)[..., :used]
    bits = np.unpackbits(packed, axis=-1, bitorder="little")
    by_element = bits.reshape(*rows.shape[:-1], form.rows * form.cols, form.packed_bits)
    return np.packbits(by_element, axis=-1, bitorder="little")[..., 0]


@cache
def _order(layout: FragmentLayout) -> Array | None:
    """Return the number of the element at each place (register, lane, element); None if in order."""
    order = layout.numbers().transpose(1, 0, 2).reshape(-1)
    return None if (order == np.arange(order.size)).all() else order


_Form = TypeVar("_Form", bound=LdMatrix | StMatrix)

_LOADS = {form.name: form for form in LDMATRIX}
_STORES = {form.name: form for form in STMATRIX}


def _form(context: Context, forms: Mapping[str, _Form], asked: Form) -> _Form:
    """Return the form the table has for the modifiers without the state space."""
    instruction = context.instruction
    names = [name for name in asked.modifiers if name not in ("shared", "shared::cta")]
    types = 1 + any(name.startswith("b8x16") for name in names)
    form = forms.get(".".join([instruction.opcode, *names[:-types], "shared", *names[-types:]]))
    if form is None:
        context.refuse(instruction.name, hint=f"there are {', '.join(forms)}")
    require_form(context, form)
    return form


def _access(context: Context, asked: Form, address: Operand, verb: str) -> Access:
    writes = verb == "write"
    what = f"{context.instruction.opcode} row {verb}"
    access = memory_operand(context, asked, address, ROW_BYTES, what, writes=writes)
    if access.space not in ("shared", "generic"):
        raise UnknownForm("reaches shared memory only")
    return access


def load_matrix(context: Context, instruction: Instruction, asked: Form) -> Step:
    """Load matrices from shared memory."""
    form = _form(context, _LOADS, asked)
    target, address = two_operands(context, instruction)
    destinations = [context.destination(e, "b32") for e in context.elements(target, form.registers)]
    access = _access(context, asked, address, "read")
    return LoadMatrix(
        form, access, destinations, all_addresses=form.needs_all_addresses(context.target)
    )


def store_matrix(context: Context, instruction: Instruction, asked: Form) -> Step:
    """Store matrices to shared memory."""
    form = _form(context, _STORES, asked)
    address, value = two_operands(context, instruction)
    sources = [context.source(e, "b32") for e in context.elements(value, form.registers)]
    return StoreMatrix(form, _access(context, asked, address, "write"), sources)


def move_matrix(context: Context, instruction: Instruction, asked: Form) -> Step:
    """Transpose a matrix in registers."""
    if instruction.name != MOVMATRIX.name:
        context.refuse(instruction.name, hint=f"there is {MOVMATRIX.name}")
    require_form(context, MOVMATRIX)
    target, source = two_operands(context, instruction)
    return MoveMatrix(
        context.destination(target, "b32"), context.source(source, "b32"), context.line
    )


_moved = partial(row, operands="", mix="matrix move", collective=True)
_moved("ldmatrix.*", step=load_matrix)
_moved("stmatrix.*", step=store_matrix)
_moved("movmatrix.*", step=move_matrix)
