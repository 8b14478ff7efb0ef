"""The probe kernels: right on the emulator, and a wrong layout of any family is caught and named.

The emulator takes an instruction by its name and knows nothing of the tampered table a probe kernel is made
from, so that every twin here is a layout that is not the device's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.fragments.numbers import decode, numbers
from ptxlab.fragments.probe_kernel import module
from ptxlab.fragments.probes import probe_kernels, tried
from ptxlab.fragments.probes.kernel import launch
from ptxlab.fragments.probes.one_hot import layout_probes, metadata_probes, selectors
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.sweep import sweep
from ptxlab.matrix.catalog import MULTIPLICATIONS, forms, matching, multiplication
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.ldmatrix import LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata
from tests.together import in_one_test

Elements = Callable[[np.ndarray[Any, Any]], None]

TRIED = [
    entry
    for entry in forms()
    if tried(entry) and not entry.shared and not entry.family.startswith("tcgen05")
]
"""Those that a warp executes."""


def test_there_are_probe_kernels_of_all_that_a_warp_executes() -> None:
    assert len(TRIED) == 703


# One in fourteen is as good as another.
@pytest.mark.parametrize("first", [0, pytest.param(14, marks=pytest.mark.thorough)])
def test_instructions_are_where_the_layouts_say(device: Device, first: int) -> None:
    """One in 28; ``ptxlab fragments --all`` takes every one."""
    moves = [e for e in TRIED if e.family in ("ldmatrix", "stmatrix", "movmatrix")]
    some = moves * (first == 0) + TRIED[first::28]
    emulated = device.kind == "emulator"
    for outcome in sweep(device, some, everywhere=emulated):
        if emulated or outcome.form.runs_on(device.target):
            assert outcome.status in ("emulator" if emulated else "", "hardware"), outcome
            assert outcome.probes > 0
        else:
            assert outcome.status == "absent"


# ---- faulty twins ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tampered(FragmentLayout):
    """A layout some of whose elements are elsewhere: ``change`` edits the table of (row, col)."""

    change: tuple[str, int, int] = ("row", 0, 0)

    def table(self) -> np.ndarray[Any, Any]:
        """Exchange two rows, two columns, or two registers."""
        table = FragmentLayout.table(self).copy()
        what, first, other = self.change
        if what == "register":
            table[:, [first, other]] = table[:, [other, first]]
            return table
        line = table[..., 0 if what == "row" else 1]
        line[...] = np.where(line == first, other, np.where(line == other, first, line))
        return table

    def numbers(self) -> np.ndarray[Any, Any]:
        """Follow the table."""
        row, col = np.moveaxis(self.table(), -1, 0)
        matrix = np.asarray(self.matrix(np.arange(self.threads)))[:, np.newaxis, np.newaxis]
        return np.asarray((matrix * self.rows + row) * self.cols + col)

    def registers(self, row: int, col: int) -> tuple[Place, ...]:
        """Follow the table."""
        positions = np.argwhere((self.table() == (row, col)).all(axis=-1))
        return tuple(Place(*position) for position in positions.tolist())

    def element(self, lane: Any, register: Any, i: Any = 0) -> tuple[Any, Any]:
        """Follow the table."""
        row, col = self.table()[lane, register, i]
        return row, col


def tampered(layout: FragmentLayout, *change: Any) -> Tampered:
    parts = {part.name: getattr(layout, part.name) for part in fields(layout) if part.init}
    return Tampered(**parts | {"change": change})


def with_tampered(name: str, *changes: tuple[str, str, int, int]) -> Form:
    """The instruction of that name with operands changed: (operand, what, one, other)."""
    form = matching(name)[0]
    layouts = {layout.operand: layout for layout in form.operands}
    for operand, *change in changes:
        layouts[operand] = tampered(layouts[operand], *change)
    return replace(form, operands=tuple(layouts.values()))


def found_in(entry: Form) -> list[Mismatch]:
    """What all probe kernels of an instruction find."""
    every = list(probe_kernels(entry))
    target = entry.targets[0]
    with open_device("emulator", arch=target) as device:
        loaded = device.load(module([(entry, probe_kernel.body) for probe_kernel in every], target))
        mismatches: list[Mismatch] = []
        for probe_kernel, kernel in zip(every, loaded.kernels.values(), strict=True):
            words = launch(device, kernel, probe_kernel)
            mismatches += probe_kernel.mismatches(
                words, some(probe_kernel.wrong(words, promised_only=False))
            )
    return mismatches


def some(wrong: Array) -> Array:
    """Return some hundred of the words that are wrong, from the first to the last."""
    return wrong[:: len(wrong) // 400 + 1]


def caught(entry: Form) -> list[Mismatch]:
    mismatches = found_in(entry)
    assert mismatches, entry.name
    return mismatches


DENSE = "mma.m16n8k16.f32.bf16", "mma.m16n8k32.s32.s8.s8", "mma.m16n8k64.s4.s4", "mma.m8n8k128.xor"
SPARSE = "mma.sp.m16n8k32.f32.f16", "mma.sp.m16n8k16.tf32", "mma.sp.m16n8k64.s4.s4"
SCALED = "mma.m16n8k64.mxf4nvf4.4X.ue4m3", "mma.m16n8k32.mxf8f6f4.e4m3.e2m1"
BOTH = "mma.sp::ordered_metadata.mxf8f6f4.e3m2.e4m3"


LINES = [
    ("A", "row", "A"),
    ("A", "col", "AB"),  # which of the two has the wrong k, no product says
    ("B", "row", "AB"),
    ("B", "col", "B"),
    ("C", "row", "C"),
    ("C", "col", "C"),
    ("D", "row", "AC"),
    ("D", "col", "BC"),
]


# Always: all lines of the first instruction, and of the others two each by turns.
@pytest.mark.parametrize(
    ("name", "operand", "what", "seen"),
    [
        pytest.param(
            name, *line, marks=[pytest.mark.thorough] * (number > 0 and (number + turn) % 4 > 0)
        )
        for number, name in enumerate([*DENSE, SPARSE[0], SCALED[1], BOTH])
        for turn, line in enumerate(LINES)
    ],
)
def test_two_lines_exchanged(name: str, operand: str, what: str, seen: str) -> None:
    """A row, a column, or two k of one operand alone."""
    mismatches = caught(with_tampered(name, (operand, what, 2, 5)))
    assert {m.where for m in mismatches} == {"product"}
    assert {m.operand for m in mismatches} - {"E", "scale-A", "scale-B"} == set(seen)


@pytest.mark.parametrize("operand", ["A", "B"])
def test_the_element_that_is_elsewhere_is_named(operand: str) -> None:
    """k 3 and 9 exchanged in the table: the probe kernel expects the number of the one and finds the other's."""
    what = "col" if operand == "A" else "row"
    mismatches = caught(with_tampered("mma.m16n8k16.f32.f16.f16.f32", (operand, what, 3, 9)))
    layout = multiplication("m16n8k16", "f16", "f32").operand(operand)
    for m in (m for m in mismatches if m.operand == operand):
        assert (m.col if operand == "A" else m.row) in (3, 9)
        assert m.lane is not None
        assert m.register is not None
        assert m.element is not None
        here = layout.element(m.lane, m.register, m.element)
        swapped = {3: 9, 9: 3}
        right = (m.row, swapped[m.col]) if operand == "A" else (swapped[m.row], m.col)
        assert here == right  # the place belongs to the other k
        assert m.bits == 16
        number = 16 * m.row + m.col if operand == "A" else 8 * m.row + m.col
        other = 16 * right[0] + right[1] if operand == "A" else 8 * right[0] + right[1]
        values = [float(np.uint32(word).view(np.float32)) for word in (m.expected, m.actual)]
        assert values == [number + 1, other + 1]


