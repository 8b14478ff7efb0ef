"""The probe kernels of tcgen05: right on the emulator, and an operand that is elsewhere is caught and named.

A twin is made from a table that has been tampered with, and run by an emulator that has the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.fragments.probe_kernel import module
from ptxlab.fragments.probes import (
    probe_kernels,
    tensor_moves,
    tensor_places,
    tensor_products,
    tried,
)
from ptxlab.fragments.probes.kernel import ProbeKernel, launch
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.sweep import FormOutcome, sweep
from ptxlab.matrix import tensor_memory_operand
from ptxlab.matrix.catalog import forms, matching
from ptxlab.matrix.form import Form
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.matrix.tensor_memory_operand import DataPath
from ptxlab.verbs.fragments import sweep as view
from tests.fragments.test_probes import with_tampered

EVERY = [form for form in forms() if form.family.startswith("tcgen05")]


def test_all_are_tried() -> None:
    assert [form.name for form in EVERY if not tried(form)] == []


# Scales of 16 that go on in the next cells are in the test below, too.
@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("cta_group::1.kind::mxf4.block_scale.block32.ss", {(0, 3), (1, 2), (2, 1), (3, 0)}),
        pytest.param(
            "cta_group::2.kind::mxf4nvf4.block_scale.block16.ts",
            {(0, 2), (2, 0)},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_k_of_96_is_tried_where_there_is_one(name: str, ids: set[tuple[int, int]]) -> None:
    """Three scales a row from each byte on, or six from byte 0 or 2 on, which go on in the next cells."""
    form = matching(f"tcgen05.mma.{name}")[0]
    made = [probe_kernel.problem for probe_kernel in probe_kernels(form, target="sm_103a")]  # type: ignore[attr-defined]
    assert {problem.scale_ids for problem in made if problem.k == 96} == ids
    assert {probe_kernel.problem.k for probe_kernel in probe_kernels(form)} == {64}  # type: ignore[attr-defined]
    [outcome] = sweep_of(form.name)
    assert (outcome.status, outcome.targets[-1]) == ("emulator", "sm_103a"), outcome


def test_no_sparse_product_has_a_k_of_96() -> None:
    sparse = matching("tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.block32.ss")[0]
    made: list[Any] = list(probe_kernels(sparse, target="sm_103a"))
    assert {probe_kernel.problem.k for probe_kernel in made} == {128}


def test_a_scale_behind_the_fourth_that_is_elsewhere_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = matching("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16.ss")[0]
    right = TensorCoreProblem.scale_cells

    def scale_cells(problem: TensorCoreProblem, name: str) -> tuple[Array, Array]:
        lanes, columns = right(problem, name)
        return lanes, columns + (np.arange(columns.shape[1]) > 0) * (name == "A")

    with monkeypatch.context() as tampered:
        tampered.setattr(TensorCoreProblem, "scale_cells", scale_cells)
        every = list(probe_kernels(form, target="sm_103a"))
    assert "scale-A" in {mismatch.operand for mismatch in found_in(form, every, "sm_103a")}


def test_each_kind_of_product_is_tried_in_every_m_and_type() -> None:
    for form in EVERY:
        if form.family != "tcgen05.mma":
            continue
        made = [probe_kernel.problem for probe_kernel in probe_kernels(form)]  # type: ignore[attr-defined]
        [shapes] = form.shapes  # type: ignore[attr-defined]
        assert {problem.m for problem in made} == set(shapes.m)
        types = {"f16": 2, "tf32": 1, "f8f6f4": 5, "i8": 2}[form.kind]  # type: ignore[attr-defined]
        assert (
            len({problem.a_type for problem in made})
            == len({problem.b_type for problem in made})
            == types
        )
        if form.variant == "ss":
            assert {problem.majors for problem in made} >= {("k", "k"), ("mn", "mn")}


@pytest.mark.parametrize("variant", ["ss", "ts"])
def test_a_d_of_half_of_the_lanes_is_tried_in_either_half(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTX ISA, layout F: rows 16 i on lie in lanes 32 i on, or 16 behind; A in Tensor Memory beside them."""
    form = matching(f"tcgen05.mma.cta_group::1.kind::f16.{variant}")[0]
    made: list[Any] = list(probe_kernels(form))
    tried_at = {(probe_kernel.problem.m, probe_kernel.first_lane) for probe_kernel in made}
    assert tried_at == {(64, 0), (64, 16), (128, 0)}
    assert found_in(form, list(probe_kernels(form))) == []
    right = tensor_places.put_d
    with monkeypatch.context() as tampered:
        tampered.setattr(
            tensor_products,
            "put_d",
            lambda made, cells, d, first_lane: right(made, cells, d, 0),
        )
        every = list(probe_kernels(form))
    mismatches = found_in(form, every)
    assert {mismatch.operand for mismatch in mismatches} == {"A", "B", "T"}
    assert {
        (mismatch.lane or 0) % 32 // 16 for mismatch in mismatches if mismatch.operand != "T"
    } == {1}


