"""A GPU and a CPU taking turns: a table, JSON and a chart. Schema ``ptxlab.interleave/2``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.gemm.interleave import Interleaving, TurnTimes
from ptxlab.view.chart import Bar, Panel, chart
from ptxlab.view.gemm_parts import verdict_as_json
from ptxlab.view.json import members
from ptxlab.view.text import aligned

SCHEMA = "ptxlab.interleave/2"

PARTS = ("GPU", "CPU", "copies", "changing over")

TIMES = {
    "gpu": "GPU",
    "cpu": "CPU",
    "copies": "copies",
    "sum": "sum",
    "interleaved": "in turns",
    "extra": "changing over",
}
"""The heads of the table by what they are of a turn."""


def text(several: Sequence[Interleaving]) -> str:
    """Return a table for every size, in milliseconds a turn."""
    lines = []
    for interleaving in several:
        lines += [
            f"{_title(interleaving)} on {interleaving.gpu}, {interleaving.arch}; ms a turn, mean of {interleaving.turns}"
        ]
        if not interleaving.passed:
            lines += [f"WRONG: {_wrong(interleaving)}; no time is told", ""]
            continue
        rows = [("memory", *TIMES.values()), *(_row(turns) for turns in interleaving.kinds)]
        lines += ["", *aligned(rows), ""]
    lines.append("changing over is what turns take beyond the sum of their parts alone")
    return "\n".join(lines) + "\n"


def as_json(several: Sequence[Interleaving]) -> dict[str, Any]:
    """Return everything as JSON data, in seconds; what was wrong has no ``kinds``."""
    return {
        "schema": SCHEMA,
        "device": "cuda",
        **members(several[0], "arch", "gpu"),
        "passed": all(interleaving.passed for interleaving in several),
        "results": [
            {
                "algorithm": interleaving.algorithm.name,
                "activity": interleaving.activity.name,
                "size": interleaving.problem.n,
                "turns": interleaving.turns,
                **verdict_as_json(interleaving.verdict),
                "passed": interleaving.passed,
                "kinds": [
                    members(turns, "kind", *TIMES)
                    for turns in interleaving.kinds
                    if interleaving.passed
                ],
            }
            for interleaving in several
        ],
    }


def svg(several: Sequence[Interleaving]) -> str:
    panels = [
        Panel(
            _title(interleaving),
            tuple(
                Bar(
                    turns.kind,
                    (turns.gpu, turns.cpu, turns.copies, max(0.0, turns.extra)),
                    f"{_ms(turns.interleaved)} ms in turns",
                )
                for turns in interleaving.kinds
            ),
        )
        for interleaving in several
        if interleaving.passed
    ]
    notes = [f"{several[0].gpu}; parts as they are alone, mean of {several[0].turns} turns"]
    return chart("A turn of GPU and CPU on the same matrices", panels, PARTS, notes)


def _title(interleaving: Interleaving) -> str:
    n = interleaving.problem.n
    return f"{interleaving.algorithm.name} and {interleaving.activity.name}, {n} x {n} of f32"


def _wrong(interleaving: Interleaving) -> str:
    if not interleaving.verdict.passed:
        return f"error {interleaving.verdict.error:.3g}, the bound is {interleaving.verdict.tolerance:.3g}"
    return "kinds of memory end with different bits"


def _row(turns: TurnTimes) -> tuple[str, ...]:
    cells = {name: _ms(seconds) for name, seconds in members(turns, *TIMES).items()}
    if not turns.copies:
        cells["copies"] = "none"
    return (turns.kind, *cells.values())


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
