"""A prediction as text and as JSON: time, what bounds it, and what its lines wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ptxlab.prediction.lines import PredictedLine
from ptxlab.prediction.model import MODELLED, Prediction
from ptxlab.prediction.resident import Sampled
from ptxlab.syntax.names import brief
from ptxlab.view.csv import as_csv
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, at_line, read_sources, source_text
from ptxlab.view.text import counted, fields
from ptxlab.view.width import fitted

SCHEMA = "ptxlab.predict/2"
SEVERAL = "ptxlab.predictions/1"
COMPARED = "ptxlab.predicted_programs/1"
_TOP = 10
_LEAST = 0.01
_CHANGED = 0.005
"""What changes less of the time changes hardly anything."""


def text(predictions: Sequence[Prediction], width: int | None = None) -> str:
    """Return one prediction at length, or several GPUs side by side."""
    sources = read_sources(
        {line.source.path for each in predictions for line in each.lines if line.source}
    )
    several = len(predictions) > 1
    told = (
        [*_compared(predictions, width), "", *_used(predictions)]
        if several
        else _alone(*predictions)
    )
    changed = [row for each in predictions for row in _what_if(each, several)]
    return "\n".join([*told, "", *changed, *_lines(predictions, sources, width)])


def _what_if(prediction: Prediction, several: bool) -> list[str]:
    """Return what changes would give, those first that save most time."""
    if not prediction.what_if:
        return []
    rows, hardly = [], []
    for each in prediction.what_if:
        if abs(each.seconds / prediction.seconds - 1) < _CHANGED:
            hardly.append(each.change)
        else:
            faster = f"{prediction.seconds / each.seconds:.2f}x"
            rows.append((each.change, _time(each.seconds), faster, each.bound_by))
    where = f" on {prediction.gpu}" if several else ""
    return [
        *(fitted([(f"what if{where}", "time", "faster", "bound by"), *rows], None) if rows else []),
        *([f"hardly anything{where}: {', '.join(hardly)}"] if hardly else []),
        "",
    ]


def _alone(prediction: Prediction) -> list[str]:
    fits = prediction.occupancy
    tail = f", and {prediction.tail:,} left over" if prediction.tail else ""
    rows = [
        (
            "kernel",
            f"{brief(prediction.kernel)} on {prediction.gpu} ({prediction.arch}) at {prediction.clock_mhz:,} MHz"
            + (", L2 cold" if prediction.cold else ""),
        ),
        (
            "time",
            f"{_time(prediction.seconds)}, likely {_time(prediction.low)} to {_time(prediction.high)} "
            f"(the model is {MODELLED:.0%} off on average)",
        ),
        ("cycles", f"{prediction.cycles:,.0f}"),
        ("rate", ", ".join(_rates(prediction))),
        (
            "bound",
            f"{prediction.bound}: {prediction.bound_by} is used {prediction.used[prediction.bound_by]:.0%} of the time",
        ),
        ("used", _parts(prediction.used) or f"nothing for {_LEAST:.0%} of the time"),
        ("warps", _parts(prediction.stalls)),
        (
            "CTAs",
            f"{fits.ctas} on an SM, limited by {' and '.join(fits.limited_by)}; "
            f"all SMs full {prediction.generations:,} times{tail}",
        ),
        *_uneven(prediction),
        ("sampled", _sampled(prediction.sampled)),
        ("not in it", ", ".join(prediction.not_modelled)),
    ]
    return fields(rows)


def _rates(prediction: Prediction) -> Iterator[str]:
    """Yield what is computed and moved in a second, of how much, and what the caches have."""
    if prediction.tflops:
        of = prediction.peak_tflops
        part = f" ({prediction.tflops / of:.0%} of {of:.3g})" if of else ""
        yield f"{prediction.tflops:.3g} TFLOP/s{part}"
    moved, most = _bandwidth(prediction), prediction.peak_bandwidth
    yield f"DRAM {moved:.3g} GB/s ({moved / most:.0%} of {most:,.0f})"
    yield from (f"{cache} hits {part:.0%}" for cache, part in prediction.hits.items())


def _bandwidth(prediction: Prediction) -> float:
    return prediction.dram_bytes / prediction.seconds / 1e9


def _compared(predictions: Sequence[Prediction], width: int | None) -> list[str]:
    """Return a row a GPU; the bounds, and what is used for most of the time, stand behind the time."""
    rows = [("GPU", "time", "likely", "bound", "used", "warps", "MHz", "cycles", "CTAs")]
    for each in predictions:
        stalls = each.stalls.items()
        rows.append(
            (
                each.gpu,
                _time(each.seconds),
                f"{_time(each.low)} to {_time(each.high)}",
                each.bound,
                f"{each.bound_by} {each.used[each.bound_by]:.0%}",
                "{} {:.0%}".format(*max(stalls, key=lambda entry: entry[1])) if stalls else "",
                f"{each.clock_mhz:,}",
                f"{each.cycles:,.0f}",
                f"{each.occupancy.ctas} an SM",
            )
        )
    missing = dict.fromkeys(part for each in predictions for part in each.not_modelled)
    return [
        brief(predictions[0].kernel),
        *fitted(rows, width, ("MHz", "CTAs", "cycles", "used", "likely", "warps")),
        f"the model is {MODELLED:.0%} off on average; not in it: {', '.join(missing)}",
    ]


def _used(predictions: Sequence[Prediction]) -> list[str]:
    """Return which part of the time each pipe is used on each GPU: how near it comes to its speed of light."""
    pipes = {
        pipe: [each.used.get(pipe, 0) for each in predictions]
        for each in predictions
        for pipe in each.used
    }
    ordered = sorted(pipes.items(), key=lambda entry: -max(entry[1]))
    shown = [
        (*(f"{share:.0%}" for share in shares), pipe)
        for pipe, shares in ordered
        if max(shares) >= _LEAST
    ]
    return fitted([(*(each.gpu for each in predictions), "of the time used"), *shown], None)


def _uneven(prediction: Prediction) -> list[tuple[str, str]]:
    uneven = prediction.uneven
    if uneven is None:
        return []
    told = f"CTAs issue {uneven.least:,} to {uneven.most:,} instructions, of {uneven.followed:,} that were followed"
    return [("uneven", f"{told}; SMs are full {uneven.busy:.0%} of the time")]


def _sampled(sampled: Sampled) -> str:
    part = sampled.ran / max(sampled.issued, 1)
    return (
        f"of {sampled.ctas:,} CTAs {sampled.followed:,} were followed and {sampled.run:,} run clock by clock, "
        f"{part:.0%} of the {sampled.issued:,} instructions that their warps issue"
    )


def _lines(predictions: Sequence[Prediction], sources: Sources, width: int | None) -> list[str]:
    """Return the lines that most time is spent on: of the source where it is known, else of the PTX, or instructions without any."""
    merged: dict[tuple[str, int], list[list[PredictedLine]]] = {}
    for number, prediction in enumerate(predictions):
        for line in prediction.lines:
            key = (line.source.path, line.source.line) if line.source else ("", line.number)
            merged.setdefault(key, [[] for _ in predictions])[number].append(line)
    shares = {key: [_share(parts) for parts in each] for key, each in merged.items()}
    ordered = sorted(shares, key=lambda key: -max(shares[key]))[:_TOP]
    alone = len(predictions) == 1
    gpus = [each.gpu for each in predictions]
    while len(gpus) > 1 and width is not None and len("  ".join(gpus)) > width // 2:
        gpus.pop()
    more = len(predictions) - len(gpus)
    heads = ["share", "mostly"] if alone else gpus
    bare = any(line.is_instruction for each in predictions for line in each.lines)
    what, form = ("instruction", "#06x") if bare else ("line", "d")
    rows = [[*heads, what, ""]]
    named = any(path for path, _ in merged)
    for key in ordered:
        path, line_number = key
        parts = [line for each in merged[key] for line in each]
        if max(shares[key]) < _LEAST:
            break
        rows.append(
            [
                *(f"{share:.0%}" for share in shares[key][: len(gpus)]),
                *([_mostly(parts)] if alone else []),
                at_line(path or "PTX", line_number) if named else format(line_number, form),
                source_text(sources, path, line_number) if path else parts[0].text,
            ]
        )
    told = [f"the lines of {counted(more, 'more GPU')}: --json"] if more else []
    return [*fitted(rows, width, cut=24), *told]


def _share(parts: Sequence[PredictedLine]) -> float:
    return sum(part.share for part in parts)


def _mostly(parts: Sequence[PredictedLine]) -> str:
    stalls: dict[str, float] = defaultdict(float)
    for line in parts:
        for reason, part in line.stalls.items():
            stalls[reason] += part
    return max(stalls, key=lambda name: stalls[name])


def as_json(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Return one prediction as plain data, or several in the order in which they were asked for."""
    if len(predictions) > 1:
        return {"schema": SEVERAL, "predictions": [_as_json(each) for each in predictions]}
    return _as_json(predictions[0])


