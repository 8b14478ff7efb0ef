"""Random programs leave the same as PTX and as the machine code that ptxas makes of them."""

from __future__ import annotations

import pytest

from ptxlab.errors import Unsupported
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import Writer
from tests.machine.lift.random_programs import AloneProgram, differences


def told(first: int, count: int, *, loops: bool = False) -> list[str]:
    """Return what differs of so many programs, with their text; few may have machine code that is refused."""
    every = differences([AloneProgram(first + n, loops=loops) for n in range(count)]).values()
    assert sum(isinstance(each, Unsupported) for each in every) <= count // 50
    return [line for each in every if not isinstance(each, Unsupported) for line in each]


def test_random_programs_leave_the_same() -> None:
    assert told(0, 5) == []


def test_random_programs_with_loops_leave_the_same() -> None:
    assert told(0, 4, loops=True) == []


def test_a_rule_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is always the first."""

    def wrong(w: Writer) -> None:
        w.modifiers.ignore(*w.modifiers.names)
        w.emit(f"mov.b32 {w.dest()}, {w.bare(w.i.sources[0])}")

    monkeypatch.setitem(table.RULES, "SEL", wrong)
    assert told(0, 4) != []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hundred", range(100))
def test_ten_thousand_random_programs_leave_the_same(hundred: int) -> None:
    assert told(100 * hundred, 100) == []
