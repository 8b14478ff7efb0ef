"""Options as tables, a line each as the help shows it, and beside the table what reads their values.

    --nth N          at which time of coming by (default 1)
    --regs LIST      registers or operands, with commas between
    --before         look before the instruction, not after it
    FILE             a .ptx or .cu file

A line that is indented goes on with the one before it. Defaults are told apart, by ``set_defaults``.
Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

How = Callable[[str], Any] | tuple[str, ...] | list[Callable[[str], Any]] | Mapping[str, Any]
"""What reads a value; or all that it may be; or, in a list, what reads each value of an option that is
given again and again; or what argparse itself is told."""


def add(to: argparse._ActionsContainer, table: str, **how: How) -> None:
    """Add the options of a table, of which ``how`` says by name how they are read: as text unless told.

    A name that is a word of Python's has a ``_`` behind it. What has no value is True where it is given.
    """
    for words, text in _lines(table):
        names = [word for word in words if word.startswith("-")]
        values = words[len(names) :]
        name = names[-1].lstrip("-") if names else values[0].lower()
        key = name if name in how else f"{name}_"
        told = _told(how.pop(key, {} if values else {"action": "store_true"}))
        if values:
            told["metavar"] = values[0]
        to.add_argument(*(names or [name]), help=text, **told)
    assert not how, f"no line of the table is about {', '.join(how)}"


def _lines(table: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each option, its names and what stands for its value, and what it is for."""
    for line in table.strip().replace("\n ", "  ").split("\n"):
        spelled, _, text = line.partition("  ")
        yield spelled.split(), " ".join(text.split())


def _told(how: How) -> dict[str, Any]:
    match how:
        case Mapping():
            return dict(how)
        case tuple():
            return {"choices": how}
        case [reader]:
            return {"action": "append", "default": [], "type": reader}
    return {"type": how}
