"""What ``--fill`` stands for: numbers of the verb's own, or one's own of each operand.

numbered, ones                       as ``ptxlab.fragments.numbers`` has them
A=mine.npy   A=@all.npz:weights      a file of numpy, an array of several
B=randn(16x8,bf16)                   an array made in place, as an argument of a launch
A=row-col/4  C=where(row==col,1,0)   an expression of the element's row and column
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.fragments.numbers import (
    Fill,
    OperandLayout,
    OwnFill,
    contents,
    decode,
    encode,
    shape_of,
)
from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.launching import values
from ptxlab.verbs.launching.expression import evaluate

NAMED = ("numbered", "ones")


def fill(texts: Sequence[str], form: Form, seed: int) -> Fill:
    """Return the fill that the command line asks for. Raises PtxlabError for what cannot be in an operand."""
    if not texts:
        return _within_range(form)
    if texts[-1] in NAMED:
        return cast(Fill, texts[-1])
    layouts = {layout.operand: layout for layout in _given(form)}
    own = {}
    for number, text in enumerate(texts):
        name, equals, value = (part.strip() for part in text.partition("="))
        layout = layouts.get(name.upper())
        if layout is None or not equals or not value:
            raise PtxlabError(
                f"no fill {text!r} of {form.name}",
                hint=f"it is {', '.join(NAMED)}, or such as {next(iter(layouts))}=row+col of {', '.join(layouts)}",
            )
        own[layout.operand] = _fitting(layout, _array(layout, value, (seed, number)), text)
    return OwnFill(", ".join(texts), own)


def _within_range(form: Form) -> Fill:
    """Return numbered operands, of which B is divided by a power of two where sums of f16 would be infinite."""
    if not isinstance(form, MatrixInstruction) or form.d_type != "f16":
        return "numbered"
    a, b = (
        known.values[which]
        for known, which in (contents(form.held(name), "numbered") for name in "AB")
    )
    largest = float(np.finfo(np.float16).max)
    by = 2 ** max(0, math.ceil(math.log2(form.k * a.max() * b.max() / largest)))
    return OwnFill(f"numbered with B / {by}", {"B": b / by}) if by > 1 else "numbered"


def _given(form: Form) -> list[OperandLayout]:
    """Return what an instruction is given, in registers or in shared memory."""
    if isinstance(form, MatrixInstruction):
        return [form.held(name) for name in "ABC"]
    return list(form.operands[:1])


def _array(layout: OperandLayout, text: str, seed: tuple[int, ...]) -> Array:
    if text.endswith((".npy", ".npz")):
        text = "@" + text.removeprefix("@")
    if values.is_array(text):
        made = values.read(layout.operand, text, seed)
        return np.asarray(made)
    row, col = np.indices((layout.rows, layout.cols))
    return np.asarray(evaluate(text, {"row": row, "col": col}))


def _fitting(layout: OperandLayout, array: Array, text: str) -> Array:
    """Return the numbers of an operand, one for all or one for each of its elements."""
    shape = shape_of(layout)
    try:
        numbers = np.broadcast_to(array, shape)
    except ValueError:
        told = " x ".join(map(str, array.shape))
        raise PtxlabError(
            f"--fill {text}: an array of {told}",
            hint=f"{layout.operand} is {' x '.join(map(str, shape))}",
        ) from None
    if np.issubdtype(decode(layout, np.zeros(1)).dtype, np.integer):
        held = decode(layout, encode(layout, numbers))
        if (wrong := held != numbers).any():
            raise PtxlabError(f"--fill {text}: {layout.dtype} has no {numbers[wrong][0]}")
    return numbers
