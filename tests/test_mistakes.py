"""The table of deliberate mistakes fits the code as it stands, and its page the record."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from scripts import mutants_table
from scripts.mutants_table import Mistake, StaleError

ROOT = Path(__file__).parents[1]
MISTAKES = mutants_table.table(ROOT)


def fault(mistake: Mistake, text: str) -> str:
    """Say what is wrong with a mistake that is to be made in ``text``."""
    if not mistake.why.strip():
        return "nothing says what a user would get"
    if mistake.old == mistake.new:
        return "nothing is changed"
    try:
        changed = mistake.put_into(text)
        if mistake.file.endswith(".py"):
            ast.parse(changed)
    except (StaleError, SyntaxError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.key)
def test_each_mistake_can_be_made(mistake: Mistake) -> None:
    assert fault(mistake, (ROOT / mistake.file).read_text(encoding="utf-8")) == ""


def test_no_mistake_is_there_twice() -> None:
    assert [key for key, times in Counter(m.key for m in MISTAKES).items() if times > 1] == []


def test_the_tests_of_each_room_are_there() -> None:
    assert len(MISTAKES) > 100
    assert [
        test for test in {t for m in MISTAKES for t in m.tests} if not (ROOT / test).exists()
    ] == []


@pytest.mark.parametrize(
    ("old", "new", "why", "expected"),
    [
        ("a + b", "a - b", "a wrong sum", ""),
        ("a * b", "a - b", "a wrong sum", "m.py has no times: a * b"),
        ("a", "b", "a wrong sum", "m.py has 2 times: a"),
        ("a + b", "a +", "a wrong sum", "invalid syntax (<unknown>, line 1)"),
        ("a + b", "a + b", "a wrong sum", "nothing is changed"),
        ("a + b", "a - b", " ", "nothing says what a user would get"),
    ],
)
def test_what_is_wrong_with_a_mistake_is_found(old: str, new: str, why: str, expected: str) -> None:
    mistake = Mistake("room", ("tests",), "m.py", old, new, why)
    assert fault(mistake, "x = a + b\ny = a\n") == expected


def test_the_page_has_what_is_on_record() -> None:
    page = (ROOT / mutants_table.PAGE).read_text(encoding="utf-8")
    assert mutants_table.with_summary(page, mutants_table.record(ROOT)) == page
