"""Findings for other programs: what they hold, and that no text of a kernel breaks out of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from ptxlab.view.annotations import Annotation, annotated

NASTY = 'a "b" <c> & \x01\n::error file=x::100%,é'
MADE = [
    Annotation("error", "race.RAW", NASTY, "my kernels/a,b.cu", 7),
    Annotation("warning", "unchecked", "what follows", "k.ptx"),
    Annotation("note", "race.RAW", "again", "k.ptx", 1),
]


def test_sarif_has_rules_levels_and_places() -> None:
    log = json.loads(annotated("sarif", "k", MADE))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["race.RAW", "unchecked"]
    assert [each["ruleIndex"] for each in run["results"]] == [0, 1, 0]
    assert [each["level"] for each in run["results"]] == ["error", "warning", "note"]
    first, second, _ = (each["locations"][0]["physicalLocation"] for each in run["results"])
    assert first == {
        "artifactLocation": {"uri": "my%20kernels/a%2Cb.cu"},
        "region": {"startLine": 7},
    }
    assert "region" not in second
    assert run["results"][0]["message"]["text"] == NASTY


@pytest.fixture(scope="module")
def sarif() -> Any:
    """The schema that OASIS publishes (sarif-2.1/schema/sarif-schema-2.1.0.json of oasis-tcs/sarif-spec), less its descriptions."""
    file = Path(__file__).with_name("sarif-2.1.0.json")
    return jsonschema.Draft4Validator(json.loads(file.read_text(encoding="utf-8")))


def test_sarif_is_as_its_schema_has_it(sarif: Any) -> None:
    for made in (MADE, MADE[1:], []):
        sarif.validate(json.loads(annotated("sarif", "k", made)))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("version",), "2.0.0"),
        (("runs", 0, "tool", "driver", "name"), None),
        (("runs", 0, "results", 0, "level"), "fatal"),
        (("runs", 0, "results", 0, "ruleIndex"), "0"),
        (("runs", 0, "results", 0, "message"), {"txt": "x"}),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "region", "startLine"), 0),
    ],
)
def test_the_schema_refuses_what_is_none(
    sarif: Any, where: tuple[str | int, ...], value: Any
) -> None:
    log = json.loads(annotated("sarif", "k", MADE))
    owner = log
    for step in where[:-1]:
        owner = owner[step]
    owner[where[-1]] = value
    assert not sarif.is_valid(log)


def test_junit_has_a_case_for_each_error() -> None:
    tree = ElementTree.fromstring(annotated("junit", "k<1>", MADE))
    (case,) = tree.iter("testcase")
    assert case.attrib == {"classname": "k<1>", "name": "race.RAW"}
    assert case[0].text == "my kernels/a,b.cu:7: " + NASTY.replace("\x01", "")
    (passed,) = ElementTree.fromstring(annotated("junit", "k", MADE[1:])).iter("testcase")
    assert len(passed) == 0


def test_github_has_a_command_a_line() -> None:
    first, second, third = annotated("github", "k", MADE).split("\n")
    assert first == (
        "::error file=my kernels/a%2Cb.cu,line=7,title=race.RAW::"
        'a "b" <c> & \x01%0A::error file=x::100%25,é'
    )
    assert second == "::warning file=k.ptx,title=unchecked::what follows"
    assert third.startswith("::notice file=k.ptx,line=1")
    assert annotated("github", "k", []) == "ptxlab: nothing is wrong with k"
