"""``--expect A=WHAT``: the matrix that an operand's registers should hold, and where they do not.

WHAT is a NumPy expression over the arguments as they were before the launch: ``a``, ``a[16:32,0:16]``,
``b.T``; of B it is k x n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.fragments.misplaced import Held
from ptxlab.fragments.misplaced_chunks import Surroundings
from ptxlab.fragments.numbers import decode
from ptxlab.instrument.places import OPERANDS
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.dump.shared import READABLE
from ptxlab.verbs.dump.text import ShownDump, operands
from ptxlab.verbs.launching.arrays import errors
from ptxlab.verbs.launching.expression import evaluate
from ptxlab.verbs.launching.values import ArgumentValue, named

_TILE = re.compile(r"(?P<name>\w+)(?:\[(?P<row>\d*):\d*(?:,(?P<col>\d*):\d*)?\])?(?P<end>\.T)?")


@dataclass(frozen=True, slots=True)
class OperandComparison:
    """An operand beside what it should hold, in the user's words: ``wrong`` of its ``elements`` differ.

    ``explained`` says in sentences what is where it should not be.
    """

    operand: str
    expected: str
    elements: int
    wrong: int
    explained: tuple[str, ...]


def expected(
    wanted: Sequence[tuple[str, str]], values: Mapping[str, ArgumentValue]
) -> dict[str, tuple[str, Array]]:
    """Compute what ``--expect`` asks for, by operand. Raises PtxlabError for a name that is no operand."""
    before = named(values)
    expectations = {}
    for name, text in wanted:
        if name.upper() not in OPERANDS:
            raise PtxlabError(
                f"--expect {name}: operands are {', '.join(OPERANDS)}",
                hint="ptxlab run --expect compares what a launch leaves in an array",
            )
        expectations[name.upper()] = text, np.asarray(evaluate(text, before))
    return expectations


def compare(
    shown: ShownDump,
    wanted: Mapping[str, tuple[str, Array]],
    tolerance: tuple[float, float],
    arguments: Mapping[str, Any],
) -> tuple[OperandComparison, ...]:
    """Compare the operands of the instruction that was looked at with what they should hold.

    Of a tile of one of the ``arguments`` what is outside of it is known too.
    Raises PtxlabError where there is no such matrix, or one of another size, or not all of its threads
    were there.
    """
    layouts = {layout.operand: (layout, first) for layout, first in operands(shown)}
    comparisons = []
    for operand, (text, array) in wanted.items():
        if operand not in layouts:
            raise PtxlabError(
                f"--expect {operand}: {shown.dumped.places[0].of.name} has no such matrix in registers"
            )
        layout, first = layouts[operand]
        threads = shown.holders(layout.threads)
        if len(threads) < layout.threads or not shown.dumped.reached[threads].all():
            raise PtxlabError(f"--expect {operand}: not all {layout.holder}s of it were there")
        words = shown.dumped.words[threads, first : first + layout.registers_per_lane]
        matrix = _near(layout, words, _bits(layout, text, array), tolerance)
        held = Held(layout, words, matrix, _around(layout, text, arguments))
        elements = layout.matrices * layout.rows * layout.cols
        comparisons.append(
            OperandComparison(operand, text, elements, len(held.wrong), tuple(held.explained()))
        )
    return tuple(comparisons)


def text(comparison: OperandComparison) -> list[str]:
    name = comparison.operand
    if not comparison.wrong:
        return [f"{name} is right: the registers hold {comparison.expected}"]
    wrong = f"{comparison.wrong} of {comparison.elements} elements"
    head = f"{name} is WRONG: {wrong} are not {comparison.expected}"
    return [head, *(f"  {line}" for line in comparison.explained)]


def _around(layout: FragmentLayout, text: str, arguments: Mapping[str, Any]) -> Surroundings | None:
    """Return the argument that an expression names with two slices at most, perhaps transposed, with its bits."""
    match = _TILE.fullmatch(text.replace(" ", ""))
    array = arguments.get(match["name"]) if match else None
    if match is None or not isinstance(array, np.ndarray) or array.ndim != 2:
        return None
    bits = patterns(layout, array)
    if bits is None:
        return None
    row, col = int(match["row"] or 0), int(match["col"] or 0)
    return Surroundings(bits.T, (col, row)) if match["end"] else Surroundings(bits, (row, col))


def _near(
    layout: FragmentLayout, words: Array, matrix: Array, tolerance: tuple[float, float]
) -> Array:
    """Return the bits of a matrix, and of the registers where these are near enough."""
    if not any(tolerance):
        return matrix
    held = layout.unpack(words).astype(np.uint64)
    right, _ = errors(decode(layout, held), decode(layout, matrix), tolerance)
    return np.where(right, held, matrix)


def _bits(layout: FragmentLayout, text: str, array: Array) -> Array:
    """Return the bits of a matrix in the operand's type."""
    shape = (layout.matrices, layout.rows, layout.cols)[-2 if layout.matrices == 1 else -3 :]
    if array.shape != shape:
        wanted, is_now = ("x".join(map(str, sizes)) for sizes in (shape, array.shape))
        raise PtxlabError(
            f"--expect {layout.operand}={text}: the operand is {wanted}, this is {is_now or 'a number'}",
            hint=f"take a tile of it, such as {text}[0:{layout.rows},0:{layout.cols}]"
            + (f", or {text}.T" if array.shape == shape[::-1] else ""),
        )
    words = patterns(layout, array)
    if words is None:
        what = f"--expect {layout.operand}={text}: {array.dtype} is not .{layout.dtype}"
        raise PtxlabError(what, hint="an expression converts: a.astype(s8)")
    return words


def patterns(layout: FragmentLayout, array: Array) -> Array | None:
    """Return the bits of numbers in the operand's type, None where it has none of their kind."""
    kind = READABLE.get(layout.dtype)
    if kind is not None and kind.kind == "float":
        with np.errstate(all="ignore"):
            array = np.ascontiguousarray(array.astype(kind.dtype))
        return array.view(f"u{array.itemsize}").astype(np.uint64)
    if array.dtype.kind not in "iub":
        return None
    return array.astype(np.int64).astype(np.uint64) & np.uint64((1 << layout.bits) - 1)
