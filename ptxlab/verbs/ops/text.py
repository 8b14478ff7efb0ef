"""The list of matrix instructions as text and as JSON (schema ``ptxlab.ops/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ptxlab.matrix.asynchronous import in_steps
from ptxlab.matrix.entry import FAMILIES, WHERE_A_LIES, Entry
from ptxlab.matrix.instruction import MatrixInstruction

SCHEMA = "ptxlab.ops/1"


def text(entries: Sequence[Entry], emulated: AbstractSet[str], hardware: Mapping[str, str]) -> str:
    """Return the instructions by family, with how many there are and what each needs.

    What differs in n or in where A lies alone shares a line.
    """
    if not entries:
        return "no matrix instruction fits\n"
    width = max(map(len, _folded(entries)))
    blocks = []
    for family in FAMILIES:
        group = [entry for entry in entries if entry.family == family]
        if group:
            rows = [
                f"  {label:{width}}  {_needs(e, emulated, hardware)}{more}"
                for label, (e, more) in _folded(group).items()
            ]
            blocks.append("\n".join([f"{family}  {_count(len(group))}", *rows]))
    runs = sum(entry.name in emulated for entry in entries)
    proven = sum(entry.name in hardware for entry in entries)
    total = f"{_count(len(entries))}, {runs} run on the emulator, {proven} proven on hardware by a receipt"
    return "\n\n".join([*blocks, total]) + "\n"


def as_json(
    entries: Sequence[Entry], emulated: AbstractSet[str], hardware: Mapping[str, str]
) -> dict[str, Any]:
    """Return the instructions as JSON data; ``targets`` are the least ones, one a family of chips."""
    return {
        "schema": SCHEMA,
        "instructions": [
            {
                "instruction": entry.name,
                "variant": entry.variant or None,
                "family": entry.family,
                "targets": list(entry.minimum_targets),
                "runs_on": list(entry.targets),
                "min_ptx": ptx(entry),
                "emulated": entry.name in emulated,
                "hardware": hardware.get(entry.name),
            }
            for entry in entries
        ],
    }


def _folded(entries: Sequence[Entry]) -> dict[str, tuple[Entry, str]]:
    """Return the lines: what is listed, with one of its instructions and what sets them apart."""
    lines: dict[str, list[Entry]] = {}
    for entry in entries:
        lines.setdefault(_label(entry), []).append(entry)
    return {label: (group[0], _apart(group)) for label, group in lines.items()}


def _label(entry: Entry) -> str:
    form = entry.form
    if isinstance(form, MatrixInstruction) and form.shared:
        return form.name.replace(form.shape, f"m{form.m}nNk{form.k}")
    return entry.name


def _apart(group: Sequence[Entry]) -> str:
    ns = [e.form.n for e in group if isinstance(e.form, MatrixInstruction) and e.form.shared]
    variants = dict.fromkeys(entry.variant for entry in group if entry.variant)
    notes = [f"n {in_steps(tuple(dict.fromkeys(ns)))}"] if ns else []
    notes += [f"A in {' or '.join(WHERE_A_LIES[each] for each in variants)}"] if variants else []
    return "".join(f"; {note}" for note in notes)


def ptx(entry: Entry) -> str:
    """Return the least PTX version as it is written after ``.version``."""
    return "{}.{}".format(*entry.minimum_ptx)


def _needs(entry: Entry, emulated: AbstractSet[str], hardware: Mapping[str, str]) -> str:
    notes = [f"PTX {ptx(entry)}", entry.minimum_target]
    if entry.name not in emulated:
        notes.append("not emulated")
    if entry.name in hardware:
        notes.append(f"verified on {hardware[entry.name]}")
    return ", ".join(notes)


def _count(number: int) -> str:
    return f"{number} instruction{'' if number == 1 else 's'}"
