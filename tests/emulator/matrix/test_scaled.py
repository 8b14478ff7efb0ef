"""Every block-scaled ``mma``, dense and sparse: which scale meets which element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.mma import MMA_BLOCK_SCALED, MMA_SPARSE_BLOCK_SCALED
from ptxlab.matrix.multiplication import MatrixInstruction
from tests.emulator.matrix.operands import SMALL, VALUE, pack
from tests.together import one_of_each

ALL = (*MMA_BLOCK_SCALED, *MMA_SPARSE_BLOCK_SCALED)


def packed(form: MatrixInstruction) -> bool:
    return "mxf4" in form.name


def vector(form: MatrixInstruction) -> int:
    """Return the scales of a row, from the kind's rules: PTX ISA, "Block Scaling for mma.sync"."""
    if "scale_vec::4X" in form.name:
        return 4
    return 2 if packed(form) else 1


def ids(form: MatrixInstruction) -> list[tuple[int, int, int, int]]:
    """List byte-id and thread-id of A and B that the ISA allows (its table of selectors)."""
    bytes_ = {1: range(4), 2: (0, 2), 4: (0,)}[vector(form)]
    return list(itertools.product(bytes_, range(2), bytes_, range(4)))


def scale_words(
    form: MatrixInstruction, exponents: Array, operand: str, byte: int, tid: int
) -> Array:
    """Return the register [warps, 32] of powers of two [warps, lines, blocks]; noise elsewhere.

    A: lanes 4 g + 2 tid (row g) and the next (row g + 8). B: lane 4 n + tid.
    """
    random = np.random.default_rng(8)
    words = random.integers(0, 1 << 32, (len(exponents), 32), dtype=np.uint64)
    biased = exponents + 127 if "ue8m0" in form.name else (exponents + 7) << 3
    for line, block in np.ndindex(exponents.shape[1:]):
        lane = 4 * line + tid if operand == "B" else 4 * (line % 8) + 2 * tid + line // 8
        shift = np.uint64(8 * (byte + block))
        words[:, lane] &= ~(np.uint64(255) << shift)
        words[:, lane] |= biased[:, line, block].astype(np.uint64) << shift
    return words


