"""Text within the columns of a terminal: tables lose their least columns, long lines are folded.

In a pipe or a file (``width`` None) nothing is left out and nothing is folded.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ptxlab.view.text import aligned

_GAP = re.compile(r"\S {2,}(?=\S)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INDENTATION = re.compile(r" *")
_WIDEST_NAME = 24
"""Behind a name of at most so many characters, and a gap, the rest of a folded line stays."""

_CUT = "…"


def fitted(
    rows: Sequence[Sequence[str]],
    width: int | None,
    least: Sequence[str] = (),
    *,
    cut: int = 0,
    below: bool = False,
) -> list[str]:
    """Return ``rows``, the heads first, aligned and within ``width``.

    While they are too long the columns headed ``least`` go, the first of these first, and a last line
    names them. Where that is not enough the last column stands ``below`` the one before it, or is cut, to no
    fewer than ``cut`` characters; 0 leaves it whole.
    """
    heads, gone = list(rows[0]), []
    for head in (name for name in least if name in heads):
        if width is None or _length(rows) <= width:
            break
        at = heads.index(head)
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        heads.pop(at)
        gone.append(head)
    if width is not None and below and _length(rows) > width:
        rows = [
            piece for *cells, last in rows for piece in (cells, [*[""] * (len(cells) - 1), last])
        ]
    if width is not None and cut and (over := _length(rows) - width) > 0:
        most = max(cut, max(len(row[-1]) for row in rows) - over)
        rows = [[*row[:-1], shortened(row[-1], most)] for row in rows]
    lines = aligned(rows, "<")
    if gone:
        lines.append(f"not shown for the terminal's width: {', '.join(gone)}")
    return lines


def stacked(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return ``rows``, the heads first, to the right; what is too wide as tables below each other.

    Each of them begins with the first column.
    """
    first, *others = zip(*rows, strict=True)
    lines: list[str] = []
    for part in _parts(
        [max(map(len, column)) for column in others], len(max(first, key=len)), width
    ):
        lines += ["", *aligned(list(zip(first, *others[part], strict=True)))]
    return lines[1:]


def beside(blocks: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return two blocks of lines side by side where both fit, else below each other."""
    left, right = blocks
    edge = max(map(_visible, left)) + 3
    if width is not None and edge + max(map(_visible, right)) > width:
        return [*left, "", *right]
    return [
        (cell + " " * (edge - _visible(cell)) + other).rstrip()
        for cell, other in zip_longest(left, right, fillvalue="")
    ]


def _visible(line: str) -> int:
    """Return how many columns a line takes, colours aside."""
    return len(_COLOUR.sub("", line))


def _parts(widths: Sequence[int], edge: int, width: int | None) -> Iterator[slice]:
    """Yield which columns stand side by side behind an edge, at least one."""
    begin, used = 0, edge
    for at, column in enumerate(widths):
        if width is not None and used + 2 + column > width and at > begin:
            yield slice(begin, at)
            begin, used = at, edge
        used += 2 + column
    yield slice(begin, len(widths))


def shortened(text: str, most: int) -> str:
    """Return at most ``most`` characters of ``text``, and say where there are more."""
    return text if len(text) <= most else text[: most - 1].rstrip() + _CUT


def folded(text: str, width: int) -> str:
    """Return ``text`` with its long lines folded between words, the rest of each below its beginning.

    Behind a name and a gap, as in a list of fields, that is below the value. Lines with colour are left.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, width))


def _pieces(line: str, width: int) -> list[str]:
    if len(line) <= width or "\x1b" in line:
        return [line]
    gap = _GAP.search(line, 0, _WIDEST_NAME + 4)
    within = gap.end() if gap else len(_INDENTATION.match(line)[0]) + 2  # type: ignore[index]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * within,
        drop_whitespace=True,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _length(rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)
