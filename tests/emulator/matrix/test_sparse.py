"""Every ``mma.sp``: random sparse matrices, metadata in every lane it may come from, bad metadata."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.mma import MMA_SPARSE
from ptxlab.matrix.multiplication import MatrixInstruction
from tests.emulator.matrix.operands import SMALL, VALUE, pack
from tests.together import one_of_each

WIDTH = {"s4": 4, "u4": 4, "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32}
ALL_SELECTORS = [(form, s) for form in MMA_SPARSE for s in form.metadata.selectors]  # type: ignore[union-attr]


def unit(form: MatrixInstruction) -> tuple[int, int]:
    """Return elements a chunk, and elements that stay or go together."""
    width = WIDTH.get(form.a_type, 8)
    return {32: (2, 1), 4: (8, 2)}.get(width, (4, 1))


def nibbles(form: MatrixInstruction) -> list[tuple[int, tuple[int, ...]]]:
    """List each chunk value with the columns of the chunk it keeps, in the order they are stored.

    PTX ISA, "Sparse matrix storage": the two 2-bit indices of a chunk, the first in the low bits;
    for tf32 only 0b1110 (the odd element) and 0b0100 (the even one).
    """
    if form.a_type == "tf32":
        return [(0b0100, (0,)), (0b1110, (1,))]
    _, together = unit(form)
    order = combinations if "ordered" in form.name else permutations
    return [
        (i | j << 2, tuple(together * u + v for u in (i, j) for v in range(together)))
        for i, j in order(range(4), 2)
    ]


def metadata_place(form: MatrixInstruction, selector: int, row: int, chunk: int) -> tuple[int, int]:
    """Return (lane, first bit).

    A .b32 of 16-bit and wider types: rows g and g + 8, four chunks each, in lane 4 * g + i, or 2 * i
    and 2 * i + 1 for chunks 0 to 3 and 4 to 7. Narrower: eight chunks of row g in even lanes, of
    row g + 8 in odd ones.
    """
    g = row % 8
    chunks = form.k // unit(form)[0]
    if WIDTH.get(form.a_type, 8) >= 16:
        first = selector if chunks == 4 else 2 * selector
        return 4 * g + first + chunk // 4, 16 * (row >= 8) + 4 * (chunk % 4)
    first = 2 * selector if chunks == 8 else 0
    return 4 * g + first + (row >= 8) + 2 * (chunk // 8), 4 * (chunk % 8)


class Case:
    """Random small operands of a sparse form for some warps; D is exact whatever is fused."""

    def __init__(self, form: MatrixInstruction, selector: int, seed: int, warps: int = 6) -> None:
        random = np.random.default_rng(seed)
        chunk, _ = unit(form)
        m, n, k = form.m, form.n, form.k
        choices = nibbles(form)
        picked = random.integers(0, len(choices), (warps, m, k // chunk))
        a = random.integers(0, 4, (warps, m, k // 2))
        b = random.integers(0, 4, (warps, k, n))
        c = random.integers(0, 3, (warps, m, n))
        dense = np.zeros((warps, m, k), int)
        self.metadata = np.zeros((warps, 32), np.uint64)
        values_a, values_b = (value_table(t) for t in (form.a_type, form.b_type))
        nibble_of = np.array([nibble for nibble, _ in choices], np.uint64)
        columns_of = np.array([columns for _, columns in choices])
        all_warps, kept = np.arange(warps)[:, None], columns_of.shape[1]
        for row, j in np.ndindex(picked.shape[1:]):
            choice = picked[:, row, j]
            stored = a[:, row, j * kept : (j + 1) * kept]
            dense[all_warps, row, chunk * j + columns_of[choice]] = values_a[stored]
            lane, bit = metadata_place(form, selector, row, j)
            self.metadata[:, lane] |= nibble_of[choice] << np.uint64(bit)
        self.d = dense @ values_b[b] + c
        width = WIDTH.get(form.a_type, 8)
        self.a = pack("a", width, np.array(SMALL[form.a_type])[a])
        self.b = pack("b", WIDTH.get(form.b_type, 8), np.array(SMALL[form.b_type])[b])
        self.acc = 16 if form.c_type == "f16" else 32
        self.c = pack("c", self.acc, words(c, form.c_type))
        self.result = pack("c", self.acc, words(self.d, form.d_type))


def value_table(dtype: str) -> Array:
    return np.arange(4) if dtype in ("u8", "u4") else VALUE


def words(values: Array, dtype: str) -> Array:
    kind = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[dtype]
    return values.astype(kind).view(f"u{np.dtype(kind).itemsize}")


# Of each shape, in order or not, each selector always runs, and each type of D, of A and of B.
@pytest.mark.parametrize(
    ("form", "selector"),
    one_of_each(
        ALL_SELECTORS,
        lambda case: (case[0].shape, case[0].a_type, case[1]),
        lambda case: (case[0].shape, case[0].b_type),
        lambda case: (
            case[0].shape,
            "ordered" in case[0].name,
            WIDTH.get(case[0].a_type, 8),
            case[1],
        ),
        lambda case: (case[0].shape, case[0].c_type, case[0].d_type, case[0].satfinite),
    ),
)
def test_random_sparse_matrices(
    execute: Any, least: Any, form: MatrixInstruction, selector: int
) -> None:
    case = Case(form, selector, seed=form.k + selector)
    more = f", e, {selector}"
    noise = np.random.default_rng(9).integers(0, 1 << 32, case.metadata.shape, dtype=np.uint64)
    used = np.zeros(32, bool)
    for row in range(16):
        for chunk in range(form.k // unit(form)[0]):
            used[metadata_place(form, selector, row, chunk)[0]] = True
    metadata = np.where(used, case.metadata, noise)  # lanes that are not asked may hold anything
    registers = execute(
        form, case.a, case.b, case.c, arch=least(form), more=more, extra=(metadata,)
    )
    assert (registers == case.result).all()


def test_one_hot_of_a_meets_one_row_of_b(execute: Any, least: Any) -> None:
    """Each stored element alone, each of B's rows alone: they meet where the metadata says."""
    for form in (multiplication(n) for n in NAMES):
        chunk, _ = unit(form)
        choices = nibbles(form)
        stored = form.k // 2
        random = np.random.default_rng(4)
        a = np.zeros((stored, 16, stored), np.uint64)
        b = np.zeros((stored, form.k, 8), np.uint64)
        metadata = np.zeros((stored, 32), np.uint64)
        d = np.zeros((stored, 16, 8), int)
        for i in range(stored):
            a[i, :, i] = SMALL[form.a_type][1]
            target = chunk * (i // (chunk // 2)) + random.integers(0, chunk)
            b[i, target] = SMALL[form.b_type][1]
            for row in range(16):
                for j in range(form.k // chunk):
                    nibble, columns = choices[random.integers(0, len(choices))]
                    lane, bit = metadata_place(form, 0, row, j)
                    metadata[i, lane] |= np.uint64(nibble << bit)
                    inside = i - j * len(columns)
                    if 0 <= inside < len(columns) and chunk * j + columns[inside] == target:
                        d[i, row] = 1
        bits_a, bits_b = WIDTH.get(form.a_type, 8), WIDTH.get(form.b_type, 8)
        c = pack("c", 16 if form.c_type == "f16" else 32, words(np.zeros_like(d), form.c_type))
        registers = execute(
            form, pack("a", bits_a, a), pack("b", bits_b, b), c,
            arch=least(form), more=", e, 0", extra=(metadata,),
        )  # fmt: skip
        wanted = pack("c", 16 if form.d_type == "f16" else 32, words(d, form.d_type))
        assert (registers == wanted).all(), form.name
        assert d.any()


NAMES = [
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
    "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sp.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32",
    "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
    "mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e3m2.e4m3.f32",
]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, value) for name in NAMES[:2] for value in (0b0000, 0b0101, 0b1010, 0b1111)),
        *((NAMES[2], value) for value in range(16) if value not in (0b1110, 0b0100)),
        (NAMES[8], 0b0001),
        (NAMES[8], 0b0000),
    ],
)
def test_undefined_metadata_is_refused_where_it_is(
    execute: Any, least: Any, name: str, wrong: int
) -> None:
    form = multiplication(name)
    case = Case(form, 0, seed=1)
    lane, bit = metadata_place(form, 0, 11, 2)
    case.metadata[3, lane] &= np.uint64(~(15 << bit) & 0xFFFFFFFF)
    case.metadata[3, lane] |= np.uint64(wrong << bit)
    with pytest.raises(LaunchError, match=f"metadata {wrong:#06b} of chunk 2 of row 11") as caught:
        execute(
            form, case.a, case.b, case.c,
            arch=least(form), more=", e, 0", extra=(case.metadata,),
        )  # fmt: skip
    assert f"thread ({32 + lane}, 0, 0) of CTA (1, 0, 0)" in str(caught.value)


