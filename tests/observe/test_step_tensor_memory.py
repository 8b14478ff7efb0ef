"""Recordings of Tensor Memory, against what dumps see, and of what products read of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.protocol import Dump
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.recording import Recording
from ptxlab.observe.step import step
from ptxlab.verbs.step import text as view
from tests.emulator.blackwell.cells import device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued
from tests.together import thorough


def launched(
    problem: Problem, schedule: str, cells: Array, body: str = "", shared: Array | None = None
) -> tuple[Any, LaunchConfig, list[Any]]:
    """Return what ``step`` takes for a kernel that does the product, or ``body``, in each CTA that has cells."""
    gpu = device("sm_100a", schedule)
    words = np.zeros(8, np.uint64)
    words[:3] = problem.words()
    memory = problem.shared() if shared is None else shared
    arrays = [gpu.upload(array) for array in (cells, memory, words)]
    text = module(body or issued(problem), 32768, problem.group, "sm_100a")
    config = LaunchConfig.of(len(cells), 128, cluster=problem.group)
    return gpu.load(text).kernel("k"), config, arrays


def recorded(
    problem: Problem, cta: int = 0, schedule: str = "late", cells: Array | None = None
) -> Recording:
    given = problem.cells() if cells is None else cells
    return step(*launched(problem, schedule, given), (cta, 0, 0))


def cells_after(recording: Recording, last: int) -> Array:
    """Tensor Memory [lanes, columns] as the recording has it after a step."""
    cells = np.zeros(128 * 512, np.uint32)
    for number, first, words in recording.filled():
        if number <= last:
            cells[first : first + words.size] = words
    return cells.reshape(128, 512)


@pytest.mark.parametrize(
    "schedule",
    ["late", *thorough(("early", "random:3"))],
)
@pytest.mark.parametrize(
    ("problem", "cta"),
    [
        (Problem("f16", 128, 16, "f16", "f16"), 0),
        (Problem("f16", 64, 16, "f16", "f16"), 0),
        (Problem("f16", 256, 32, "f16", "f16", group=2), 1),
    ],
    ids=["D", "F", "A"],
)
def test_cells_are_what_a_dump_sees(problem: Problem, cta: int, schedule: str) -> None:
    """After all is stored, and at the first load behind the commit."""
    cells = problem.cells()
    recording = recorded(problem, cta, schedule, cells)
    timeline = recording.timeline
    for at, before in (("tcgen05.wait::st", False), ("tcgen05.ld", True)):
        kernel, config, arrays = launched(problem, schedule, cells)
        dump = Dump(at, before=before, thread=128 * cta)
        shared = kernel.launch_packed(config, kernel.packed(arrays), dump).dump.shared
        places = [
            n for n, instruction in enumerate(timeline.places) if instruction.text.startswith(at)
        ]
        warps = [
            number for number, who in enumerate(timeline.who) if 4 * cta in timeline.together[who]
        ]
        seen = next(number for number in warps if timeline.executed[number] in places)
        assert (cells_after(recording, seen - before) == shared.cells).all()


def test_a_product_changes_its_cells_when_it_lands() -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    recording = recorded(problem)
    [product] = [flight for flight in recording.timeline.flights if flight.work == "product"]
    assert product.landed is not None
    landing = recording.cells.step == product.landed - 1
    lanes, columns = np.divmod(recording.cells.first[landing], 512)
    assert set(columns.tolist()) <= set(range(32, 48))
    assert set(lanes.tolist()) == set(range(128))
    assert not (recording.cells.step == product.step).any()
    told = [
        change
        for change in view.as_json(recording)["tensor_memory"]
        if change["step"] == product.landed - 1
    ]
    assert {(change["lane"], change["column"] + len(change["words"]) <= 48) for change in told} == {
        (lane, True) for lane in range(128)
    }
    assert dict(view.totals(recording))["Tensor Memory"].endswith(" steps")


def test_what_a_product_reads_of_shared_memory() -> None:
    problem = Problem("f16", 128, 16, "f16", "f16", swizzles=("32B", "none"))
    recording = recorded(problem)
    [(number, factors)] = recording.factors.items()
    assert recording.timeline.flights[number].work == "product"
    a, b = sorted(factors, key=lambda factor: factor.operand.operand)
    assert (a.swizzle, b.swizzle, a.warp, a.by_row, b.by_row) == ("32B", "none", 0, True, False)
    memory = problem.shared()[0]
    for factor, matrix in ((a, problem.a), (b, problem.b)):
        lines = memory[(factor.units[..., np.newaxis] + np.arange(16))].reshape(len(matrix), -1)
        assert (lines.view(np.float16) == matrix).all()
    [families] = [
        set(operand.descriptors.values()) for operand in recording.operands if operand.descriptors
    ]
    assert families == {"tcgen05"}


def test_of_a_pair_each_cta_reads_its_own() -> None:
    problem = Problem("f16", 256, 32, "f16", "f16", group=2)
    for cta in (0, 1):
        [factors] = recorded(problem, cta).factors.values()
        [a] = [factor for factor in factors if factor.operand.operand == "A"]
        memory = problem.shared()[cta]
        lines = memory[(a.units[..., np.newaxis] + np.arange(16))].reshape(128, -1)
        assert (lines.view(np.float16) == problem.a[128 * cta : 128 * (cta + 1)]).all()


def test_ctas_whose_descriptors_differ_read_where_their_own_say() -> None:
    """In the second CTA A begins 4096 bytes further on."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    body = f"mul.wide.u32 at, cta, {4096 >> 4}; add.u64 x0, x0, at; {issued(problem)}"
    cells, memory = (array.repeat(2, axis=0) for array in (problem.cells(), problem.shared()))
    memory[1, 4096:8192] = memory[1, :4096]
    launch = launched(problem, "late", cells, body, memory)
    for cta in (0, 1):
        [factors] = step(*launch, (cta, 0, 0)).factors.values()
        [a] = [factor for factor in factors if factor.operand.operand == "A"]
        assert a.units.min() == 4096 * cta


COMMIT_TO_OTHER = """
    mov.u32 r0, other;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r0];
"""


def test_what_lands_in_a_row_is_told_product_by_product() -> None:
    """Nobody waits for the first commit, and the second lands right behind it: no instruction is between them."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    product = issued(problem)
    again = product[product.rindex("tcgen05.mma") :].replace("[d]", "[d+64]")
    made = ".shared .align 8 .b64 other; mbarrier.init.shared::cta.b64 [other], 1;"
    body = made + product + COMMIT_TO_OTHER + again
    recording = step(*launched(problem, "late", problem.cells(), body))
    products = [flight for flight in recording.timeline.flights if flight.work == "product"]
    for flight, column in zip(products, (problem.d, problem.d + 64), strict=True):
        assert flight.landed is not None
        landing = recording.cells.step == flight.landed - 1
        lanes, columns = np.divmod(recording.cells.first[landing], 512)
        assert set(lanes.tolist()) == set(range(128))
        assert set(columns.tolist()) <= set(range(column, column + problem.n))
