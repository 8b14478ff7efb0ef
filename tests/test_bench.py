"""The benchmark script: what it measures is there, what it reports is what it found."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from ptxlab.emulator.run import executable
from ptxlab.gemm import ALGORITHMS
from scripts import bench_emulator as bench

ROOT = Path(__file__).parents[1]


def test_the_workloads_can_be_run() -> None:
    for workload in bench.WORKLOADS:
        ALGORITHMS[workload.algorithm].require(workload.dtype, "f32")
    data = json.loads(bench.RESULT.read_text(encoding="utf-8"))
    assert [row["name"] for row in data["workloads"]] == [
        workload.name for workload in bench.WORKLOADS
    ]


def test_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "_steps", executable._steps)  # put back afterwards
    monkeypatch.setenv("PTXLAB_ENGINE", "array")  # steps of machine code are not told apart
    workload = asdict(bench.Workload("small", "naive", "f32", 32, 1.0))
    measured = bench.in_child(workload, columns=2, repeats=3, split=True)
    assert len(measured["seconds"]) == 3
    assert 1 << 20 < measured["peak"] < 1 << 34
    _, runs = measured["spent"]["fma"]
    assert runs == 3 * 32
    assert measured["thread_instructions"] > 2 * 32**3
    assert measured["spent"]["ld.global"][1] == 2 * runs
    assert 0 < sum(note[0] for note in measured["spent"].values()) <= sum(measured["seconds"])


def test_the_table_on_its_page_is_that_of_the_results() -> None:
    data = json.loads(bench.RESULT.read_text(encoding="utf-8"))
    page = bench.PAGE.read_text(encoding="utf-8")
    assert bench.with_table(page, data) == page
    data["workloads"][0]["best"] += 1
    assert bench.with_table(page, data) != page
    for row in data["workloads"] + data["peers"]:
        assert row["passed"], row["name"]
