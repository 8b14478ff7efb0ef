"""What instructions make of numbers that carry a bound (``ptxlab.judge.carried``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxlab.judge.carried import Carried
from ptxlab.judge.rounding import Bounded, Rounding

_FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any], float | None]] = {
    "ex2": ("exp2", np.exp2, None),
    "lg2": ("log2", np.log2, None),
    "sqrt": ("sqrt", np.sqrt, None),
    "rsqrt": ("rsqrt", lambda x: 1 / np.sqrt(x), None),
    "tanh": ("tanh", np.tanh, None),
    "sin": ("sin", np.sin, 1.0),
    "cos": ("cos", np.cos, 1.0),
}
"""What is computed of one number: its name in ``rounding``, and how steep it is where it is not monotone."""

CHOOSING = ("neg", "abs", "min", "max")
"""What rounds no number."""

OPCODES = ("add", "sub", "mul", "fma", "mad", "div", "rcp", *CHOOSING, *_FUNCTIONS)
"""What there are rules for."""


def computed(
    opcode: str, numbers: Sequence[Carried], rules: Rounding, roundings: float, *, nan: bool = False
) -> Carried:
    """Return what an instruction makes of numbers; a sum makes ``roundings``, and of NaN and a number it is NaN or not."""
    a, *others = numbers
    match opcode:
        case "add" | "sub":
            return a.plus(others[0], 1.0 if opcode == "add" else -1.0, roundings)
        case "fma" | "mad":
            return a.times(others[0], rules).plus(others[1], 1.0, roundings)
        case "mul":
            return a.times(others[0], rules)
        case "neg":
            return Carried(-a.value, a.magnitude, a.roundings, a.error)
        case "abs":
            return Carried.whole(Bounded(np.abs(a.value), a.off))
        case "div":
            return Carried.whole(rules.divide(a.bounded, others[0].bounded))
        case "rcp":
            return Carried.whole(rules.divide(Bounded(np.ones(1), np.zeros(1)), a.bounded))
        case "min" | "max":
            numpy = {"min": (np.fmin, np.minimum), "max": (np.fmax, np.maximum)}[opcode][nan]
            chosen = a.bounded
            for other in others:
                chosen = rules.choose(numpy, chosen, other.bounded)
            return Carried.whole(chosen)
    name, function, slope = _FUNCTIONS[opcode]
    return Carried.whole(rules.function(name, function, a.bounded, slope))


def multiplied(a: Carried, b: Carried, c: Carried, roundings: float) -> Carried:
    """Return A B + C of matrices [..., rows, columns]: products are exact, and each is added with so many roundings."""
    off_a, off_b, size_a, size_b = a.off, b.off, np.abs(a.value), np.abs(b.value)
    return Carried(
        a.value @ b.value + c.value,
        size_a @ size_b + c.magnitude,
        c.roundings + a.value.shape[-1] * roundings,
        c.error + size_a @ off_b + off_a @ size_b + off_a @ off_b,
    )
