"""A prediction as text and as JSON: time, what bounds it, and what its lines wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ptxlab.prediction.lines import PredictedLine
from ptxlab.prediction.model import MODELLED, Prediction
from ptxlab.syntax.names import called
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, read_sources, source_text
from ptxlab.view.text import fields
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.predict/2"
_TOP = 10
_LEAST = 0.01


def sources_of(prediction: Prediction) -> Sources:
    """Read the files that its lines come from."""
    return read_sources({line.source.path for line in prediction.lines if line.source})


def text(prediction: Prediction, sources: Sources, width: int | None = None) -> str:
    fits = prediction.occupancy
    tail = f", and {prediction.tail:,} left over" if prediction.tail else ""
    rows = [
        (
            "kernel",
            f"{called(prediction.kernel)} on {prediction.gpu} ({prediction.arch}) at {prediction.clock_mhz:,} MHz",
        ),
        (
            "time",
            f"{_time(prediction.seconds)}, likely {_time(prediction.low)} to {_time(prediction.high)} "
            f"(the model is {MODELLED:.0%} off on average)",
        ),
        ("cycles", f"{prediction.cycles:,.0f}"),
        (
            "bound",
            f"{prediction.bound}: {prediction.bound_by} is used {prediction.used[prediction.bound_by]:.0%} of the time",
        ),
        ("used", _parts(prediction.used)),
        ("warps", _parts(prediction.stalls)),
        (
            "CTAs",
            f"{fits.ctas} on an SM, limited by {' and '.join(fits.limited_by)}; "
            f"all SMs full {prediction.generations:,} times{tail}",
        ),
        *_uneven(prediction),
        ("not in it", ", ".join(prediction.not_modelled)),
    ]
    return "\n".join([*fields(rows), "", *_lines(prediction.lines, sources, width)])


def _uneven(prediction: Prediction) -> list[tuple[str, str]]:
    uneven = prediction.uneven
    if uneven is None:
        return []
    told = f"CTAs issue {uneven.least:,} to {uneven.most:,} instructions, of {uneven.followed:,} that were followed"
    return [("uneven", f"{told}; SMs are full {uneven.busy:.0%} of the time")]


def _lines(lines: Sequence[PredictedLine], sources: Sources, width: int | None) -> list[str]:
    """Return the lines that most time is spent on: of the source where it is known, else of the PTX."""
    merged: dict[tuple[str, int], list[PredictedLine]] = defaultdict(list)
    for line in lines:
        key = (line.source.path, line.source.line) if line.source else ("", line.number)
        merged[key].append(line)
    ordered = sorted(merged.items(), key=lambda entry: -sum(part.share for part in entry[1]))
    rows = [("share", "mostly", "line", "")]
    for (path, number), parts in ordered[:_TOP]:
        share = sum(part.share for part in parts)
        if share < _LEAST:
            break
        stalls: dict[str, float] = defaultdict(float)
        for ptx_line in parts:
            for reason, part in ptx_line.stalls.items():
                stalls[reason] += part
        shown = source_text(sources, path, number) if path else parts[0].text
        rows.append(
            (f"{share:.0%}", max(stalls, key=lambda name: stalls[name]), str(number), shown)
        )
    return fitted(rows, width, cut=24)


def as_json(prediction: Prediction) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kernel": prediction.kernel,
        **members(prediction, "gpu", "arch", "clock_mhz"),
        "cycles": round(prediction.cycles),
        **members(prediction, "seconds", "low", "high"),
        "tflops": None,
        **members(prediction, "bound", "bound_by", "used", "stalls"),
        "lines": [
            {
                "line": line.number,
                "source": line.source and line.source._asdict(),
                **members(line, "sass", "share", "stalls"),
            }
            for line in prediction.lines
        ],
        "occupancy": asdict(prediction.occupancy),
        **members(prediction, "generations", "tail"),
        "uneven": prediction.uneven and asdict(prediction.uneven),
        **members(prediction, "not_modelled"),
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
