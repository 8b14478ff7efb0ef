"""Tiles of one algorithm side by side, those that can be and those that cannot.

Schema ``ptxlab.bench.tiles/1``.
"""

from __future__ import annotations

from typing import Any

from ptxlab.gemm.tile_file import shape_class
from ptxlab.gemm.tiles import Candidate, RankedTiles
from ptxlab.verbs.bench import facts as facts_view
from ptxlab.view.gemm_parts import problem_as_json, title
from ptxlab.view.json import members
from ptxlab.view.width import stacked

SCHEMA = "ptxlab.bench.tiles/1"


def text(comparison: RankedTiles, kept: str, width: int | None = None) -> str:
    """Return the tiles, the best first, and why others are refused; ``kept`` is the file of the best."""
    able = [candidate for candidate in comparison.candidates if not candidate.refused]
    refused = [candidate for candidate in comparison.candidates if candidate.refused]
    where = f"on {comparison.device}, {comparison.arch}"
    lines = [f"tiles of {comparison.algorithm.name}, {title(comparison.problem)}, {where}", ""]
    if able:
        lines += [*stacked(_table(comparison, able), width), ""]
    if refused:
        lines.append("refused")
        lines += [f"  {_name(candidate, comparison)}: {candidate.refused}" for candidate in refused]
        lines.append("")
    if kept:
        lines.append(
            f"the first is kept for {shape_class(comparison.problem)} problems on this GPU, in {kept}"
        )
    else:
        lines.append(
            "nothing is timed here, and nothing is kept; the first moves the fewest sectors"
        )
    return "\n".join(lines) + "\n"


def as_json(comparison: RankedTiles, kept: str) -> dict[str, Any]:
    """Return the comparison as JSON data; ``kept`` is the file of the best, null if there is none."""
    return {
        "schema": SCHEMA,
        "algorithm": comparison.algorithm.name,
        **members(comparison, "device", "arch"),
        **problem_as_json(comparison.problem),
        "usual": comparison.own,
        "kept": kept or None,
        "tiles": [
            {
                "tile": candidate.tile,
                "refused": candidate.refused or None,
                "seconds": None if candidate.timing is None else candidate.timing.median,
                "tflops": None if candidate.timing is None else comparison.tflops(candidate),
                "facts": None if candidate.facts is None else facts_view.as_json(candidate.facts),
            }
            for candidate in comparison.candidates
        ],
    }


def _table(comparison: RankedTiles, able: list[Candidate]) -> list[tuple[str, ...]]:
    names = [_name(candidate, comparison) for candidate in able]
    if able[0].facts is None:
        rows: list[tuple[str, ...]] = [("", "TFLOP/s", "of the usual")]
        usual = next((candidate for candidate in able if candidate.tile == comparison.own), None)
        for name, candidate in zip(names, able, strict=True):
            tflops = comparison.tflops(candidate)
            share = f"{100 * tflops / comparison.tflops(usual):.1f} %" if usual else ""
            rows.append((name, f"{tflops:,.2f}", share))
        return rows
    counted = [candidate.facts for candidate in able if candidate.facts is not None]
    heads = facts_view.rows([])
    return [*heads, *((n, *facts_view.row(f)) for n, f in zip(names, counted, strict=True))]


def _name(candidate: Candidate, comparison: RankedTiles) -> str:
    own = comparison.own
    changed = [f"{name}={size}" for name, size in candidate.tile.items() if own.get(name) != size]
    return " ".join(changed) or "as usual: " + " ".join(f"{n}={s}" for n, s in own.items())
