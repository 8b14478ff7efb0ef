"""Findings for other programs: what they hold, and that no text of a kernel breaks out of them."""

from __future__ import annotations

import json
from xml.etree import ElementTree

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
