"""wgmma on the emulator: every line of the table exactly, MMA-Sim bit for bit, and whole products."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wgmma import WGMMA
from tests.emulator.hopper.conftest import hopper_text
from tests.emulator.matrix.operands import SMALL
from tests.emulator.matrix.test_sparse import metadata_place, nibbles, unit, value_table, words
from tests.emulator.matrix.warpgroups import SPANS, Placed, execute
from tests.together import one_of_each

VECTORS = Path(__file__).parents[2] / "numbers" / "vectors"
WORD = {"f16": "u2", "bf16": "u2", "tf32": "u4"}
LINES: dict[tuple[str, str], list[MatrixInstruction]] = {}
for of_table in WGMMA:
    LINES.setdefault((of_table.line, of_table.variant), []).append(of_table)
SAMPLES = [line[3 * at % len(line)] for at, line in enumerate(LINES.values())]
"""One form of each line of the table, of all n in turn."""


def form(name: str) -> MatrixInstruction:
    instruction = matching(name)[0]
    assert isinstance(instruction, MatrixInstruction)
    return instruction


class Case:
    """Small random numbers for a form, whose sums are exact whatever is fused, somewhere in memory."""

    def __init__(self, form: MatrixInstruction, seed: int, ctas: int = 2) -> None:
        random = np.random.default_rng(seed)
        self.form = form
        self.metadata: Array | None = None
        stored = form.k // 2 if form.metadata else form.k
        a, b = (random.integers(0, 4, (ctas, mn, k)) for mn, k in ((64, stored), (form.n, form.k)))
        if form.a_type == "b1":
            self.a, self.b = (np.packbits(x & 1, axis=2, bitorder="little") for x in (a, b))
            a, b = a & 1, b & 1
        else:
            self.a, self.b = (
                np.array(SMALL[kind], WORD.get(kind, "u1"))[x]
                for kind, x in ((form.a_type, a), (form.b_type, b))
            )
            a, b = value_table(form.a_type)[a], value_table(form.b_type)[b]
        if form.metadata:
            a = self.expanded(a, random)
        c = random.integers(0, 3, (ctas, 64, form.n))
        self.c = words(c, form.d_type)
        self.d = words(a @ b.swapaxes(1, 2) + c, form.d_type)
        self.memory = random.integers(0, 256, (ctas, 0x10000), np.uint8)
        self.a_place = self.put(random, 0x400, self.a)
        self.b_place = self.put(random, 0x4000, self.b)

    def expanded(self, stored: Array, random: Any) -> Array:
        """Give the stored elements places among zeros, and note them where the ISA has them."""
        chunk, choices = unit(self.form)[0], nibbles(self.form)
        ctas, m, _ = stored.shape
        picked = random.integers(0, len(choices), (ctas, m, self.form.k // chunk))
        dense = np.zeros((ctas, m, self.form.k), int)
        metadata = self.metadata = random.integers(0, 1 << 32, (ctas, 128), np.uint64)
        for row, j in np.ndindex(picked.shape[1:]):
            lane, bit = metadata_place(self.form, 0, row % 16, j)
            thread = 32 * (row // 16) + lane
            for cta in range(ctas):
                nibble, columns = choices[picked[cta, row, j]]
                kept = len(columns)
                dense[cta, row, [chunk * j + column for column in columns]] = stored[
                    cta, row, j * kept : (j + 1) * kept
                ]
                metadata[cta, thread] &= np.uint64(~(15 << bit) & 0xFFFFFFFF)
                metadata[cta, thread] |= np.uint64(nibble << bit)
        return dense

    def put(self, random: Any, start: int, matrices: Array) -> Placed:
        """Write one matrix a CTA in a random layout."""
        _, mn, k = matrices.shape
        major = random.choice(["k", "mn"] if WORD.get(self.form.a_type) == "u2" else ["k"])
        row = k * matrices.itemsize
        spans = [s for s in SPANS if major == "mn" or s == "none" or row <= SPANS[s]]
        placed = Placed.densely(start, mn, k, random.choice(spans), major)
        for memory, matrix in zip(self.memory, matrices, strict=True):
            placed.write(memory, matrix)
        return placed

    def run(self, **more: Any) -> Array:
        a = self.a_place if self.form.variant == "ss" else self.a
        more = {"metadata": self.metadata, **more}
        return execute(self.form, a, self.b_place, self.memory, self.c, **more)


def spared(form: MatrixInstruction) -> bool:
    """Say whether other lines of bytes have its types, each with the other of A and B: A in shared memory, or not."""
    in_memory = {"e4m3": "e5m2", "s8": "u8"}.get(form.a_type) == form.b_type
    in_registers = {"e5m2": "e4m3", "u8": "s8"}.get(form.a_type) == form.b_type
    runs = in_memory if form.variant == "ss" else in_registers
    return form.held("A").bits == 8 and not runs


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[pytest.mark.thorough] * spared(form)) for form in SAMPLES],
    ids=lambda form: form.key,
)
def test_every_line_of_the_table(form: MatrixInstruction) -> None:
    case = Case(form, seed=form.n)
    assert np.array_equal(case.run(), case.d)


@pytest.mark.parametrize("variant", ["ss", "rs"])
@pytest.mark.parametrize("swizzle", SPANS)
def test_every_layout_of_b_along_n(variant: str, swizzle: str) -> None:
    case = Case(form(f"wgmma.m64n72k16.f32.f16.f16.{variant}"), seed=3)
    case.b_place = Placed.densely(0x4000, 72, 16, swizzle, "mn")
    for memory, matrix in zip(case.memory, case.b, strict=True):
        case.b_place.write(memory, matrix)
    assert np.array_equal(case.run(), case.d)


# ---- MMA-Sim's WGMMA --------------------------------------------------------------------------


def recorded(types: str) -> tuple[Array, Array, Array, Array]:
    """Return A and B [rows, k], C and D [rows] of "acc.a.b"."""
    acc, a_type, _ = types.split(".")
    small = a_type in WORD
    with np.load(VECTORS / (f"{a_type}_{acc}.npz" if small else "bytes.npz")) as file:
        names = json.loads(str(file["about"]))["arithmetic"]
        name = names["Hopper wgmma" if small else f"Hopper wgmma {types}"]
        return file["a"], file["b"], file["c" if small else f"c_{acc}"], file[name]


BYTES = [f"{d}.{a}.{b}" for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]


# Of bytes each type of A and each of B always runs with each type of D.
@pytest.mark.parametrize(
    "types",
    ["f32.f16.f16", "f16.f16.f16", "f32.bf16.bf16", "f32.tf32.tf32"]
    + [
        pytest.param(types, marks=[pytest.mark.thorough] * (number not in (1, 2, 4, 7)))
        for number, types in enumerate(BYTES)
    ],
)
def test_bits_are_those_of_mma_sim(types: str) -> None:
    """Each dot product is an element of the diagonal of one of 18 products, of 64 x 64."""
    a, b, c, d = (x[: 64 * 18] for x in recorded(types))
    k = a.shape[1]
    left, right = a.reshape(18, 64, k), b.reshape(18, 64, k)
    memory = np.zeros((18, 0x4000), np.uint8)
    a_place, b_place = (Placed.densely(at, 64, k, "64B", "k") for at in (0, 0x2000))
    for of_cta, x, y in zip(memory, left, right, strict=True):
        a_place.write(of_cta, x)
        b_place.write(of_cta, y)
    diagonal = np.arange(64)
    addend = np.zeros((18, 64, 64), c.dtype)
    addend[:, diagonal, diagonal] = c.reshape(18, 64)
    for variant in ("ss", "rs"):
        instruction = form(f"wgmma.m64n64k{k}.{types}.{variant}")
        left_operand = a_place if variant == "ss" else left
        registers = execute(instruction, left_operand, b_place, memory, addend)
        assert np.array_equal(registers[:, diagonal, diagonal].ravel(), d)


# ---- scale-d, and the signs --------------------------------------------------------------------

SIGNS = [(1, -1), (-1, 1), (-1, -1)]


def test_without_scale_d_what_d_held_is_nothing() -> None:
    case = Case(form("wgmma.m64n24k32.f32.e4m3.e5m2.ss"), seed=5, ctas=3)
    case.c[:] = 0x7FC00000
    zero = words(np.zeros(1), "f32")
    plain = Case(case.form, seed=5, ctas=3)
    plain.c[:] = zero
    expected = plain.run()
    assert np.array_equal(case.run(adds=0), expected)
    some = case.run(adds=np.array([[0], [1], [0]]))
    assert np.array_equal(some[[0, 2]], expected[[0, 2]])
    assert (some[1] == 0x7FFFFFFF).all()


# Each type always runs with one of them, the first with all.
@pytest.mark.parametrize(
    ("scale_a", "scale_b", "kind"),
    one_of_each(
        [
            (*SIGNS[(number + turn) % 3], kind)
            for turn in range(3)
            for number, kind in enumerate(["bf16", "f16", "tf32", "e4m3", "e5m2"])
        ],
        itemgetter(2),
        lambda case: case[2] == "bf16" and case[:2],
    ),
)
def test_scales_negate_elements(kind: str, scale_a: int, scale_b: int) -> None:
    """Random bits, infinities and NaNs among them, beside the same with signs turned by hand."""
    k = {"tf32": 8, "e4m3": 32, "e5m2": 32}.get(kind, 16)
    instruction = form(f"wgmma.m64n8k{k}.f32.{kind}.{kind}.ss")
    random = np.random.default_rng(k)
    word = np.dtype(WORD.get(kind, "u1"))
    a, b = (random.integers(0, 256, (4, n, 32), np.uint8).view(word) for n in (64, 8))
    c = random.integers(0, 1 << 32, (4, 64, 8), np.uint32)
    a_place, b_place = (Placed.densely(at, n, k, "128B", "k") for at, n in ((0, 64), (0x2000, 8)))

    def product(left: Array, right: Array, tail: str) -> Array:
        memory = np.zeros((4, 0x2400), np.uint8)
        for of_cta, x, y in zip(memory, left, right, strict=True):
            a_place.write(of_cta, x)
            b_place.write(of_cta, y)
        tail += ", 0, 0" if word.itemsize == 2 else ""
        return execute(instruction, a_place, b_place, memory, c, tail=tail)

    sign = word.type(1 << (8 * word.itemsize - 1))
    left, right = (x ^ sign if scale < 0 else x for x, scale in ((a, scale_a), (b, scale_b)))
    actual = product(a, b, f", {scale_a}, {scale_b}")
    assert np.array_equal(actual, product(left, right, ", 1, 1"))
    same = np.array_equal(actual, product(a, b, ", 1, 1"))
    assert same == (scale_a == scale_b)


def test_integers_wrap_or_are_clamped() -> None:
    for name, end in (("", 0x80000000 + 32 * 255 * 127 - 1), (".satfinite", 0x7FFFFFFF)):
        case = Case(form(f"wgmma.mma_async.sync.aligned.m64n8k32{name}.s32.u8.s8.rs"), seed=1)
        case.a[:], case.b[:] = 255, 127
        for memory, matrix in zip(case.memory, case.b, strict=True):
            case.b_place.write(memory, matrix)
        case.c[:] = 0x7FFFFFFF
        assert (case.run() == end).all()


@pytest.mark.parametrize(
    ("start", "first"), [(0, "0x0"), (0x3F0, "0x3f0"), (0x400, None), (0x40000 - 16, "0x3fff0")]
)
def test_descriptors_lie_in_the_shared_memory_of_the_cta(start: int, first: str | None) -> None:
    """The system has the first KiB of it."""
    body = f"""
        mov.f32 f0, 0f00000000; mov.f32 f1, f0; mov.f32 f2, f0; mov.f32 f3, f0;
        mov.b64 d4, {0x800400000 | start >> 4:#x}; mov.b64 d5, 0x800400040;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{f0, f1, f2, f3}}, d4, d5, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    device = open_device("emulator", arch="sm_90a")
    kernel = device.load(hopper_text(body)).kernel("k")
    if first is None:
        kernel.launch(1, 128, [0, 0])
        return
    with pytest.raises(LaunchError, match=f"A reaches from byte {first} of shared memory"):
        kernel.launch(1, 128, [0, 0])
