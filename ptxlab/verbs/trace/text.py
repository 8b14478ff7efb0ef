"""A Timeline in words and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ptxlab.isa.targets import WARP
from ptxlab.observe.timeline import Flight, Timeline, Wait
from ptxlab.prediction.sm.issues import PredictedIssues
from ptxlab.syntax.names import brief
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, read_sources, source_text
from ptxlab.view.text import counted, fields

SCHEMA = "ptxlab.trace/1"
LONGEST = 5
"""How many of the places where warps wait longest are told."""


def sources_of(timeline: Timeline) -> Sources:
    """Read the files that its instructions come from."""
    return read_sources({site.source.path for site in timeline.places if site.source})


def as_json(
    timeline: Timeline, sources: Sources, predicted: PredictedIssues | None = None
) -> dict[str, Any]:
    config = timeline.config
    places = [
        {
            **asdict(site),
            "source": site.source
            and {
                **members(site.source, "path", "line"),
                "text": source_text(sources, site.source.path, site.source.line),
            },
        }
        for site in timeline.places
    ]
    return {
        "schema": SCHEMA,
        **launched(timeline),
        "cluster": config.cluster and list(config.cluster),
        "ctas": [list(cta) for cta in timeline.ctas],
        "warps": -(-config.cta_threads // WARP),
        **members(timeline, "path", "cut", "fault", "unverified"),
        "instructions": places,
        **members(timeline, "executed", "who", "together"),
        **{
            name: [asdict(entry) for entry in getattr(timeline, name)]
            for name in (
                "accesses",
                "flights",
                "tiles",
                "columns",
                "allocations",
                "barriers",
                "waits",
                "mbarriers",
            )
        },
        "predicted": predicted and _predicted(predicted),
    }


def _predicted(predicted: PredictedIssues) -> dict[str, Any]:
    """Return as JSON what warps would issue: columns of numbers, an entry an instruction that is issued."""
    reasons = [*dict.fromkeys(issue.reason for issue in predicted.issues)]
    return {
        **members(predicted, "gpu", "arch", "clock_mhz", "together", "left_out"),
        "code": [
            {**members(instruction, "address", "text", "line")} for instruction in predicted.code
        ],
        "reasons": reasons,
        "issues": {
            "warp": [issue.warp for issue in predicted.issues],
            "number": [issue.number for issue in predicted.issues],
            "cycle": [issue.cycle for issue in predicted.issues],
            "waited": [issue.waited for issue in predicted.issues],
            "reason": [reasons.index(issue.reason) for issue in predicted.issues],
        },
    }


def launched(timeline: Timeline) -> dict[str, Any]:
    """Return as JSON what was launched, and where."""
    return {
        "kernel": timeline.kernel,
        "device": "emulator",
        "arch": timeline.target,
        "schedule": timeline.schedule,
        **members(timeline.config, "grid", "block"),
    }


def heading(timeline: Timeline) -> str:
    first, last = (_index(timeline.ctas[at]) for at in (0, -1))
    ctas = f"CTA {first}" if len(timeline.ctas) == 1 else f"the cluster of CTA {first} to {last}"
    return f"{brief(timeline.kernel)}, {ctas}, on the emulator ({timeline.target})"


def notes(timeline: Timeline) -> list[str]:
    """Return what there is to know before the events are believed."""
    sentences = []
    if timeline.fault is not None:
        sentences.append(f"the launch stopped: {timeline.fault}")
    if timeline.cut:
        sentences.append(
            f"these are the first {len(timeline.executed):,} steps, and there are more: --steps N "
            "keeps the first N"
        )
    return [*sentences, *unverified(timeline.unverified)]


def totals(timeline: Timeline) -> list[tuple[str, str]]:
    """Return what there was of each, named, in words; nothing is said of what there was none of."""
    warps = len(timeline.ctas) * -(-timeline.config.cta_threads // WARP)
    rows = [("steps", f"{len(timeline.executed):,}, by {counted(warps, 'warp', form=',')}")]
    copies = _copies(timeline)
    if copies:
        nbytes = sum(flight.nbytes for flight in copies)
        rows.append(("copies", f"{len(copies):,} of {nbytes:,} bytes, {_aloft(timeline)}"))
    for tile in timeline.tiles:
        span, times = tile.span, counted(len(tile.fills), "time", form=",")
        done = "filled" if timeline.flights[tile.fills[0].flights[0]].writes else "copied out"
        told = f"{span.end - span.start:,} bytes, {done} {times}"
        rows.append((f"  {tile.name}{_of(timeline, span.cta)}", told))
    rows += _of_tensor_cores(timeline)
    for mbarrier in timeline.mbarriers:
        name = f"mbarrier {mbarrier.name}{_of(timeline, mbarrier.cta)}"
        rows.append((name, f"{counted(mbarrier.states[-1].phase, 'phase', form=',')} complete"))
    if timeline.barriers:
        rows.append(
            ("barriers", f"{sum(barrier.complete is not None for barrier in timeline.barriers):,}")
        )
    return rows


_NO_COPIES = ("products", "tensor_work", "tensor_stores")


def _copies(timeline: Timeline) -> list[Flight]:
    """Return the copies between global and shared memory."""
    return [
        flight
        for flight in timeline.flights
        if flight.queue not in _NO_COPIES and flight.work != "commit"
    ]


def _of_tensor_cores(timeline: Timeline) -> Iterator[tuple[str, str]]:
    """Yield what tensor cores did, and what there was of Tensor Memory."""
    counts = Counter((flight.queue, flight.work, flight.shape) for flight in timeline.flights)
    if warpgroups := counts["products", "product", ""]:
        yield "products", f"{warpgroups:,} of warpgroups"
    for (queue, work, shape), count in counts.items():
        if queue in ("tensor_work", "tensor_stores"):
            where = (
                f", {shape}"
                if shape
                else " in Tensor Memory"
                if work == "shift"
                else " to Tensor Memory"
            )
            yield _PLURALS[work], f"{count:,}{where}"
    if commits := sum(count for (_, work, _), count in counts.items() if work == "commit"):
        yield "commits", f"{commits:,}"
    for allocation in timeline.allocations:
        name = f"Tensor Memory{_of(timeline, allocation.cta)}"
        yield name, f"columns {allocation.start} to {allocation.end - 1} allocated"
    for filled in timeline.columns:
        span, times = filled.span, counted(len(filled.fills), "time", form=",")
        name = f"  columns {span.start} to {span.end - 1}{_of(timeline, span.cta)}"
        yield name, f"lanes {span.lanes[0]} to {span.lanes[1] - 1}, filled {times}"


_PLURALS = {"product": "products", "copy": "copies", "shift": "shifts", "store": "stores"}


def text(timeline: Timeline, predicted: PredictedIssues | None = None) -> str:
    parts = [[heading(timeline), *notes(timeline)], fields(totals(timeline))]
    if predicted is not None:
        parts.append(fields([("predicted", in_words(predicted))]))
    if timeline.waits:
        parts.append(["longest waits, in steps of others", *fields(list(_longest(timeline)))])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def in_words(predicted: PredictedIssues) -> str:
    """Say what was predicted of when instructions are issued."""
    ends = max((issue.cycle for issue in predicted.issues), default=0) + 1
    left = f", {predicted.left_out:,} more are left out" * bool(predicted.left_out)
    return (
        f"{counted(len(predicted.issues), 'instruction', form=',')} of CTA 0 issued in {ends:,} cycles of "
        f"{predicted.gpu} at {predicted.clock_mhz:,} MHz, with {counted(predicted.together, 'CTA')} on its SM{left}"
    )


def _aloft(timeline: Timeline) -> str:
    """Return the most bytes that were on their way at a moment."""
    changes: Counter[int] = Counter()
    for flight in _copies(timeline):
        changes[flight.step] += flight.nbytes
        if flight.landed is not None:
            changes[flight.landed] -= flight.nbytes
    most = now = 0
    for moment in sorted(changes):
        now += changes[moment]
        most = max(most, now)
    return f"at most {most:,} on their way at once"


def _longest(timeline: Timeline) -> Iterator[tuple[str, str]]:
    """Yield the places where warps waited longest, the longest first."""
    lines: Counter[int] = Counter()
    for wait in timeline.waits:
        lines[_line(timeline, wait)] += (wait.until - wait.since) * len(wait.warps)
    for line, steps in lines.most_common(LONGEST):
        yield f"line {line}", f"{steps:,}  {timeline.text[line - 1].strip()}"


def _line(timeline: Timeline, wait: Wait) -> int:
    return timeline.places[timeline.executed[wait.step]].line


def _of(timeline: Timeline, cta: int) -> str:
    return f" of rank {cta}" if len(timeline.ctas) > 1 else ""


def _index(cta: tuple[int, int, int]) -> str:
    x, y, z = cta
    return f"({x}, {y}, {z})" if y or z else str(x)
