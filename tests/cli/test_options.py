"""Options declared as tables."""

from __future__ import annotations

import argparse

import pytest

from ptxlab.cli.options import add

TABLE = """
FILE            what is read
-o --output TO  where to
--size N        of how
                much
--kind          of which kind
--arg A=B       again and again
--as TYPE       a word of Python's
--fast          nothing more
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    kinds = ("a", "b")
    add(made, TABLE, size=int, kind=kinds, arg=[str], as_={"dest": "read_as", "required": True})
    return made


def test_each_option_is_read_as_it_is_told() -> None:
    line = "x.ptx -o y --size 3 --kind b --arg c=1 --arg d=2 --as f16 --fast"
    found = vars(parser().parse_args(line.split()))
    assert found == {
        "file": "x.ptx",
        "output": "y",
        "size": 3,
        "kind": "b",
        "arg": ["c=1", "d=2"],
        "read_as": "f16",
        "fast": True,
    }


def test_what_is_not_given_is_none_or_nothing() -> None:
    found = parser().parse_args(["x.ptx", "--as", "f16"])
    assert (found.size, found.arg, found.fast) == (None, [], False)


def test_a_line_goes_on_where_the_next_one_is_indented() -> None:
    assert {action.help for action in parser()._actions} >= {"of how much", "of which kind"}


def test_a_reader_of_no_option_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no line of the table is about weight"):
        add(argparse.ArgumentParser(), TABLE, weight=int)
