"""Prediction asks the rows of instructions what they do, and knows no opcode by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxlab.machine.row import Row
from ptxlab.machine.table import ROWS

ROOM = Path(__file__).parents[2] / "ptxlab" / "prediction"
MOST = 5


def named(source: str) -> Iterator[str]:
    """Yield the opcodes that a program has as texts, alone or with others, beside its docstrings."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for constant in ast.walk(tree):
        if (
            isinstance(constant, ast.Constant)
            and isinstance(constant.value, str)
            and id(constant) not in told
        ):
            yield from (word for word in constant.value.replace(".", " ").split() if word in ROWS)


def test_prediction_asks_for_few_opcodes_by_name() -> None:
    words = [word for file in ROOM.glob("*.py") for word in named(file.read_text("utf-8"))]
    assert len(words) <= MOST, words


@pytest.mark.parametrize(
    "source",
    ['i.opcode == "LDG"', 'i.opcode in ("BAR", "X")', 'KINDS = {"EXIT": 1}', 'f = "A LD B"'],
)
def test_a_name_is_seen(source: str) -> None:
    assert len(list(named(source))) == 1


def test_docstrings_may_name_opcodes() -> None:
    assert not list(named('"""LDG."""\ndef f():\n    """LD"""\nx = 1\n"""STG"""'))


def test_columns_agree_with_each_other() -> None:
    """What moves memory has a space, and what has a space moves memory or works on mbarriers."""
    for row in ROWS.values():
        if not row.timed:
            continue
        moves = row.loads or row.stores or row.does == "phase"
        assert bool(row.space) == moves, row.opcode
        assert not (row.atomic and not row.stores), row.opcode
        assert not (row.boxes and row.does != "bulk copy"), row.opcode


def test_the_uniform_datapath_computes_the_same() -> None:
    twins = {op: row for op, row in ROWS.items() if op[0] == "U" and op[1:] in ROWS}
    assert len(twins) > 20
    columns = ("floats", "operands", "words", "writes", "lifted", "of_pairs", "sums_pairs")
    for opcode, row in twins.items():
        plain: Row = ROWS[opcode[1:]]
        assert all(getattr(row, column) == getattr(plain, column) for column in columns), opcode
