"""A judgement as one screen, as plain data (schema ``ptxlab.judge/1``), and as annotations of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.judge.comparison import Compared
from ptxlab.judge.judgement import STAGES, Judgement, TrialOutcome
from ptxlab.judge.speed import Speed
from ptxlab.verbs.check import text as check_text
from ptxlab.view.annotations import Annotation
from ptxlab.view.json import members
from ptxlab.view.text import counted, fields, number

SCHEMA = "ptxlab.judge/1"


def text(judgement: Judgement) -> str:
    name = judgement.kernel or "no kernel"
    rows = [
        ("judged", f"{name} of {judgement.candidate} for {judgement.arch}: {judgement.verdict}"),
        *((stage, _stage(judgement, stage)) for stage in STAGES),
        ("robust", _robust(judgement)),
        *((speed.gpu, _speed(speed)) for speed in judgement.speeds),
        ("score", "  ".join(f"{key} {_share(value)}" for key, value in judgement.score.items())),
        ("held by", ", ".join(judgement.contained)),
        ("seed", f"{judgement.seed}, in {judgement.seconds:.2g} s"),
    ]
    return "\n\n".join(["\n".join(fields(rows)), *_details(judgement)])


def _share(value: float | None) -> str:
    return "-" if value is None else number(round(value, 3))


def _stage(judgement: Judgement, stage: str) -> str:
    if stage not in judgement.stages:
        return "not known, as it did not come to that"
    passed = judgement.stages[stage]
    match stage:
        case "compiled" | "launched" if not passed:
            assert judgement.error is not None
            return f"no: {judgement.error.message.splitlines()[0]}"
        case "launched":
            return f"yes{_sizes(judgement.sizes, ', with ')}{_sizes(_shrunk(judgement), ', in place of ')}"
        case "right":
            tried = [trial for trial in judgement.trials if not trial.hard]
            bad = [trial.name for trial in tried if not trial.right]
            worst = max((c.error for t in tried for c in t.compared), default=0.0)
            if bad:
                return f"no: wrong with {'; '.join(bad)}"
            return f"yes, in {counted(len(tried), 'launch', 'launches')}; at worst {worst:.2g} of the bound"
        case "safe":
            return judgement.report.verdict if judgement.report else "clean"
        case "deterministic" if not passed:
            return f"no: other bits with --schedule {', '.join(judgement.schedules)}"
        case "honest" if not passed:
            return "; ".join(f"no: {trick.name}, {trick.message}" for trick in judgement.tricks)
    return "yes" if passed else "no"


def _shrunk(judgement: Judgement) -> Mapping[str, int]:
    return {k: v for k, v in judgement.full_sizes.items() if judgement.sizes.get(k) != v}


def _sizes(sizes: Mapping[str, int], before: str) -> str:
    return before + ", ".join(f"{name}={size}" for name, size in sizes.items()) if sizes else ""


def _robust(judgement: Judgement) -> str:
    hard = [trial for trial in judgement.trials if trial.hard]
    bad = [trial.name for trial in hard if not trial.right]
    if not hard:
        return "not known"
    return (
        f"not with {'; '.join(bad)}" if bad else f"yes: {'; '.join(trial.name for trial in hard)}"
    )


def _speed(speed: Speed) -> str:
    if speed.seconds is None or speed.low is None or speed.high is None:
        return f"not predicted: {speed.unknown}"
    times = f"{1e6 * speed.seconds:.3g} us, likely {1e6 * speed.low:.3g} to {1e6 * speed.high:.3g}"
    ratio = f", {speed.speedup:.2f} times as fast as the baseline" if speed.speedup else ""
    return f"{times}{ratio}; bound by {speed.bound}; {_next(speed)}"


def _next(speed: Speed) -> str:
    """Say what the next best change would be, and what it would give."""
    if speed.advice is None or speed.changed is None or speed.seconds is None:
        return "no change alone would save 1%"
    share = 100 * (1 - speed.changed / speed.seconds)
    return f"{speed.advice} ({speed.change} saves up to {share:.0f}%)"


def _details(judgement: Judgement) -> Iterator[str]:
    error, report = judgement.error, judgement.report
    findings = report.findings if report is not None else ()
    if error is not None and error.message not in [finding.message for finding in findings]:
        yield str(error)
    told: dict[tuple[str, ...], str] = {}
    for trial in judgement.trials:
        wrong = tuple(compared.name for compared in trial.compared if compared.wrong)
        if trial.right:
            continue
        if trial.fault is not None or wrong not in told:
            yield "\n".join(_wrong(trial))
        told[wrong] = f"{told[wrong]}; {trial.name}" if wrong in told else ""
    for alike in filter(None, told.values()):
        yield f"as wrong with{alike.removeprefix(';')}: --json has the numbers"
    if report is not None and report.verdict != "clean":
        yield check_text.text(report, check_text.sources_of(report))


def _wrong(trial: TrialOutcome) -> Iterator[str]:
    if trial.fault is not None:
        yield f"{trial.name}: {trial.fault}"
    for each in trial.compared:
        if each.wrong:
            yield f"{trial.name}: {_wrong_array(each)}"
    if trial.writer is not None:
        yield f"  written by {trial.writer.thread}, {trial.writer.path}:{trial.writer.line}"


def _wrong_array(each: Compared) -> str:
    assert each.index is not None
    where = f"{each.name}[{','.join(map(str, each.index))}]"
    unwritten = f", {each.unwritten} never written" if each.unwritten else ""
    return (
        f"{each.wrong} of {each.elements} elements of {each.name} are wrong{unwritten}: {where} is "
        f"{each.value:.9g}, not {each.expected:.9g} within {each.bound:.3g}"
    )


def remarks(judgement: Judgement) -> list[Annotation]:
    """Return what is wrong by line: of the candidate as a whole where no line is known."""
    path = judgement.candidate
    made: list[Annotation] = []
    if judgement.error is not None:
        kind = "compiled" if not judgement.stages.get("compiled") else "launched"
        made.append(_of_error(kind, path, judgement.error))
    for trial in judgement.trials:
        if not trial.right:
            where = (trial.writer.path, trial.writer.line) if trial.writer else (path, None)
            rule, level = ("robust", "note") if trial.hard else ("right", "error")
            made.append(Annotation(level, rule, "\n".join(_wrong(trial)), *where))
    if judgement.report is not None:
        made += check_text.remarks(judgement.report)
    if judgement.stages.get("deterministic") is False:
        made.append(Annotation("error", "deterministic", _stage(judgement, "deterministic"), path))
    made += [
        Annotation("error", f"honest.{trick.name}", trick.message, path)
        for trick in judgement.tricks
    ]
    return made


def _of_error(rule: str, path: str, error: PtxlabError) -> Annotation:
    where = error.location
    told = (where.path, where.line) if where else (path, None)
    return Annotation("error", rule, error.message, *told)


def as_json(judgement: Judgement) -> dict[str, Any]:
    error = judgement.error
    return {
        "schema": SCHEMA,
        **members(judgement, "candidate", "kernel", "arch", "seed", "verdict", "passed", "score"),
        **members(judgement, "sizes", "full_sizes", "stages", "contained", "seconds"),
        "error": error and {
            **members(error, "kind", "message", "hint"),
            **{name: error.location and getattr(error.location, key)
               for name, key in (("file", "path"), ("line", "line"), ("column", "column"))},
        },
        "trials": [{**asdict(trial), "right": trial.right} for trial in judgement.trials],
        "check": judgement.report and check_text.as_json(judgement.report),
        "other_schedules": judgement.schedules,
        "tricks": [asdict(trick) for trick in judgement.tricks],
        "speeds": [{**asdict(speed), "speedup": speed.speedup} for speed in judgement.speeds],
    }  # fmt: skip
