"""Options declared as tables."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib import import_module

import pytest

from ptxlab.cli.common import SASS
from ptxlab.cli.options import add
from ptxlab.cli.parser import Parser
from ptxlab.emulator.native.engine import ENGINES
from ptxlab.fragments import code as fragment_code
from ptxlab.gemm.interleave import ACTIVITIES
from ptxlab.gemm.problem import ACCUMULATORS, DTYPES, EPILOGUES, LAYOUTS
from ptxlab.layouts import code as layout_code
from ptxlab.numerics.models import INSTRUCTIONS

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
    options = vars(parser().parse_args(line.split()))
    assert options == {
        "file": "x.ptx",
        "output": "y",
        "size": 3,
        "kind": "b",
        "arg": ["c=1", "d=2"],
        "read_as": "f16",
        "fast": True,
    }


def test_what_is_not_given_is_none_or_nothing() -> None:
    options = parser().parse_args(["x.ptx", "--as", "f16"])
    assert (options.size, options.arg, options.fast) == (None, [], False)


def test_a_line_goes_on_where_the_next_one_is_indented() -> None:
    assert {action.help for action in parser()._actions} >= {"of how much", "of which kind"}


def test_a_reader_of_no_option_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="no line of the table is about weight"):
        add(argparse.ArgumentParser(), TABLE, weight=int)


@pytest.mark.parametrize(
    ("verb", "option", "taken"),
    [
        ("bench", "acc", ACCUMULATORS),
        ("gemm", "dtype", DTYPES),
        ("gemm", "layout", LAYOUTS),
        ("gemm", "epilogue", EPILOGUES),
        ("interleave", "activity", ACTIVITIES),
        ("layout", "code", layout_code.LANGUAGES),
        ("fragments", "code", fragment_code.LANGUAGES),
        ("numerics", "op", INSTRUCTIONS),
        ("run", "engine", (*ENGINES, SASS)),
    ],
)
def test_an_option_offers_what_is_taken(verb: str, option: str, taken: Iterable[str]) -> None:
    """A verb's help imports nothing heavy, and so says again what the rooms say that it is about."""
    made = Parser()
    import_module(f"ptxlab.verbs.{verb}.verb").configure(made)
    [choices] = [action.choices for action in made._actions if action.dest == option]
    assert list(choices or ()) == list(taken)