def test_k_permuted_in_a_and_b_alike_is_the_same_multiplication() -> None:
    """What no product can tell, and a load can."""
    changes = ("A", "col", 3, 9), ("B", "row", 3, 9)
    assert not found_in(with_tampered("mma.m16n8k16.f32.bf16", *changes))


@pytest.mark.parametrize(
    "name", ["m8n8k4.row.col.f32.f16.f16.f32", "m8n8k4.col.row.f16.f16.f16.f16"]
)
@pytest.mark.parametrize(
    ("operand", "what"), [("A", "row"), ("B", "col"), ("A", "col"), ("C", "col")]
)
def test_four_matrices(name: str, operand: str, what: str) -> None:
    caught(with_tampered(name, (operand, what, 1, 2)))


class OtherLanes(Metadata):
    """Neighbouring lanes of a quad have each other's metadata: with few lanes a selector's, another's."""

    def encode(self, values: Any, selector: int = 0) -> Any:
        """Exchange the registers."""
        return Metadata.encode(self, values, selector)[..., np.arange(32) ^ 1]

    def place(self, row: int, chunk: int, selector: int = 0) -> tuple[int, int]:
        """Follow them."""
        lane, low = Metadata.place(self, row, chunk, selector)
        return lane ^ 1, low


class OtherChunks(Metadata):
    """Neighbouring chunks have each other's bits."""

    def encode(self, values: Any, selector: int = 0) -> Any:
        """Exchange the halves of every byte."""
        words = Metadata.encode(self, values, selector)
        return (words & 0x0F0F0F0F) << 4 | (words >> 4) & 0x0F0F0F0F


