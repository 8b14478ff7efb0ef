"""The predicted ladder as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.gemm.predicted import PredictedRung
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.gemm-predict/1"


def text(rungs: Sequence[PredictedRung], width: int | None) -> str:
    rows = [("algorithm", "types", "TFLOP/s", "ms", "bound by", "CTAs on an SM", "warps mostly")]
    for one in rungs:
        found = one.prediction
        name = _name(one)
        if found is None:
            rows.append((name, one.problem.types, "-", "-", one.reason, "", ""))
            continue
        reasons = [reason for reason in found.stalls if reason != "selected"]
        rows.append(
            (
                name,
                one.problem.types,
                f"{one.tflops:.3g}",
                f"{found.seconds * 1e3:.3g}",
                f"{found.bound_by} {found.used[found.bound_by]:.0%}",
                str(found.occupancy.ctas),
                reasons[0] if reasons else "",
            )
        )
    lines = fitted(rows, width, ("CTAs on an SM", "types", "warps mostly"), cut=12)
    known = next((one.prediction for one in rungs if one.prediction), None)
    if known is None:
        return "\n".join(lines)
    p = rungs[0].problem
    head = (
        f"{p.m} x {p.n} x {p.k} on {known.gpu} ({known.arch}) at {known.clock_mhz:,} MHz, predicted"
    )
    return "\n".join([head, "", *lines, "", f"not in it: {', '.join(known.not_modelled)}"])


def _name(one: PredictedRung) -> str:
    return " ".join([one.rung.name, *(f"{name}={size}" for name, size in one.tile.items())])


def as_json(rungs: Sequence[PredictedRung]) -> dict[str, Any]:
    return {"schema": SCHEMA, "algorithms": [_rung(one) for one in rungs]}


def _rung(one: PredictedRung) -> dict[str, Any]:
    problem, found = one.problem, one.prediction
    return {
        "algorithm": one.rung.name,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "dtype": problem.dtype,
        "acc": problem.acc,
        "tile": dict(one.tile) or None,
        "gpu": found and found.gpu,
        "arch": found and found.arch,
        "clock_mhz": found and found.clock_mhz,
        "tflops": one.tflops,
        "seconds": found and found.seconds,
        "low": found and found.low,
        "high": found and found.high,
        "bound": found and found.bound,
        "bound_by": found and found.bound_by,
        "stalls": found and found.stalls,
        "reason": one.reason or None,
    }
