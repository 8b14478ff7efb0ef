"""How the instructions of an opcode become PTX: a function that is given the writer which stands at one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptxlab.machine.lift.writer import Writer

Rule = Callable[[Writer], None]
Rules = Mapping[str, Rule]


def rules(opcodes: str, rule: Rule, *, uniform: bool = False) -> dict[str, Rule]:
    """Return the rule for each opcode, with ``uniform`` also for its twin of the uniform datapath."""
    names = opcodes.split()
    return dict.fromkeys([*names, *(f"U{name}" for name in names if uniform)], rule)
