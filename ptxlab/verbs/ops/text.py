"""The list of matrix instructions as text and as JSON (schema ``ptxlab.ops/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ptxlab.isa.targets import Target
from ptxlab.matrix.catalog import families
from ptxlab.matrix.form import WHERE_A_LIES, Form, in_steps
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.view.text import counted

SCHEMA = "ptxlab.ops/1"


def text(
    instructions: Sequence[Form],
    emulated: AbstractSet[str],
    hardware: Mapping[str, str],
    targets: Sequence[Target] = (),
    width: int | None = None,
    asked: str | None = None,
) -> str:
    """Return the instructions of ``targets`` by family, with how many there are and what each needs.

    What differs in n or in where A lies alone shares a line. Where a terminal of ``width`` is too narrow, what it
    needs stands below an instruction, and a name goes on below after a dot. Families whose names begin as that ``asked``
    for are named.
    """
    if not instructions:
        return "no matrix instruction fits\n"
    blocks = []
    for family in families():
        group = [form for form in instructions if form.family == family]
        if group:
            rows = _rows(
                [
                    (label, _needs(e, emulated, hardware, targets) + more)
                    for label, (e, more) in _folded(group).items()
                ],
                width,
            )
            blocks.append("\n".join([f"{family}  {counted(len(group), 'instruction')}", *rows]))
    runs = sum(form.name in emulated for form in instructions)
    proven = sum(form.key in hardware for form in instructions)
    total = f"{counted(len(instructions), 'instruction')}, {runs} run on the emulator, {proven} proven on hardware by a receipt"
    more = [family for family in families() if asked and family.startswith(f"{asked}.")]
    also = f"; also {', '.join(more)}: --family '{asked}*'" if more else ""
    return "\n\n".join([*blocks, total + also]) + "\n"


def _rows(named: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    widest = max(len(label) for label, _ in named)
    if width is None or 4 + widest + max(len(needs) for _, needs in named) <= width:
        return [f"  {label:{widest}}  {needs}" for label, needs in named]
    rows = []
    for label, needs in named:
        rows += [*_cut(f"  {label}", width), f"      {needs}"]
    return rows


def _cut(line: str, width: int) -> list[str]:
    """Return a line within ``width``, cut before dots."""
    if len(line) <= width or (at := line.rfind(".", 0, width + 1)) < width // 2:
        return [line]
    return [line[:at], *_cut(f"    {line[at:]}", width)]


def as_json(
    instructions: Sequence[Form],
    emulated: AbstractSet[str],
    hardware: Mapping[str, str],
    targets: Sequence[Target] = (),
) -> dict[str, Any]:
    """Return the instructions as JSON data; ``targets`` are the least ones, one a family of chips."""
    return {
        "schema": SCHEMA,
        "instructions": [
            {
                "instruction": form.name,
                "variant": form.variant or None,
                "family": form.family,
                "targets": list(form.minimum_targets),
                "runs_on": list(form.targets),
                "min_ptx": form.version,
                "emulated": form.name in emulated,
                "fidelity": form.fidelity_on(*targets) if form.name in emulated else None,
                "hardware": hardware.get(form.key),
            }
            for form in instructions
        ],
    }


def _folded(instructions: Sequence[Form]) -> dict[str, tuple[Form, str]]:
    """Return the lines: what is listed, with one of its instructions and what sets them apart."""
    lines: dict[str, list[Form]] = {}
    for form in instructions:
        lines.setdefault(form.line, []).append(form)
    return {line: (group[0], _apart(group)) for line, group in lines.items()}


def _apart(group: Sequence[Form]) -> str:
    ns = [e.n for e in group if isinstance(e, MatrixInstruction) and e.shared]
    variants = dict.fromkeys(form.variant for form in group if form.variant)
    notes = [f"n {in_steps(tuple(dict.fromkeys(ns)))}"] if ns else []
    notes += [f"A in {' or '.join(WHERE_A_LIES[each] for each in variants)}"] if variants else []
    return "".join(f"; {note}" for note in notes)


def _needs(
    form: Form,
    emulated: AbstractSet[str],
    hardware: Mapping[str, str],
    targets: Sequence[Target],
) -> str:
    notes = [f"PTX {form.version}", form.minimum_target]
    if form.name not in emulated:
        notes.append("not emulated")
    elif form.fidelity_on(*targets) == "unverified":
        notes.append("its bits unverified")
    if form.key in hardware:
        notes.append(f"verified on {hardware[form.key]}")
    return ", ".join(notes)