# Always: either kind, by turns.
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[pytest.mark.thorough] * ((number + turn) % 2))
        for number, name in enumerate([*SPARSE, "mma.sp.m16n8k16.f16.f16.f16.f16", BOTH])
        for turn, kind in enumerate([OtherLanes, OtherChunks])
    ],
)
def test_metadata_elsewhere(name: str, kind: type[Metadata]) -> None:
    entry = matching(name)[0]
    assert isinstance(entry, MatrixInstruction)
    right = entry.metadata
    assert right is not None
    wrong = kind(right.k, right.bits, right.ordered, right.rows)
    mismatches = caught(replace(entry, metadata=wrong))
    assert "E" in {mismatch.operand for mismatch in mismatches}
    assert {mismatch.bits for mismatch in mismatches if mismatch.operand == "E"} == {4}


class OtherThread(Scale):
    def place(self, line: int, block: int, byte_id: int = 0, thread_id: int = 0) -> tuple[int, int]:
        """Take the neighbour's."""
        lane, byte = Scale.place(self, line, block, byte_id, thread_id)
        return lane ^ (2 if self.operand == "A" else 1), byte


class OtherByte(Scale):
    def place(self, line: int, block: int, byte_id: int = 0, thread_id: int = 0) -> tuple[int, int]:
        """Take the next one."""
        lane, byte = Scale.place(self, line, block, byte_id, thread_id)
        return lane, byte ^ 1


# Always: either kind and operand of each instruction, by turns.
@pytest.mark.parametrize(
    ("name", "operand", "kind"),
    [
        pytest.param(name, operand, kind, marks=[pytest.mark.thorough] * ((number + of + turn) % 2))
        for number, name in enumerate([*SCALED, BOTH])
        for of, operand in enumerate("AB")
        for turn, kind in enumerate([OtherThread, OtherByte])
    ],
)
def test_scales_elsewhere(name: str, operand: str, kind: type[Scale]) -> None:
    entry = matching(name)[0]
    assert isinstance(entry, MatrixInstruction)
    scales = tuple(
        kind(s.operand, s.blocks, s.dtype) if s.operand == operand else s for s in entry.scales
    )
    mismatches = caught(replace(entry, scales=scales))
    assert {m.operand for m in mismatches} == {f"scale-{operand}"}