def test_unordered_metadata_is_for_plain_sp_only(execute: Any) -> None:
    form = multiplication(NAMES[0])
    ordered = multiplication(NAMES[0].replace(".sp", ".sp::ordered_metadata"))
    case = Case(form, 0, seed=2)  # permutations: indices in any order
    execute(form, case.a, case.b, case.c, arch="sm_80", more=", e, 0", extra=(case.metadata,))
    with pytest.raises(LaunchError, match="is undefined"):
        execute(
            ordered, case.a, case.b, case.c,
            arch="sm_80", more=", e, 0", extra=(case.metadata,),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "selector"),
    [(NAMES[0], "4"), (NAMES[1], "2"), (NAMES[1].replace("f16.f16.f16.f16", "f32.f16.f16.f32"), "3"),
     (NAMES[5], "1"), (NAMES[3], "2"), (NAMES[0], "e")],
)  # fmt: skip
def test_only_documented_selectors(devices: Any, program: Any, name: str, selector: str) -> None:
    """ptxas takes 2 and 3 for m16n8k32 of f16 into f32, which the ISA leaves undefined."""
    form = multiplication(name)
    with pytest.raises(PtxSyntaxError, match="sparsity selector"):
        devices("sm_80").load(program(form, f", e, {selector}").kernel("sm_80")).kernel()