def _as_json(prediction: Prediction) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kernel": prediction.kernel,
        **members(prediction, "gpu", "arch", "clock_mhz", "cold"),
        "cycles": round(prediction.cycles),
        **members(prediction, "seconds", "low", "high", "tflops", "peak_tflops"),
        "bandwidth": _bandwidth(prediction),
        **members(prediction, "peak_bandwidth", "dram_bytes", "hits"),
        **members(prediction, "bound", "bound_by", "used", "stalls"),
        "lines": [
            {
                "line": line.number,
                "source": line.source and line.source._asdict(),
                "calls": [call._asdict() for call in line.calls],
                **members(line, "sass", "share", "stalls"),
            }
            for line in prediction.lines
        ],
        "occupancy": asdict(prediction.occupancy),
        **members(prediction, "generations", "tail"),
        "uneven": prediction.uneven and asdict(prediction.uneven),
        "sampled": asdict(prediction.sampled),
        **members(prediction, "not_modelled"),
        "what_if": [asdict(each) for each in prediction.what_if],
    }


def csv(data: Mapping[str, Any]) -> str:
    """Return predictions that are plain data as CSV, a line each, without what is said of lines."""
    return as_csv(data.get("predictions", [data]), without=("lines", "what_if", "schema"))


def compared_text(pairs: Sequence[tuple[str, Prediction]], width: int | None) -> str:
    """Return programs side by side, by name: the first is what the others are compared with, GPU by GPU."""
    rows = [("GPU", "program", "time", "faster", "bound", "used", "warps", "CTAs")]
    first = {each.gpu: each.seconds for _, each in reversed(pairs)}
    for name, each in sorted(pairs, key=lambda pair: list(first).index(pair[1].gpu)):
        stalls = each.stalls.items()
        rows.append(
            (
                each.gpu,
                name,
                _time(each.seconds),
                f"{first[each.gpu] / each.seconds:.2f}x",
                each.bound,
                f"{each.bound_by} {each.used[each.bound_by]:.0%}",
                "{} {:.0%}".format(*max(stalls, key=lambda entry: entry[1])) if stalls else "",
                f"{each.occupancy.ctas} an SM",
            )
        )
    return "\n".join(
        [
            *fitted(rows, width, ("CTAs", "used", "warps")),
            f"the model is {MODELLED:.0%} off on average",
        ]
    )


def compared_json(pairs: Sequence[tuple[str, Prediction]]) -> dict[str, Any]:
    """Return programs side by side as plain data, in the order in which they were asked for."""
    return {
        "schema": COMPARED,
        "predictions": [{"file": name, **_as_json(each)} for name, each in pairs],
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
