"""An operation is a row: its syntax line in the PTX ISA, its operands, and what it does.

    row("mad.hi.<T>", "T T T -> T", make=mad_high, T="u16 s16 u32 s32 u64 s64")
    row("add{.sat}.s32", "s32 s32 -> s32", make=add_s32)
    row("addc.cc.<T>", "T T cc -> T cc", add_carry, T="u32 s32 u64 s64")

In the syntax a modifier stands for itself, ``<name>`` for one of those that the row gives by keyword,
and braces enclose what may be left out. The second text says what each operand must be (see
``OperandClass``), destinations behind the arrow. Everything else about the operation is a column of
its row, so that which forms there are, what they take and need, and what a profile counts can be
asked of any instruction: ``find`` returns the ``Form`` of one, ``forms`` all forms of an opcode.

What an operation does is one of three functions:

``compute``  is given one numpy array per source, viewed as the operand's dtype (``isa.types``), of all
             active threads, and returns one array per result (alone where there is one). It must not
             write to its inputs, and must broadcast: of shape (1,) is what all threads share.
``make``     returns such a function. It is given by keyword what fills each slot of the form that is
             not fixed, "" for what is left out, once for a form: nothing is decided while threads run.
``step``     builds the ``Step`` of an instruction that is more than arithmetic, from the context, the
             instruction and its form.

Further readings of the same operation (machine code, native code) are further columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy.typing as npt

from ptxlab.isa.legality import ANYWHERE, Needs, parse_needs
from ptxlab.isa.types import TYPES
from ptxlab.syntax.tree import Instruction

CARRY = "cc"
"""The operand that is not written: the carry flag of the thread, a bool."""

Array = npt.NDArray[Any]
Compute = Callable[..., Any]


StepBuilder = Callable[[Any, Instruction, "Form"], Any]


class UnknownForm(Exception):
    """The opcode is known but not with these modifiers; the text says which part."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in a syntax line: ``choices`` may fill it, "" among them where it may stay empty.

    A ``fixed`` one is a modifier that stands for itself. The ``typed`` ones hold types, whose order
    in an instruction means something.
    """

    name: str
    choices: tuple[str, ...]
    fixed: bool
    typed: bool


@dataclass(frozen=True, slots=True)
class Alu:
    """A computation on registers: the types of its results and operands, and a row's ``compute``."""

    results: tuple[str, ...]
    operands: tuple[str, ...]
    compute: Compute


