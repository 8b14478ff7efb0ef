"""A Recording in words and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.emulator.run.tensor_memory import COLUMNS
from ptxlab.isa.targets import WARP
from ptxlab.observe.recording import WORD_BITS, Recording
from ptxlab.syntax.names import brief
from ptxlab.verbs.trace import text as trace_text
from ptxlab.view.json import members
from ptxlab.view.text import counted, fields, hexadecimal

SCHEMA = "ptxlab.step/1"


def heading(recording: Recording) -> str:
    timeline = recording.timeline
    cta = ", ".join(map(str, timeline.ctas[recording.rank]))
    return f"{brief(timeline.kernel)}, CTA ({cta}), on the emulator ({timeline.target})"


def totals(recording: Recording) -> list[tuple[str, str]]:
    """Return what there is to see, named, in words."""
    timeline, turns = recording.timeline, recording.turns
    matrix = [number for number, operands in enumerate(recording.operands) if operands.fragments]
    products = np.isin(np.array(timeline.executed)[turns.step], matrix).sum()
    told = [
        ("steps", f"{len(timeline.executed):,}, {len(turns.step):,} of them by warps looked at"),
        ("warps", f"{len(recording.warps)} of {-(-timeline.config.cta_threads // WARP)}"),
        (
            "registers",
            f"{len(recording.registers):,}, changed {len(recording.changes.step):,} times",
        ),
    ]
    if products:
        have = "instruction has" if products == 1 else "instructions have"
        told.append(("matrices", f"{products:,} {have} fragments"))
    if len(recording.accesses.step):
        told.append(
            (
                "shared",
                f"{recording.shared_bytes:,} bytes, accessed {len(recording.accesses.step):,} times",
            )
        )
    if len(recording.cells.step):
        cells = int(recording.cells.count.sum())
        moments = len(np.unique(recording.cells.step))
        told.append(("Tensor Memory", f"{cells:,} cells changed, in {counted(moments, 'step')}"))
    return told


def text(recording: Recording) -> str:
    notes = trace_text.notes(recording.timeline)
    hint = "-o page.html writes a page to walk through; --json has what every step changed"
    return "\n".join([heading(recording), *notes, "", *fields(totals(recording)), "", hint]) + "\n"


def as_json(recording: Recording) -> dict[str, Any]:
    """Return what each warp executed, and what became of registers and shared memory, step by step."""
    timeline = recording.timeline
    turns = (recording.turns.step, recording.turns.warp, recording.turns.lanes)
    return {
        "schema": SCHEMA,
        **trace_text.launched(timeline),
        "cta": list(timeline.ctas[recording.rank]),
        "warps": list(recording.warps),
        **members(timeline, "path", "cut", "fault", "unverified"),
        "instructions": [
            {
                **members(site, "line", "text"),
                "source": site.source and site.source._asdict(),
            }
            for site in timeline.places
        ],
        "registers": [
            {
                "name": register.name,
                "function": register.function,
                "type": register.declared,
                "holds": register.holds,
            }
            for register in recording.registers
        ],
        "steps": [
            {
                "step": step,
                "warp": warp,
                "instruction": timeline.executed[step],
                "lanes": hexadecimal(lanes, WARP),
            }
            for step, warp, lanes in zip(*(column.tolist() for column in turns), strict=True)
        ],
        "changes": [
            {
                "step": step,
                "warp": warp,
                "register": number,
                "values": [_together(words) for words in value.tolist()],
            }
            for step, warp, number, value in recording.became()
        ],
        **members(recording, "shared_bytes", "shared_base"),
        "shared": [
            {
                "step": step,
                "address": first * WORD_BITS // 8,
                "words": [_together([word]) for word in words.tolist()],
            }
            for step, first, words in recording.stored()
        ],
        "tensor_memory": [
            {
                "step": step,
                "lane": first // COLUMNS,
                "column": first % COLUMNS,
                "words": [_together([word]) for word in words.tolist()],
            }
            for step, first, words in recording.filled()
        ],
    }


def _together(words: list[int]) -> str:
    """Return words of 32 bits, the low one first, as one number."""
    return hexadecimal(
        sum(word << WORD_BITS * at for at, word in enumerate(words)), WORD_BITS * len(words)
    )
