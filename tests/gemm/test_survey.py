"""The whole ladder at once: who takes part, who is left out, and whether all agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, LADDER, Problem
from ptxlab.gemm import survey as module
from ptxlab.gemm.run import Computed, compute
from ptxlab.gemm.survey import all_types, survey

SMALL = Problem(20, 21, 22, seed=1)


def test_all_types_are_those_of_the_rungs() -> None:
    types = all_types()
    assert types[0] == ("f32", "f32")
    assert set(types) == {pair for rung in LADDER.values() for pair in rung.types}
    assert len(types) == len(set(types))


# Those of f32 always run beside each other in test_run.py, those of bf16 are those of f16.
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([("f16", "f16")], id="f16"),
        pytest.param([("bf16", "f32"), ("f32", "f32")], id="others", marks=pytest.mark.thorough),
    ],
)
def test_every_rung_takes_part_or_says_why_not(
    keeping: Device, asked: list[tuple[str, str]]
) -> None:
    assert set(asked) <= set(all_types())
    surveyed = survey(keeping, SMALL, asked)
    assert surveyed.passed
    ran = {
        (result.rung.name, result.problem.dtype, result.problem.acc) for result in surveyed.results
    }
    left_out = {(absent.algorithm, absent.dtype, absent.acc) for absent in surveyed.absent}
    assert not ran & left_out
    assert ran | left_out == {
        (rung.name, *types) for rung in LADDER.values() for types in rung.types if types in asked
    }
    if keeping.kind == "emulator":
        taking = [x for x in ALGORITHMS.values() if any(types in x.types for types in asked)]
        others = {x.name for x in taking if not keeping.target.runs(x.target)}
        assert {name for name, _, _ in left_out} == {"cublas", "cublaslt"} | others
        for absent in surveyed.absent:
            assert ("is for sm_" if absent.algorithm in others else "needs a GPU") in absent.reason
    for agreement in surveyed.agreements:
        assert agreement.passed
        assert 0 <= agreement.spread <= agreement.tolerance
        assert len(agreement.algorithms) > 1


def test_only_those_that_take_the_problem(keeping: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("cpu_naive", "numpy", "cublas", "naive", "tiled", "coalescing")
    monkeypatch.setattr(module, "LADDER", {name: LADDER[name] for name in names})
    problem = replace(SMALL, layout="tt", epilogue="bias", beta=1.0)
    surveyed = survey(keeping, problem, [("bf16", "f32")])
    ran = [result.rung.name for result in surveyed.results]
    assert (ran, surveyed.absent) == (["cpu_naive", "numpy", "naive"], ())
    assert all(
        result.problem.layout == "tt" and result.problem.dtype == "bf16"
        for result in surveyed.results
    )


@pytest.mark.parametrize("wrong", [1.0, np.nan, np.inf])
def test_who_disagrees_is_noticed(
    device: Device, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """One of three is wrong at one element."""

    def slightly_wrong(device: Device, problem: Problem, inputs: Any, rung: Any) -> Computed:
        computed = compute(device, problem, inputs, rung)
        if rung.name == "numpy":
            computed.d[3, 4] += wrong
        return computed

    monkeypatch.setattr(module, "compute", slightly_wrong)
    monkeypatch.setattr(
        module, "LADDER", {name: LADDER[name] for name in ("cpu_naive", "numpy", "naive")}
    )
    surveyed = survey(device, SMALL, [("f32", "f32")])
    assert [result.passed for result in surveyed.results] == [True, False, True]
    (agreement,) = surveyed.agreements
    assert agreement.algorithms == ("cpu_naive", "numpy", "naive")
    assert not agreement.passed
    assert agreement.spread > 1000 * agreement.tolerance
    assert not surveyed.passed


def test_nothing_to_compare(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LADDER", {"naive": LADDER["naive"]})
    assert survey(device, SMALL, [("f32", "f32")]).agreements == ()
    monkeypatch.setattr(module, "LADDER", {name: LADDER[name] for name in ("naive", "numpy")})
    (agreement,) = survey(device, replace(SMALL, m=0), [("f32", "f32")]).agreements
    assert (agreement.passed, agreement.spread) == (True, 0.0)
