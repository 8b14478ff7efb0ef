"""The ladder timed on a GPU: a table, JSON, CSV and a chart.

Schema ``ptxlab.bench/2``. ``seconds`` and ``tflops`` are the sustained ones, null for a wrong result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ptxlab.device.stopwatch import Timing
from ptxlab.gemm.bench import Bench, BenchResult, Speed
from ptxlab.gemm.machine import MeasuredMachine
from ptxlab.gemm.predicted import PredictedRung
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.timing import Procedure
from ptxlab.view.chart import Bar, Panel, Rule, chart
from ptxlab.view.gemm_parts import left_out, problem_as_json, title, verdict_as_json, wrong
from ptxlab.view.json import members
from ptxlab.view.text import fields
from ptxlab.view.width import stacked

SCHEMA = "ptxlab.bench/2"


def text(bench: Bench, width: int | None = None) -> str:
    lines = fields(_about(bench.machine, bench.procedure))
    for problem, results in _by_problem(bench):
        lines += ["", title(problem, *_most(results)), ""]
        lines += stacked(_table(results, bench.machine), width)
        lines += [*_names(results), *_wrong(results), *_unpredicted(results)]
    lines += left_out(bench.absent)
    lines += ["", "TFLOP/s are medians; p20 to p80 are of the sustained ones"]
    return "\n".join(lines) + "\n"


def as_json(bench: Bench) -> dict[str, Any]:
    """Return everything as JSON data; what is not known is null."""
    return {
        "schema": SCHEMA,
        "device": "cuda",
        "arch": bench.machine.arch,
        "machine": asdict(bench.machine),
        "procedure": asdict(bench.procedure),
        "passed": bench.passed,
        "results": [_result(result, bench.machine) for result in bench.results],
        "absent": [asdict(absent) for absent in bench.absent],
    }


def svg(bench: Bench) -> str:
    panels = []
    for problem, results in _by_problem(bench):
        most = results[0].limit
        timed = [result for result in results if result.timed is not None]
        libraries = {result.timed.library for result in timed if result.timed}
        rules = [
            Rule(result.rung.name, result.tflops(result.timed.speed.sustained))
            for result in timed
            if result.timed and result.rung in libraries
        ]
        if most is not None:
            rules.append(Rule("limit", most))
        bars = [_bar(result, most) for result in timed]
        panels.append(Panel(title(problem, *_most(results)), tuple(bars), tuple(rules)))
    machine = bench.machine
    notes = [
        f"{machine.gpu}, driver {machine.driver or 'unknown'}, {machine.date}: sustained, median "
        f"of {bench.procedure.seconds:g} s or more",
        "the limit is all SMs at their highest clock",
        "a diamond is a published figure of another chip, as the same part of that one's peak",
    ]
    return chart("TFLOP/s of the GEMM ladder", panels, (), notes)


# ---- parts --------------------------------------------------------------------------------------


def _about(machine: MeasuredMachine, procedure: Procedure) -> list[tuple[str, str]]:
    power = f", {machine.power_limit:.0f} W" if machine.power_limit else ""
    sms = f"{machine.multiprocessors} SMs up to {machine.clock:.0f} MHz{power}"
    software = (
        f"driver {machine.driver or 'unknown'}, CUDA {machine.cuda}, "
        f"cuBLAS {machine.cublas or 'absent'}, ptxlab {machine.packages['ptxlab']}"
    )
    bursts = f"{procedure.rounds} rounds of up to {procedure.burst} launches"
    turns = f"in turns with the library, {1e3 * procedure.batch:g} ms each"
    about = [
        ("GPU", f"{machine.gpu}, {machine.arch}, {sms}"),
        ("software", software),
        ("burst", f"{bursts}, each after {procedure.rest:g} s of rest"),
        ("sustained", f"{procedure.seconds:g} s or more {turns}"),
    ]
    if machine.sensors:
        about.append(("sensors", f"clock and power are not known: {machine.sensors}"))
    return about


def _table(results: Sequence[BenchResult], machine: MeasuredMachine) -> list[tuple[str, ...]]:
    cold = any(result.timed and result.timed.speed.cold for result in results)
    head = ["", "burst", "sustained", "p20 to p80", *(["cold"] if cold else []), "of library"]
    asked = any(result.predicted for result in results)
    head += ["predicted", "off by"] if asked else []
    rows = [(*head, "of limit", "MHz", "W", "FLOP/clk/SM", "published")]
    for result in results:
        if result.timed is None:
            continue
        speed, reading = result.timed.speed, result.timed.reading
        each = _each(result, machine)
        figure = result.rung.reference
        sustained = result.tflops(speed.sustained)
        rows.append(
            (
                result.rung.name,
                _speed(result.tflops(speed.burst)),
                _speed(sustained),
                _span(result, speed.sustained),
                *([_speed(result.tflops(speed.cold)) if speed.cold else ""] if cold else []),
                "" if result.timed.ratio is None else f"{100 * result.timed.ratio:.1f} %",
                *(_predicted(result) if asked else []),
                "" if result.limit is None else f"{100 * sustained / result.limit:.1f} %",
                "" if reading.clock is None else f"{reading.clock:.0f}",
                "" if reading.power is None else f"{reading.power:.0f}",
                "" if each is None else f"{each:.0f}",
                ""
                if figure is None or figure.of_peak is None
                else f"{100 * figure.of_peak:.1f} % ({figure.where})",
            )
        )
    return rows


def _predicted(result: BenchResult) -> tuple[str, str]:
    """Return what was predicted, and by how much what was measured is above."""
    predicted, error = result.predicted, result.error
    if predicted is None or predicted.tflops is None:
        return "", ""
    return _speed(predicted.tflops), "" if error is None else f"{100 * error:+.1f} %"


def _most(results: Sequence[BenchResult]) -> list[str]:
    limit = results[0].limit
    return [] if limit is None else [f"at most {_speed(limit)} TFLOP/s"]


def _names(results: Sequence[BenchResult]) -> list[str]:
    """Return what the libraries ran; the names of our kernels are no news."""
    return [
        f"{result.rung.name} ran {', '.join(result.timed.kernels)}"
        for result in results
        if result.timed and result.timed.kernels and not result.tile
    ]


def _unpredicted(results: Sequence[BenchResult]) -> list[str]:
    return [
        f"{result.rung.name} is not predicted: {result.predicted.reason}"
        for result in results
        if result.predicted and result.predicted.reason
    ]


def _wrong(results: Sequence[BenchResult]) -> list[str]:
    return [
        f"{result.rung.name} is WRONG, and has no speed: {wrong(result.verdict)}"
        for result in results
        if not result.verdict.passed
    ]


def predicted_as_json(rung: PredictedRung | None) -> dict[str, Any] | None:
    """Return what is predicted of a rung as JSON data: times are null where there is a ``reason``."""
    if rung is None:
        return None
    names = ("clock_mhz", "seconds", "low", "high", "bound", "bound_by")
    return {
        "gpu": rung.gpu.name,
        "tflops": rung.tflops,
        **members(rung.prediction, *names),
        "reason": rung.reason or None,
    }


def _result(result: BenchResult, machine: MeasuredMachine) -> dict[str, Any]:
    timed = result.timed
    speed = None if timed is None else timed.speed
    return {
        "algorithm": result.rung.name,
        **problem_as_json(result.problem),
        "tile": result.tile,
        **verdict_as_json(result.verdict),
        "seconds": speed and speed.sustained.median,
        "tflops": speed and result.tflops(speed.sustained),
        "limit_tflops": result.limit,
        "predicted": predicted_as_json(result.predicted),
        "prediction_error": result.error,
        **_times(result, speed),
        "clock_mhz": timed and timed.reading.clock,
        "power_w": timed and timed.reading.power,
        "flop_per_clk_sm": _each(result, machine),
        "kernels": [] if timed is None else list(timed.kernels),
        "library": timed and timed.library and timed.library.name,
        "beside": _times(result, timed.beside) if timed and timed.beside else None,
        "ratio": timed and timed.ratio,
    }


def _times(result: BenchResult, speed: Speed | None) -> dict[str, Any]:
    return {
        name: None if timing is None else {**asdict(timing), "tflops": result.tflops(timing)}
        for name in ("burst", "sustained", "cold")
        for timing in (getattr(speed, name, None),)
    }


def _each(result: BenchResult, machine: MeasuredMachine) -> float | None:
    """Return the FLOPs of an SM in a clock, None where the clock is not known."""
    if result.timed is None or not result.timed.reading.clock:
        return None
    per_second = result.problem.flops / result.timed.speed.sustained.median
    return per_second / (result.timed.reading.clock * 1e6 * machine.multiprocessors)


def _bar(result: BenchResult, most: float | None) -> Bar:
    assert result.timed is not None
    value = result.tflops(result.timed.speed.sustained)
    ratio = result.timed.ratio
    text = _speed(value)
    if result.timed.library and ratio is not None:
        text += f", {100 * ratio:.0f} % of {result.timed.library.name}"
    figure = result.rung.reference
    mark = figure.of_peak * most if figure and figure.of_peak and most else None
    return Bar(result.rung.name, (value,), text, mark)


def _by_problem(bench: Bench) -> list[tuple[Problem, list[BenchResult]]]:
    return [
        (problem, list(of_it)) for problem, of_it in groupby(bench.results, lambda r: r.problem)
    ]


def _span(result: BenchResult, timing: Timing) -> str:
    tflops = [result.problem.flops / seconds / 1e12 for seconds in (timing.p80, timing.p20)]
    return " to ".join(map(_speed, tflops))


def _speed(tflops: float) -> str:
    """Write TFLOP/s with three digits at least, and no exponent."""
    return f"{tflops:,.{max(0, 2 - math.floor(math.log10(tflops)))}f}" if tflops > 0 else "0"
