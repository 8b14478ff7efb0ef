"""Jobs side by side: results in order, errors whole, the same in one process, in several and on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ptxlab import evaluate_many
from ptxlab.device.protocol import Device
from ptxlab.errors import DeviceUnavailable, LaunchError, Location, PtxlabError
from ptxlab.fragments import sweep as fragments
from ptxlab.gemm import ALGORITHMS, LADDER, Problem
from ptxlab.gemm import survey as gemm_survey
from ptxlab.gemm.explain import explain
from ptxlab.gemm.survey import LadderSurvey, survey
from ptxlab.gemm.tiles import compare_counted
from ptxlab.isa.gpus import GPUS
from ptxlab.judge.arguments import Array
from ptxlab.main import main
from ptxlab.matrix.catalog import forms
from ptxlab.matrix.form import Form
from ptxlab.workers import VARIABLE, cores, executor, results, usual
from tests.together import thorough

PLACE = Location("x.ptx", 3, 5, "    bad;")


def slow_first(number: int) -> tuple[int, int]:
    """Take the longer the earlier, so that a later job is done before."""
    import time

    time.sleep(0.05 * (3 - number))
    return number, os.getpid()


def refused(number: int) -> int:
    if number == 1:
        raise LaunchError(f"job {number}", location=PLACE, hint="mend it", kind="bounds")
    return number


def killed(number: int) -> int:
    os._exit(number)


def cores_of(job: int) -> int:
    """Return how many cores a launch would use where the job runs."""
    return cores()


@contextmanager
def address_of(where: str) -> Iterator[str]:
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv(VARIABLE, "2")
        if where == "cluster":
            distributed = pytest.importorskip("distributed")
            # One worker, as each costs seconds: that the order is kept is seen with two processes.
            local = distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=":0")
            where = stack.enter_context(local).scheduler_address
        yield where


@dataclass(frozen=True)
class Alone:
    """What comes of jobs that are not shared out."""

    outcomes: tuple[fragments.FormOutcome, ...]
    surveyed: LadderSurvey
    told: Any
    compared: Any


PROBLEM, TYPES = Problem(20, 21, 22, seed=1), [("f32", "f32")]
RUNGS = [(ALGORITHMS[name], Problem(32, 32, 32, "f32")) for name in ("naive", "coalescing")]
TILES = Problem(32, 32, 32, "f32"), ALGORITHMS["naive"]


@pytest.fixture(scope="module")
def alone(device: Device) -> Iterator[Alone]:
    """Have few jobs of each kind from now on, and do them here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragments, "_RUN_TOGETHER", 2)
        few = ("numpy", "cublas", "naive", "coalescing")
        patch.setattr(gemm_survey, "LADDER", {name: LADDER[name] for name in few})
        yield Alone(
            fragments.sweep(device, chosen_forms(), everywhere=True),
            survey(device, PROBLEM, TYPES),
            explain(device, RUNGS, GPUS[0]),
            compare_counted(device, *TILES, lambda *_: None),
        )


