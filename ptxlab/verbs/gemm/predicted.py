"""The predicted ladder as text, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from ptxlab.gemm.predicted import PredictedRung
from ptxlab.gemm.published import Figure
from ptxlab.view.csv import as_csv
from ptxlab.view.json import members
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.gemm-predict/1"


HEAD = ("algorithm", "types", "TFLOP/s", "of cuBLAS", "published", "ms", "bound by")
LESS = ("CTAs on an SM", "warps mostly")


def text(rungs: Sequence[PredictedRung], width: int | None) -> str:
    """Return a line for each rung, beside what others published on that GPU, and who did."""
    rows = [(*HEAD, *LESS), *map(_row, rungs)]
    lines = fitted(rows, width, ("CTAs on an SM", "types", "warps mostly", "ms"), cut=12)
    lines += ["", *_sources(rungs, width)]
    predicted = [rung.prediction for rung in rungs if rung.prediction]
    if not predicted:
        return "\n".join(lines)
    p, known = rungs[0].problem, predicted[0]
    clocks = [prediction.clock_mhz for prediction in predicted]
    at = " to ".join(f"{clock:,}" for clock in sorted({min(clocks), max(clocks)}))
    head = f"{p.m} x {p.n} x {p.k} on {known.gpu} ({known.arch}) at {at} MHz, predicted"
    fastest = max(rungs, key=lambda rung: rung.tflops or 0)
    said = f"fastest: {_name(fastest)}"
    if fastest.prediction and not fastest.prediction.generations:
        said += "; its CTAs do not fill the GPU, and for a larger product it may be another"
    return "\n".join([head, "", *lines, said, f"not in it: {', '.join(known.not_modelled)}"])


def _row(rung: PredictedRung) -> tuple[str, ...]:
    prediction, others = rung.prediction, ", ".join(figure.rate for figure in rung.published)
    if prediction is None:
        return (_name(rung), rung.problem.types, "-", "", others, "-", rung.reason, "", "")
    reasons = [reason for reason in prediction.stalls if reason != "selected"]
    return (
        _name(rung),
        rung.problem.types,
        f"{rung.tflops:.3g}",
        "" if rung.of_cublas is None else f"{rung.of_cublas:.0%}",
        others,
        f"{prediction.seconds * 1e3:.3g}",
        f"{prediction.bound_by} {prediction.used[prediction.bound_by]:.0%}",
        str(prediction.occupancy.ctas),
        reasons[0] if reasons else "",
    )


def _sources(rungs: Sequence[PredictedRung], width: int | None) -> list[str]:
    """Return a line for everyone whose figures stand in the table, with their own names of kernels."""
    figures = [figure for rung in rungs for figure in rung.published]
    figures += [rung.cublas for rung in rungs if rung.cublas]
    by_source: dict[str, list[str]] = {}
    for figure in dict.fromkeys(figures):
        kernel = f" ({figure.kernel})" if figure.kernel else ""
        who = f"{figure.where}, {' -> '.join(figure.types)}"
        by_source.setdefault(who, []).append(f"{figure.rung} {figure.rate}{kernel}")
    if not by_source:
        return [
            f"nobody is known to have published speeds of these on {rungs[0].gpu.name} at this size"
        ]
    lines = ["published, at clocks that mostly are not told; of cuBLAS is of its published rate"]
    for who, told in by_source.items():
        line = f"  {who}: {', '.join(told)}"
        lines += wrap(line, width, subsequent_indent="    ") if width else [line]
    return lines


def _name(rung: PredictedRung) -> str:
    return " ".join([rung.rung.name, *(f"{name}={size}" for name, size in rung.tile.items())])


def as_json(rungs: Sequence[PredictedRung]) -> dict[str, Any]:
    return {"schema": SCHEMA, "algorithms": [_rung(rung) for rung in rungs]}


def csv(rungs: Sequence[PredictedRung]) -> str:
    """Return a line for each rung, without what others published: their figures are of other kinds."""
    return as_csv([_rung(rung) for rung in rungs], without=("published", "cublas"))


def _rung(rung: PredictedRung) -> dict[str, Any]:
    problem, prediction = rung.problem, rung.prediction
    return {
        "algorithm": rung.rung.name,
        **members(problem, "m", "n", "k", "dtype", "acc"),
        "tile": dict(rung.tile) or None,
        "gpu": rung.gpu.name,
        **members(prediction, "arch", "clock_mhz"),
        **members(rung, "tflops", "of_cublas"),
        "published": [_figure(figure) for figure in rung.published],
        "cublas": rung.cublas and _figure(rung.cublas),
        **members(prediction, "seconds", "low", "high", "bound", "bound_by", "stalls"),
        "reason": rung.reason or None,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {**asdict(figure), "types": dict(zip(("dtype", "acc"), figure.types, strict=True))}
