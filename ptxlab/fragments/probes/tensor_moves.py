"""Probe kernels of what moves Tensor Memory: loads, stores, copies and shifts; and of what goes around them.

Cells are numbered, so that each one that comes to a register, or to another cell, says where it is from. What
allocates, commits, waits and fences is in every one of these kernels: its probe kernel is a copy that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.run.tensor_memory import COLUMNS
from ptxlab.errors import Unsupported
from ptxlab.fragments.numbers import Fill, filled
from ptxlab.fragments.probes.kernel import ProbeKernel, packed
from ptxlab.fragments.probes.tensor_kernel import TensorBody, in_words
from ptxlab.fragments.report import Mismatch, differences
from ptxlab.isa.targets import WARP
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.descriptor import TCGEN05_DESCRIPTOR
from ptxlab.matrix.form import AsyncInstruction
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.naming import named
from ptxlab.matrix.tensor_memory import TensorMemoryMove
from ptxlab.matrix.tensor_memory_operand import LANES, QUARTER, held_bit, lanes_of_copy

_FIRST = 16
"""The first column of what is moved."""
_APART = 16
"""How many columns the second access of 16x32bx2 is away, as probe kernels have it."""
_BYTE = 8
_LOW = 0xFFFF
_SHIFTED = 8
_CORE_BYTES = 8 * UNIT_BYTES
_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}


@dataclass(frozen=True, slots=True, eq=False)
class TensorProbeKernel(ProbeKernel):
    """Of the words ``expected`` only the bits ``promised`` count. ``layout`` is that of registers, if there are any.

    Several records are those of the CTAs of a pair.
    """

    body: TensorBody
    promised: Array
    layout: FragmentLayout | None = None

    @property
    def count(self) -> int:
        return len(self.given) // self.body.group

    def wrong(self, words: Array, promised_only: bool) -> Array:
        return np.argwhere((words ^ self.expected) & self.promised)

    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements of a register, or with cells of a thread's lane."""
        registers = len(self.body.results)
        layout = self.layout
        if layout is not None and word < registers:
            for element, right, wrong in differences(layout, expected, actual):
                place = Place(lane % WARP, min(word, layout.registers_per_lane - 1), element)
                yield Mismatch.of("numbered", "register", layout, place, right, wrong)
            return
        for half in range(2):
            right, wrong = (number >> 32 * half & 0xFFFFFFFF for number in (expected, actual))
            column = 2 * (word - registers) + half
            if right != wrong:
                yield Mismatch.of_cell(
                    "numbered", "T", (lane, column), (lane, column), right, wrong
                )