@pytest.mark.parametrize(
    ("where", "kinds"),
    [("1", "all"), ("2", "all"), ("cluster", "some"), *thorough([("cluster", "all")])],
)
def test_jobs_are_done_the_same_everywhere(
    where: str, kinds: str, device: Device, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """All kinds of jobs in the same processes, whose start takes longer than the jobs."""
    with address_of(where) as address, executor(address) as workers:
        results_are_in_order_and_errors_whole(workers)
        if kinds == "some":
            candidates_are_judged_the_same(address, tmp_path)
        elif device.kind == "emulator":
            alone = request.getfixturevalue("alone")
            instructions_are_verified_the_same(workers, device, alone)
            the_ladder_is_the_same(workers, device, alone)
            tiles_are_the_same(workers, device, alone)


def results_are_in_order_and_errors_whole(workers: Executor | None) -> None:
    answers = list(results(workers, slow_first, range(4)))
    assert [number for number, _ in answers] == [0, 1, 2, 3]
    assert (os.getpid() in {process for _, process in answers}) == (workers is None)
    assert list(results(workers, slow_first, [3])) == [(3, os.getpid())]
    assert list(results(workers, slow_first, [])) == []
    cores_each = 1 if isinstance(workers, ProcessPoolExecutor) else 2
    assert list(results(workers, cores_of, range(2))) == [cores_each] * 2
    one_by_one = results(workers, refused, range(3))
    assert next(one_by_one) == 0
    with pytest.raises(LaunchError, match="job 1") as raised:
        next(one_by_one)
    error = raised.value
    assert (error.location, error.hint, error.kind) == (PLACE, "mend it", "bounds")


def chosen_forms() -> list[Form]:
    """Return what runs, and what is only assembled, for several targets, some of which ptxas refuses."""
    every = list(forms())
    run = [form for form in every if form.family == "mma"][::60]
    assembled = [form for form in every if form.family in ("wgmma.fence", "wgmma.commit_group")]
    return [*run, *assembled]


def instructions_are_verified_the_same(
    workers: Executor | None, device: Device, alone: Alone
) -> None:
    there = fragments.sweep(device, chosen_forms(), everywhere=True, executor=workers)
    assert there == alone.outcomes
    assert {outcome.status for outcome in there} == {"emulator", "assembled"}


def the_ladder_is_the_same(workers: Executor | None, device: Device, alone: Alone) -> None:
    here, there = alone.surveyed, survey(device, PROBLEM, TYPES, workers)
    assert explain(device, RUNGS, GPUS[0], executor=workers) == alone.told
    assert there.agreements == here.agreements
    assert there.absent == here.absent
    assert [(result.rung, result.verdict) for result in there.results] == [
        (result.rung, result.verdict) for result in here.results
    ]


def tiles_are_the_same(workers: Executor | None, device: Device, alone: Alone) -> None:
    told: list[tuple[int, int]] = []
    compared = compare_counted(device, *TILES, lambda *at: told.append(at), workers)
    assert compared == alone.compared
    assert told == [(i + 1, len(told)) for i in range(len(told))]
    assert len(compared.candidates) == len(told) > 1


def candidates_are_judged_the_same(address: str, folder: Path) -> None:
    """Kernels that double numbers, or else."""
    for factor in "2k":
        (folder / f"{factor}.cu").write_text(
            f'extern "C" __global__ void k(float* x) {{ x[threadIdx.x] *= {factor}; }}'
        )
    arguments = {"x": Array(32)}
    judged = evaluate_many(
        sorted(folder.glob("*.cu")),
        _doubled,
        workers=address,
        arguments=arguments,
        block=32,
        gpus=(),
    )
    verdicts = {Path(each.candidate).stem: each.verdict for each in judged}
    assert verdicts == {"2": "passed", "k": "not compiled"}


def _doubled(x: Any) -> Any:
    return {"x": 2 * x}


def test_a_worker_that_dies_is_an_error() -> None:
    with (
        pytest.raises(PtxlabError, match="a worker died"),
        executor("2") as workers,
    ):
        list(results(workers, killed, [1, 2]))


def test_a_scheduler_nobody_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    words = ["fragments", "--all", "--device", "emulator"]
    assert main([*words, "--workers", "nonsense://here"]) == 3
    assert "no Dask scheduler answers at nonsense://here" in capsys.readouterr().err


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(DeviceUnavailable, match="not installed"), executor("tcp://localhost:1"):
        pass


@pytest.mark.parametrize("text", ["0", "-1", "two", "localhost:1", ""])
def test_what_is_no_number_of_workers(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--all", "--workers", text]) == 2
    assert "neither a number of processes nor an address" in capsys.readouterr().err


def test_workers_share_out_several_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gemm", "--size", "8", "--workers", "2"]) == 2
    assert "--all, --explain and --predict" in capsys.readouterr().err


def test_only_the_emulator_counts_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--profile", "--workers", "2"]) == 2
    assert "--profile runs nothing" in capsys.readouterr().err


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    assert usual() == "3"
    assert cores() == 3
    monkeypatch.setenv(VARIABLE, "tcp://localhost:1")
    assert 1 <= cores() <= (os.cpu_count() or 1)
    monkeypatch.delenv(VARIABLE)
    assert 1 <= int(usual()) <= (os.cpu_count() or 1)
    assert cores() == int(usual())


def test_the_command_line_has_workers_of_its_own() -> None:
    """In each its main module is imported anew."""
    words = ["--family", "stmatrix", "--device", "emulator", "--workers", "2"]
    command = [sys.executable, "-m", "ptxlab", "fragments", "--all", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "probes ran" in ran.stdout
    assert ran.stderr == ""
