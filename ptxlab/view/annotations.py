"""What was found as other programs take it: on a line of a pull request, or as a test that failed.

SARIF: "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", OASIS. JUnit: what its readers agree on,
https://github.com/testmoapp/junitxml. GitHub: "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import ptxlab

FORMATS = ("sarif", "junit", "github")


@dataclass(frozen=True, slots=True)
class Annotation:
    """Something about a line, counted from 1, of the file ``path``, or of the whole file where it is None.

    ``level`` is error, warning or note; ``rule`` a name such as ``race.RAW``.
    """

    level: str
    rule: str
    message: str
    path: str
    line: int | None = None


def annotated(form: str, subject: str, annotations: Sequence[Annotation]) -> str:
    """Return annotations in one of ``FORMATS``; ``subject`` is what was looked at."""
    inside = [replace(each, path=_relative(each.path)) for each in annotations]
    writers = {"sarif": _sarif, "junit": _junit, "github": _github}
    return writers[form](subject, inside)


def _relative(path: str) -> str:
    """Return a path as a pull request has it, which is looked at from the root of its files."""
    file, here = Path(path), Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else path


def _sarif(subject: str, annotations: Sequence[Annotation]) -> str:
    rules = list(dict.fromkeys(each.rule for each in annotations))
    driver = {
        "name": "ptxlab",
        "semanticVersion": ptxlab.__version__,
        "rules": [{"id": rule, "name": rule} for rule in rules],
    }
    results = [
        {
            "ruleId": each.rule,
            "ruleIndex": rules.index(each.rule),
            "level": each.level,
            "message": {"text": each.message},
            "locations": [{"physicalLocation": _physical(each)}],
        }
        for each in annotations
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1)


def _physical(annotation: Annotation) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(annotation.path)}}
    if annotation.line:
        location["region"] = {"startLine": annotation.line}
    return location


def _junit(subject: str, annotations: Sequence[Annotation]) -> str:
    """Return a test case for each rule that was broken, or one that passed."""
    failed = [each for each in annotations if each.level == "error"]
    cases = [
        f"  <testcase classname={quoteattr(subject)} name={quoteattr(each.rule)}>\n"
        f"    <failure message={quoteattr(_printable(each.message.splitlines()[0]))}>"
        f"{escape(_printable(f'{each.path}:{each.line or 1}: {each.message}'))}</failure>\n  </testcase>"
        for each in failed
    ] or [f'  <testcase classname={quoteattr(subject)} name="ptxlab"/>']
    head = f'tests="{len(cases)}" failures="{len(failed)}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites {head}>\n <testsuite name="ptxlab" {head}>',
            *cases,
            " </testsuite>\n</testsuites>",
        ]
    )


def _printable(text: str) -> str:
    """Leave out what no XML may hold."""
    return "".join(c for c in text if c in "\t\n\r" or c >= " ")


def _github(subject: str, annotations: Sequence[Annotation]) -> str:
    words = {"note": "notice"}
    lines = []
    for each in annotations:
        fields = [f"file={_property(each.path)}", *([f"line={each.line}"] if each.line else [])]
        head = (
            f"::{words.get(each.level, each.level)} {','.join(fields)},title={_property(each.rule)}"
        )
        lines.append(f"{head}::{_data(each.message)}")
    return "\n".join(lines) or f"ptxlab: nothing is wrong with {subject}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