class Case:
    """Small operands and scales of powers of two: D is exact in f32 whatever is fused."""

    def __init__(
        self, form: MatrixInstruction, chosen: tuple[int, int, int, int], warps: int
    ) -> None:
        random = np.random.default_rng(sum(chosen))
        m, n, k = form.m, form.n, form.k
        blocks = vector(form)
        self.extra: tuple[Array, ...] = ()
        stored = k if form.metadata is None else k // 2
        a, b = random.integers(0, 4, (warps, m, stored)), random.integers(0, 4, (warps, k, n))
        c = random.integers(0, 3, (warps, m, n))
        dense = VALUE[a]
        self.more = ""
        if form.metadata is not None:
            dense, metadata = self.spread(form, dense, random)
            self.extra = (metadata,)
            self.more = ", e, 0"
        x, y = (
            random.integers(-2, 3, (warps, m, blocks)),
            random.integers(-2, 3, (warps, n, blocks)),
        )
        scaled_a = dense * np.repeat(2.0**x, k // blocks, axis=2)
        scaled_b = VALUE[b] * np.repeat(2.0**y, k // blocks, axis=2).transpose(0, 2, 1)
        d = (scaled_a @ scaled_b + c).astype(np.float32)
        # SMALL has e2m1 as in kind::mxf8f6f4; in kind::mxf4 it is two bits lower.
        low = 2 if packed(form) else 0
        bits = 4 if packed(form) else 8
        self.a = pack("a", bits, np.array(SMALL[form.a_type])[a] >> low)
        self.b = pack("b", bits, np.array(SMALL[form.b_type])[b] >> low)
        self.c = pack("c", 32, c.astype(np.float32).view(np.uint32))
        self.d = pack("c", 32, d.view(np.uint32))
        byte_a, tid_a, byte_b, tid_b = chosen
        self.extra += (
            scale_words(form, x, "A", byte_a, tid_a),
            scale_words(form, y, "B", byte_b, tid_b),
        )
        self.more += f", sa, {{{byte_a}, {tid_a}}}, sb, {{{byte_b}, {tid_b}}}"

    @staticmethod
    def spread(form: MatrixInstruction, stored: Array, random: Any) -> tuple[Array, Array]:
        """Put stored elements at increasing random places; return A and the metadata register."""
        warps, m, half = stored.shape
        of, together = (8, 2) if packed(form) else (4, 1)
        dense = np.zeros((warps, m, 2 * half), int)
        metadata = np.zeros((warps, 32), np.uint64)
        pairs = list(itertools.combinations(range(4), 2))
        for warp, row, chunk in np.ndindex(warps, m, 2 * half // of):
            i, j = pairs[random.integers(0, 6)]
            columns = [of * chunk + together * u + v for u in (i, j) for v in range(together)]
            kept = of // 2
            dense[warp, row, columns] = stored[warp, row, kept * chunk : kept * chunk + kept]
            lane = 4 * (row % 8) + (row >= 8) + 2 * (chunk // 8)
            metadata[warp, lane] |= np.uint64((i | j << 2) << 4 * (chunk % 8))
        return dense, metadata

    def run(self, execute: Any, form: MatrixInstruction, **options: Any) -> Any:
        return execute(
            form, self.a, self.b, self.c,
            **{"arch": "sm_120a", "more": self.more, "extra": self.extra, **options},
        )  # fmt: skip


def kind_of(form: MatrixInstruction) -> tuple[Any, ...]:
    """Return what a form is but for the types of A and B: its kind and scales, and whether it is sparse."""
    return form.name.partition(".f32.")[0], form.name.rpartition(".")[2]


# Of each kind each type of A always runs, and each type of B.
@pytest.mark.parametrize(
    "form",
    one_of_each(
        sorted(ALL, key=lambda form: form.a_type != form.b_type),
        lambda form: (kind_of(form), form.a_type),
        lambda form: (kind_of(form), form.b_type),
    ),
)
def test_scales_meet_their_rows_and_columns(execute: Any, form: MatrixInstruction) -> None:
    allowed = ids(form)
    for chosen in {allowed[0], allowed[-1], allowed[len(form.name) % len(allowed)]}:
        case = Case(form, chosen, warps=2)
        assert (case.run(execute, form) == case.d).all(), chosen


@pytest.mark.parametrize("name", [
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
])  # fmt: skip
def test_every_selector(execute: Any, name: str) -> None:
    """Every id of A and every id of B, and of their pairs a third where there are many."""
    form = multiplication(name)
    pairs = ids(form)
    some = pairs[:: 3 if len(pairs) > 8 else 1]
    assert {pair[:2] for pair in some} == {pair[:2] for pair in pairs}
    assert {pair[2:] for pair in some} == {pair[2:] for pair in pairs}
    for chosen in some:
        case = Case(form, chosen, warps=1)
        assert (case.run(execute, form) == case.d).all(), chosen


@pytest.mark.parametrize("form", [MMA_BLOCK_SCALED[0], MMA_SPARSE_BLOCK_SCALED[0]])
def test_braces_round_one_register_and_another_order_of_qualifiers(
    execute: Any, form: MatrixInstruction
) -> None:
    case = Case(form, (2, 1, 3, 3), warps=2)
    late = ".kind::mxf8f6f4.block_scale"
    early = form.name.replace(late, "").replace(".sp::ordered_metadata", "")
    sparse = ".sp::ordered_metadata" if form.metadata else ""
    early = early.replace("aligned.", f"aligned.kind::mxf8f6f4{sparse}.block_scale.")
    more = case.more.replace("sa", "{sa}").replace("sb", "{sb}").replace("e,", "{e},")
    assert (case.run(execute, form, more=more, name=early) == case.d).all()


def test_ids_may_come_from_registers(devices: Any, program: Any) -> None:
    form = MMA_BLOCK_SCALED[0]
    case = Case(form, (2, 1, 3, 3), warps=1)
    text = program(form, ", sa, {h2, h1}, sb, {h3, h3}").kernel("sm_120a")
    moves = "".join(f"mov.u16 h{i}, {i}; " for i in (1, 2, 3))
    text = text.replace("\nmma", f"\n.reg .u16 h<4>; {moves}\nmma")
    registers = [case.a, case.b, case.c, *(word[..., None] for word in case.extra)]
    record = np.concatenate([r.astype(np.uint64) for r in registers], axis=-1)
    device = devices("sm_120a")
    with device.upload(record) as source, device.zeros((1, 32, 4), "u64") as out:
        device.load(text).kernel("k").launch(1, 32, [source, out])
        assert (out.numpy() == case.d).all()


@pytest.mark.parametrize(
    ("vec", "text", "match"),
    [
        ("2X", "sa, {1, 0}, sb, {0, 0}", "takes 0 or 2 here, not 1"),
        ("4X", "sa, {0, 0}, sb, {2, 0}", "takes 0 here, not 2"),
        ("2X", "sa, {0, 2}, sb, {0, 0}", "takes 0 or 1 here, not 2"),
        (
            "2X",
            "sa, {0, 0}, sb, {0, 4}",
            r"(?s)takes 0 to 3 here, not 4.*hint: scale-b-ids is byte-id",
        ),
    ],
)
def test_only_documented_selectors(
    devices: Any, program: Any, vec: str, text: str, match: str
) -> None:
    form = next(f for f in MMA_BLOCK_SCALED if f"mxf4nvf4.block_scale.scale_vec::{vec}" in f.name)
    with pytest.raises(PtxSyntaxError, match=match):
        devices("sm_120a").load(program(form, f", {text}").kernel("sm_120a")).kernel()


def test_a_selector_that_differs_between_threads_is_refused(devices: Any, program: Any) -> None:
    form = MMA_BLOCK_SCALED[0]
    text = program(form, ", sa, {h, 0}, sb, {0, 0}").kernel("sm_120a")
    text = text.replace("\nmma", "\n.reg .u16 h; cvt.u16.u32 h, r0; and.b16 h, h, 1;\nmma")
    device = devices("sm_120a")
    with device.zeros((32, 40), "u64") as data, pytest.raises(LaunchError, match="byte-id differs"):
        device.load(text).kernel("k").launch(1, 32, [data, data])


def test_sparse_4_bit_is_for_two_targets_only(devices: Any, program: Any) -> None:
    """mma.sp of kind::mxf4 needs sm_120a or sm_121a, where the dense form has sm_120f."""
    dense = next(f for f in MMA_BLOCK_SCALED if "mxf4" in f.name)
    sparse = next(f for f in MMA_SPARSE_BLOCK_SCALED if "mxf4" in f.name)
    assert dense.minimum_target == "sm_120f"
    assert sparse.minimum_targets == ("sm_120a", "sm_121a")
    for arch in ("sm_100a", "sm_120", "sm_90a"):
        text = program(sparse, ", e, 0, sa, {0, 0}, sb, {0, 0}").kernel(arch)
        with pytest.raises(Unsupported, match=arch) as caught:
            devices(arch).load(text).kernel()
        assert caught.value.hint == "it needs sm_120a or sm_121a"


def test_scales_of_the_other_lanes_are_seen(execute: Any) -> None:
    """The faulty twin: naming the other pair of lanes gives another D."""
    form = MMA_BLOCK_SCALED[0]
    case = Case(form, (0, 0, 0, 0), warps=1)
    assert (case.run(execute, form, more=", sa, {0, 1}, sb, {0, 0}") != case.d).any()
