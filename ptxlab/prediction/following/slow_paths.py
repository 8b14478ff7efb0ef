"""Slow paths of the compiler's own and alarms, which are taken not to be run, and loops that wait for others.

A division or a root in floating point is a few instructions where its operands are well inside the
format, and else a function the compiler brings along, called behind a test of the operands. Which of
them it is says nothing but the data, and of ordinary data it is not the function. Likewise Tensor Memory that is given
back is looked up among what was allocated, and who gives back another's is stopped; and what a program itself tests
before a trap or a failed assertion is taken to come out well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.prediction.following.symbols import FAILS, PRINTS
from ptxlab.prediction.following.waiting_loops import over_at_once

_SLOW_PATH = re.compile(r"__cuda_sm\w+_(?:f32|f64|dblrcp)(?:_|$)")
"""Names of such functions; those for integers of 64 bits are called whatever the data."""

_ALARM = re.compile(rf"__cuda_sm\w+_guardrail_trap_|{FAILS}$")


def passed_by(code: Sequence[DecodedInstruction]) -> dict[int, bool]:
    """Return the branches beside a slow path or a loop that waits, by number, and whether each is taken to pass it by."""
    branches = over_at_once(code)
    for i in code:
        conditional = i.guard is not None or bool(i.ins)
        if not conditional or i.target is None:
            continue
        if i.does == "call" and _is_slow(i):
            branches[i.number] = False
        elif i.does == "branch":
            jumping, staying = _leads_in(code, i.target), _leads_in(code, i.number + 1)
            if jumping != staying:
                branches[i.number] = staying
    return branches


def _leads_in(code: Sequence[DecodedInstruction], number: int) -> bool:
    """Say whether what is run from an instruction on, without a choice, is a slow path."""
    seen: set[int] = set()
    while number < len(code) and number not in seen:
        seen.add(number)
        i = code[number]
        if i.does in ("call", "trap") and i.guard is None:
            return i.does == "trap" or _is_slow(i)
        if i.row is not None and i.row.flow:
            if i.does != "branch" or i.guard is not None or i.target is None:
                return False
            number = i.target
        else:
            number += 1
    return False


def prints(i: DecodedInstruction) -> bool:
    """Say whether the driver prints there: what that takes nobody says."""
    return i.does == "call" and i.target is None and i.sass.target == PRINTS


def divides(code: Sequence[DecodedInstruction]) -> bool:
    """Say whether there is a slow path of a division or a root."""
    return any(i.does == "call" and _SLOW_PATH.search(i.sass.target or "") for i in code)


def _is_slow(i: DecodedInstruction) -> bool:
    target = i.sass.target or ""
    return bool(_SLOW_PATH.search(target) or _ALARM.search(target))
