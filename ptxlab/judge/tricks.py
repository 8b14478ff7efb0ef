"""What a kernel does to seem right, seen in what it left in the memory of several launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ptxlab.judge.comparison import wrong
from ptxlab.judge.judgement import TrialOutcome, Trick
from ptxlab.judge.task import Case
from ptxlab.judge.trials import AGAIN, GIVEN

Left = Mapping[str, Mapping[str, Any]]
"""What all arrays held after each trial."""


def tricks(cases: Sequence[Case], outcomes: Sequence[TrialOutcome], left: Left) -> Iterator[Trick]:
    by_name = {case.trial.name: case for case in cases}
    right = {outcome.name: outcome.right for outcome in outcomes}
    given, again = by_name[GIVEN], by_name[AGAIN]
    if GIVEN not in left:
        return
    yield from _untouched(given, left[GIVEN])
    old = [*_old_answers(given, again, left)] if AGAIN in left else []
    yield from old
    if right[GIVEN] and not right.get(AGAIN, True) and not old:
        yield Trick(
            "only these numbers",
            "it is right for the first numbers, and wrong for others of the same sizes",
        )
    sizes = [o for o in outcomes if o.sizes != given.trial.sizes]
    bad = [outcome.name for outcome in sizes if not outcome.right]
    if right[GIVEN] and right.get(AGAIN, False) and bad:
        yield Trick(
            "only these sizes", f"it is right for the given sizes, and wrong for {'; '.join(bad)}"
        )


def _untouched(case: Case, after: Mapping[str, Any]) -> Iterator[Trick]:
    for name, before in case.given.items():
        if not isinstance(before, np.ndarray) or name not in after:
            continue
        same = before.tobytes() == np.asarray(after[name]).tobytes()
        if (
            name in case.expected
            and same
            and before.size
            and wrong(before, case.expected[name])[0].any()
        ):
            yield Trick("writes nothing", f"{name} is as it was before the launch")
        if name not in case.expected and not same:
            yield Trick("writes its inputs", f"{name}, which the reference only reads, is changed")


def _old_answers(given: Case, again: Case, left: Left) -> Iterator[Trick]:
    for name, expected in again.expected.items():
        before, after = left[GIVEN][name], left[AGAIN][name]
        if not wrong(after, expected)[0].any():
            continue
        if name in given.expected and not wrong(after, given.expected[name])[0].any():
            yield Trick(
                "an answer of before",
                f"{name} holds what was right for the launch before, not for this one",
            )
        elif (
            before.tobytes() == after.tobytes()
            and after.tobytes() != np.asarray(again.given[name]).tobytes()
        ):
            yield Trick(
                "the same answer always",
                f"{name} holds the same after launches with different numbers",
            )
