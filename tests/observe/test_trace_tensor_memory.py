"""Traces of tcgen05: products, copies, commits and what fills Tensor Memory, of programs whose order is known."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import numpy as np
import pytest

from ptxlab.launch_config import LaunchConfig
from ptxlab.main import main
from ptxlab.observe.timeline import TensorSpan, Timeline
from ptxlab.observe.trace import trace
from ptxlab.verbs.trace import text as view
from tests.emulator.blackwell.cells import device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued
from tests.observe.test_trace import steps_at

GEMM = "ptx/gemm_tcgen05_f16_f32.ptx"
STEPS, PRODUCTS = 3, 4
"""Of the program as its head launches it: tiles of k, and products of each."""


@pytest.fixture(scope="module")
def gemm() -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["trace", GEMM, "--arch", "sm_100a", "--json"]) == 0
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def steps_of(told: dict[str, Any], opcode: str) -> list[int]:
    return [
        step
        for step, number in enumerate(told["executed"])
        if number >= 0 and f"{opcode}." in told["instructions"][number]["text"]
    ]


def test_products_are_from_their_issue_until_the_commit_behind_them_lands(
    gemm: dict[str, Any],
) -> None:
    products = [flight for flight in gemm["flights"] if flight["work"] == "product"]
    commits = [flight for flight in gemm["flights"] if flight["work"] == "commit"]
    assert [product["step"] for product in products] == steps_of(gemm, "tcgen05.mma")
    assert [commit["step"] for commit in commits] == steps_of(gemm, "tcgen05.commit")
    assert (len(products), len(commits)) == (STEPS * PRODUCTS, STEPS + 1)
    assert {product["shape"] for product in products} == {"128 x 128 x 16 of f16, D f32"}
    assert [product["adds"] for product in products] == [False] + [True] * (len(products) - 1)
    for number, product in enumerate(products):
        commit = commits[number // PRODUCTS]
        assert (product["queue"], product["warps"], product["group"]) == (
            "tensor_work",
            [1],
            number // PRODUCTS,
        )
        assert (product["committed"], product["landed"]) == (commit["step"] + 1, commit["landed"])
        assert gemm["executed"][commit["landed"] - 1] == -1  # it lands by itself
        [span] = product["cells_written"]
        assert span == {"cta": 0, "start": 0, "end": 128, "lanes": [0, 128]}
    told = [
        gemm["mbarriers"][number]["name"] for commit in commits for number, _ in commit["mbarriers"]
    ]
    assert told == ["empty", "empty+0x8", "empty", "done"]


def test_tiles_are_read_when_products_begin_and_when_they_land(gemm: dict[str, Any]) -> None:
    products = [flight for flight in gemm["flights"] if flight["work"] == "product"]
    stages = [tile for tile in gemm["tiles"] if tile["name"].startswith("tiles")]
    assert [len(tile["fills"]) for tile in stages] == [2, 1]
    for number in range(STEPS):
        fill = stages[number % 2]["fills"][number // 2]
        own = products[PRODUCTS * number : PRODUCTS * (number + 1)]
        landings = {product["landed"] for product in own}
        assert fill["read"][:PRODUCTS] == [product["step"] for product in own]
        assert {step + 1 for step in fill["read"][PRODUCTS:]} == landings
        assert fill["landed"] <= own[0]["step"]


def test_the_accumulator_is_filled_once_and_read_by_loads(gemm: dict[str, Any]) -> None:
    [columns] = gemm["columns"]
    [fill] = columns["fills"]
    assert columns["span"] == {"cta": 0, "start": 0, "end": 128, "lanes": [0, 128]}
    products = [n for n, flight in enumerate(gemm["flights"]) if flight["work"] == "product"]
    assert fill["flights"] == products
    assert fill["read"] == steps_of(gemm, "tcgen05.ld")
    [held] = gemm["allocations"]
    [taken], [given] = steps_of(gemm, "tcgen05.alloc"), steps_of(gemm, "tcgen05.dealloc")
    assert held == {"cta": 0, "start": 0, "end": 128, "since": taken + 1, "until": given + 1}
    loads = [access for access in gemm["accesses"] if access["memory"] == "Tensor Memory"]
    assert [load["nbytes"] for load in loads] == [4 * 32 * 128] * 4
    assert [(load["low"], load["high"]) for load in loads] == [
        (column, (127 << 16) + column + 32) for column in range(0, 128, 32)
    ]


def traced(problem: Problem, body: str, schedule: str = "late") -> Timeline:
    gpu = device("sm_100a", schedule)
    words = np.zeros(8, np.uint64)
    words[:3] = problem.words()
    arrays = [gpu.upload(array) for array in (problem.cells(), problem.shared(), words)]
    kernel = gpu.load(module(body, 32768, problem.group, "sm_100a")).kernel("k")
    return trace(kernel, LaunchConfig.of(problem.group, 128, cluster=problem.group), arrays)


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_multiplies_in_both_ctas(m: int) -> None:
    """Layouts B, whose columns lie in two halves of the lanes, and A. D begins at column 32, and is scaled, which nobody has measured."""
    problem = Problem("f16", m, 32, "f16", "f16", group=2)
    timeline = traced(problem, issued(problem, "yes, 3"))
    [product] = [flight for flight in timeline.flights if flight.work == "product"]
    columns = 32 if m == 256 else 16
    assert product.warps == (0,)
    assert product.cells_written == [TensorSpan(cta, 32, 32 + columns, (0, 128)) for cta in (0, 1)]
    assert {span.cta for span in product.reads} == {0, 1}
    [commit] = [flight for flight in timeline.flights if flight.work == "commit"]
    assert [timeline.mbarriers[number].cta for number, _ in commit.mbarriers] == [0, 1]
    assert product.landed == commit.landed
    assert [(allocation.cta, allocation.end) for allocation in timeline.allocations] == [
        (0, 512),
        (1, 512),
    ]
    assert ("Tensor Memory of rank 1", "columns 0 to 511 allocated") in view.totals(timeline)
    [line] = timeline.unverified
    assert steps_at(timeline, line) == [product.step]


def test_what_is_read_is_filled_anew() -> None:
    """All is stored, columns of it are multiplied with, copied over and multiplied with again."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    product = issued(problem).replace("[d], x0", "[d], [a]")
    copy = "tcgen05.cp.cta_group::1.128x256b [a], x0;"
    again = product[product.rindex("tcgen05.mma") :]
    body = f".reg .b32 a; add.u32 a, t, 200; {product} {copy} {again}"
    timeline = traced(problem, body)
    assert [column.span for column in timeline.columns] == [
        TensorSpan(0, first, first + 32, (0, 128)) for first in range(0, 512, 32)
    ]
    works = [
        [[timeline.flights[number].work for number in fill.flights] for fill in column.fills]
        for column in timeline.columns
    ]
    assert works[32 // 32] == [["store", "product", "product"]]
    assert works[200 // 32] == [["store"], ["copy"]]
    copied = next(
        flight
        for flight in timeline.flights
        if flight.queue == "tensor_work" and flight.work == "copy"
    )
    assert copied.nbytes == 128 * 32
    assert copied.cells_written == [TensorSpan(0, 200, 208, (0, 128))]
    begun = [flight.step for flight in timeline.flights if flight.work == "product"]
    assert copied.read[0] == begun[1]
    told = dict(view.totals(timeline))
    assert told["stores"] == "16 to Tensor Memory"
    assert told["products"] == "2, 128 x 16 x 16 of f16, D f32"


def test_early_work_lands_as_it_is_issued() -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    timeline = traced(problem, issued(problem), "early")
    [product] = [flight for flight in timeline.flights if flight.work == "product"]
    assert product.landed == product.step + 1
    late = traced(problem, issued(problem))
    [product] = [flight for flight in late.flights if flight.work == "product"]
    assert product.landed is not None
    assert product.landed > product.step + 1
    stores = [flight for flight in late.flights if flight.work == "store"]
    assert {store.landed for store in stores} == {steps_at(late, _line("tcgen05.wait::st"))[0] + 1}


def _line(part: str) -> int:
    problem = Problem("f16", 128, 16, "f16", "f16")
    text = module(issued(problem), 32768, 1, "sm_100a")
    [only] = [number for number, line in enumerate(text.split("\n"), 1) if part in line]
    return only
