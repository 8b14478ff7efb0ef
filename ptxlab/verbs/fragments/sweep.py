"""What came of verifying many instructions (``--all``), as text and as JSON (schema ``ptxlab.fragments.all/1``)."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import Any

from ptxlab.cli.common import emit, open_device, open_workers
from ptxlab.cli.progress import LaunchProgress
from ptxlab.fragments.report import Mismatch
from ptxlab.fragments.sweep import FormOutcome, Status, sweep
from ptxlab.matrix import catalog
from ptxlab.verbs.fragments.text import mismatch_json
from ptxlab.view.json import members
from ptxlab.view.text import aligned, counted, hexadecimal

SCHEMA = "ptxlab.fragments.all/1"
STATUSES: dict[Status, str] = {
    "hardware": "verified on hardware",
    "emulator": "verified on the emulator",
    "assembled": "assembled only",
    "failed": "failed",
    "absent": "not on {target}",
}
"""What may come of an instruction, in words."""


def run(args: argparse.Namespace) -> int:
    """Verify every instruction, or those of a family, and return 0 when all is as predicted."""
    asked = [form for form in catalog.forms() if fnmatchcase(form.family, args.family or "*")]
    with closing(open_device(args)) as device, open_workers(args, device) as executor:
        everywhere = device.kind == "emulator" and args.arch is None
        outcomes = sweep(
            device,
            asked,
            everywhere=everywhere,
            every_n=args.full,
            progress=LaunchProgress(what="instructions"),
            executor=executor,
        )
        target = "any known target" if everywhere else device.target.name
        emit(args, lambda: text(outcomes, target), lambda: as_json(outcomes, device.name))
    return int(any(outcome.status == "failed" for outcome in outcomes))


def text(outcomes: Sequence[FormOutcome], target: str) -> str:
    """Return a table with a line a family, and what is wrong with what failed.

    ``target`` is the one that was asked for, or says which ones were.
    """
    heads = [words.format(target=target) for words in STATUSES.values()]
    counts = {family: _counts(group) for family, group in _families(outcomes).items()}
    rows = [["", *heads], *([name, *map(str, row)] for name, row in counts.items())]
    if len(counts) > 1:
        rows.append(["all", *(str(sum(column)) for column in zip(*counts.values(), strict=True))])
    width = max(len(name) for name, *_ in rows)
    lines = aligned([[f"{name:{width}}", *counts] for name, *counts in rows])
    probes = sum(outcome.probes for outcome in outcomes)
    if probes:
        lines += ["", f"{probes:,} probes ran, a warp or warpgroup each."]
    for outcome in outcomes:
        if outcome.status == "failed":
            lines += ["", f"FAILED {outcome.form.name} on {', '.join(outcome.targets)}"]
            lines += [f"  {line}" for line in _reasons(outcome)]
    return "\n".join(lines) + "\n"


def as_json(outcomes: Sequence[FormOutcome], device: str) -> dict[str, Any]:
    """Return the outcomes as JSON data, with how many there are of each status by family."""
    return {
        "schema": SCHEMA,
        "device": device,
        "passed": not any(outcome.status == "failed" for outcome in outcomes),
        "families": {
            family: dict(zip(STATUSES, _counts(group), strict=True))
            for family, group in _families(outcomes).items()
        },
        "instructions": [
            {
                "instruction": outcome.form.name,
                "variant": outcome.form.variant or None,
                "family": outcome.form.family,
                **members(outcome, "status", "targets", "probes", "wrong"),
                "mismatches": [
                    mismatch_json(outcome.form, mismatch) for mismatch in outcome.mismatches
                ],
                "hardware": outcome.hardware,
                "note": outcome.note or None,
            }
            for outcome in outcomes
        ],
    }


def _families(outcomes: Sequence[FormOutcome]) -> dict[str, list[FormOutcome]]:
    families: dict[str, list[FormOutcome]] = {}
    for outcome in outcomes:
        families.setdefault(outcome.form.family, []).append(outcome)
    return families


def _counts(outcomes: Sequence[FormOutcome]) -> list[int]:
    counts = Counter(outcome.status for outcome in outcomes)
    return [counts[status] for status in STATUSES]


def _reasons(outcome: FormOutcome) -> Iterator[str]:
    yield from outcome.note.splitlines()
    for mismatch in outcome.mismatches:
        yield sentence(outcome, mismatch)
    if outcome.wrong:
        probes = counted(outcome.probes, "probe")
        yield f"{counted(outcome.wrong, 'word')} of {probes} differ"


def sentence(outcome: FormOutcome, mismatch: Mismatch) -> str:
    m = mismatch
    bits = f"bits {m.high_bit}:{m.low_bit}" if m.bits > 1 else f"bit {m.low_bit}"
    width = m.shown_bits(outcome.form)
    right, wrong = (hexadecimal(value, width) for value in (m.expected, m.actual))
    seen = "D shows" if m.where == "product" else "it has" if m.where == "register" else "stored is"
    where = f"lane {m.lane} register {m.operand.lower()}{m.register} {bits}"
    if m.operand.startswith("scale"):
        where = f"lane {m.lane} {bits}"
    if m.column is not None:
        where = f"column {m.column} of lane {m.lane} of Tensor Memory"
    if m.lane is None:
        where = "shared memory"
    return f"{m.operand}[{m.row},{m.col}] in {where}: {seen} {wrong}, not {right}"
