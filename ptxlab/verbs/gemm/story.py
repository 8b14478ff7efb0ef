"""The ladder's story as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from ptxlab.gemm.bounds import ARITHMETIC, ISSUE, L1
from ptxlab.gemm.explain import ExplainedRung, LadderExplanation
from ptxlab.gemm.measures import MeasuredChange, brief, percent
from ptxlab.isa.gpus import Gpu
from ptxlab.view.gemm_parts import sizes, unusual
from ptxlab.view.json import members
from ptxlab.view.text import Table, fields, on_github
from ptxlab.view.width import stacked

SCHEMA = "ptxlab.gemm.explain/2"

FFMA = "FFMA"
WIDTH = 100
"""Columns of text that a sentence is broken into."""

NOTES = (
    "Counts are exact: one launch of each kernel on the emulator, of the PTX. A sector is 32 bytes "
    "of global memory, a wavefront a pass over the banks of shared memory; ideal is what the same "
    "bytes need at least.",
    "Limits are no measurements and no forecast: they are what the counts allow if nothing ever "
    "waits and one part of the chip is never idle. ptxas may put loads together that are apart in "
    "the PTX.",
)

Column = tuple[str, Callable[[ExplainedRung], str]]

COLUMNS: dict[str, tuple[Column, ...]] = {
    "what threads do": (
        ("types", lambda step: step.facts.problem.types),
        ("CTAs", lambda step: f"{step.facts.ctas:,}"),
        ("threads", lambda step: str(step.facts.threads)),
        ("instr/thread", lambda step: brief(step.facts.instructions_per_thread)),
        ("FLOP/thread", lambda step: brief(step.facts.flops_per_thread)),
        ("results/thread", lambda step: brief(step.facts.results)),
        ("barriers/CTA", lambda step: brief(step.facts.barriers / step.facts.ctas)),
        ("result", lambda step: "right" if step.facts.verdict.passed else "WRONG"),
    ),
    "global memory": (
        ("requests", lambda step: f"{step.facts.requests:,}"),
        ("sectors", lambda step: f"{step.facts.sectors:,}"),
        ("ideal", lambda step: f"{step.facts.sectors_ideal:,}"),
        ("sectors/request", lambda step: brief(step.facts.sectors_of_a_request)),
        ("B/FLOP asked", lambda step: _if_any(step.facts.bytes_per_flop["global"])),
        ("B/FLOP in sectors", lambda step: _if_any(step.facts.bytes_per_flop["sectors"])),
    ),
    "shared memory": (
        ("requests", lambda step: f"{step.facts.counts.shared_requests:,}"),
        ("wavefronts", lambda step: f"{step.facts.shared_wavefronts:,}"),
        ("ideal", lambda step: f"{step.facts.shared_ideal:,}"),
        ("wavefronts/product", lambda step: _if_any(step.facts.wavefronts_of_a_product)),
        ("B/FLOP", lambda step: _if_any(step.facts.bytes_per_flop["shared"])),
    ),
    "machine code": (
        ("registers", lambda step: str(step.facts.resources.registers)),
        ("spilled", lambda step: _if_any(step.facts.spilled)),
        ("shared bytes", lambda step: _if_any(step.facts.resources.shared + step.facts.shared)),
        ("warps/SM", lambda step: str(step.facts.occupancy.warps)),
        ("allowed by", lambda step: " and ".join(step.facts.occupancy.limited_by)),
        ("main loop", lambda step: f"{percent(step.facts.share or 0)} {step.facts.opcode}"),
    ),
    "at most, in TFLOP/s, by": (
        ("arithmetic", lambda step: _tflops(step, ARITHMETIC)),
        ("issue", lambda step: _tflops(step, ISSUE)),
        ("L1 + shared", lambda step: _tflops(step, L1)),
        ("all", lambda step: brief(step.bounds.tflops)),
        ("of peak", lambda step: percent(step.bounds.most / step.bounds.peak)),
        ("FLOP/B global", lambda step: brief(step.bounds.intensity["global"])),
        ("FLOP/B L1", lambda step: brief(step.bounds.intensity["L1"])),
        ("from caches", lambda step: percent(step.bounds.from_caches)),
    ),
}
"""The columns of each table."""


def text(explanation: LadderExplanation, width: int | None = None) -> str:
    """Return all of it, within so many columns; the tables of a file (None) are as wide as they are."""
    lines = WIDTH if width is None else min(WIDTH, width - 2)
    parts = ["\n".join([heading(explanation), *fields(list(_chip(explanation)))])]
    for table in tables(explanation):
        parts.append("\n".join([table.caption, *_columns(table, width)]))
    for step in explanation.steps:
        parts.append("\n".join([_title(step), *_hanging(_story(step), lines)]))
    parts.append("\n".join(line for note in NOTES for line in wrap(note, lines)))
    return "\n\n".join(parts) + "\n"


def markdown(explanation: LadderExplanation) -> str:
    parts = [f"# {heading(explanation)}", _list(_chip(explanation))]
    parts += [f"### {table.caption}\n\n{on_github(table)}" for table in tables(explanation)]
    parts += [f"### {_title(step)}\n\n{_list(_story(step))}" for step in explanation.steps]
    return "\n\n".join((*parts, *NOTES)) + "\n"


def as_json(explanation: LadderExplanation) -> dict[str, Any]:
    """Return everything as JSON data.

    ``counts`` are the counters of the whole launch, ``copies`` the part of asynchronous copies in them.
    Of ``bounds``, ``limits`` are FLOP a clock and SM, and ``intensity`` is FLOP a byte. ``share`` is
    null where no loop of the machine code computes, and ``after`` for a rung that none comes before;
    ``factor`` is inf where nothing is left of what changed.
    """
    facts, gpu = explanation.steps[0].facts, explanation.gpu
    return {
        "schema": SCHEMA,
        "device": "emulator",
        "arch": facts.target,
        **members(facts.problem, "m", "n", "k", "layout", "epilogue"),
        "passed": explanation.passed,
        "gpu": {
            **members(gpu, "name", "sms"),
            "clock_mhz": gpu.clock,
            "bytes_per_clock_and_sm": dict(levels_of(gpu)),
            "mma_sync": gpu.mma_sync,
        },
        "rungs": [_step_json(step) for step in explanation.steps],
    }


def heading(explanation: LadderExplanation) -> str:
    facts = explanation.steps[0].facts
    which = f", {' and '.join(more)}" if (more := unusual(facts.problem)) else ""
    return f"the ladder at {sizes(facts.problem)}{which}, on {facts.target}"


def tables(explanation: LadderExplanation) -> Iterator[Table]:
    for caption, columns in COLUMNS.items():
        lines = tuple(
            (step.facts.algorithm.name, *(cell(step) for _, cell in columns))
            for step in explanation.steps
        )
        yield Table(caption, ("rung", *(head for head, _ in columns)), lines)


# ---- parts of the text --------------------------------------------------------------------------


def _chip(explanation: LadderExplanation) -> Iterator[tuple[str, str]]:
    """Yield what the GPU has, and how many FLOP a byte each of its levels asks for."""
    gpu = explanation.gpu
    yield "GPU", f"{gpu.name}, {gpu.sms} SMs at {gpu.clock} MHz; published peaks, not measured"
    for name, peak in peaks(explanation):
        levels = ", ".join(
            f"{level} {brief(peak / gpu.tflops(moved))}" for level, moved in levels_of(gpu)
        )
        part = (
            "" if name == FFMA or gpu.mma_sync == 1 else f" ({percent(gpu.mma_sync)} for mma.sync)"
        )
        yield name, f"{brief(peak)} TFLOP/s{part}; to reach it, FLOP a byte: {levels}"
    moved = ", ".join(f"{level} {brief(gpu.tflops(per))} TB/s" for level, per in levels_of(gpu))
    yield "memory", moved


def peaks(explanation: LadderExplanation) -> Iterator[tuple[str, float]]:
    peaks: dict[str, float] = {}
    for step in explanation.steps:
        peaks[unit(step)] = explanation.gpu.tflops(step.bounds.peak)
    yield from peaks.items()


def unit(step: ExplainedRung) -> str:
    """Return what a rung computes with: FFMA, or tensor cores for its types."""
    if step.facts.opcode == FFMA:
        return FFMA
    return f"tensor cores, {step.facts.problem.types}"


def levels_of(gpu: Gpu) -> Iterator[tuple[str, float]]:
    """Yield the levels of memory whose speed is known, and their bytes for a clock and SM."""
    yield gpu.memory, gpu.memory_bytes
    if gpu.l2_bytes is not None:
        yield "L2", gpu.l2_bytes
    yield L1, gpu.l1


def _title(step: ExplainedRung) -> str:
    after = f", after {step.after}" if step.after else ""
    return f"{step.facts.algorithm.name}{after}: {step.facts.algorithm.idea}"


def _story(step: ExplainedRung) -> list[tuple[str, str]]:
    told = step.story
    parts = [("before", told.before)]
    parts += [("better", change.text) for change in told.better]
    parts += [("worse", change.text) for change in told.worse]
    parts += [("limit", told.limit), ("caches", told.caches)]
    if reference := step.facts.algorithm.reference:
        parts.append(("published", str(reference)))
    return [(name, text) for name, text in parts if text]


def _hanging(pairs: list[tuple[str, str]], columns: int) -> list[str]:
    """Return names and texts, broken into lines of so many columns, below each other; a name is not repeated."""
    width = max(len(name) for name, _ in pairs)
    lines, last = [], ""
    for name, told in pairs:
        first, *rest = wrap(told, columns - width - 4)
        lines.append(f"  {'' if name == last else name:{width}}  {first}")
        lines += [f"  {'':{width}}    {line}" for line in rest]
        last = name
    return lines


def _columns(table: Table, width: int | None) -> list[str]:
    """Return a table with its first column on the left and the others on the right, below each other what is too wide."""
    rows = (table.head, *table.lines)
    edge = max(len(row[0]) for row in rows)
    rows = tuple((f"{row[0]:{edge}}", *row[1:]) for row in rows)
    return [f"  {line}".rstrip() for line in stacked(rows, width and width - 2)]


def _list(pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in pairs)


# ---- parts of the JSON --------------------------------------------------------------------------


def _step_json(step: ExplainedRung) -> dict[str, Any]:
    facts, under, told = step.facts, step.bounds, step.story
    return {
        "algorithm": facts.algorithm.name,
        "idea": facts.algorithm.idea,
        "after": step.after or None,
        **members(facts.problem, "dtype", "acc"),
        "tile": facts.tile,
        "passed": facts.verdict.passed,
        **members(facts, "ctas", "threads", "instructions_per_thread", "flops_per_thread"),
        **members(facts, "barriers", "products"),
        "counts": asdict(facts.counts),
        "copies": asdict(facts.copies),
        "bytes_per_flop": facts.bytes_per_flop,
        "resources": {**asdict(facts.resources), "dynamic_shared": facts.shared},
        "occupancy": {**asdict(facts.occupancy), "limited_by": list(facts.occupancy.limited_by)},
        **members(facts, "opcode", "share"),
        "bounds": members(under, "peak", "limits", "intensity", "by", "tflops", "from_caches"),
        "story": {
            "before": told.before or None,
            "better": [_change_json(change) for change in told.better],
            "worse": [_change_json(change) for change in told.worse],
            "limit": told.limit,
            "caches": told.caches or None,
            "text": " ".join(told.sentences),
        },
    }


def _change_json(change: MeasuredChange) -> dict[str, Any]:
    return {"measure": change.measure.name, **members(change, "before", "after", "factor", "text")}


# ---- cells --------------------------------------------------------------------------------------


def _if_any(value: float) -> str:
    return brief(value) if value else "-"


def _tflops(step: ExplainedRung, limit: str) -> str:
    flop = step.bounds.limits.get(limit)
    return "-" if flop is None else brief(step.bounds.gpu.tflops(flop))
