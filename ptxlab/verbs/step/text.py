"""A Recording in words and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab.isa.targets import WARP
from ptxlab.observe.recording import WORD_BITS, Recording
from ptxlab.syntax.names import called
from ptxlab.verbs.trace import text as trace_text
from ptxlab.view.json import members
from ptxlab.view.text import fields, hexadecimal

SCHEMA = "ptxlab.step/1"


def heading(found: Recording) -> str:
    timeline = found.timeline
    cta = ", ".join(map(str, timeline.ctas[found.rank]))
    return f"{called(timeline.kernel)}, CTA ({cta}), on the emulator ({timeline.target})"


def totals(found: Recording) -> list[tuple[str, str]]:
    """Return what there is to see, named, in words."""
    timeline, turns = found.timeline, found.turns
    matrix = [place for place, one in enumerate(found.operands) if one.fragments]
    products = np.isin(np.array(timeline.executed)[turns.step], matrix).sum()
    told = [
        ("steps", f"{len(timeline.executed):,}, {len(turns.step):,} of them by warps looked at"),
        ("warps", f"{len(found.warps)} of {-(-timeline.config.cta_threads // WARP)}"),
        ("registers", f"{len(found.registers):,}, changed {len(found.changes.step):,} times"),
    ]
    if products:
        have = "instruction has" if products == 1 else "instructions have"
        told.append(("matrices", f"{products:,} {have} fragments"))
    if len(found.accesses.step):
        told.append(
            ("shared", f"{found.shared_bytes:,} bytes, accessed {len(found.accesses.step):,} times")
        )
    return told


def text(found: Recording) -> str:
    notes = trace_text.notes(found.timeline)
    hint = "-o page.html writes a page to walk through; --json has what every step changed"
    return "\n".join([heading(found), *notes, "", *fields(totals(found)), "", hint]) + "\n"


def as_json(found: Recording) -> dict[str, Any]:
    """Return what each warp executed, and what became of registers and shared memory, step by step."""
    timeline = found.timeline
    turns = (found.turns.step, found.turns.warp, found.turns.lanes)
    return {
        "schema": SCHEMA,
        **trace_text.launched(timeline),
        "cta": list(timeline.ctas[found.rank]),
        "warps": list(found.warps),
        **members(timeline, "path", "cut", "fault", "unverified"),
        "instructions": [
            {
                **members(place, "line", "text"),
                "source": place.source and place.source._asdict(),
            }
            for place in timeline.places
        ],
        "registers": [
            {"name": one.name, "function": one.function, "type": one.declared, "holds": one.holds}
            for one in found.registers
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
            for step, warp, number, value in found.became()
        ],
        **members(found, "shared_bytes", "shared_base"),
        "shared": [
            {
                "step": step,
                "address": first * WORD_BITS // 8,
                "words": [_together([word]) for word in words.tolist()],
            }
            for step, first, words in found.stored()
        ],
    }


def _together(words: list[int]) -> str:
    """Return words of 32 bits, the low one first, as one number."""
    return hexadecimal(
        sum(word << WORD_BITS * at for at, word in enumerate(words)), WORD_BITS * len(words)
    )
