"""docs/tcgen05_checks.md: each right program is clean, and of each of its twins that is found which the table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main

PAGE = Path("docs/tcgen05_checks.md")
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if line.count(" | ") == 5 and not line.startswith(("| ---", "| what"))
]
RAILS = [
    line
    for line in PAGE.read_text().splitlines()
    if line.count(" | ") == 1 and not line.startswith(("| ---", "| guardrail"))
]
PROGRAMS = sorted({row[1] for row in ROWS})


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    main(["check", str(path), "--arch", "sm_100a", "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 20
    assert {len(row) for row in ROWS} == {6}


def test_each_guardrail_of_ptxas_has_its_twin() -> None:
    told = {row[0] for row in ROWS}
    rails = [line.strip("|").split(" | ")[1].strip() for line in RAILS]
    assert len(rails) == 9
    named = [rail.partition(":")[0] for each in rails for rail in each.split("; ")]
    assert [name for name in named if name not in told] == ["not told"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_clean(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = checked(Path(f"ptx/{name}.ptx"), capsys)
    assert (report["verdict"], report["findings"]) == ("clean", [])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_twin_is_found(
    row: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, name, right, wrong, rule, said = row
    lines = Path(f"ptx/{name}.ptx").read_text().splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.strip() == right)
    lines[at] = "" if wrong == "left out" else wrong
    twin = tmp_path / f"{name}.ptx"
    twin.write_text("\n".join(lines))
    report = checked(twin, capsys)
    rule, _, severity = rule.partition(": ")
    assert report["verdict"] == ("clean" if severity else "findings")
    told = [f for f in report["findings"] if f["rule"] == rule and said in f["message"]]
    assert told
    assert (told[0]["severity"] == "info") == bool(severity)
