"""The ladder timed on a GPU that multiplies in numpy: who is checked, timed, compared, and told of."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.sensors import Reading
from ptxlab.device.stopwatch import Stopwatch, Timing
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.gemm import LADDER, Problem
from ptxlab.gemm.bench import Bench, BenchResult, Speed, bench
from ptxlab.gemm.ladder import SHAPES, Choice, PlannedProblem, plan, shapes
from ptxlab.gemm.machine import machine_of, read_runs, with_run
from ptxlab.gemm.predicted import PredictedRung
from ptxlab.gemm.timing import Procedure
from ptxlab.gemm.verification import ROWS, Verification, drawn
from ptxlab.isa.gpus import GPUS
from ptxlab.isa.targets import TARGETS
from ptxlab.verbs.bench import text as view
from ptxlab.view.csv import as_csv
from tests.gemm.fake_gpu import LIBRARY, installed

QUICK = Procedure(rest=0.0, seconds=0.0, cold=2)
PROBLEM = Problem(48, 40, 24, "f32", "f32")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    driver = installed(monkeypatch)
    with CudaDevice() as device:
        yield device
        assert driver.capturing is None
        assert driver.handles == 0, "the library is released"


def run(gpu: CudaDevice, *names: str, procedure: Procedure = QUICK) -> Bench:
    said: list[str] = []
    with Stopwatch(gpu, "no sensors here") as stopwatch:
        machine = machine_of(gpu, "no sensors here")
        entries = [PlannedProblem(PROBLEM, tuple(LADDER[name] for name in names))]
        return bench(gpu, stopwatch, machine, entries, procedure, said.append)


def by_name(bench: Bench) -> dict[str, BenchResult]:
    return {result.rung.name: result for result in bench.results}


def off_by_one(d: Array, before: int) -> None:
    d[3, 5] += 1


# ---- times ------------------------------------------------------------------------------------


def test_kernels_are_timed_beside_the_library(gpu: CudaDevice) -> None:
    driver = gpu.driver.api
    driver.seconds = {"naive": 4e-3, "tiled": 2e-3, LIBRARY: 1e-3}
    bench = run(gpu, "naive", "tiled")
    assert bench.passed
    results = by_name(bench)
    assert list(results) == ["cublas", "naive", "tiled"]
    for name, seconds, ratio in (
        ("naive", 4e-3, 0.25),
        ("tiled", 2e-3, 0.5),
        ("cublas", 1e-3, None),
    ):
        timed = results[name].timed
        assert timed is not None
        for timing in (timed.speed.burst, timed.speed.sustained, timed.speed.cold):
            assert timing is not None
            assert timing.median == pytest.approx(seconds)
        assert timed.speed.sustained.launches == round(1e-2 / seconds)
        assert timed.ratio == (None if ratio is None else pytest.approx(ratio))
        assert timed.library == (None if ratio is None else LADDER["cublas"])
        assert results[name].tflops(timed.speed.burst) == pytest.approx(
            2 * 48 * 40 * 24 / seconds / 1e12
        )
    assert results["naive"].timed is not None
    assert results["naive"].timed.kernels == ("module 1 naive",)
    assert results["tiled"].tile["BM"] == 32
    # H100 and H200: 256 FLOP a clock and SM.
    assert results["naive"].limit == pytest.approx(256 * 132 * 1980e6 / 1e12)
    (absent,) = bench.absent
    assert absent.algorithm == "cublaslt"
    assert "cannot be called" in absent.reason


def test_without_a_library_there_is_nothing_to_compare_with(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", None)
    bench = run(gpu, "tiled")
    (result,) = bench.results
    assert result.timed is not None
    assert (result.timed.library, result.timed.beside, result.timed.ratio) == (None, None, None)
    assert [absent.algorithm for absent in bench.absent] == ["cublas", "cublaslt"]


# ---- what is wrong has no speed ------------------------------------------------------------------


def test_a_wrong_kernel_is_not_timed(gpu: CudaDevice) -> None:
    driver = gpu.driver.api
    driver.spoil["tiled"] = off_by_one
    bench = run(gpu, "naive", "tiled")
    results = by_name(bench)
    assert not bench.passed
    assert results["tiled"].timed is None
    assert not results["tiled"].verdict.passed
    assert driver.ran["tiled"] == 1
    assert results["naive"].timed is not None


def test_a_kernel_that_goes_wrong_while_it_is_timed_has_no_speed(gpu: CudaDevice) -> None:
    driver = gpu.driver.api
    driver.spoil["tiled"] = lambda d, before: off_by_one(d, 0) if before else None
    results = by_name(run(gpu, "tiled"))
    assert results["tiled"].timed is None
    assert not results["tiled"].verdict.passed
    assert driver.ran["tiled"] > 10, "it was timed"


def test_a_kernel_that_writes_nothing_does_not_pass_with_what_is_there(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.driver.api.idle = {"tiled"}
    results = by_name(run(gpu, "naive", "tiled"))
    assert results["naive"].verdict.passed
    assert not results["tiled"].verdict.passed
    # It is the NaN in D that shows it: without, the result of the kernel before it is there.
    monkeypatch.setattr(CudaDevice, "fill", lambda *_: None)
    assert by_name(run(gpu, "naive", "tiled"))["tiled"].verdict.passed


def test_nothing_is_compared_with_a_wrong_library(gpu: CudaDevice) -> None:
    driver = gpu.driver.api
    driver.spoil[LIBRARY] = off_by_one
    results = by_name(run(gpu, "tiled"))
    assert results["cublas"].timed is None
    tiled = results["tiled"].timed
    assert tiled is not None
    assert tiled.ratio is None
    # And not with one that goes wrong while it is timed; its first launch is the warm-up.
    driver.ran.clear()
    driver.spoil[LIBRARY] = lambda d, before: off_by_one(d, 0) if before > 1 else None
    results = by_name(run(gpu, "tiled"))
    tiled = results["tiled"].timed
    assert tiled is not None
    assert (tiled.library, tiled.beside) == (None, None)


def test_a_kernel_that_cannot_be_launched_is_left_out(gpu: CudaDevice) -> None:
    driver = gpu.driver.api
    driver.fail["cuLaunchKernel"] = 701
    bench = run(gpu, "tiled")
    assert [result.rung.name for result in bench.results] == ["cublas"]
    assert "more registers" in bench.absent[-1].reason
    driver.fail["cuLaunchKernel"] = 700  # after which nothing can be done any more
    with pytest.raises(LaunchError, match="outside every allocation"):
        run(gpu, "tiled")


# ---- what is compared of a large D ---------------------------------------------------------------


def test_a_row_of_every_band_is_drawn() -> None:
    assert drawn(ROWS, 0).tolist() == list(range(ROWS))
    for rows in (ROWS + 1, 4099, 20000):
        sampled = drawn(rows, 3)
        assert len(sampled) == ROWS
        assert (np.diff(sampled) >= 0).all()
        bands = np.arange(ROWS + 1) * rows // ROWS
        assert ((bands[:-1] <= sampled) & (sampled < bands[1:])).all()
    assert drawn(20000, 3).tolist() != drawn(20000, 4).tolist()


def test_an_error_in_any_tile_is_found() -> None:
    problem = Problem(8192, 24, 16, "f32", "f32")
    inputs = problem.inputs()
    verification = Verification(problem, inputs, sampled=True)
    right = inputs.a @ inputs.b
    arithmetic = TARGETS["sm_90a"].dot16
    assert verification.verdict(right, "fma", arithmetic).passed
    for top in range(0, 8192, 512):
        wrong = right.copy()
        wrong[top : top + 32, 7] *= 1.01  # the same column of one tile of 32 rows
        assert not verification.verdict(wrong, "fma", arithmetic).passed
    for row in (0, 1, 2, 8191):
        wrong = right.copy()
        wrong[row, 3] = np.nan
        assert not verification.verdict(wrong, "fma", arithmetic).passed


def test_a_reference_that_is_begun_early_finds_an_error_in_any_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ptxlab.gemm.reference.BLOCK", 8)
    problem = Problem(16, 24, 16, "f32", "f32")
    inputs = problem.inputs()
    right, arithmetic = inputs.a @ inputs.b, TARGETS["sm_90a"].dot16
    with ThreadPoolExecutor(1) as beside:

        def passes(d: Array) -> bool:
            verification = Verification(problem, inputs)
            verification.begin(beside)
            beside.submit(int).result()  # the part before it is made
            return verification.verdict(d, "fma", arithmetic).passed

        assert passes(right)
        for row, column in product(range(0, 16, 8), range(0, 24, 8)):
            wrong = right.copy()
            wrong[row, column] *= 1.01
            assert not passes(wrong)


# ---- what is planned -----------------------------------------------------------------------------


def test_sizes_are_read() -> None:
    assert shapes("256,1024x768x512") == ((256, 256, 256), (1024, 768, 512))
    assert shapes("metal,256,metal") == (*SHAPES["metal"], (256, 256, 256))
    assert SHAPES["powers"][0] == (256, 256, 256)
    assert SHAPES["powers"][-1] == (16384, 16384, 16384)
    for text in ("", "12x3", "0", "-4", "1e3", "metall", "4096x"):
        with pytest.raises(PtxlabError):
            shapes(text)
    with pytest.raises(PtxlabError) as caught:
        shapes("metall")
    assert caught.value.hint == "did you mean metal?"


def test_every_kernel_meets_a_problem_of_its_own_types() -> None:
    first, second, third = plan([(8, 8, 8)], Choice())
    assert [each.problem.dtype for each in (first, second, third)] == ["f32", "bf16", "nvfp4"]
    assert third.rungs == (LADDER["block_scaled"],)
    assert all(each.problem.dtype != "nvfp4" for each in plan([(8, 8, 8)], Choice(layout="tn")))
    assert {"naive", "warp_tiled"} <= {rung.name for rung in first.rungs}
    assert {rung.name for rung in second.rungs} >= {"tensor_core_ptx", "tensor_core", "wgmma"}
    (entry,) = plan([(8, 8, 8)], Choice(dtypes=("f16",), acc="f16"))
    assert entry.rungs == (LADDER["tensor_core"],)
    (entry,) = plan([(8, 8, 8)], Choice(dtypes=("bf16",), layout="tn"))
    assert LADDER["tensor_core_ptx"] not in entry.rungs
    with pytest.raises(PtxlabError, match="tiled does not compute bf16"):
        list(plan([(8, 8, 8)], Choice(("tiled",), ("bf16",))))
    with pytest.raises(PtxlabError, match="has no layout tn"):
        list(plan([(8, 8, 8)], Choice(("tensor_core_ptx",), layout="tn")))
    with pytest.raises(PtxlabError, match="no algorithm 'tild'"):
        list(plan([(8, 8, 8)], Choice(("tild",))))


# ---- what is told ----------------------------------------------------------------------------


def told(gpu: CudaDevice) -> Bench:
    gpu.driver.api.seconds = {"naive": 4e-3, "tiled": 2e-3, LIBRARY: 1e-3}
    gpu.driver.api.spoil["coalescing"] = off_by_one
    return run(gpu, "naive", "tiled", "coalescing")


def test_text_has_a_speed_for_what_is_right_alone(gpu: CudaDevice) -> None:
    lines = view.text(told(gpu)).splitlines()
    (naive,) = (line.split() for line in lines if line.strip().startswith("naive "))
    assert naive[:2] == ["naive", "0.0000230"]
    assert "25.0" in naive
    assert naive[-1] == "4096)"  # the recipe's 292 of 19492 GFLOP/s
    assert "1.5" in naive
    wrong = [line for line in lines if "coalescing" in line]
    assert wrong == [
        line for line in wrong if line.startswith("coalescing is WRONG, and has no speed")
    ]
    assert any(line.startswith("cublaslt is left out: cublasLt cannot be called") for line in lines)
    assert any("clock and power are not known: no sensors here" in line for line in lines)


def test_each_figure_is_where_its_head_says(gpu: CudaDevice) -> None:
    """A slow launch, p80 of the seconds, is p20 of the TFLOP/s: the lower of the two."""
    bench = run(gpu, "naive")

    def timing(median: float, low: float, high: float) -> Timing:
        median, slow, fast = (PROBLEM.flops / 1e12 / tflops for tflops in (median, low, high))
        return Timing(median, p20=fast, p80=slow, samples=3, launches=1)

    speed = Speed(timing(8, 7, 9), timing(4, 3, 5), timing(1, 0.5, 2))
    *_, naive = bench.results
    assert naive.timed is not None
    naive = replace(naive, limit=16.0, timed=replace(naive.timed, speed=speed, beside=None))
    bench = replace(bench, results=(naive,))
    text = view.text(bench)
    (head,) = (line for line in text.splitlines() if "p20 to p80  " in line)
    assert re.split(" {2,}", head.strip())[:5] == [
        "burst", "sustained", "p20 to p80", "cold", "of library",
    ]  # fmt: skip
    (line,) = (line for line in text.splitlines() if line.strip().startswith("naive "))
    cells = re.split(" {2,}", line.strip())
    assert cells[:6] == ["naive", "8.00", "4.00", "3.00 to 5.00", "1.00", "25.0 %"]
    (data,) = view.as_json(bench)["results"]
    assert data["tflops"] == pytest.approx(4)
    assert data["seconds"] == pytest.approx(PROBLEM.flops / 4e12)
    for name, tflops, high, low in (
        ("burst", 8, 9, 7),
        ("sustained", 4, 5, 3),
        ("cold", 1, 2, 0.5),
    ):
        assert data[name]["tflops"] == pytest.approx(tflops)
        assert data[name]["p20"] == pytest.approx(PROBLEM.flops / 1e12 / high)
        assert data[name]["p80"] == pytest.approx(PROBLEM.flops / 1e12 / low)


def test_half_as_fast_as_predicted_is_half_less(gpu: CudaDevice) -> None:
    *_, naive = run(gpu, "naive").results
    assert naive.timed is not None
    assert naive.error is None, "nothing was predicted"
    seconds = naive.timed.speed.sustained.median / 2
    prediction: Any = SimpleNamespace(seconds=seconds)
    predicted = PredictedRung(naive.rung, PROBLEM, GPUS[0], prediction)
    assert replace(naive, predicted=predicted).error == pytest.approx(-0.5)


def test_json_csv_and_the_chart_agree(gpu: CudaDevice) -> None:
    bench = told(gpu)
    data = view.as_json(bench)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["schema"], data["device"], data["arch"]) == ("ptxlab.bench/2", "cuda", "sm_90a")
    assert data["machine"]["multiprocessors"] == 132
    results = {result["algorithm"]: result for result in data["results"]}
    assert results["coalescing"]["passed"] is False
    for name in ("seconds", "tflops", "burst", "sustained", "cold", "ratio", "beside"):
        assert results["coalescing"][name] is None, name
    assert results["naive"]["seconds"] == pytest.approx(4e-3)
    assert results["naive"]["tflops"] == results["naive"]["sustained"]["tflops"]
    assert results["naive"]["beside"]["sustained"]["median"] == pytest.approx(1e-3)
    assert results["naive"]["flop_per_clk_sm"] is None, "no clock, no FLOP a clock"
    lines = list(csv.DictReader(io.StringIO(as_csv(data["results"]))))
    assert [line["algorithm"] for line in lines] == [r["algorithm"] for r in data["results"]]
    assert [line["seconds"] for line in lines if line["algorithm"] == "coalescing"] == [""]
    assert float(lines[1]["burst.median"]) == pytest.approx(4e-3)
    words = [
        text.text
        for text in xml.fromstring(view.svg(bench)).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"naive", "tiled", "cublas", "limit"} <= set(words)
    assert "coalescing" not in words


def test_clock_and_power_give_the_flops_of_an_sm(gpu: CudaDevice) -> None:
    bench = told(gpu)
    read = [
        replace(result, timed=result.timed and replace(result.timed, reading=Reading(1000, 500)))
        for result in bench.results
    ]
    bench = replace(bench, results=tuple(read))
    naive = view.as_json(bench)["results"][1]
    assert (naive["algorithm"], naive["clock_mhz"], naive["power_w"]) == ("naive", 1000, 500)
    assert naive["flop_per_clk_sm"] == pytest.approx(2 * 48 * 40 * 24 / 4e-3 / 1e9 / 132)
    text = view.text(bench)
    (line,) = (line.split() for line in text.splitlines() if line.strip().startswith("naive "))
    assert {"1000", "500"} <= set(line)
    assert f"cublas ran {LIBRARY}" in text


def test_records_grow_and_stay_whole(gpu: CudaDevice, tmp_path: Path) -> None:
    data = view.as_json(told(gpu))
    path, content = with_run(tmp_path, data)
    assert path == tmp_path / f"fake-gpu-{data['machine']['date']}.json"
    path.write_bytes(content)
    again, content = with_run(tmp_path, data)
    assert again == path
    path.write_bytes(content)
    assert read_runs(path) == [data, data]
    path.write_text("{}")
    with pytest.raises(PtxlabError, match="holds no results"):
        with_run(tmp_path, data)
    with pytest.raises(PtxlabError, match="no folder"):
        with_run(tmp_path / "nowhere", data)
