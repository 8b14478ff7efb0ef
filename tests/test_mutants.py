"""scripts/mutants on a small project: what its tests see, miss, hang on, and what proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import mutants, mutants_table
from scripts.mutants_table import Result

SETTINGS = """
[tool.pytest.ini_options]
addopts = "-p pytest_timeout"
timeout = 1
timeout_method = "signal"
"""
CODE = """
def add(a, b):
    return a + b

def half(a):
    return a // 2

def wait(n):
    import time
    while n:
        time.sleep(0.01)
        n -= 1
"""
TESTS = """
from sums import add, half, wait

def test_that_always_fails():
    assert half(4) == 5

def test_wait():
    wait(3)

def test_add():
    assert add(2, 3) == 5
"""
MISTAKES = """
tests = ["tests"]
[[mistake]]
file = "sums.py"
within = "add"
old = "a + b"
new = "a - b"
why = "a wrong sum"
[[mistake]]
file = "sums.py"
within = "half"
old = "a // 2"
new = "a // 3"
why = "a wrong half"
[[mistake]]
file = "sums.py"
within = "wait"
old = "n -= 1"
new = "n -= 0"
why = "no end"
[[mistake]]
file = "sums.py"
within = "add"
old = "a * b"
new = "b * a"
why = "nothing, any more"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {
        "pyproject.toml": SETTINGS,
        "sums.py": CODE,
        "tests/test_sums.py": TESTS,
        "tests/mistakes/sums.toml": MISTAKES,
        "docs/mistakes.md": "".join(mutants_table.MARKS),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def outcomes(project: Path) -> dict[str, tuple[str, list[str]]]:
    known = mutants_table.record(project)
    return {
        mistake.why: (known[mistake.key].outcome, known[mistake.key].tests)
        for mistake in mutants_table.table(project)
        if mistake.key in known
    }


# That one counts as seen is always tried below.
@pytest.mark.thorough
def test_a_mistake_counts_as_seen_where_a_test_fails_because_of_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.main(["--record", "--workers", "1"], project) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "stale: tests/mistakes/sums.toml:21: sums.py: add does not have it; nearest, in line 3: a + b",
        "unseen: sums.py:6: a wrong half",
        "    - a // 2",
        "    + a // 3",
        "room              seen  unseen    hang   stale",
        "sums                 1       1       1       1",
        "all                  1       1       1       1",
    ]
    test = "tests/test_sums.py::test"
    assert err.count(f"fails without a mistake, or only at times: {test}_that_always_fails\n") == 1
    assert outcomes(project) == {
        "a wrong sum": ("seen", [f"{test}_add"]),
        "a wrong half": ("unseen", []),
        "no end": ("hang", [f"{test}_wait"]),
    }
    assert (project / "sums.py").read_text(encoding="utf-8") == CODE
    assert "| sums | 3 | 1 | 1 | 1 |" in (project / mutants_table.PAGE).read_text(encoding="utf-8")


def test_what_was_unseen_is_tried_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add, half, wait, _ = mutants_table.table(project)
    test = "tests/test_sums.py::test_that_always_fails"
    known = {
        add.key: Result("sums", "seen", ["tests/test_sums.py::test_add"], "2026-01-02"),
        half.key: Result("sums", "unseen", [], "2026-01-02"),
        wait.key: Result("sums", "hang", ["tests/test_sums.py::test_wait"], "2026-01-02"),
    }
    mutants_table.keep(project, known)
    tests = project / "tests" / "test_sums.py"
    tests.write_text(TESTS.replace("half(4) == 5", "half(4) == 2"), encoding="utf-8")
    assert mutants.main(["--unseen", "--workers", "1", "sums.py"], project) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split() == ["all", "1", "0", "0", "1"]
    assert f"sums.py:6: seen {test}" in err
    assert outcomes(project)["a wrong half"] == ("unseen", [])  # nothing asked to keep it


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["walls"], "no room and no file of a mistake: walls (rooms: sums)"),
        (["--workers", "0"], "invalid _count value: '0'"),
    ],
)
def test_usage(
    project: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as status:
        mutants.main(words, project)
    assert status.value.code == 2
    assert message in capsys.readouterr().err


def test_a_room_needs_its_tests(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = project / "tests" / "mistakes" / "sums.toml"
    table.write_text(MISTAKES.replace('["tests"]', '["tests/sums"]'), encoding="utf-8")
    with pytest.raises(SystemExit) as status:
        mutants.main([], project)
    assert status.value.code == 2
    assert "a room's tests do not exist: tests/sums" in capsys.readouterr().err