SOME = [
    "tcgen05.ld.16x64b.x4.pack::16b", "tcgen05.ld.32x32b.x128", "tcgen05.ld.16x32bx2.x8", "tcgen05.st.16x128b.x8",
    "tcgen05.st.16x32bx2.x2.unpack::16b", "tcgen05.ld.red.32x32b.x8.min.s32", "tcgen05.cp.cta_group::2.64x128b.warpx2::01_23",
    "tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b6x16_p32", "tcgen05.shift.cta_group::2.down",
    "tcgen05.commit.cta_group::2.multicast::cluster", "tcgen05.alloc.cta_group::2",
    "tcgen05.mma.cta_group::1.kind::f16.ss", "tcgen05.mma.cta_group::2.kind::f16.ts", "tcgen05.mma.ws.cta_group::1.kind::i8.ss",
    "tcgen05.mma.sp.cta_group::1.kind::tf32.ss", "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16.ss",
    "tcgen05.mma.cta_group::2.kind::mxf4.block_scale.scale_vec::2X.ss",
]  # fmt: skip


def test_operands_are_where_the_tables_say() -> None:
    """A few of each family; ``ptxlab fragments --all`` takes every one."""
    for outcome in sweep_of(*SOME):
        assert outcome.status == "emulator", outcome
        assert outcome.probes > 0


def sweep_of(*names: str) -> tuple[FormOutcome, ...]:
    with open_device("emulator", arch="sm_100a") as device:
        return sweep(device, [matching(name)[0] for name in names], everywhere=True)


def found_in(form: Form, every: list[ProbeKernel], target: str = "") -> list[Mismatch]:
    target = target or form.targets[0]
    with open_device("emulator", arch=target) as device:
        loaded = device.load(module([(form, probe_kernel.body) for probe_kernel in every], target))
        mismatches: list[Mismatch] = []
        for probe_kernel, kernel in zip(every, loaded.kernels.values(), strict=True):
            words = launch(device, kernel, probe_kernel)
            mismatches += probe_kernel.mismatches(
                words, probe_kernel.wrong(words, promised_only=True)
            )
    return mismatches


def swapped(first: int, other: int) -> Callable[[Array], Array]:
    return lambda table: np.where(table == first, other, np.where(table == other, first, table))


def _d(path: DataPath) -> tuple[Array, Array]:
    lane, column = RIGHT["d"](path)
    return swapped(17, 18)(lane), column


def _scales_of_a(path: DataPath) -> tuple[Array, Array]:
    lanes, column = RIGHT["scales_of_a"](path)
    return lanes[:, swapped(4, 5)(np.arange(path.rows))], column


def _scales_of_b(path: DataPath) -> tuple[Array, Array]:
    lanes, column = RIGHT["scales_of_b"](path)
    return lanes[:, swapped(2, 9)(np.arange(path.n))], column


