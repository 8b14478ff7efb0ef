"""Many short cases as one test: to pytest and its workers a test of its own costs two milliseconds, whatever it does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def in_one_test(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Have a test go through all ``cases`` of its parameters ``names``, and say which of them it fails with.

    It is for cases that take less than a millisecond and share what they may of fixtures; those of others
    ``pytest.mark.parametrize`` makes tests of their own.
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