def move_probe_kernel(form: TensorMemoryMove, fill: Fill | None) -> ProbeKernel:
    """Return the probe kernel of a load or a store by four warps, from both halves of their lanes."""
    layout = form.layout
    halves = range(0, WARP, layout.rows)
    if fill:
        halves = halves[:1]
    width = layout.cols + _APART * (layout.matrices - 1)  # an element a column
    first = min(_FIRST, COLUMNS - width)
    body = TensorBody(form, -(-(first + width) // 32) * 32)
    cells = np.broadcast_to(_numbered(body.columns), (len(halves), LANES, body.columns)).copy()
    if form.reduction.endswith("f32"):
        cells = (cells % (1 << 20)).astype(np.float32) - np.float32(1 << 19)
        cells = cells.view(np.uint32)
    address = (np.arange(LANES) // WARP * WARP << 16) + first
    where = (address + (np.array(halves)[:, np.newaxis] << 16))[..., np.newaxis].astype(np.uint64)
    if fill:
        matrix = filled(layout, fill).astype(np.uint64) & np.uint64((1 << layout.bits) - 1)
        for at, part in _parts(layout, first, 0):
            cells[0][at] = matrix if layout.matrices == 1 else matrix[part]
    if form.verb == "st":
        return _store_probe_kernel(form, body, cells, where, first, halves)
    registers = np.stack([_held(layout, cells[i], first, half) for i, half in enumerate(halves)])
    columns = [registers, *([_reduced(form, registers)] if form.reduction else [])]
    expected = np.concatenate([*columns, in_words(cells)], axis=-1)
    given = np.concatenate([where, in_words(cells)], axis=-1)
    return TensorProbeKernel(form, body, given, expected, ~np.zeros_like(expected), layout)


def _store_probe_kernel(
    form: TensorMemoryMove, body: TensorBody, cells: Array, where: Array, first: int, halves: range
) -> ProbeKernel:
    """Store what a load would bring, over other numbers. What 16 bits leave of a cell is open."""
    layout = form.layout
    registers = np.stack([_held(layout, cells[i], first, half) for i, half in enumerate(halves)])
    before = ~cells
    after, promised = before.copy(), ~np.zeros_like(before)
    for number, half in enumerate(halves):
        for at, _ in _parts(layout, first, half):
            after[number][at] = cells[number][at]
            promised[number][at] = _LOW if form.packed else 0xFFFFFFFF
    given = np.concatenate([where, registers, in_words(before)], axis=-1)
    return TensorProbeKernel(form, body, given, in_words(after), in_words(promised), layout)


def _numbered(columns: int) -> Array:
    """Return cells [128, columns] that differ in their low halves, and in their high ones."""
    number = np.arange(LANES * columns, dtype=np.uint32).reshape(LANES, columns)
    return np.asarray(number | (~number & np.uint32(_LOW)) << np.uint32(16))


def _parts(
    layout: FragmentLayout, first: int, half: int
) -> Iterator[tuple[tuple[slice, slice], int]]:
    """Yield where the matrices that warps move lie, from a column on, and which of the warp's each is."""
    for warp in range(LANES // WARP):
        lane = WARP * warp + half
        for matrix in range(layout.matrices):
            column = first + _APART * matrix
            yield (slice(lane, lane + layout.rows), slice(column, column + layout.cols)), matrix


def _held(layout: FragmentLayout, cells: Array, first: int, half: int) -> Array:
    """Return the registers of 128 threads, [128, registers], that hold what lies in cells."""
    parts = [_elements(layout, cells[at]) for at, _ in _parts(layout, first, half)]
    matrices = np.stack(parts).reshape(LANES // WARP, layout.matrices, layout.rows, layout.cols)
    words = layout.pack(matrices if layout.matrices > 1 else matrices[:, 0])
    return np.asarray(words.reshape(LANES, -1).astype(np.uint64))


def _elements(layout: FragmentLayout, cells: Array) -> Array:
    """Return the matrix in cells: the low halves of them are elements of 16 bits."""
    return cells & np.uint32((1 << layout.bits) - 1)


def _reduced(form: TensorMemoryMove, registers: Array) -> Array:
    """Return the extremum of what each thread has, by NumPy."""
    operation, *modifiers, kind = form.reduction.split(".")
    dtype = {"f32": np.float32, "u32": np.uint32, "s32": np.int32}[kind]
    values = registers.astype(np.uint32).view(dtype)
    values = np.abs(values) if "abs" in modifiers else values
    reduced = values.min(axis=-1) if operation == "min" else values.max(axis=-1)
    return np.asarray(reduced).view(np.uint32).astype(np.uint64)[..., np.newaxis]


# ---- copies and shifts ----------------------------------------------------------------------


def copy_probe_kernel(
    form: AsyncInstruction, copy: AsyncInstruction | None = None, commit: str = ""
) -> ProbeKernel:
    """Return the probe kernel of a ``tcgen05.cp``, or of what goes around one: bytes in as many rounds as they need.

    The source has groups of eight rows one behind the other, in each the first 16 bytes of all of them, then
    the next ones.
    """
    made = copy or form
    parts = made.name.split(".")
    group = 2 if "cta_group::2" in parts else 1
    rows, width, lanes = lanes_of_copy(parts)
    bits = next((_BITS[part] for part in parts if part in _BITS), _BYTE)
    numbers = _rounds(rows * width // _BYTE, bits)
    numbers = numbers.reshape(-1, rows, width // _BYTE)
    numbers = np.stack([numbers, numbers[:, ::-1]], axis=1)[:, :group]  # CTAs of a pair have others
    units = width // _BYTE // UNIT_BYTES
    row, unit = np.indices((rows, units))
    first = row // 8 * _CORE_BYTES * units + _CORE_BYTES * unit + UNIT_BYTES * (row % 8)
    shared = np.full((len(numbers), group, LANES * width // _BYTE), 0xA5, np.uint8)
    content = numbers.reshape(*numbers.shape[:-1], units, UNIT_BYTES)
    narrow = packed(content, bits) if bits < _BYTE else content
    for at in range(narrow.shape[-1]):
        shared[:, :, first + at] = narrow[..., at]
    body = TensorBody(made, 32, shared.shape[-1], group, issued=True, commit=commit)
    fields = {"leading byte offset": _CORE_BYTES, "stride byte offset": _CORE_BYTES * units}
    word = TCGEN05_DESCRIPTOR.encode({"start address": 0, **fields})
    cells = np.broadcast_to(_numbered(32), (*shared.shape[:2], LANES, 32)).copy()
    after = cells.copy()
    held = np.ascontiguousarray(numbers, np.uint8) << np.uint8(held_bit(bits))
    after[:, :, lanes, _FIRST : _FIRST + width // 32] = held.view(np.uint32)[:, :, np.newaxis]
    return _issued(form, body, [_FIRST, word], cells, after, shared)


def shift_probe_kernel(form: AsyncInstruction) -> ProbeKernel:
    """Return the probe kernel of a shift from the first lane of each quarter on."""
    group = 2 if "cta_group::2" in form.name else 1
    firsts = np.arange(0, LANES, QUARTER)
    cells = np.broadcast_to(_numbered(32), (len(firsts), group, LANES, 32)).copy()
    cells[:, group - 1] ^= np.uint32((group - 1) * 0xFFFF)  # CTAs of a pair have others
    after = cells.copy()
    columns = slice(_FIRST, _FIRST + _SHIFTED)
    for probe, first in enumerate(firsts.tolist()):
        last = first + QUARTER - 1
        after[probe, :, first:last, columns] = cells[probe, :, first + 1 : last + 1, columns]
    body = TensorBody(form, 32, 0, group, issued=True)
    return _issued(form, body, [(firsts << 16) + _FIRST], cells, after, None)


def _issued(
    form: AsyncInstruction,
    body: TensorBody,
    sources: list[Array | int],
    cells: Array,
    after: Array,
    shared: Array | None,
) -> TensorProbeKernel:
    """Return a probe kernel of what one thread issues: cells [probes, CTAs, 128, columns] before and after it."""
    probes, ctas = cells.shape[:2]
    given = np.zeros((probes, ctas, LANES, len(sources)), np.uint64)
    for i, source in enumerate(sources):
        given[..., i] = np.asarray(source, np.uint64).reshape(-1, 1, 1)
    columns = [given, in_words(cells)]
    if shared is not None:
        share = np.ascontiguousarray(shared).reshape(probes, ctas, LANES, -1)
        columns.append(share.view(np.uint64))
    records = np.concatenate(columns, axis=-1).reshape(probes * ctas, LANES, -1)
    expected = in_words(after).reshape(probes * ctas, LANES, -1)
    return TensorProbeKernel(form, body, records, expected, ~np.zeros_like(expected))


def order_probe_kernel(form: AsyncInstruction) -> ProbeKernel:
    """Return the probe kernel of what allocates, commits, waits or fences: a copy that needs it."""
    group = 2 if "cta_group::2" in form.name else 1
    copy = named(f"tcgen05.cp.cta_group::{group}.128x128b")
    if not isinstance(copy, AsyncInstruction):
        raise Unsupported(f"there is nothing to try {form.name} with")
    return copy_probe_kernel(form, copy, form.name if form.family == "tcgen05.commit" else "")


def _rounds(count: int, bits: int) -> Array:
    """Return the numbers below ``count`` in digits of ``bits``, the low one first: [digits, count]."""
    digits = -(-(count - 1).bit_length() // bits)
    shifts = np.arange(digits)[:, np.newaxis] * bits
    return np.asarray(np.arange(count) >> shifts & ((1 << bits) - 1), np.uint8)