RIGHT: dict[str, Any] = {
    name: getattr(DataPath, name) for name in ("d", "scales_of_a", "scales_of_b")
}


@pytest.mark.parametrize(
    ("name", "table", "change", "operands", "element"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16.ss", "d", _d, {"A", "B", "D"}, (17, 18)),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X.ss", "scales_of_a", _scales_of_a, {"scale-A"}, (4, 5)),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X.ss", "scales_of_b", _scales_of_b, {"scale-B"}, (2, 9)),
    ],
)  # fmt: skip
def test_what_is_elsewhere_is_named(
    name: str, table: str, change: Any, operands: set[str], element: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    form = matching(name)[0]
    with monkeypatch.context() as tampered:
        tampered.setattr(DataPath, table, change)
        every = list(probe_kernels(form))
    mismatches = found_in(form, every)
    assert mismatches
    assert {mismatch.operand for mismatch in mismatches} <= operands | {"T"}
    named = [mismatch for mismatch in mismatches if mismatch.operand in operands]
    if table.startswith("scales"):
        assert {mismatch.row % 32 for mismatch in named} == set(element)
    else:
        assert {mismatch.lane for mismatch in named} >= set(element)


def test_an_a_in_tensor_memory_in_another_order_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    form = matching("tcgen05.mma.cta_group::2.kind::f8f6f4.ts")[0]
    right = tensor_places._in_words
    with monkeypatch.context() as tampered:
        tampered.setattr(
            tensor_places, "_in_words", lambda matrix, bits: right(matrix[..., ::-1], bits)
        )
        every = list(probe_kernels(form))
    assert {mismatch.operand for mismatch in found_in(form, every)} == {"A", "B"}


def test_metadata_that_is_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    form = matching("tcgen05.mma.sp.cta_group::1.kind::f16.ss")[0]

    def metadata(rows: int, chunks: int, bits: int) -> tuple[Array, Array, Array]:
        lane, column, bit = right(rows, chunks, bits)
        return lane, column, bit ^ 4  # neighbouring chunks change places

    right = tensor_memory_operand.metadata
    with monkeypatch.context() as tampered:
        tampered.setattr(tensor_places, "metadata", metadata)
        every = list(probe_kernels(form))
    mismatches = found_in(form, every)
    assert {mismatch.operand for mismatch in mismatches} == {"E"}
    assert view.sentence(
        FormOutcome(form, "failed", (), mismatches=(mismatches[0],)), mismatches[0]
    ).startswith(
        f"E[{mismatches[0].row},{mismatches[0].col}] in column {mismatches[0].column} of lane "
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [("tcgen05.ld.16x64b.x4", "register"), ("tcgen05.st.16x256b.x2", "memory")],
)
def test_registers_that_are_elsewhere_are_named(name: str, what: str) -> None:
    form = with_tampered(name, ("R", "row", 3, 5))
    mismatches = found_in(form, list(probe_kernels(form)))
    assert {mismatch.where for mismatch in mismatches} == {what}
    rows = (
        {mismatch.row % 16 for mismatch in mismatches}
        if what == "memory"
        else {mismatch.row for mismatch in mismatches}
    )
    assert rows == {3, 5}


def test_a_copy_to_other_lanes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    form = matching("tcgen05.cp.cta_group::1.64x128b.warpx2::02_13")[0]

    def lanes(modifiers: Any) -> tuple[int, int, Array]:
        rows, width, lane_of_row = right(modifiers)
        return rows, width, swapped(70, 71)(lane_of_row)

    right = tensor_memory_operand.lanes_of_copy
    with monkeypatch.context() as tampered:
        tampered.setattr(tensor_moves, "lanes_of_copy", lanes)
        every = list(probe_kernels(form))
    mismatches = found_in(form, every)
    assert {mismatch.lane for mismatch in mismatches} == {70, 71}
    assert {mismatch.column for mismatch in mismatches} == {16, 17, 18, 19}
