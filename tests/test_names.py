"""No variable is called ``one``, ``found`` or ``place`` whose meaning has a name of its own."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NO_NAMES = ("one", "found", "place")
GIVEN = re.compile(r"\b_?(one|found|place)\s*([]:=,)*/@&|^%<>+-]|in\b)|\bas (one|found|place)\b")
"""What may be such a name where it is given: to parse all files would take seconds."""

PLACES = (
    *("device/dump.py", "instrument/places.py", "verbs/dump/text.py", "verbs/fragments/program.py"),
    *("fragments/", "matrix/", "verbs/fragments/"),
)
"""Where a variable may be a place, as docs/architecture.md has the word: a ``DumpPlace``, a ``Place``."""


def unnamed(text: str) -> Iterator[str]:
    """Yield such names as often as variables, fields, attributes and arguments get them."""
    if not GIVEN.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr.removeprefix("_")
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name in NO_NAMES:
            yield name


@pytest.mark.parametrize("folder", ["ptxlab", "tests", "scripts"])
def test_variables_are_called_what_they_are(folder: str) -> None:
    root = ROOT / folder
    counts = {
        file.relative_to(root).as_posix(): Counter(unnamed(file.read_text(encoding="utf-8")))
        for file in root.rglob("*.py")
    }
    assert {
        file: dict(count)
        for file, count in counts.items()
        if count and (set(count) != {"place"} or not file.startswith(PLACES))
    } == {}


def test_every_way_to_give_such_a_name_is_found() -> None:
    code = (
        "found = 1\nfor one in x: ...\n[place for place in x]\ndef f(found, *, one=1): ...\n"
        "lambda place: 1\nself._found = found.one\nclass A:\n    place: int\nwith x as one: ...\n"
        "found_it = place_of(one)\n"
    )
    assert Counter(unnamed(code)) == {"found": 3, "one": 3, "place": 3}
