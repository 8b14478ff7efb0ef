"""What is counted of the ladder, side by side: a table, JSON and a chart.

Where nothing is timed, this is what ``ptxlab bench`` says: its JSON has the schema ``ptxlab.bench/2``,
with ``seconds`` and ``tflops`` null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from types import MappingProxyType
from typing import Any

from ptxlab.gemm.facts import KernelFacts
from ptxlab.gemm.predicted import PredictedRung
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.side_by_side import Absent
from ptxlab.verbs.bench.text import SCHEMA, predicted_as_json
from ptxlab.view.chart import Bar, Panel, chart
from ptxlab.view.gemm_parts import left_out, problem_as_json, title, verdict_as_json, wrong
from ptxlab.view.json import members
from ptxlab.view.width import stacked

NOTHING: Mapping[tuple[str, Problem], PredictedRung] = MappingProxyType({})

HEAD = (
    ("", "FLOPs a", "instructions", "sectors", "B a FLOP", "wavefronts", "B a FLOP", "barriers"),
    ("", "thread", "a kFLOP", "/ ideal", "of sectors", "/ ideal", "of shared", "a CTA"),
)
HELD = (
    ("regis-", "spilled", "shared", "CTAs", "warps of", "main loop"),
    ("ters", "bytes", "KiB", "an SM", "an SM", "is"),
)


def text(
    several: Sequence[KernelFacts],
    absent: Sequence[Absent],
    width: int | None = None,
    predicted: Mapping[tuple[str, Problem], PredictedRung] = NOTHING,
) -> str:
    """Return a table for every problem; ``predicted`` are rungs by name and problem, where that was asked."""
    lines = []
    for problem, of_it in groupby(several, key=lambda facts: facts.problem):
        together = list(of_it)
        what = f"{title(problem)}; counted for {together[0].target}, nothing is timed"
        lines += [what, "", *stacked(_with(predicted, together), width), ""]
        lines += [
            f"{facts.algorithm.name} is WRONG: {wrong(facts.verdict)}"
            for facts in together
            if not facts.verdict.passed
        ]
    lines += [line for line in left_out(absent) if line]
    lines += [
        f"{rung.rung.name} is not predicted: {rung.reason}"
        for rung in predicted.values()
        if rung.reason
    ]
    if predicted:
        gpu = next(iter(predicted.values())).gpu.name
        lines.append(f"predicted TFLOP/s are for {gpu}: see ptxlab gemm --predict")
    lines.append(
        "instructions are those of warps; sectors are of 32 bytes of global memory, wavefronts of "
        "shared memory"
    )
    return "\n".join(lines) + "\n"


def bench_as_json(
    several: Sequence[KernelFacts],
    absent: Sequence[Absent],
    arch: str,
    predicted: Mapping[tuple[str, Problem], PredictedRung],
) -> dict[str, Any]:
    """Return counted facts as JSON data: no seconds, no TFLOP/s."""
    untimed = dict.fromkeys(("seconds", "tflops", "burst", "sustained", "cold", "beside", "ratio"))
    return {
        "schema": SCHEMA,
        "device": "emulator",
        "arch": arch,
        "passed": all(facts.verdict.passed for facts in several),
        "results": [
            {
                "algorithm": facts.algorithm.name,
                **problem_as_json(facts.problem),
                "tile": facts.tile,
                **verdict_as_json(facts.verdict),
                **untimed,
                "predicted": predicted_as_json(
                    predicted.get((facts.algorithm.name, facts.problem))
                ),
                "facts": as_json(facts),
            }
            for facts in several
        ],
        "absent": [asdict(left_out) for left_out in absent],
    }


def svg(several: Sequence[KernelFacts]) -> str:
    """Return a chart of the FLOPs for each byte of global memory, a panel for every problem."""
    panels = [
        Panel(
            title(problem),
            tuple(
                Bar(
                    facts.algorithm.name,
                    (1 / facts.bytes_per_flop["sectors"],),
                    f"{1 / facts.bytes_per_flop['sectors']:.3g}",
                )
                for facts in of_it
            ),
        )
        for problem, of_it in groupby(several, key=lambda facts: facts.problem)
    ]
    notes = [
        "a byte is one of a sector of 32 that caches or memory must deliver, as counted",
        "on the emulator: exact, the same on every machine, and no speed",
    ]
    return chart("FLOPs for each byte of global memory", panels, (), notes)


def _with(
    predicted: Mapping[tuple[str, Problem], PredictedRung], several: Sequence[KernelFacts]
) -> list[tuple[str, ...]]:
    """Return the table of kernels, with the predicted speed of each where that was asked."""
    if not predicted:
        return rows(several)
    told = (predicted.get((facts.algorithm.name, facts.problem)) for facts in several)
    speeds = ("predicted", "TFLOP/s", *(f"{o.tflops:.3g}" if o and o.tflops else "" for o in told))
    return [(*row, speed) for row, speed in zip(rows(several), speeds, strict=True)]


def rows(several: Sequence[KernelFacts]) -> list[tuple[str, ...]]:
    """Return the table of kernels on one problem: two lines of heads, and a line each."""
    heads = [(*left, *right) for left, right in zip(HEAD, HELD, strict=True)]
    return [*heads, *((facts.algorithm.name, *row(facts)) for facts in several)]


def row(facts: KernelFacts) -> tuple[str, ...]:
    counts, used, held = facts.counts, facts.resources, facts.occupancy
    shared = used.shared + facts.shared
    return (
        f"{facts.flops_per_thread:,.0f}",
        f"{1e3 * counts.executed / counts.flops:.3g}",
        _ratio(facts.sectors, facts.sectors_ideal),
        f"{facts.bytes_per_flop['sectors']:.3g}",
        _ratio(facts.shared_wavefronts, facts.shared_ideal),
        f"{facts.bytes_per_flop['shared']:.3g}" if shared else "",
        f"{facts.barriers / facts.ctas:g}",
        str(used.registers),
        str(facts.spilled),
        f"{shared / 1024:.3g}" if shared else "",
        str(held.ctas),
        f"{held.warps} of {held.most_warps}",
        "" if facts.share is None else f"{100 * facts.share:.0f} % {facts.opcode}",
    )


def as_json(facts: KernelFacts) -> dict[str, Any]:
    """Return the facts as JSON data; ``main_loop_share`` is null where no loop does the arithmetic."""
    used, held = facts.resources, facts.occupancy
    return {
        **members(facts, "ctas", "threads", "flops_per_thread", "barriers", "bytes_per_flop"),
        "counts": asdict(facts.counts),
        **members(used, "registers", "spill_stores", "spill_loads"),
        "shared": used.shared + facts.shared,
        "occupancy": {
            **members(held, "ctas", "warps", "most_warps"),
            "limited_by": list(held.limited_by),
        },
        "opcode": facts.opcode,
        "main_loop_share": facts.share,
    }


def _ratio(actual: int, ideal: int) -> str:
    return f"{actual / ideal:.3g}" if ideal else ""