@pytest.mark.parametrize("what", ["row", "col"])
@pytest.mark.parametrize(
    ("name", "operand"),
    [
        ("wmma.mma.row.col.m16n16k16.f32.f32", "A"),
        ("wmma.mma.row.col.m8n32k16.s32.s8.s8.s32", "B"),
        ("wmma.mma.row.col.m8n8k128.and.popc", "D"),
        ("wmma.load.a.row.m16n16k16.f16", "A"),
        ("wmma.load.b.col.m8n8k32.s4", "B"),
        ("wmma.load.c.col.m32n8k16.f32", "C"),
        ("wmma.store.d.row.m8n8k4.f64", "D"),
    ],
)
def test_registers_of_wmma(name: str, operand: str, what: str) -> None:
    """Those of the emulator, whose layouts these are."""
    mismatches = caught(with_tampered(name, (operand, what, 1, 4)))
    assert {m.where for m in mismatches} == {"register"}
    assert {m.operand for m in mismatches} == {operand}


@in_one_test("change", [("row", 1, 6), ("col", 0, 3), ("register", 0, 1)])
@in_one_test(
    ("kind", "name"),
    [
        (LdMatrix, "ldmatrix.m8n8.x4.b16"),
        (LdMatrix, "ldmatrix.m8n8.x2.trans.b16"),
        (LdMatrix, "ldmatrix.m16n16.x1.b8x16.b6x16_p32"),
        (LdMatrix, "ldmatrix.m8n16.x4.b8x16.b4x16_p64"),
        (LdMatrix, "ldmatrix.m8n16.x2.s8.s4"),
        (StMatrix, "stmatrix.m8n8.x2.b16"),
        (StMatrix, "stmatrix.m16n8.x4.trans.b8"),
        (MovMatrix, "movmatrix"),
    ],
)
def test_rows_and_registers_of_moves(kind: type, name: str, change: tuple[Any, ...]) -> None:
    if kind is MovMatrix and change[0] == "register":
        change = ("row", 0, 7)  # it has one register
    last = matching(name)[0].operands[-1].operand
    mismatches = caught(with_tampered(name, (last, *change)))
    assert {m.where for m in mismatches} == {"memory" if kind is StMatrix else "register"}
    if change[0] == "row":
        assert {m.row for m in mismatches} == {*change[1:]}


def test_a_store_to_a_row_that_is_nobodys_is_caught() -> None:
    (probe_kernel,) = probe_kernels(matching("stmatrix.m8n8.x1.b16")[0])
    records = probe_kernel.expected.copy()
    records[0, 0, 0] ^= np.uint64(0xFFFF)
    lane = next(i for i in range(32) if i * 11 % 32 == 0)
    wrong = probe_kernel.wrong(records, promised_only=False)
    (mismatch,) = probe_kernel.mismatches(records, wrong)
    assert (mismatch.where, mismatch.row, mismatch.col) == ("memory", lane, 0)
    last = 31 * 11 % 32  # the row that lane 31 addresses, which one matrix does not ask for
    records = probe_kernel.expected.copy()
    records[0, last, 0] ^= np.uint64(1 << 16)
    (mismatch,) = probe_kernel.mismatches(records, probe_kernel.wrong(records, promised_only=False))
    assert (mismatch.row, mismatch.lane) == (31, 31)


def test_no_word_of_a_wrong_record_goes_unnamed() -> None:
    """Whatever a device leaves in a record, shared memory around the matrices included."""
    warp = "wmma.mma.row.col.m8n8k4.f64", "stmatrix.x2.b16", "mma.m8n8k4.f16"
    for name in (*warp, "mma.sp::ordered_metadata.mxf4nvf4.4X", "mma.sp.mxf4nvf4.4X"):
        entry = matching(name)[0]
        for probe_kernel in probe_kernels(entry):
            probe = probe_kernel.count // 2
            lanes, words = probe_kernel.expected.shape[1:]
            # Of the 128 lanes of tensor memory a diagonal: each lane and each word, not each pair.
            step = 1 if lanes == 32 else 16
            spoiled = np.add.outer(np.arange(lanes), np.arange(words)) % step == 0
            records = probe_kernel.expected.copy()
            records[probe, spoiled] ^= np.uint64(2)
            wrong = probe_kernel.wrong(records, promised_only=False)
            assert len(wrong) == np.count_nonzero(spoiled)
            for place in wrong:
                assert any(probe_kernel.mismatches(records, place[np.newaxis]))


