"""Where two launches part, as text and as JSON (schema ``ptxlab.diff/1``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxlab.isa.targets import WARP
from ptxlab.numbers.types import TYPES
from ptxlab.observe.diff import DiffReport, FirstDifference, Output, Repeatable
from ptxlab.syntax import locate
from ptxlab.syntax.names import brief
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.text import aligned, counted, fields, hexadecimal, number

SCHEMA = "ptxlab.diff/1"


def text(file: str, report: DiffReport) -> str:
    lines = [f"{brief(report.launch.kernel)} of {file}: {_verdict(report)}"]
    lines += fields([*zip("ab", report.devices, strict=True)])
    lines += unverified(report.unverified)
    if report.outputs:
        lines += ["", *aligned(output_rows(report.outputs))]
    lines += ["", f"{report.steps} steps of all threads compared"]
    if report.first is not None:
        lines += ["", *_first(report.launch, report.first)]
    return "\n".join(lines) + "\n"


def as_json(file: str, report: DiffReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "kernel": report.launch.kernel,
        "a": report.devices[0],
        "b": report.devices[1],
        **members(report, "same", "steps", "unverified"),
        "outputs": list(map(output_json, report.outputs)),
        "first": None if report.first is None else _first_json(report.launch, report.first),
    }


def _verdict(report: DiffReport) -> str:
    if report.same:
        return "the same to the bit"
    if report.first is None:
        return "the arrays differ, no register that was followed does"
    return {
        "rounding": "they differ by rounding",
        "wrong": "one of them is WRONG",
        "control flow": "they take different ways",
    }[report.first.judgement.verdict]


def output_json(output: Output) -> dict[str, Any]:
    return {
        **members(output, "name", "differing", "total"),
        "place": None if output.index is None else list(output.index),
        "a": output.a if output.differing else None,
        "b": output.b if output.differing else None,
    }


def output_rows(outputs: Sequence[Output]) -> list[list[str]]:
    return [["array", "differing", "of", "first", "a", "b"], *map(_row, outputs)]


def _row(output: Output) -> list[str]:
    if output.index is None:
        return [output.name, "0", str(output.total), "-", "-", "-"]
    index = ",".join(map(str, output.index))
    values = [number(output.a), number(output.b)]
    return [output.name, str(output.differing), str(output.total), f"[{index}]", *values]


def _first(launch: Repeatable, first: FirstDifference) -> list[str]:
    location = locate(launch.module.source, first.instruction.position)
    where, judgement = f"{location.path}:{location.line}", first.judgement
    if not first.register:
        return [
            f"last common step: {where}",
            f"    {location.text.strip()}",
            f"  {judgement.reason}",
        ]
    cta, inside = divmod(first.thread, launch.config.cta_threads)
    rows = [["", "bits", judgement.type]]
    for name, bits, values in zip("ab", first.bits, judgement.values, strict=True):
        typed = [TYPES[judgement.type].dtype.type(value) for value in values]
        rows.append([name, _hex(bits, first), " ".join(map(number, typed))])
    return [
        f"first difference: {where}",
        f"    {location.text.strip()}",
        f"  register {first.register} of lane {inside % WARP} of warp {inside // WARP} of CTA {cta}, "
        f"step {first.step}; "
        f"{counted(first.lanes, 'lane')} of the warp differ",
        *(f"  {line}" for line in aligned(rows)),
        f"  {judgement.verdict}: {judgement.reason}",
    ]


def _hex(bits: int, first: FirstDifference) -> str:
    kind, values = first.judgement.type, first.judgement.values[0]
    width = TYPES[kind].bits if kind in TYPES else 32
    return hexadecimal(bits, max(width, 32) if len(values) > 1 else width)


def _first_json(launch: Repeatable, first: FirstDifference) -> dict[str, Any]:
    cta, inside = divmod(first.thread, launch.config.cta_threads)
    return {
        "line": first.instruction.position.line,
        "instruction": first.instruction.name,
        "thread": first.thread,
        "cta": cta,
        "warp": inside // WARP,
        "lane": inside % WARP,
        **members(first, "step", "register"),
        "type": first.judgement.type,
        "bits": [_hex(bits, first) for bits in first.bits] if first.register else [],
        "values": first.judgement.values,
        "lanes": first.lanes,
        **members(first.judgement, "verdict", "reason"),
    }
