"""What a check found, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ptxlab.errors import Location, PtxlabError
from ptxlab.observe.check_report import CheckReport, Finding
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.lexer import locate_line
from ptxlab.syntax.names import brief
from ptxlab.view.annotations import Annotation
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.sources import Sources, indented, read_sources
from ptxlab.view.text import counted

SCHEMA = "ptxlab.check/1"
_TOLD = ("kind", "severity", "line", "other_line", "count", "message", "rule", "unit", "hint")


def text(report: CheckReport, sources: Sources | None = None) -> str:
    grouped = groups(report.findings)
    blocks = ["\n".join(_finding(report, group, sources or {})) for group in grouped]
    return "\n\n".join([*blocks, "\n".join(_verdict(report))])


def sources_of(report: CheckReport) -> Sources:
    """Read the files that the findings come from."""
    places = [f.source for f in report.findings] + [f.other_source for f in report.findings]
    places += [each.source for f in report.findings for each in f.computed]
    return read_sources({line.path for line in places if line is not None})


def groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Put together what breaks one rule at the same line, such as all that a copy was not waited for."""
    grouped: list[list[Finding]] = []
    for finding in findings:
        for group in grouped:
            if _alike(group[0], finding):
                group.append(finding)
                break
        else:
            grouped.append([finding])
    return grouped


def _alike(first: Finding, other: Finding) -> bool:
    """Say whether findings have a line in common, or one of CUDA C, such as the copies of an unrolled loop."""
    rules = ((each.kind, each.rule, each.unit, each.severity == "info") for each in (first, other))
    places, others = zip(_places(first), _places(other), strict=True)
    return next(rules) == next(rules) and (
        places[0] == places[1] or (others[0] is not None and others[0] == others[1])
    )


def _places(finding: Finding) -> tuple[SourceLine | int, SourceLine | int | None]:
    return finding.source or finding.line, finding.other_source or finding.other_line


def _finding(report: CheckReport, group: Sequence[Finding], sources: Sources) -> Iterator[str]:
    """Yield the lines of a group, of which the first finding is told: it is the worst."""
    finding = group[0]
    count = sum(finding.count for finding in group)
    amount = (
        f", {counted(count, finding.unit.removesuffix('s'))}" if finding.unit != "faults" else ""
    )
    yield f"{finding.severity}: {finding.kind}{amount}"
    yield from _line(report, finding.message, finding.line, finding.source, sources)
    for each in finding.computed:
        yield each.told(indented(sources, *each.source)[1])
    if finding.other_line is not None:
        yield from _line(report, "the other", finding.other_line, finding.other_source, sources)
    if len(group) > 1:
        yield f"and {len(group) - 1} more like it; --json has them all"
    if finding.hint:
        yield f"hint: {finding.hint}"


def _line(
    report: CheckReport, message: str, number: int, source: SourceLine | None, sources: Sources
) -> Iterator[str]:
    """Yield a message at a line: that of the source where it is known, and what of the PTX is meant."""
    ptx = locate_line(report.source, number)
    if source is None:
        yield str(PtxlabError(message, location=ptx))
        return
    column, text = indented(sources, *source)
    yield str(PtxlabError(message, location=Location(*source, column, text)))
    yield f"it is {' '.join(ptx.text.split())} on line {ptx.line} of {ptx.path}"


def _verdict(report: CheckReport) -> Iterator[str]:
    counts = ", ".join(
        counted(number, word)
        for number, word in ((report.errors, "error"), (report.warnings, "warning"))
        if number
    )
    what = " of ".join(
        name
        for name in (report.kernel and f"kernel {brief(report.kernel)}", report.source.path)
        if name
    )
    yield f"{report.verdict}: {counts + ' in ' if counts else ''}{what}"
    if report.verdict == "clean":
        yield f"checked: {', '.join(report.checks)}; of this launch, on the paths it takes{_landed(report)}"
        for words in report.not_looked_at:
            yield f"not looked at: {words}"
        if "mma.sync" in report.source.text:
            path = report.source.path.removesuffix(" (PTX)") or "FILE"
            yield f"not looked at: which elements an mma has in its registers, as ptxlab fragments --ptx {path} does"
    for reason in report.unchecked:
        yield f"not checked: {reason}"
    yield from unverified(report.unverified)


def _landed(report: CheckReport) -> str:
    return f", with --schedule {', '.join(report.schedules)}" if report.schedules else ""


def remarks(report: CheckReport) -> list[Annotation]:
    """Return findings by line of CUDA C, or of the PTX where it comes from none; information is left out."""
    made = []
    for finding in report.findings:
        if finding.severity == "info":
            continue
        path, line = finding.source or (report.source.path.removesuffix(" (PTX)"), finding.line)
        hint = f"\nhint: {finding.hint}" if finding.hint else ""
        rule = f"{finding.kind}.{finding.rule}"
        made.append(Annotation(finding.severity, rule, finding.message + hint, path, line))
    for reason in report.unchecked:
        path = report.source.path.removesuffix(" (PTX)")
        made.append(Annotation("warning", "unchecked", f"not checked: {reason}", path))
    return made


def as_json(report: CheckReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **members(report, "verdict", "kernel"),
        "path": report.source.path,
        **members(report, "checks", "schedules", "unchecked", "not_looked_at", "unverified"),
        "findings": [
            {
                **members(finding, *_TOLD),
                "source": _plain(finding.source),
                "other_source": _plain(finding.other_source),
                "computed": [
                    {**members(each, "register", "value"), "source": _plain(each.source)}
                    for each in finding.computed
                ],
            }
            for finding in report.findings
        ],
    }


def _plain(source: SourceLine | None) -> dict[str, Any] | None:
    return None if source is None else {"file": source.path, "line": source.line}
