"""Plain text building blocks: aligned tables and numbers. Nothing is ever cut off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.view.colour import Paint

OPEN = "PTX leaves this layout open: it is that of ptxlab's emulator, and of no chip"
"""What is said of wmma."""


def aligned(rows: Sequence[Sequence[str]], side: str = ">") -> list[str]:
    """Return lines with the columns of ``rows`` to the right, or ``<`` the left, two blanks between."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def fields(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines ``name  value`` with the values below each other."""
    width = max(len(name) for name, _ in pairs)
    return [f"{name:{width}}  {value}" for name, value in pairs]


def grid(
    cells: Sequence[Sequence[str]],
    lanes: Mapping[tuple[int, int], int],
    paint: Paint,
    keep: Callable[[int, int, int], bool] = lambda lane, row, col: True,
    *,
    heads: tuple[Sequence[str], Sequence[str]] | None = None,
    width: int | None = None,
) -> list[str]:
    """Return a matrix with its indices, each cell painted as its lane.

    What ``keep`` does not want, by lane, row and column, is a dot, and a row of dots is left out.
    ``heads`` say what stands before rows and over columns. What is wider than ``width`` goes on below.
    """
    down, across = heads or ([*map(str, range(len(cells)))], [*map(str, range(len(cells[0])))])
    size = max(len(cell) for line in (across, *cells) for cell in line)
    edge = max(map(len, down))
    most = len(across) if width is None else max(1, (width - edge) // (size + 2))
    kept = [
        [keep(lanes[row, col], row, col) for col in range(len(across))] for row in range(len(down))
    ]
    lines: list[str] = []
    for begin in range(0, len(across), most):
        part = range(begin, min(begin + most, len(across)))
        lines.append(" " * edge + "".join(f"  {across[col]:>{size}}" for col in part))
        for row, line in enumerate(cells):
            painted = [
                paint(f"{line[col]:>{size}}", lanes[row, col])
                if kept[row][col]
                else f"{'.':>{size}}"
                for col in part
            ]
            if any(kept[row]):
                lines.append("  ".join([f"{down[row]:>{edge}}", *painted]))
    return lines


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a caption, a line of heads, and lines that begin with their own head."""

    caption: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def on_github(table: Table) -> str:
    """Return a table as GitHub writes it, without its caption."""
    rule = "|".join(["--:", *[":-:"] * (len(table.head) - 1)])
    head, *lines = (f"| {' | '.join(line)} |" for line in (table.head, *table.lines))
    return "\n".join([head, f"|{rule}|", *lines])


def number(value: Any) -> str:
    """Write a number the shortest way that reads back as the same value of its own type."""
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    real = float(value)
    if np.isfinite(real) and real == int(real) and abs(real) < 1e15:
        return f"-{abs(int(real))}" if np.signbit(real) else str(int(real))
    return repr(real) if isinstance(value, float) else str(value)


def counted(number: int, noun: str, plural: str = "", *, form: str = "") -> str:
    """Write so many of what a noun names: ``1 register``, ``2 registers``; ``form`` is the number's."""
    return f"{number:{form}} {noun if number == 1 else plural or f'{noun}s'}"


def values(bits: Array, dtype: np.dtype[Any]) -> Array:
    """Return unsigned bit patterns, of whatever width they are held in, as values of ``dtype``."""
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


def hexadecimal(word: int, bits: int) -> str:
    return f"0x{word:0{(bits + 3) // 4}x}"
