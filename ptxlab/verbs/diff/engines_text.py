"""Where PTX and its machine code part, as text and as JSON (schema ``ptxlab.diff.sass/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ptxlab.observe.diff import Output
from ptxlab.observe.engines import EngineSide, ToldStep
from ptxlab.syntax.names import called
from ptxlab.verbs.diff.engines import EnginesTold
from ptxlab.verbs.diff.text import output_json, output_rows
from ptxlab.view.json import members
from ptxlab.view.text import aligned, counted, fields

SCHEMA = "ptxlab.diff.sass/1"

_VERDICTS = {
    "same": "the same to the bit",
    "may": "they differ, and ptxas MAY do that",
    "may not": "they differ, and ptxas MAY NOT do that",
    "unknown": "they differ, and it could not be followed why",
}


def text(file: str, told: EnginesTold) -> str:
    report = told.report
    lines = [f"{called(report.kernel)} of {file}: {_VERDICTS[report.verdict]}"]
    lines += fields(
        [
            ("a", f"its PTX for {told.arch}"),
            ("b", f"its machine code for {told.arch}, by nvJitLink {told.toolchain}"),
        ]
    )
    if report.liberty is not None:
        lines.append(f"{report.liberty.rule}: {report.liberty.reason} (line {report.liberty.line})")
    lines += _outputs(report.outputs)
    if report.sides is not None:
        lines += ["", *_first(report.first), *_beside(report.sides)]
    if report.cut:
        lines += ["", "not all steps of the CTA could be kept: what is far back was not followed"]
    return "\n".join(lines) + "\n"


def _outputs(outputs: Sequence[Output]) -> Iterator[str]:
    """Yield those that differ, and how many do not: of a program's variables there may be many."""
    differing = [replace(each, name=called(each.name)) for each in outputs if each.differing]
    same = len(outputs) - len(differing)
    if differing:
        yield from ("", *aligned(output_rows(differing)))
    if same:
        yield f"{counted(same, 'array')} the same"


def _first(first: tuple[ToldStep | None, ToldStep | None]) -> Iterator[str]:
    if first[0] is None or first[1] is None:
        return
    yield "first difference, of instructions whose inputs agree or are told below:"
    for name, step in zip("ab", first, strict=True):
        assert step is not None
        yield f"  {name}  {_line(step)}"
    yield ""


def _beside(sides: tuple[EngineSide, EngineSide]) -> Iterator[str]:
    yield "from there to the first store that differs:"
    for name, side in zip("ab", sides, strict=True):
        if side.store is None:
            yield f"  {name}  no thread stores it"
            continue
        yield f"  {name}  CTA {side.cta}, thread {side.store.thread}"
        last = side.store.thread
        for step in side.steps or (side.store,):
            if step.thread != last:
                yield f"     thread {step.thread}"
                last = step.thread
            yield f"     {_line(step)}"


def _line(step: ToldStep) -> str:
    wrote = ", ".join(f"{name} = {bits}" for name, bits in step.registers.items())
    origin = "" if step.origin is None else f"(line {step.origin})"
    number = f"{step.line}: " if step.origin is None and not step.text.startswith("/*") else ""
    return "   ".join(part for part in (f"{number}{step.text}", wrote, origin) if part)


def as_json(file: str, told: EnginesTold) -> dict[str, Any]:
    report = told.report
    return {
        "schema": SCHEMA,
        "file": file,
        "kernel": report.kernel,
        "arch": told.arch,
        "toolchain": told.toolchain,
        **members(report, "same", "verdict", "cut"),
        "liberty": None
        if report.liberty is None
        else members(report.liberty, "rule", "line", "reason"),
        "outputs": list(map(output_json, report.outputs)),
        "first": _steps(report.first),
        "sides": None
        if report.sides is None
        else [
            {"cta": side.cta, "store": _step(side.store), "steps": _steps(side.steps)}
            for side in report.sides
        ],
    }


def _steps(steps: Sequence[ToldStep | None]) -> list[dict[str, Any] | None]:
    return list(map(_step, steps))


def _step(step: ToldStep | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {
        **members(step, "line", "text", "thread", "origin"),
        "registers": dict(step.registers),
    }
