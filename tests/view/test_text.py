"""What texts of several verbs share."""

from __future__ import annotations

from ptxlab.view.text import counted


def test_a_noun_goes_with_its_number() -> None:
    assert counted(1, "thread") == "1 thread"
    assert counted(0, "thread") == "0 threads"
    assert counted(2000, "launch", "launches", form=",") == "2,000 launches"
    assert counted(1, "launch", "launches") == "1 launch"
