"""Floating-point instructions of the machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ptxlab.machine.row import Modifiers, pairs, rows

_floating = partial(rows, lifted=True)


def _words(*types: str) -> Callable[[Modifiers], int]:
    """Return how many words a value is: two if a modifier names one of some types of 64 bits."""
    return lambda modifiers: 1 + any(name in modifiers for name in types)


def _source_words(*types: str) -> Callable[[Modifiers, int], int]:
    words = _words(*types)
    return lambda modifiers, slot: words(modifiers)


def _changed(nth: int, modifiers: Modifiers) -> int:
    """Return the words of what F2F makes, whose type is named first, or of what it is made from."""
    types = [name for name in modifiers if name in ("F64", "F32", "F16", "BF16")]
    return 1 + (types[nth : nth + 1] == ["F64"])


_WHOLE_PAIR = ("U64", "S64")
_rounding = partial(_floating, pipe="xu", floats=True, reads=_source_words("F64"), scoreboard="xu")

ROWS = (
    *_floating("FMUL", "fma", uniform=True, flops=1),
    *_floating("FADD", "fma", uniform=True, floats=True, flops=1),
    *_floating("FFMA", "fma", uniform=True, floats=True, flops=2),
    *_floating("FADD2 FMUL2", "fma", floats=True, words=2, reads=pairs, flops=2),
    *_floating("FFMA2", "fma", floats=True, words=2, reads=pairs, flops=4),
    *_floating("FMNMX FMNMX3 FSET", "alu", floats=True),
    *_floating("FSEL", "alu", uniform=True, floats=True),
    *_floating("FSETP", "alu", uniform=True),
    *_floating("MUFU", "xu", scoreboard="xu", slot=1),
    *_floating(
        "I2F",
        "xu",
        uniform=True,
        writes=_words("F64"),
        reads=_source_words(*_WHOLE_PAIR),
        scoreboard="xu",
        slot=1,
    ),
    *_floating("I2FP", "alu", uniform=True, slot=1),
    *_floating(
        "F2I",
        "xu",
        uniform=True,
        writes=_words(*_WHOLE_PAIR),
        reads=_source_words("F64"),
        scoreboard="xu",
        slot=1,
    ),
    *_floating(
        "F2F",
        "xu",
        writes=partial(_changed, 0),
        reads=lambda modifiers, slot: _changed(1, modifiers),
        uniform=True,
        scoreboard="xu",
        floats=True,
        slot=1,
    ),
    *_rounding("FRND", uniform=True),
    *_rounding("FCHK"),
    *_floating("HFMA2", "fma2", flops=4),
    *_floating("HADD2", "fma2", flops=2),
    *_floating("HMUL2", "fma2", floats=True, flops=2),
    *_floating("HSETP2 HSET2 HMNMX2", "alu", floats=True, latency="half_alu"),
    *_floating("F2FP", "alu", floats=True),
    *_floating("DFMA", "fp64", floats=True, reads=pairs, scoreboard="fp64", words=2, flops=2),
    *_floating("DADD DMUL", "fp64", floats=True, reads=pairs, scoreboard="fp64", words=2, flops=1),
    *_floating("DSETP", "fp64", floats=True, reads=pairs, scoreboard="fp64", words=2),
)
