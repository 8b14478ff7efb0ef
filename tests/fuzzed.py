"""Tests of what hypothesis draws: the same examples whenever they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.together import thorough

Test = Callable[..., None]


def fuzzed(*strategies: st.SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Have a test go through a hundred examples, and at night through ten times as many.

    Hypothesis would read the constants of all modules that happen to be imported, for seconds in every worker,
    and draw others where there are more.
    """

    def together(checked: Test) -> Test:
        @pytest.mark.parametrize("examples", [100, *thorough([1000])])
        def test(examples: int) -> None:
            fixed = settings(
                max_examples=examples, derandomize=True, deadline=None, database=None,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(providers, "_get_local_constants", Constants)
                fixed(given(*strategies)(checked))()

        return test

    return together
