"""Tests of what hypothesis draws: the same examples whenever they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.together import thorough

Test = Callable[..., None]


def fuzzed(*strategies: st.SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Have a test go through a hundred examples, and at night through ten times as many.

    Hypothesis learns of it when it runs: it would read all that is imported, in every worker, where it finds a
    test of its own.
    """

    def together(checked: Test) -> Test:
        @pytest.mark.parametrize("examples", [100, *thorough([1000])])
        def test(examples: int) -> None:
            fixed = settings(
                max_examples=examples, derandomize=True, deadline=None, database=None,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            fixed(given(*strategies)(checked))()

        return test

    return together
