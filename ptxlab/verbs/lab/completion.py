"""What may be typed next: opcodes, their modifiers from the rows of operations, registers, names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import ptxlab.emulator  # noqa: F401  (registers every operation)
from ptxlab.emulator.prepare.row import ROWS, ModifierSlot, Row
from ptxlab.emulator.prepare.special import TABLE
from ptxlab.matrix.catalog import forms
from ptxlab.numbers.types import TYPES
from ptxlab.verbs.lab.cursor import word_before

_DIRECTIVES = (
    ".reg", ".shared", ".global", ".const", ".local", ".param", ".align", ".extern", ".visible", ".entry",
    ".func", ".version", ".target", ".address_size", ".reqntid", ".maxntid",
)  # fmt: skip
_BEGINS = re.compile(r"(?:^|[;{}:])\s*(?:@!?[\w$%.]+\s+)?$")
"""What stands before an instruction."""

Option = dict[str, Any]


def completions(text: str, line: int, column: int) -> dict[str, Any]:
    """Return what can stand for the word before a place, and the column where that word begins.

    Each is a label with its ``kind`` in a word, and perhaps with a ``detail``.
    """
    lines = text.split("\n")
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    word = word_before(here, column)
    begins = _BEGINS.search(here[: word.column - 1])
    return {"from": word.column, "options": list(_options(text, word.text, bool(begins)))}


def _options(text: str, word: str, begins: bool) -> Iterator[Option]:
    opcode, dot, _ = word.partition(".")
    if begins and dot and opcode in ROWS:
        yield from _modifiers(word)
    elif word.startswith("%"):
        yield from (_option(name, "register") for name in _registers(text))
        yield from (_option(name, "special", f"{TABLE[name].bits} bits") for name in TABLE)
    elif word.startswith("."):
        yield from (_option(name, "directive") for name in _DIRECTIVES)
        yield from (_option(f".{name}", "type") for name in TYPES)
    else:
        if begins:
            yield from (_option(name, "opcode", _classes(name)) for name in sorted(ROWS))
        yield from (_option(name, "name") for name in _names(text))
        yield from (_option(name, "register") for name in _registers(text))


def _option(label: str, kind: str, detail: str = "") -> Option:
    return {"label": label, "kind": kind, "detail": detail}


@cache
def _classes(opcode: str) -> str:
    return ", ".join(dict.fromkeys(row.mix for row in ROWS[opcode]))


def _modifiers(word: str) -> Iterator[Option]:
    """Yield what goes on from the modifiers typed so far, each with all of the word before it."""
    opcode, *given = word.split(".")
    *given, _ = given
    stem = ".".join((opcode, *given))
    following: dict[str, None] = {}
    for row in ROWS[opcode]:
        if row.lifted:
            continue
        following.update(dict.fromkeys(_of_table(stem) if row.tabled else _of_row(row, given)))
    yield from (_option(f"{stem}.{name}", "modifier", _classes(opcode)) for name in following)


def _of_row(row: Row, given: Sequence[str]) -> Iterator[str]:
    """Yield what a row takes behind modifiers that it takes: the next that must be there, and what may be left out."""
    left = list(given)
    slots: list[ModifierSlot] = list(row.slots)
    while left:
        slot = next((slot for slot in slots if left[0] in slot.choices), None)
        if slot is None:
            return
        skipped = slots[: slots.index(slot)]
        if any("" not in other.choices for other in skipped):
            return
        slots = slots[slots.index(slot) + 1 :]
        left.pop(0)
    for slot in slots:
        yield from filter(None, slot.choices)
        if "" not in slot.choices:
            return


@cache
def _of_table(stem: str) -> tuple[str, ...]:
    """Return the parts of names of matrix instructions that follow a beginning."""
    begin = f"{stem}."
    names = (form.name for form in forms())
    return tuple(
        dict.fromkeys(
            name.removeprefix(begin).partition(".")[0] for name in names if name.startswith(begin)
        )
    )


_DECLARED = re.compile(r"\.reg\s+(?:\.v\d\s+)?\.\w+\s+([^;]*);")
_MANY = re.compile(r"(%?[\w$]+)(?:<(\d+)>)?")


def _registers(text: str) -> list[str]:
    """Return the registers that are declared; of a row of them, ``%r<5>``, each one."""
    names: dict[str, None] = {}
    for declared in _DECLARED.finditer(text):
        for name, count in _MANY.findall(declared[1]):
            many = (
                [f"{name}{number}" for number in range(min(int(count), 200))] if count else [name]
            )
            names.update(dict.fromkeys(many))
    return list(names)


def _names(text: str) -> list[str]:
    """Return labels, parameters, variables and functions."""
    labels = re.findall(r"^\s*([$\w]+):", text, re.MULTILINE)
    parameters = re.findall(r"\.param\s[^,)]*?([$\w]+)\s*(?:\[\d+\])?\s*[,)]", text)
    functions = re.findall(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([$\w]+)", text)
    variables = re.findall(r"\.(?:shared|global|const|local)\s[^;]*?([$\w]+)\s*(?:\[[^;]*)?;", text)
    return list(dict.fromkeys([*labels, *parameters, *variables, *functions]))
