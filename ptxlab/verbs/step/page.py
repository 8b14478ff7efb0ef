"""A Recording as one HTML page to walk through; it needs no network.

The page holds what there is to know as JSON, and the columns of numbers as words, both deflated; its
scripts (``page_files/``) inflate them and draw the moment that is chosen.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import asdict, fields
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import WARP
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.descriptor import READERS
from ptxlab.observe.recording import (
    RecordedOperands,
    Recording,
    RegisterChanges,
    SharedAccesses,
    SharedChanges,
    Turns,
    Words32,
)
from ptxlab.syntax.names import called
from ptxlab.verbs.fragments.atlas_tables import Tables
from ptxlab.verbs.step.machine_code import machine_code
from ptxlab.verbs.step.text import heading, totals
from ptxlab.verbs.trace.text import notes
from ptxlab.view.json import members, write
from ptxlab.view.page import assembled, lane_schemes
from ptxlab.view.sources import Sources, read_sources

SCRIPTS = (
    "layouts.js", "copy.js", "framed.js", "unpack.js", "numbers.js", "moments.js", "code.js", "registers.js", "factors.js",
    "matrix.js", "shared.js", "tensor.js", "waiting.js", "events.js", "find.js",
)  # fmt: skip


def page(recording: Recording) -> str:
    folder = files("ptxlab.verbs.step") / "page_files"
    words = _words(recording)
    told = _facts(recording, read_sources(_files(recording))) | {
        "sass": machine_code(recording.timeline),
        "sizes": {name: len(column) for name, column in words.items()},
    }
    parts = {
        "colours": lane_schemes(),
        "title": escape(heading(recording)),
        "totals": "".join(
            f"<li><b>{escape(name)}</b> {escape(what)}</li>" for name, what in totals(recording)
        ),
        "notes": "".join(
            f'<p class="note">{escape(note)}</p>' for note in notes(recording.timeline)
        ),
        "data": _deflated(write(told).encode()),
        "words": _deflated(b"".join(_planes(column) for column in words.values())),
    }
    return assembled(folder, SCRIPTS, parts)


def _files(recording: Recording) -> set[str]:
    """Return the files that instructions come from, and the calls that they were inlined from."""
    lines = {site.source for site in recording.timeline.places if site.source}
    return {line.path for line in lines.union(*recording.calls)}


def _facts(recording: Recording, sources: Sources) -> dict[str, Any]:
    timeline, tables = recording.timeline, Tables()
    config = timeline.config
    named = _files(recording) & sources.keys()
    places = [
        {
            **members(site, "line", "text", "kind"),
            "sources": [site.source, *calls] if site.source else [],
            **_operands(operands, tables),
        }
        for site, operands, calls in zip(
            timeline.places, recording.operands, recording.calls, strict=True
        )
    ]
    flights = [asdict(flight) for flight in timeline.flights]
    for number, swizzle in recording.swizzles.items():
        flights[number]["swizzle"] = swizzle
    return {
        "kernel": called(timeline.kernel),
        "path": timeline.path,
        "warps": recording.warps,
        "ctaWarps": -(-config.cta_threads // WARP),
        "ctas": len(timeline.ctas),
        "rank": recording.rank,
        "threads": config.cta_threads,
        "together": timeline.together,
        "places": places,
        "records": {
            family: [
                members(field, "name", "low", "bits", "unit", "codes")
                for field in reader.record.fields
            ]
            for family, reader in READERS.items()
        },
        "descriptors": {
            register: family
            for operands in recording.operands
            for register, family in operands.descriptors.items()
        },
        "registers": [
            asdict(register) | {"words": register.words, "function": called(register.function)}
            for register in recording.registers
        ],
        "ptx": [line.expandtabs(4) for line in timeline.text],
        "sources": {path: [line.expandtabs(4) for line in sources[path]] for path in sorted(named)},
        "flights": flights,
        **{
            name: [asdict(entry) for entry in getattr(timeline, name)]
            for name in ("barriers", "waits", "mbarriers", "allocations")
        },
        "loads": _loads(recording),
        **_factors(recording),
        "sharedBytes": recording.shared_bytes,
        "sharedBase": recording.shared_base,
        "variables": {called(name): start for name, start in recording.variables.items()},
        **tables.as_json(),
    }


def _loads(recording: Recording) -> list[dict[str, Any]]:
    """Return the cells that warps read of the CTA's Tensor Memory, step by step."""
    several = f" of rank {recording.rank}" if len(recording.timeline.ctas) > 1 else ""
    return [
        {"step": access.step, "lanes": (low[0], high[0] + 1), "columns": (low[1], high[1] + 1)}
        for access in recording.timeline.accesses
        if (access.verb, access.memory) == ("read", f"Tensor Memory{several}")
        for low, high in [(divmod(access.low, 1 << 16), divmod(access.high - 1, 1 << 16))]
    ]


def _factors(recording: Recording) -> dict[str, Any]:
    """Return what products read of shared memory: where it begins, and by number how it goes on from there."""
    patterns: dict[tuple[int, ...], int] = {}
    told = []
    for flight, factors in recording.factors.items():
        for factor in factors:
            start = int(factor.units.min())
            pattern = tuple(((factor.units - start) // UNIT_BYTES).ravel().tolist())
            told.append(
                {
                    "flight": flight,
                    "name": factor.operand.operand,
                    **members(factor.operand, "rows", "cols", "bits", "dtype"),
                    **members(factor, "warp", "swizzle"),
                    "byRow": factor.by_row,
                    "start": start,
                    "pattern": patterns.setdefault(pattern, len(patterns)),
                }
            )
    return {"factors": told, "patterns": list(patterns)}


def _operands(operands: RecordedOperands, tables: Tables) -> dict[str, Any]:
    return {
        **members(operands, "reads", "writes"),
        "fragments": [
            {
                "name": fragment.layout.operand,
                "dtype": fragment.layout.dtype,
                "layout": tables.layout(fragment.layout),
                **members(fragment, "registers", "result"),
            }
            for fragment in operands.fragments
        ],
    }


def _words(recording: Recording) -> dict[str, Words32]:
    """Return all columns of numbers by name; what an instruction is not, is the largest number."""
    timeline = recording.timeline
    tables: dict[str, Turns | RegisterChanges | SharedChanges | SharedAccesses] = {
        "turn": recording.turns,
        "change": recording.changes,
        "shared": recording.shared,
        "cells": recording.cells,
        "access": recording.accesses,
    }
    return {
        "executed": np.array(timeline.executed, np.int32).view(np.uint32),
        "who": np.array(timeline.who, np.uint32),
        **{
            f"{table}.{name}": getattr(columns, name)
            for table, columns in tables.items()
            for name in (column.name for column in fields(columns))
        },
    }


def _planes(words: Words32) -> bytes:
    """Return the lowest bytes of all words, then the next ones: equal bytes side by side deflate best."""
    planes: Array = words.astype("<u4").view(np.uint8).reshape(-1, 4).T
    return planes.tobytes()


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()
