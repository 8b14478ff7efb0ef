"""An operation is a row: its syntax line in the PTX ISA, its operands, and what it does.

    row("mad.hi.<T>", "T T T -> T", make=mad_high, mix="integer", T="u16 s16 u32 s32 u64 s64")
    row("add{.sat}.s32", "s32 s32 -> s32", ...)
    row("addc.cc.<T>", "T T cc -> T cc", add_carry, mix="integer", T="u32 s32 u64 s64")
    row("red.async{.<scope>}.add.<T>", "[T] T", step=reduce, mix="atomic", T="u32 s32 u64")

In the syntax a modifier stands for itself, ``<name>`` for one of those that the row gives by keyword,
braces enclose what may be left out, and ``*`` stands for whatever a table of matrix instructions has.
The second text says what each operand must be (see ``OperandClass``), results behind the arrow.
Everything else about the operation is a column of its row, so that which forms there are, what they
take and need, and what a profile counts can be asked of any instruction: ``find`` returns the
``RowForm`` of one, ``forms`` all that an opcode has from registers to registers (``prepare.forms``).

What an operation does is one of four functions:

``compute``  is given one numpy array per source, viewed as the operand's dtype (``numbers.types``), of all
             active threads, and returns one array per result (alone where there is one). It must not
             write to its inputs, and must broadcast: of shape (1,) is what all threads share.
``make``     returns such a function. It is given by keyword what fills each slot of the form that is
             not fixed, "" for what is left out, once for a form: nothing is decided while threads run.
``step``     builds what an instruction does that is more than arithmetic, a ``program.Action``, from the
             context and its form. It raises UnknownForm for modifiers that cannot stand together.
``exit``     builds the exit (``run.code.Exit``) of an instruction that ends a block, from the context, its
             form and the number of the next block, and says which blocks it may lead to.

The first two are given values of machine code as well, which write down what is done to them
(``ptxlab.native.tracing``): what is not to be computed before threads run asks ``arrays.some`` or ``arrays.alike``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal

from ptxlab.arrays import Array
from ptxlab.emulator.prepare.effects import NO_EFFECTS, Effects
from ptxlab.emulator.prepare.order import Order, leads, order_of
from ptxlab.isa.legality import ANYWHERE, Needs, parse_needs
from ptxlab.isa.targets import Target
from ptxlab.matrix.form import Fidelity, Form
from ptxlab.matrix.naming import named
from ptxlab.numbers.types import TYPES

CARRY = "cc"
"""The operand that is not written: the carry flag of the thread, a bool."""

Compute = Callable[..., Any]
Binary = Callable[[Array, Array], Array]


Builder = Callable[..., Any]
Mix = Literal[
    "integer",
    "floating point",
    "special function",
    "logic and bits",
    "comparison",
    "conversion",
    "move",
    "load",
    "store",
    "atomic",
    "asynchronous copy",
    "cache",
    "matrix multiply",
    "matrix move",
    "warp",
    "synchronization",
    "control",
]
"""The classes of the instruction mix."""
RowKind = Literal[
    "value",
    "constant",
    "address",
    "name",
    "special",
    "datum",
    "part",
    "element",
    "or predicate",
    "tensor",
    "tensor memory",
    "place",
]

ANY = "*"
"""The slot of a row whose instructions are those of a table."""


class UnknownForm(Exception):
    """The opcode is known but not with these modifiers; the text says which part."""


@dataclass(frozen=True, slots=True)
class ModifierSlot:
    """One place in a syntax line: ``choices`` may fill it, "" among them where it may stay empty.

    A ``fixed`` one is a modifier that stands for itself. Those of one ``order`` keep it among each other.
    """

    name: str
    choices: tuple[str, ...]
    fixed: bool
    order: Order


@dataclass(frozen=True, slots=True)
class Alu:
    """A computation on registers: the types of its results and operands, and a row's ``compute``."""

    results: tuple[str, ...]
    operands: tuple[str, ...]
    compute: Compute


