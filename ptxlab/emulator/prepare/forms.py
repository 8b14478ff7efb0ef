"""From instructions to the forms they are: which there are, which one is meant, and why it is none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ptxlab.emulator.prepare.row import ROWS, Form, Row, Slot, UnknownForm, is_type
from ptxlab.syntax.tree import Instruction


def opcodes() -> tuple[str, ...]:
    """Return the opcodes that have forms from registers to registers."""
    return tuple(
        name for name, rows in ROWS.items() if any(row.compute or row.make for row in rows)
    )


def forms(opcode: str) -> tuple[Form, ...]:
    """Return every form of ``opcode`` from registers to registers, each once.

    Raises KeyError for a name unknown.
    """
    found: dict[tuple[str, int], Form] = {}
    for made in ROWS[opcode]:
        if made.compute or made.make:
            for form in made.forms():
                found.setdefault((form.name, form.sources), form)
    return tuple(found.values())


@lru_cache(maxsize=4096)
def find(opcode: str, modifiers: tuple[str, ...], sources: int | None = None) -> Form:
    """Return the form of an instruction, by its number of source operands where that decides.

    Raises KeyError for an opcode without rows, UnknownForm for modifiers that no row has.
    """
    found = [
        Form(made, filled) for made in ROWS[opcode] if (filled := made.match(modifiers)) is not None
    ]
    if not found:
        raise UnknownForm(_why_not(ROWS[opcode], modifiers))
    return next((form for form in found if form.sources == sources), found[0])


def form_of(instruction: Instruction) -> Form:
    """Return the form of ``instruction``. Raises like ``find``."""
    sources = max(len(instruction.operands) - 1, 0)
    return find(instruction.opcode, instruction.modifiers, sources)


def _why_not(rows: Sequence[Row], modifiers: Sequence[str]) -> str:
    """Say what is wrong with modifiers, by the rows that come nearest to them."""
    for name in modifiers:
        if not any(name in slot.choices for made in rows for slot in made.slots):
            unknown = f"modifier .{name} is not modelled"
            return f"does not take type .{name}" if is_type(name) else unknown
    misfits = [_misfit(made, modifiers) for made in rows]
    least = min(map(_size, misfits))
    nearest = [one for one in misfits if _size(one) == least]
    left, missing, taken = nearest[0]
    if left:
        typed = is_type(left[0])
        beside = f" with .{'.'.join(taken)}" if taken else ""
        return f"does not take {'type ' if typed else ''}.{left[0]}{beside}"
    if missing:
        choices = dict.fromkeys(name for _, slots, _ in nearest for name in slots[0].choices)
        return f"needs {'one of ' if len(choices) > 1 else ''}.{', .'.join(choices)}"
    return "takes its types in another order"


_Misfit = tuple[list[str], list[Slot], list[str]]


def _size(misfit: _Misfit) -> tuple[int, int]:
    left, missing, _ = misfit
    return len(left) + len(missing), len(left)


def _misfit(made: Row, modifiers: Sequence[str]) -> _Misfit:
    """Return what a row does not take, which slots it then misses, and what it does take."""
    left, missing, taken = list(modifiers), [], []
    for slot in made.slots:
        name = next((name for name in left if name in slot.choices), None)
        if name is not None:
            left.remove(name)
            taken.append(name)
        elif "" not in slot.choices:
            missing.append(slot)
    return left, missing, taken
