"""The fragments of ``wmma`` as they were seen on GPUs: PTX leaves them open, and another GPU may have others.

Sources: WMMA API Extension (github.com/wmmae/wmma_extension), ``foreach_ij`` in include/wmma_extension/detail/sm_70.hpp,
sm_75.hpp, sm_80.hpp and sm_80_tf32.hpp, found by loads of numbered matrices on these GPUs; its README says that what
holds of sm_80 does of sm_89 and sm_90. An element of a fragment is ``x[i]`` of CUDA C++; of f16 a register has two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxlab.matrix.multiplication import MatrixInstruction

SOURCE = "wmmae/wmma_extension"
_LATER = ("sm_75", "sm_80", "sm_89", "sm_90")
_F16, _TF32 = "m16n16k16", "m16n16k8"

Element = Callable[[int, int], tuple[int, int]]
"""From (lane, i) of ``x[i]`` to (row, column)."""


@dataclass(frozen=True, slots=True)
class ObservedFragment:
    """One operand on one ``chip``: ``x[i]`` of a lane, i below ``count``, is at ``element(lane, i)``."""

    chip: str
    operand: str
    count: int
    element: Element


def chips(form: MatrixInstruction) -> tuple[str, ...]:
    """Return on which chips the fragments of an instruction were seen."""
    if form.family != "wmma":
        return ()
    if form.shape == _F16 and form.a_type == "f16":
        return ("sm_70", *_LATER)
    return _LATER[1:] if form.shape == _TF32 and form.a_type == "tf32" else ()


def observed(form: MatrixInstruction, chip: str) -> tuple[ObservedFragment, ...]:
    """Return A, B and D of an instruction as they were seen on one of ``chips(form)``."""
    given: tuple[tuple[str, int, Element], ...]
    if form.a_type == "tf32":
        given = ("A", 4, _tf32_a), ("B", 4, _tf32_b), ("D", 8, _accumulator)
    elif chip == "sm_70":
        a, b = (part for part in form.name.split(".") if part in ("row", "col"))
        along_k = {"row": _volta_line, "col": _volta_block}
        d = _volta_d_f16 if form.d_type == "f16" else _volta_d_f32
        # What A is along its rows, B is along its columns.
        across = along_k[{"row": "col", "col": "row"}[b]]
        given = ("A", 16, _volta_a(along_k[a])), ("B", 16, _volta_b(across)), ("D", 8, d)
    else:
        given = ("A", 16, _f16_a), ("B", 16, _f16_b), ("D", 8, _accumulator)
    return tuple(ObservedFragment(chip, *each) for each in given)


# ---- sm_75 and later ------------------------------------------------------------------------


def _f16_a(lane: int, i: int) -> tuple[int, int]:
    """Return the place of x[i] and x[i + 8], which are the same."""
    return lane // 4 + 8 * (i >> 1 & 1), 2 * (lane % 4) + (i & 1) + 8 * (i >> 2 & 1)


def _f16_b(lane: int, i: int) -> tuple[int, int]:
    return 2 * (lane % 4) + (i & 1) + 8 * (i >> 1 & 1), lane // 4 + 8 * (i >> 2 & 1)


def _accumulator(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i >> 1 & 1), 2 * (lane % 4) + (i & 1) + 8 * (i >> 2)


def _tf32_a(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + 8 * (i & 1), lane % 4 + 4 * (i >> 1)


def _tf32_b(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * (i & 1), lane // 4 + 8 * (i >> 1)


# ---- sm_70: two lanes hold an element of A, and of B -----------------------------------------

_Along = Callable[[int, int], tuple[int, int]]
"""From (lane, i) to what is added to the line of A or B, and the place along k."""


def _volta_line(lane: int, i: int) -> tuple[int, int]:
    """A lane has a line of 16 along k."""
    return lane & 3, i


def _volta_block(lane: int, i: int) -> tuple[int, int]:
    """A lane has 4 lines, of each every fourth along k."""
    return i & 3, (lane & 3) + (i & 12)


def _volta_a(along: _Along) -> Element:
    def element(lane: int, i: int) -> tuple[int, int]:
        line, k = along(lane, i)
        return line + 8 * (lane >> 2 & 1) + 4 * (lane >> 4), k

    return element


def _volta_b(along: _Along) -> Element:
    def element(lane: int, i: int) -> tuple[int, int]:
        line, k = along(lane, i)
        return k, line + 8 * (lane >> 3 & 1) + 4 * (lane >> 4)

    return element


def _volta_d_f16(lane: int, i: int) -> tuple[int, int]:
    return (lane & 3) + 8 * (lane >> 2 & 1) + 4 * (lane >> 4), i + 8 * (lane >> 3 & 1)


def _volta_d_f32(lane: int, i: int) -> tuple[int, int]:
    row = (lane & 1) + 8 * (lane >> 2 & 1) + 4 * (lane >> 4) + 2 * (i >> 1 & 1)
    col = (lane & 2) + 8 * (lane >> 3 & 1) + (i & 1) + 4 * (i >> 2)
    return row, col
