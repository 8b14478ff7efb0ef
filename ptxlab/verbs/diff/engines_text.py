"""Where PTX and its machine code part, as text and as JSON (schema ``ptxlab.diff.sass/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptxlab.observe.diff import Output
from ptxlab.observe.engines import EngineSide, ToldStep
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import brief, called
from ptxlab.verbs.diff.engines import EnginesTold
from ptxlab.verbs.diff.text import output_json, output_rows
from ptxlab.view.json import members
from ptxlab.view.sources import at_line
from ptxlab.view.text import aligned, counted, fields

SCHEMA = "ptxlab.diff.sass/1"

Lines = Mapping[int, SourceLine]
"""The lines of CUDA C that lines of PTX come from."""

_VERDICTS = {
    "same": "the same to the bit",
    "may": "they differ, and ptxas MAY do that",
    "may not": "they differ, and ptxas MAY NOT do that",
    "unknown": "they differ, and it could not be followed why",
}


def text(file: str, told: EnginesTold) -> str:
    report = told.report
    lines = [f"{brief(report.kernel)} of {file}: {_VERDICTS[report.verdict]}"]
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
        lines += ["", *_first(report.first, told.sources), *_beside(report.sides, told.sources)]
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


def _first(first: tuple[ToldStep | None, ToldStep | None], sources: Lines) -> Iterator[str]:
    if first[0] is None or first[1] is None:
        return
    yield "first difference, of instructions whose inputs agree or are told below:"
    for name, step in zip("ab", first, strict=True):
        assert step is not None
        yield f"  {name}  {_line(step, sources)}"
    yield ""


def _beside(sides: tuple[EngineSide, EngineSide], sources: Lines) -> Iterator[str]:
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
            yield f"     {_line(step, sources)}"


def _line(step: ToldStep, sources: Lines) -> str:
    """Return what a step did, the line of PTX that it is or was made from, and that of CUDA C."""
    wrote = ", ".join(f"{name} = {bits}" for name, bits in step.registers.items())
    number = f"{step.line}: " if _is_ptx(step) else ""
    source = _source(step, sources)
    places = [f"line {step.origin}"] if step.origin is not None else []
    places += [at_line(*source)] if source is not None else []
    origin = f"({', '.join(places)})" if places else ""
    text = step.text.replace(" \t", " ")
    return "   ".join(part for part in (f"{number}{text}", wrote, origin) if part)


def _is_ptx(step: ToldStep) -> bool:
    return step.origin is None and not step.text.startswith("/*")


def _source(step: ToldStep, sources: Lines) -> SourceLine | None:
    """Return the line of CUDA C that a step comes from."""
    line = step.line if _is_ptx(step) else step.origin
    return None if line is None else sources.get(line)


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
        "first": _steps(report.first, told.sources),
        "sides": None
        if report.sides is None
        else [
            {
                "cta": side.cta,
                "store": _step(side.store, told.sources),
                "steps": _steps(side.steps, told.sources),
            }
            for side in report.sides
        ],
    }


def _steps(steps: Sequence[ToldStep | None], sources: Lines) -> list[dict[str, Any] | None]:
    return [_step(step, sources) for step in steps]


def _step(step: ToldStep | None, sources: Lines) -> dict[str, Any] | None:
    if step is None:
        return None
    source = _source(step, sources)
    return {
        **members(step, "line", "text", "thread", "origin"),
        "source": source and source._asdict(),
        "registers": dict(step.registers),
    }