# ---- what the probes are made of ------------------------------------------------------------


def typed(form: MatrixInstruction) -> Iterator[FragmentLayout]:
    yield from form.operands


def test_numbers_are_different_and_exact() -> None:
    known = {(o.dtype, o.bits): o for form in MULTIPLICATIONS for o in typed(form)}
    assert len(known) == 17
    for layout in known.values():
        numbering = numbers(layout)
        assert (
            len(np.unique(numbering.patterns))
            == len(np.unique(numbering.values))
            == len(numbering.values)
        )
        assert (decode(layout, numbering.patterns).astype(np.float64) == numbering.values).all()
        assert numbering.values[numbering.one] == 1
        assert numbering.values[0] == 0
        # What has this many bits at most is exact in f16 and in all that keeps 10 bits of a sum.
        whole = np.abs(numbering.values[numbering.values != 0])
        mantissa = (whole / 2.0 ** np.floor(np.log2(whole))) * 2.0**10
        assert layout.dtype in ("f64", "s32", "f32") or (mantissa == np.round(mantissa)).all()


@pytest.mark.parametrize("name", ["m16n8k32.s32.s8.u8", "m16n8k128.xor", "mma.sp.m16n8k64.u4.s4"])
def test_every_element_of_a_and_b_is_seen_alone(name: str) -> None:
    """In each product of A's and B's probes one factor has a single line of ones; of bits, several."""
    form = matching(name)[0]
    assert isinstance(form, MatrixInstruction)
    a, b, c = layout_probes(form)
    for probes, other, axis in ((a, "B", 2), (b, "A", 1)):
        lines = numbers(form.operand(other)).values[probes.given[other]]
        assert ((lines == 0) | (lines == 1)).all()
        assert (lines.any(axis=axis) == lines.all(axis=axis)).all()
        ones = np.asarray(lines.any(axis=axis))[np.unique(probes.chosen[other])]
        assert (
            len(np.unique(ones, axis=1).T) == ones.shape[1]
        )  # no two k have ones in the same ones
        assert form.bit_operation or (ones.sum(axis=1) == 1).all()
        told = numbers(form.operand(probes.probed)).values[probes.given[probes.probed]]
        rounds = told.reshape(len(told), -1).T
        assert len(np.unique(rounds, axis=0)) == len(rounds)  # no two elements alike in all rounds
        met = set(zip(*(probes.chosen[o].tolist() for o in (probes.probed, other)), strict=True))
        assert len(met) == len(told) * len(np.unique(probes.chosen[other]))
    if not form.bit_operation:
        assert set(a.at.tolist()) == set(range(form.operand("A").cols))
        assert set(b.at.tolist()) == set(range(form.k))
    assert c.count == 1


@pytest.mark.parametrize("name", SPARSE)
def test_every_pattern_comes_to_every_place(name: str) -> None:
    form = matching(name)[0]
    assert isinstance(form, MatrixInstruction)
    assert form.metadata is not None
    (probes,) = metadata_probes(form)
    sets = probes.given["E"]
    flat = sets.reshape(len(sets), -1)
    assert flat.shape[1] == 32 * 8  # of all selectors together: every nibble of every lane
    for nibbles in flat.T:
        assert set(nibbles.tolist()) == set(form.metadata.allowed)
    assert len(np.unique(flat, axis=1).T) == flat.shape[1]


def test_every_selector_is_chosen() -> None:
    for name in (*SPARSE, *SCALED):
        form = matching(name)[0]
        assert isinstance(form, MatrixInstruction)
        chosen = selectors(form)
        if form.metadata:
            assert {c[0] for c in chosen} == set(form.metadata.selectors)
        for number, scale in enumerate(form.scales):
            ids = {c[2 * number : 2 * number + 2] for c in chosen}
            assert ids == set(itertools.product(scale.byte_ids, scale.thread_ids))
