"""Registers that must hold a matrix in the layout of an operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.protocol import Dumped
from ptxlab.errors import PtxlabError
from ptxlab.matrix.catalog import find
from ptxlab.matrix.fragment import FragmentLayout

Array = npt.NDArray[Any]

SHOWN = 5
"""How many of the wrong elements a message names."""


def assert_fragment(
    dump: Dumped | npt.ArrayLike | None,
    expected: npt.ArrayLike,
    op: str,
    *,
    operand: str,
    dtype: str | None = None,
    acc: str | None = None,
    warp: int = 0,
) -> None:
    """Assert that a warp's registers hold ``expected`` in the layout of an instruction's operand.

    ``dump`` is what a launch with ``dump=`` found, or words [thread, register]; its registers are those of
    the operand in order. ``expected`` is the matrix (B is k x n), in a dtype as wide as the operand's
    elements. ``op``, ``dtype`` and ``acc`` name the instruction as for ``ptxlab.find``, ``operand`` is
    A, B, C or D, ``warp`` counts the warps (warpgroups where the instruction takes one) of all threads.
    Raises AssertionError that names the first wrong elements by lane, register, row and column, and
    PtxlabError for a matrix or a dump that cannot be of this operand.
    """
    __tracebackhide__ = True
    instruction = find(op, dtype, acc)
    layout = instruction.operand(operand)
    words = _words(dump, layout, warp)
    matrix = np.ascontiguousarray(expected)
    if matrix.shape != (layout.rows, layout.cols) or 8 * matrix.itemsize < layout.bits:
        raise PtxlabError(
            f"operand {operand} of {instruction.name} is {layout.rows} x {layout.cols} of "
            f"{layout.bits} bits, the matrix is {matrix.dtype}{list(matrix.shape)}"
        )
    raw = matrix.view(f"u{matrix.itemsize}").astype(np.uint64)
    held = layout.unpack(words).astype(np.uint64)
    wrong = np.argwhere(held != raw)
    if len(wrong):
        lines = [f"operand {operand} of {instruction.name}: {len(wrong)} elements are wrong"]
        for row, col in wrong[:SHOWN]:
            place = layout.registers(int(row), int(col))[0]
            lines.append(
                f"  ({row}, {col}), held by lane {place.lane} in register {place.register}, "
                f"element {place.element}: 0x{int(held[row, col]):x}, expected 0x{int(raw[row, col]):x}"
            )
        if len(wrong) > SHOWN:
            lines.append(f"  and {len(wrong) - SHOWN} more")
        raise AssertionError("\n".join(lines))


def _words(dump: Dumped | npt.ArrayLike | None, layout: FragmentLayout, warp: int) -> Array:
    """Return the registers of one warp [lane, register]."""
    if dump is None:
        raise PtxlabError("the launch was asked for no dump", hint="launch with dump=Dump(...)")
    first = warp * layout.threads
    lanes = slice(first, first + layout.threads)
    if isinstance(dump, Dumped):
        if not dump.reached[lanes].all():
            raise AssertionError(f"not all threads of warp {warp} were at {dump.dump.at}")
        words: Array = dump.words[lanes]
    else:
        words = np.asarray(dump)[lanes]
    if words.shape != (layout.threads, layout.registers_per_lane):
        raise PtxlabError(
            f"operand {layout.operand} is in {layout.registers_per_lane} registers of "
            f"{layout.threads} threads, the dump has {list(words.shape)}"
        )
    return words