@dataclass(frozen=True, slots=True)
class OperandClass:
    """What an operand must be.

    ``type``: its PTX type, or the name of the slot that gives it. ``constant``: no register will do.
    ``second``: it is the half of a pair ``d|p`` that may be left out.
    """

    type: str
    constant: bool = False
    second: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One syntax line with its columns; see the module for what ``row`` is given.

    ``mix`` is the class of the instruction mix that it counts as, and ``work`` how many operations
    each element of its result takes as Nsight Compute counts them. ``model`` says that the PTX ISA
    bounds the error only. ``needs`` maps a modifier ("": whatever the modifiers) to what it needs.
    """

    opcode: str
    slots: tuple[Slot, ...]
    sources: tuple[OperandClass, ...]
    results: tuple[OperandClass, ...]
    compute: Compute | None
    make: Callable[..., Compute] | None
    step: StepBuilder | None
    mix: str
    work: int
    model: bool
    needs: Mapping[str, Needs]

    def match(self, modifiers: Sequence[str]) -> tuple[str, ...] | None:
        """Return what fills each slot, in any order but that of the types; None if it does not fit."""
        left = dict(enumerate(modifiers))
        filled = []
        behind = -1
        for slot in self.slots:
            place = next((at for at, name in left.items() if name in slot.choices), None)
            if place is None:
                if "" not in slot.choices:
                    return None
                filled.append("")
                continue
            if slot.typed:
                if place < behind:
                    return None
                behind = place
            filled.append(left.pop(place))
        return None if left else tuple(filled)

    def forms(self) -> Iterator[Form]:
        """Give every form, in the order of the choices."""
        for filled in product(*(slot.choices for slot in self.slots)):
            yield Form(self, filled)


@dataclass(frozen=True, eq=False)
class Form:
    """One instruction: a row, and what fills each of its slots ("" where it is left out)."""

    row: Row
    slots: tuple[str, ...]

    def __getitem__(self, name: str) -> str:
        """Return what fills the slot called ``name``."""
        return self._filled[name]

    @cached_property
    def _filled(self) -> dict[str, str]:
        return {slot.name: part for slot, part in zip(self.row.slots, self.slots, strict=True)}

    @property
    def opcode(self) -> str:
        """The instruction's opcode."""
        return self.row.opcode

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the opcode."""
        return tuple(part for part in self.slots if part)

    @property
    def name(self) -> str:
        """The instruction as the PTX ISA writes it."""
        return ".".join((self.opcode, *self.modifiers))

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The types of the results, with ``cc``."""
        return self._types(self.row.results)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The types of the source operands, with ``cc``."""
        return self._types(self.row.sources)

    def _types(self, operands: Iterable[OperandClass]) -> tuple[str, ...]:
        return tuple(self._filled.get(operand.type, operand.type) for operand in operands)

    @property
    def sources(self) -> int:
        """How many source operands are written."""
        return sum(name != CARRY for name in self.operands)

    @cached_property
    def compute(self) -> Compute:
        """The function from sources to results."""
        return self.row.compute or self.made()

    def made(self, **more: object) -> Compute:
        """Return the function that the row makes for this form, given ``more`` that it asks for."""
        assert self.row.make is not None
        filled = {slot.name: self[slot.name] for slot in self.row.slots if not slot.fixed}
        return self.row.make(**filled, **more)

    @cached_property
    def needs(self) -> Needs:
        """The least target and version."""
        asked = (need for name, need in self.row.needs.items() if not name or name in self.slots)
        return sum(asked, ANYWHERE)


ROWS: dict[str, list[Row]] = {}
"""The rows of each opcode."""


def row(
    syntax: str,
    operands: str,
    compute: Compute | None = None,
    *,
    make: Callable[..., Compute] | None = None,
    step: StepBuilder | None = None,
    mix: str,
    work: int = 0,
    model: bool = False,
    needs: str | Mapping[str, str] = "",
    **sets: str,
) -> None:
    """Register an operation; see the module and ``Row``. ``needs`` is like "sm_80 7.0"."""
    opcode, slots = _parse(syntax, sets)
    sources, _, results = operands.partition("->")
    asked = {"": needs} if isinstance(needs, str) else needs
    made = Row(
        opcode,
        slots,
        _operands(sources),
        _operands(results),
        compute,
        make,
        step,
        mix,
        work,
        model,
        {name: parse_needs(text) for name, text in asked.items() if text},
    )
    named = {slot.name for slot in slots}
    for operand in (*made.sources, *made.results):
        if operand.type not in named and operand.type not in TYPES and operand.type != CARRY:
            raise ValueError(f"{syntax}: {operand.type} is neither a type nor a slot")
    if compute is None and make is None and step is None:
        raise ValueError(f"{syntax}: nothing says what the operation does")
    ROWS.setdefault(opcode, []).append(made)


_PART = re.compile(r"(?P<open>\{)?\.(?P<set><)?(?P<name>[\w:]+)>?\}?")


def _parse(syntax: str, sets: Mapping[str, str]) -> tuple[str, tuple[Slot, ...]]:
    start = re.match(r"\w+", syntax)
    assert start is not None
    slots = []
    for part in _PART.finditer(syntax, start.end()):
        name = part["name"]
        choices = tuple(sets[name].split()) if part["set"] else (name,)
        typed = any(is_type(choice) for choice in choices)
        fixed = not part["set"] and not part["open"]
        slots.append(Slot(name, ("", *choices) if part["open"] else choices, fixed, typed))
    unused = set(sets) - {slot.name for slot in slots}
    if unused:
        raise ValueError(f"{syntax}: nothing is called {', '.join(unused)}")
    return start[0], tuple(slots)


_TYPE = re.compile(r"pred|tf32|[busf]\d+(x\d)?|bf16(x2)?|e\dm\d(x\d)?|ue8m0(x\d)?")


def is_type(name: str) -> bool:
    """Say whether a modifier is a type, of numbers in registers or of those packed into them."""
    return _TYPE.fullmatch(name) is not None


def _operands(text: str) -> tuple[OperandClass, ...]:
    found = []
    for word in text.split():
        for i, name in enumerate(word.split("|")):
            found.append(OperandClass(name.lstrip("#"), name.startswith("#"), i > 0))
    return tuple(found)


def forms(opcode: str) -> tuple[Form, ...]:
    """Return every form of ``opcode``, each once. Raises KeyError for a name unknown."""
    found: dict[tuple[str, int], Form] = {}
    for made in ROWS[opcode]:
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


def _why_not(rows: Sequence[Row], modifiers: Sequence[str]) -> str:
    """Say what is wrong with modifiers, by the rows that come nearest to them."""
    for name in modifiers:
        if not any(name in slot.choices for made in rows for slot in made.slots):
            unknown = f"modifier .{name} is not modelled"
            return f"does not take type .{name}" if is_type(name) else unknown
    misfits = [_misfit(made, modifiers) for made in rows]
    least = min(len(left) + len(missing) for left, missing, _ in misfits)
    nearest = [one for one in misfits if len(one[0]) + len(one[1]) == least]
    left, missing, taken = nearest[0]
    if left:
        typed = is_type(left[0])
        beside = f" with .{'.'.join(taken)}" if taken else ""
        return f"does not take {'type ' if typed else ''}.{left[0]}{beside}"
    if missing:
        choices = dict.fromkeys(name for _, slots, _ in nearest for name in slots[0].choices)
        return f"needs one of .{', .'.join(choices)}"
    return "takes its types in another order"


def _misfit(made: Row, modifiers: Sequence[str]) -> tuple[list[str], list[Slot], list[str]]:
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
