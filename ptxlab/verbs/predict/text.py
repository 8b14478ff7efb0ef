"""A prediction as text and as JSON: time, what bounds it, and what its lines wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ptxlab.machine.assembly import Assembly, PtxLine
from ptxlab.machine.decode import called as functions_of
from ptxlab.prediction.model import MODELLED, Prediction
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, source_text
from ptxlab.view.text import fields
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.predict/1"
_TOP = 10
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class PredictedLine:
    """A line of the program: ``share`` of the warps' time and why, by reason; its machine code."""

    number: int
    source: SourceLine | None
    text: str
    sass: tuple[str, ...]
    share: float
    stalls: Mapping[str, float]


def by_line(found: Prediction, assembly: Assembly, kernel: str) -> list[PredictedLine]:
    """Return the lines with machine code, those first that take most of the warps' time."""
    lines, first = [], 0
    for function in functions_of(assembly.functions, kernel):
        numbers = {one.address: n for n, one in enumerate(function.instructions, first)}
        first += len(numbers)
        lines += [_line(found, line, numbers) for line in assembly.lines(function.name)]
    return sorted((line for line in lines if line.sass), key=lambda line: -line.share)


def _line(found: Prediction, line: PtxLine, numbers: Mapping[int, int]) -> PredictedLine:
    stalls: dict[str, float] = defaultdict(float)
    for instruction in line.sass:
        for reason, share in found.by_instruction.get(numbers[instruction.address], {}).items():
            stalls[reason] += share
    text = tuple(instruction.text for instruction in line.sass)
    return PredictedLine(
        line.number, line.source, line.text, text, sum(stalls.values()), dict(stalls)
    )


def text(
    found: Prediction,
    kernel: str,
    lines: Sequence[PredictedLine],
    sources: Sources,
    width: int | None = None,
) -> str:
    fits = found.occupancy
    tail = f", and {found.tail:,} left over" if found.tail else ""
    rows = [
        ("kernel", f"{called(kernel)} on {found.gpu} ({found.arch}) at {found.clock_mhz:,} MHz"),
        (
            "time",
            f"{_time(found.seconds)}, likely {_time(found.low)} to {_time(found.high)} "
            f"(the model is {MODELLED:.0%} off on average)",
        ),
        ("cycles", f"{found.cycles:,.0f}"),
        (
            "bound",
            f"{found.bound}: {found.bound_by} is used {found.used[found.bound_by]:.0%} of the time",
        ),
        ("used", _parts(found.used)),
        ("warps", _parts(found.stalls)),
        (
            "CTAs",
            f"{fits.ctas} on an SM, limited by {' and '.join(fits.limited_by)}; "
            f"all SMs full {found.generations:,} times{tail}",
        ),
        ("not in it", ", ".join(found.not_modelled)),
    ]
    return "\n".join([*fields(rows), "", *_lines(lines, sources, width)])


def _lines(lines: Sequence[PredictedLine], sources: Sources, width: int | None) -> list[str]:
    """Return the lines that most time is spent on: of the source where it is known, else of the PTX."""
    merged: dict[tuple[str, int], list[PredictedLine]] = defaultdict(list)
    for line in lines:
        key = (line.source.path, line.source.line) if line.source else ("", line.number)
        merged[key].append(line)
    ordered = sorted(merged.items(), key=lambda entry: -sum(one.share for one in entry[1]))
    rows = [("share", "mostly", "line", "")]
    for (path, number), parts in ordered[:_TOP]:
        share = sum(one.share for one in parts)
        if share < _LEAST:
            break
        stalls: dict[str, float] = defaultdict(float)
        for one in parts:
            for reason, part in one.stalls.items():
                stalls[reason] += part
        shown = source_text(sources, path, number) if path else parts[0].text
        rows.append(
            (f"{share:.0%}", max(stalls, key=lambda name: stalls[name]), str(number), shown)
        )
    return fitted(rows, width, cut=24)


def as_json(found: Prediction, kernel: str, lines: Sequence[PredictedLine]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kernel": kernel,
        **members(found, "gpu", "arch", "clock_mhz"),
        "cycles": round(found.cycles),
        **members(found, "seconds", "low", "high"),
        "tflops": None,
        **members(found, "bound", "bound_by", "used", "stalls"),
        "lines": [
            {
                "line": line.number,
                "source": line.source and line.source._asdict(),
                **members(line, "sass", "share", "stalls"),
            }
            for line in lines
        ],
        "occupancy": asdict(found.occupancy),
        **members(found, "generations", "tail", "not_modelled"),
    }


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _parts(shares: Mapping[str, float]) -> str:
    """Return shares of the time, the largest first, without what is hardly anything."""
    ordered = sorted(shares.items(), key=lambda entry: -entry[1])
    return "  ".join(f"{name} {share:.0%}" for name, share in ordered if share >= _LEAST)