@dataclass(frozen=True, slots=True)
class OperandClass:
    """What an operand must be.

    It is written as its PTX type, or as the name of the slot that gives it:

    ``T``    a register or a constant          ``#T``   a constant
    ``[T]``  the address of one in memory      ``T*v``  as many registers as slot ``v`` says
    ``[T@s]``  that, in the space of slot ``s``  ``&T*d``  a tensor map and so many coordinates
    ``T*d-2``  as many as slot ``d`` says less 2, or ``+2``
    ``@x``   a name: of a label, a function    ``a|p``  a pair, whose half ``p`` may be left out
    ``T?``   what may be left out: at the      ``cc``   the carry flag, which is not written
             end, or a result, written ``_``
    ``%T``   a special register as well        ``$T``   that, an address, or the parts in braces
    ``=T``   an address as well
    ``T<n``  if a constant, one below n        ``T/n``  if a constant, a multiple of n
    ``~T``   or a predicate
    ``^T``   a part of a register, as video instructions select it
    """

    type: str
    kind: RowKind = "value"
    vector: str = ""
    more: int = 0
    space: str = ""
    optional: bool = False
    allowed: range | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One syntax line with its columns; see the module for what ``row`` is given.

    ``mix`` is the class of the instruction mix that it counts as, and ``work`` how many operations
    each element of its result takes as Nsight Compute counts them. ``fidelity`` is "model" where the
    PTX ISA bounds the error only, "ordering" where nothing is computed; a table of matrix instructions
    says of each of its own what is "unverified". A ``collective`` one needs
    threads of a warp to arrive together: it has ``participants`` (``program.BoundInstruction``). The
    operands of a ``wider`` one may have more bits than their type (PTX ISA, "Operand Size Exceeding
    Instruction-Type Size"). A ``lifted`` one is the machine's alone: no text that a user wrote has it.
    ``needs`` maps modifiers to what an instruction needs that has all of them ("": whatever it has).
    ``effects`` are what it does beside computing, with names of slots (``effects.Effects``).
    """

    opcode: str
    slots: tuple[ModifierSlot, ...]
    sources: tuple[OperandClass, ...]
    results: tuple[OperandClass, ...]
    mix: Mix
    needs: Mapping[str, Needs]
    effects: Effects = NO_EFFECTS
    work: int = 0
    fidelity: Fidelity = "exact"
    collective: bool = False
    wider: bool = False
    lifted: bool = False
    compute: Compute | None = None
    make: Callable[..., Compute] | None = None
    step: Builder | None = None
    exit: Builder | None = None

    @property
    def tabled(self) -> bool:
        """Whether its instructions are those of a table of matrix instructions."""
        return bool(self.slots) and self.slots[-1].name == ANY

    @property
    def syntax(self) -> str:
        """The forms as one text (``spelled``)."""
        return spelled(self.opcode, (slot.choices for slot in self.slots))

    def match(self, modifiers: Sequence[str]) -> tuple[str, ...] | None:
        """Return what fills each slot, in any order that ptxas takes; None if it does not fit."""
        if self.tabled:
            first = tuple(slot.name for slot in self.slots[:-1])
            return tuple(modifiers) if tuple(modifiers[: len(first)]) == first else None
        left = dict(enumerate(modifiers))
        filled = []
        behind: dict[Order, int] = {}
        leading = 0
        for slot in self.slots:
            position = next((at for at, name in left.items() if name in slot.choices), None)
            if position is None:
                if "" not in slot.choices:
                    return None
                filled.append("")
                continue
            if slot.order:
                if position < behind.get(slot.order, 0):
                    return None
                behind[slot.order] = position
            filled.append(left.pop(position))
            if leads(self.opcode, filled[-1]):
                if position != leading:
                    return None
                leading += 1
        return None if left else tuple(filled)

    def forms(self) -> Iterator[RowForm]:
        """Give every form, in the order of the choices."""
        for filled in product(*(slot.choices for slot in self.slots)):
            yield RowForm(self, filled)


@dataclass(frozen=True, eq=False)
class RowForm:
    """One instruction: a row, and what fills each of its slots ("" where it is left out)."""

    row: Row
    slots: tuple[str, ...]

    def __getitem__(self, name: str) -> str:
        """Return what fills the slot called ``name``, "" where the row has none."""
        return self._filled.get(name, "")

    @cached_property
    def _filled(self) -> dict[str, str]:
        return {slot.name: part for slot, part in zip(self.row.slots, self.slots, strict=False)}

    @property
    def opcode(self) -> str:
        return self.row.opcode

    @cached_property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(part for part in self.slots if part)

    @cached_property
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

    def count(self, kind: OperandClass) -> int:
        """Return how many registers an operand is made of, 1 where it is no vector."""
        digits = re.sub(r"\D", "", self[kind.vector])
        return int(digits or 1) + kind.more

    @property
    def sources(self) -> int:
        """How many source operands are written."""
        return sum(name != CARRY for name in self.operands)

    def fidelity_on(self, *targets: Target) -> Fidelity:
        """How near it comes to GPUs that are ``targets``; see ``Row``."""
        if self.row.fidelity == "exact" and self.matrix is not None:
            return self.matrix.fidelity_on(*targets)
        return self.row.fidelity

    @cached_property
    def compute(self) -> Compute:
        return self.row.compute or self.made()

    def made(self, **more: object) -> Compute:
        """Return the function that the row makes for this form, given ``more`` that it asks for."""
        assert self.row.make is not None
        return self.row.make(**self._chosen, **more)

    @property
    def _chosen(self) -> dict[str, str]:
        """What fills each slot that is not fixed."""
        return {slot.name: self[slot.name] for slot in self.row.slots if not slot.fixed}

    @cached_property
    def matrix(self) -> Form | None:
        """The matrix instruction that it is; None for one of registers, or one that no table has."""
        if not self.row.tabled:
            return None
        return named(self.name)

    @cached_property
    def effects(self) -> Effects:
        """What it does beside computing."""
        return self.row.effects.of(self.__getitem__, self.modifiers)

    @cached_property
    def needs(self) -> Needs:
        """The least target and version."""
        if self.matrix is not None:
            return Needs((self.matrix.minimum_targets,), self.matrix.minimum_ptx)
        having = set(self.slots)
        asked = (need for names, need in self.row.needs.items() if having.issuperset(names.split()))
        return sum(asked, ANYWHERE)


def spelled(opcode: str, slots: Iterable[Sequence[str]]) -> str:
    """Write forms: ``.{a,b}`` stands for either, ``[.a]`` for one that may be left out."""
    text = opcode
    for choices in slots:
        names = [name for name in choices if name]
        choice = f".{names[0]}" if len(names) == 1 else f".{{{','.join(names)}}}"
        text += (f"[{choice}]" if "" in choices else choice) if names else ""
    return text


ROWS: dict[str, list[Row]] = {}
"""The rows of each opcode."""


def row(
    syntax: str,
    operands: str,
    compute: Compute | None = None,
    *,
    make: Callable[..., Compute] | None = None,
    step: Builder | None = None,
    exit: Builder | None = None,
    mix: Mix,
    work: int = 0,
    fidelity: Fidelity = "exact",
    collective: bool = False,
    wider: bool = False,
    lifted: bool = False,
    needs: str | Mapping[str, str] = "",
    effects: Effects = NO_EFFECTS,
    **sets: str,
) -> None:
    """Register an operation; see the module and ``Row``.

    What it ``needs`` is like "sm_80 7.0"; of a table for many rows, each takes what it has the names of.
    """
    if not (compute or make or step or exit):
        raise ValueError(f"{syntax}: nothing says what the operation does")
    opcode, slots = _parse(syntax, sets)
    sources, _, results = operands.partition("->")
    asked = {"": needs} if isinstance(needs, str) else needs
    names_here = {name for slot in slots for name in slot.choices}
    made = Row(
        opcode,
        slots,
        tuple(_operands(sources, syntax, sets)),
        tuple(_operands(results, syntax, sets)),
        mix,
        {
            names: parse_needs(text)
            for names, text in asked.items()
            if text and names_here.issuperset(names.split())
        },
        effects,
        work,
        fidelity,
        collective,
        wider,
        lifted,
        compute,
        make,
        step,
        exit,
    )
    ROWS.setdefault(opcode, []).append(made)


_PART = re.compile(r"(?P<open>\{)?\.(?P<set><)?(?P<name>[\w:*]+)>?\}?")


def _parse(syntax: str, sets: Mapping[str, str]) -> tuple[str, tuple[ModifierSlot, ...]]:
    start = re.match(r"\w+", syntax)
    assert start is not None
    slots = []
    for part in _PART.finditer(syntax, start.end()):
        name = part["name"]
        choices = sets[name] if part["set"] else name
        slots.append(_slot(name, choices, bool(part["set"]), bool(part["open"])))
    unused = set(sets) - {slot.name for slot in slots}
    if unused:
        raise ValueError(f"{syntax}: nothing is called {', '.join(unused)}")
    return start[0], tuple(slots)


@cache
def _slot(name: str, words: str, is_set: bool, is_open: bool) -> ModifierSlot:
    choices = tuple(words.split())
    anywhere: Order = ""
    order = next((order for order in map(order_of, choices) if order), anywhere)
    return ModifierSlot(
        name, ("", *choices) if is_open else choices, not is_set and not is_open, order
    )


_OPERAND = re.compile(
    r"([#@\[%$^~&=]?)(\w*)(?:@(\w+))?\]?(?:\*(\w+)([-+]\d+)?)?(?:<(\d+))?(?:/(\d+))?(\?)?"
)
_KINDS: dict[str, RowKind] = {
    "": "value",
    "#": "constant",
    "[": "address",
    "@": "name",
    "%": "special",
    "$": "datum",
    "^": "part",
    "~": "or predicate",
    "&": "tensor",
    "=": "place",
}


def _operands(text: str, syntax: str, sets: Mapping[str, str]) -> Iterator[OperandClass]:
    for word in text.split():
        for half, name in enumerate(word.split("|")):
            operand = _operand(name, bool(half))
            if operand is None:
                raise ValueError(f"{syntax}: what is {word}?")
            kind = operand.type
            if operand.kind != "name" and not (kind in sets or kind in TYPES or kind == CARRY):
                raise ValueError(f"{syntax}: {kind} is neither a type nor a slot")
            yield operand


@cache
def _operand(word: str, optional: bool) -> OperandClass | None:
    match = _OPERAND.fullmatch(word)
    if match is None:
        return None
    mark, kind, space, vector, more, below, multiple, marked = match.groups(default="")
    return OperandClass(
        kind,
        _KINDS[mark],
        vector,
        int(more or 0),
        space,
        optional or bool(marked),
        range(0, int(below or 1 << 64), int(multiple or 1)) if below or multiple else None,
    )
