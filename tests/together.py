"""Many cases in little time: short ones as one test, and of many combinations some always."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]

PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "ptxlab.testing.plugin,pytest_timeout,xdist.plugin",
}
"""For the environment of tests that tests start: no others of pytest's plugins, which take half a second to load."""


def in_one_test(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Have a test go through all ``cases`` of its parameters ``names``, and say which of them it fails with.

    It is for cases that take less than a millisecond and share what they may of fixtures: a test of its own costs
    pytest and its workers two, whatever it does. Those of others ``pytest.mark.parametrize`` makes tests of their own.
    """
    listed, alone = ([names], True) if isinstance(names, str) else (list(names), False)
    every = list(cases)
    assert every

    def together(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def tested(**fixtures: Any) -> None:
            for case in every:
                given = dict(zip(listed, [case] if alone else case, strict=True))
                try:
                    test(**fixtures, **given)
                except BaseException as error:
                    error.add_note(f"with {given}")
                    raise

        left = [p for p in signature.parameters.values() if p.name not in listed]
        vars(tested)["__signature__"] = signature.replace(parameters=left)
        return tested

    return together


def thorough(values: Iterable[Any]) -> list[Any]:
    """Return values, or tuples of them, as parameters that a change can spare: others beside them always run."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.thorough)
        for value in values
    ]


def one_of_each(cases: Iterable[Any], *classes: Callable[[Any], Hashable]) -> list[Any]:
    """Return the cases as parameters, those thorough of which others before them always run.

    Each of ``classes`` says what a case is one of, by one way to tell cases apart: a case always runs that is the
    first of its class by one of them at least. A case is a value, or a tuple of them.
    """
    seen: list[set[Hashable]] = [set() for _ in classes]
    parameters = []
    for case in cases:
        new = [of(case) not in known for of, known in zip(classes, seen, strict=True)]
        if any(new):
            for of, known in zip(classes, seen, strict=True):
                known.add(of(case))
        values = case if isinstance(case, tuple) else (case,)
        parameters.append(pytest.param(*values, marks=[pytest.mark.thorough] * (not any(new))))
    return parameters
