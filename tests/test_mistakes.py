"""The table of deliberate mistakes fits the code as it stands, and its page the record."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from scripts import mutants_table
from scripts.mutants_code import StaleError
from scripts.mutants_table import Mistake
from tests.together import in_one_test

ROOT = Path(__file__).parents[1]
MISTAKES = mutants_table.table(ROOT)
CODE = """
class Sums:
    TABLE = {"one": (1, 2)}

    def add(self, a, b):
        if a and b:
            return (a  # the first
                    + b)
        elif b:
            return f"{a + b} or {self.less(b)}"
        return a

    def less(self, b):
        return self.a - b

print("one")
"""


@cache
def source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def fault(mistake: Mistake, text: str) -> str:
    """Say what is wrong with a mistake that is to be made in ``text``."""
    if not mistake.why.strip():
        return f"{mistake.entry}: nothing says what a user would get"
    if mistake.old == mistake.new:
        return f"{mistake.entry}: nothing is changed"
    try:
        mistake.put_into(text)
    except StaleError as error:
        return str(error)
    return ""


def mistake(within: str, old: str, new: str, file: str = "m.py", why: str = "wrong") -> Mistake:
    return Mistake("room.toml:3", "room", ("tests",), file, old, new, why, within)


def test_each_mistake_can_be_made() -> None:
    faults = [fault(mistake, source(mistake.file)) for mistake in MISTAKES]
    assert "\n".join(filter(None, faults)) == ""


def test_no_mistake_is_there_twice() -> None:
    assert [key for key, times in Counter(m.key for m in MISTAKES).items() if times > 1] == []


def test_the_tests_of_each_room_are_there() -> None:
    assert len(MISTAKES) > 100
    assert [
        test for test in {t for m in MISTAKES for t in m.tests} if not (ROOT / test).exists()
    ] == []


@pytest.mark.parametrize(
    ("within", "old", "new", "before", "after"),
    [
        ("Sums.add", "return a + b", "return a - b", "return (a  # the first", "return a - b"),
        ("Sums.add", "a and b", "False", "if a and b:", "if False:"),
        ("Sums.add", "self.less(b)", "b", "self.less(b)}", "or {b}"),
        ("Sums.add", "if b: return f'{a + b} or {self.less(b)}'", "", "elif b", "else"),
        ("Sums.TABLE", "1", "2 if b else 3", '"one": (1, 2)', "'one': (2 if b else 3, 2)"),
        ("Sums", "self.a - b", "0", "self.a - b", "return 0"),
        ("", "print( 'one' )", "", 'print("one")', "pass"),
    ],
)
def test_a_mistake_is_found_by_its_tree(
    within: str, old: str, new: str, before: str, after: str
) -> None:
    made = mistake(within, old, new)
    line = CODE.count("\n", 0, CODE.index(before)) + 1
    assert made.line(CODE) == line
    changed = made.put_into(CODE)
    ast.parse(changed)
    assert (before in CODE, before in changed) == (True, False)
    assert (after in CODE, after in changed) == (False, True)
    assert ("(a  # the first" in changed) == (within in ("Sums.TABLE", "")), "the rest stays"


@in_one_test(
    ("within", "old", "new", "expected"),
    [
        ("Sums.ad", "a - b", "b", "there is no Sums.ad; nearest: Sums.add"),
        ("Sums.add", "a and c", "b", "Sums.add does not have it; nearest, in line 6: a and b"),
        ("Sums.add", "return b", "b", "Sums.add does not have it; nearest, in line 11: return a"),
        ("Sums.add", "a + b", "b", "Sums.add has it 2 times, in lines 7 and 10: quote more"),
        ("", "a and b", "b", 'what stands outside of functions and classes does not have it; '
         'it fits within = "Sums.add"'),
        ("Sums.add", "if a:", "if b:", "neither an expression nor statements: if a: (of an `if` "
         "or a loop quote what stands between its keyword and `:`)"),
        ("Sums.TABLE", "TABLE", "b + 1", "this cannot stand there: b + 1"),
        ("Sums.less", "", "b", "neither an expression nor statements: "),
        ("Sums.less", "self.a - b", "self.a -", "neither an expression nor statements: self.a -"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(within: str, old: str, new: str, expected: str) -> None:
    assert fault(mistake(within, old, new), CODE) == f"room.toml:3: m.py: {expected}"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (mistake("", "a + b", "a - b", "m.cu"), ""),
        (mistake("", "a * b", "a - b", "m.cu"), "room.toml:3: m.cu: it is there no times: a * b"),
        (mistake("", "a", "b", "m.cu"), "room.toml:3: m.cu: it is there 2 times: a"),
        (mistake("", "a + b", "a + b", "m.cu"), "room.toml:3: nothing is changed"),
        (mistake("", "a + b", "a - b", "m.cu", why=" "),
         "room.toml:3: nothing says what a user would get"),
    ],
)  # fmt: skip
def test_what_is_not_python_is_quoted_as_text(made: Mistake, expected: str) -> None:
    assert fault(made, "x = a + b\ny = a\n") == expected


def test_a_record_outlives_a_move() -> None:
    here, there = (mistake("Sums.add", "a + b", "a - b", file) for file in ("m.py", "n.py"))
    assert here.key == there.key
    assert here.key != mistake("Sums.less", "a + b", "a - b").key != mistake("", "a + b", "b").key


def test_the_tests_on_record_are_there() -> None:
    """A test that was renamed, or a folder, would be tried first in vain: its mistakes are asked again."""
    absent = []
    for key, result in mutants_table.record(ROOT).items():
        for test in result.tests:
            file, _, function = test.partition("::")
            name = function.partition("[")[0]
            if not (ROOT / file).is_file() or f"def {name}(" not in source(file):
                absent.append(f"{key}: {test}")
    assert absent == []


def test_the_page_has_what_is_on_record() -> None:
    page = (ROOT / mutants_table.PAGE).read_text(encoding="utf-8")
    assert mutants_table.with_summary(page, mutants_table.record(ROOT)) == page
