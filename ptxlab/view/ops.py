"""The list of matrix instructions as text and as JSON (schema ``ptxlab.ops/1``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ptxlab.isa.entry import FAMILIES, Entry

SCHEMA = "ptxlab.ops/1"


def text(entries: Sequence[Entry], emulated: AbstractSet[str], hardware: Mapping[str, str]) -> str:
    """Return the instructions by family, with how many there are and what each needs."""
    if not entries:
        return "no matrix instruction fits\n"
    width = max(len(entry.name) for entry in entries)
    blocks = []
    for family in FAMILIES:
        group = [entry for entry in entries if entry.family == family]
        if group:
            rows = [f"  {e.name:{width}}  {_needs(e, emulated, hardware)}" for e in group]
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