def test_sparse_fp8_has_one_shape(devices: Any, program: Any) -> None:
    """Documentation lists m16n8k32 too, which no assembler takes."""
    form = multiplication("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32")
    text = program(form, ", e, 0", form.name.replace("k64", "k32")).kernel("sm_89")
    with pytest.raises(PtxSyntaxError, match=r"ptxas takes no .*m16n8k32"):
        devices("sm_89").load(text).kernel()


def test_refused_where_the_target_lacks_it(devices: Any, program: Any) -> None:
    refused = 0
    for form in MMA_SPARSE[::5]:
        for arch in ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120"):
            if not form.runs_on(TARGETS[arch]):
                with pytest.raises(Unsupported, match=arch):
                    devices(arch).load(program(form, ", e, 0").kernel(arch)).kernel()
                refused += 1
    assert refused > 50


def test_metadata_bits_of_the_wrong_row_are_seen(execute: Any, least: Any) -> None:
    """The faulty twin: metadata of the quad-pair of lanes exchanged gives another D."""
    form = multiplication(NAMES[5])
    case = Case(form, 0, seed=5)
    exchanged = case.metadata.reshape(-1, 8, 4)[..., [1, 0, 2, 3]].reshape(-1, 32)
    registers = execute(
        form, case.a, case.b, case.c, arch="sm_80", more=", e, 0", extra=(exchanged,)
    )
    assert (registers != case.result).any()
