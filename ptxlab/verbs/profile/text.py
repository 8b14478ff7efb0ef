"""A Profile as text and as JSON (schema ``ptxlab.profile/1``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, astuple
from itertools import pairwise
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import WARP
from ptxlab.observe.counters import IDEAL, SPACES, Counts, Space
from ptxlab.observe.profile import Profile, ProfiledLine
from ptxlab.observe.traffic import Conflict
from ptxlab.syntax.names import brief
from ptxlab.verbs.profile.lines import ShownLine, ptx_text, rows, table
from ptxlab.view.colour import Heat, plain
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, source_text
from ptxlab.view.text import fields

SCHEMA = "ptxlab.profile/1"
TOP = {False: 10, True: 20}
"""How many lines are shown, in short and in full."""
EIGHT = 8
"""How many rows a matrix of ldmatrix has, each of which a lane names."""
EVEN = 5
"""How many numbers at even steps are written as a range."""


def text(
    profile: Profile,
    sources: Sources,
    *,
    by: str,
    sort: str = "executed",
    top: int | None = None,
    heat: Heat = plain,
    width: int | None = None,
    full: bool = False,
) -> str:
    """Return the verdict, the lines that lead by ``sort``, and bank conflicts.

    In ``full`` it begins with the totals and the instruction mix. ``by`` is "ptx", "cuda" or "sass". ``top`` is how
    many lines are shown, 0 for all that were executed.
    ``heat`` colours what is executed often, and sectors and wavefronts that are wasted.
    """
    executed = [row for row in rows(profile, sources, by) if row.line.counts.executed]
    if sort != "line":
        executed.sort(key=lambda row: -getattr(row.line.counts, sort))
    top = TOP[full] if top is None else top
    shown = executed[:top] if top else executed
    shown = [*shown, *(row for row in _worst(executed).values() if row not in shown)]
    language = _language(profile, by)
    order = "from the top" if sort == "line" else f"by {sort}"
    head = f"lines of {language} {order}"
    if len(shown) < len(executed):
        head += f", {len(shown)} of {len(executed)}"
    executions = profile.totals.executed
    mix = [(kind, f"{n:>14,}  {_share(n, executions):>6}") for kind, n in profile.mix.items()]
    parts = [[heading(profile), *verdict(profile, executed), *unverified(profile.unverified)]]
    if full:
        parts += [
            fields(totals(profile)),
            ["instruction mix", *(f"  {line}" for line in fields(mix))],
        ]
    parts.append([head, *table(shown, heat, width)])
    conflicts = [(row, row.line.conflict) for row in shown if row.line.conflict is not None]
    if conflicts:
        told = [(row.where, tell(profile, conflict)) for row, conflict in conflicts]
        head = "bank conflicts, the worst of each line"
        parts.append([head, *fields(told), *_remedies(profile, conflicts)])
    if not full:
        parts.append(["totals and instruction mix: --full; other lines: --top 0, --sort sectors"])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _worst(rows: Sequence[ShownLine]) -> dict[str, ShownLine]:
    """Return for each space the line that moves most beyond need, of those that do."""
    worst = {}
    for units, ideal in IDEAL.items():
        beyond = {
            row.where: getattr(row.line.counts, units) - getattr(row.line.counts, ideal)
            for row in rows
        }
        first = max(rows, key=lambda row: beyond[row.where], default=None)
        if first is not None and beyond[first.where] > 0:
            worst[units] = first
    return worst


def _remedies(profile: Profile, conflicts: Sequence[tuple[ShownLine, Conflict]]) -> list[str]:
    """Return the commands that look for a swizzle or padding, for tiles whose lines lie as far apart as lanes ask."""
    by_tile: dict[str, dict[str, None]] = {}
    for row, conflict in conflicts:
        hit = (each.line for each in row.line.instructions if each.conflict == conflict)
        accesses = [access_of(ptx_text(profile, line)) for line in hit]
        name, bits = next(filter(None, accesses), ("ldmatrix,st128", 16))
        line, rest = divmod(8 * (conflict.step or 0), bits)
        known = line > 1 and not rest
        across = known and "matrix" not in name
        tile = f"{WARP if across else EIGHT}x{line}" if known else "64x64"
        accesses_of_tile = by_tile.setdefault(f"{tile} --bits {bits}", {})
        accesses_of_tile[f"{name}.across" if across else name] = None
    return [
        f"a swizzle or padding: ptxlab layout {tile} --banks {','.join(names)}"
        for tile, names in by_tile.items()
    ]


def access_of(text: str) -> tuple[str, int] | None:
    """Return what ``ptxlab layout --banks`` calls the access of a line of PTX, and the bits of an element."""
    if matrix := re.search(r"\b(ldmatrix|stmatrix)\b", text):
        return matrix[1] + (".trans" if ".trans" in text else ""), 16
    known = re.search(
        r"\b(ld|st)\.(?:\w+(?:::\w+)?\.)*?shared\S*?\.(?:v([248])\.)?[busf](\d+)\b", text
    )
    return known and (f"{known[1]}{int(known[2] or 1) * int(known[3])}", int(known[3]))


def verdict(profile: Profile, rows: Sequence[ShownLine]) -> list[str]:
    """Return what is moved beyond need and where most of it, the worst first, or that nothing is."""
    spaces = {space.units: f"{name} memory" for name, space in SPACES.items()}
    sentences = []
    for units, ideal in IDEAL.items():
        moved, needed = getattr(profile.totals, units), getattr(profile.totals, ideal)
        if moved > needed and rows:
            beyond = {
                row.where: getattr(row.line.counts, units) - getattr(row.line.counts, ideal)
                for row in rows
            }
            which = max(beyond, key=lambda row: beyond[row])
            told = f"{spaces.get(units, 'tensor cores')}: {_against(moved, needed, units.rpartition('_')[2])}"
            share = _share(beyond[which], moved - needed)
            sentences.append((moved / needed, f"{told}; {share} of the excess at {which}"))
    if not sentences:
        return ["no sector and no wavefront beyond the ideal"]
    return [told for _, told in sorted(sentences, reverse=True)]


def counted_by(profile: Profile, by: str | None, file: str) -> str:
    """Return whose lines are meant: what the user says, or the usual. Raises PtxlabError for those that there are not."""
    if by == "sass" and not profile.machine_code:
        raise PtxlabError("what was counted is no machine code", hint="say --engine sass")
    of_ptx = all(path.endswith(".ptx") for path in profile.sources)
    if by == "ptx" and profile.machine_code and not of_ptx:
        raise PtxlabError("machine code of CUDA C is counted by lines of it", hint="say --by cuda")
    if by == "cuda" and not profile.sources:
        raise PtxlabError(
            f"{file} does not say which lines of CUDA C it comes from",
            hint="compile it with -lineinfo, or leave out --by cuda",
        )
    return by or ("sass" if profile.machine_code else "cuda" if profile.sources else "ptx")


def _language(profile: Profile, by: str) -> str:
    """Return what the lines are of: compilers other than those of CUDA C have line info too."""
    if by == "cuda" and all(path.endswith(".py") for path in profile.sources):
        return "Python"
    return {"ptx": "PTX", "cuda": "CUDA C", "sass": "machine code"}[by]


def as_json(profile: Profile, sources: Sources) -> dict[str, Any]:
    """Return everything as JSON data; lines that no warp executed are there, with counters of 0.

    ``bytes_per_flop`` is null where nothing was computed, ``main_loop`` where there is none.
    """
    body = profile.main_loop
    return {
        "schema": SCHEMA,
        "kernel": profile.kernel,
        "device": "emulator",
        "arch": profile.target,
        **members(profile.config, "grid", "block", "shared"),
        "unverified": profile.unverified,
        "instructions": profile.totals.executed,
        "lines": [
            {
                "line": line.number,
                "text": ptx_text(profile, line.number),
                **_line_json(line),
                "source": source._asdict() if (source := line.instructions[0].source) else None,
            }
            for line in profile.lines
        ],
        "sources": [
            {
                "path": path,
                "line": line.number,
                "text": source_text(sources, path, line.number),
                **_line_json(line),
            }
            for path, lines in profile.sources.items()
            for line in lines
        ],
        "mix": profile.mix,
        "main_loop": {
            "first_line": body[0].line,
            "last_line": body[-1].line,
            **asdict(profile.main_loop_totals),
        }
        if body
        else None,
        "totals": {
            **asdict(profile.totals),
            **members(profile, "barriers", "ctas"),
            "launched_threads": profile.threads,
            "bytes_per_flop": profile.bytes_per_flop,
        },
    }


def heading(profile: Profile) -> str:
    return f"{brief(profile.kernel)}{profile.config.chevrons} counted on the emulator ({profile.target})"


def totals(profile: Profile) -> list[tuple[str, str]]:
    """Return what was counted in all, named, in words; nothing is said of what did not occur."""
    counts = profile.totals
    rows = [
        ("instructions", f"{counts.executed:,} by warps, {counts.threads:,} by threads"),
        (
            "lanes",
            f"{counts.lanes:.1f} of 32 on average, {_share(counts.threads_on, counts.threads)} of "
            "them predicated on",
        ),
    ]
    if counts.partial or counts.splits:
        rows.append(
            (
                "divergence",
                f"{counts.partial:,} executions by part of a warp, {counts.splits:,} warps split",
            )
        )
    for name, space in SPACES.items():
        if getattr(counts, space.requests):
            rows.append((f"{name} memory", _space(counts, space)))
    if counts.engine_copies:
        rows.append(
            (
                "copy engine",
                f"{counts.engine_copies:,} copies: {counts.engine_global:,} bytes of global memory, "
                f"{counts.engine_shared:,} of shared memory",
            )
        )
    if counts.tensor_shared:
        passes = _against(counts.tensor_wavefronts, counts.tensor_ideal, "wavefronts")
        rows.append(
            ("tensor cores", f"{counts.tensor_shared:,} bytes of shared memory read: {passes}")
        )
    if counts.tmem_moved:
        rows.append(
            (
                "Tensor Memory",
                f"{counts.tmem_loaded:,} bytes loaded and {counts.tmem_stored:,} stored by warps, "
                f"{counts.tmem_read:,} read and {counts.tmem_written:,} written by tensor cores",
            )
        )
    if counts.collisions:
        rows.append(
            ("atomics", f"{counts.collisions:,} at an address of a lane before in the warp")
        )
    if profile.barriers:
        each = profile.barriers / profile.ctas
        rows.append(("barriers", f"{profile.barriers:,}, {each:g} a CTA"))
    rows.append(
        ("arithmetic", f"{counts.flops:,} FLOPs, {counts.integer_ops:,} integer operations")
    )
    ratios = [(name, ratio) for name, ratio in (profile.bytes_per_flop or {}).items() if ratio]
    if ratios:
        words = ", ".join(f"{name.replace('_', ' ')} {ratio:.3g}" for name, ratio in ratios)
        rows.append(("bytes per FLOP", words))
    if body := profile.main_loop:
        inside = profile.main_loop_totals
        rows.append(
            (
                "main loop",
                f"lines {body[0].line} to {body[-1].line} of the PTX: "
                f"{_share(inside.executed, counts.executed)} of the instructions, "
                f"{_share(inside.flops, counts.flops)} of the FLOPs, "
                f"{inside.excess:,} sectors and wavefronts beyond the ideal",
            )
        )
    return rows


def tell(profile: Profile, conflict: Conflict) -> str:
    x, y, z = profile.config.grid
    cta = conflict.cta
    where = str(cta) if y == z == 1 else f"({cta % x}, {cta // x % y}, {cta // (x * y)})"
    return (
        f"{conflict.ways} ways in bank {conflict.bank}: lanes {_series(conflict.lanes)} at bytes "
        f"{_series(conflict.addresses)} (CTA {where}, warp {conflict.warp})"
    )


def _space(counts: Counts, space: Space) -> str:
    asked, actual, ideal, read, written = (getattr(counts, name) for name in astuple(space))
    what = space.units.rpartition("_")[2]
    return (
        f"{asked:,} requests of {read:,} bytes read and {written:,} written: "
        f"{_against(actual, ideal, what)}"
    )


def _against(actual: int, ideal: int, what: str) -> str:
    least = (
        "as few as can be" if actual == ideal else f"{actual / ideal:.3g} times the ideal {ideal:,}"
    )
    return f"{actual:,} {what}, {least}"


def _series(numbers: Sequence[int]) -> str:
    """Write numbers, more than a few at even steps by their ends."""
    step = numbers[1] - numbers[0]
    even = all(b - a == step for a, b in pairwise(numbers))
    if not even or len(numbers) < EVEN:
        return ", ".join(map(str, numbers))
    by = "" if step == 1 else f" in steps of {step}"
    return f"{numbers[0]} to {numbers[-1]}{by}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _line_json(line: ProfiledLine) -> dict[str, Any]:
    worst = line.conflict
    return {
        **asdict(line.counts),
        "lanes": line.counts.lanes,
        "function": line.instructions[0].function,
        "kinds": sorted({instruction.kind for instruction in line.instructions}),
        "conflict": None if worst is None else {**asdict(worst), "ways": worst.ways},
    }
