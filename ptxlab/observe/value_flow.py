"""Where the values of an instruction's operands go: which are used up, which its results are made of."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.forms import form_of
from ptxlab.emulator.prepare.registers import FrameLayout
from ptxlab.emulator.prepare.row import Mix, Row, UnknownForm
from ptxlab.emulator.prepare.scope import Scope
from ptxlab.instrument.sites import Scoped
from ptxlab.isa.targets import WARP
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.syntax.tree import Address, Group, Instruction, Integer, Name, Operand, Pair, Vector

NamedRegister = tuple[int, str]
"""The number of a register in its frame, and its name."""

USING: frozenset[Mix] = frozenset({"atomic", "control", "synchronization"})
"""The classes of the instruction mix that use all that they read."""
_LOADING: frozenset[Mix] = frozenset({"load", "matrix move"})


@dataclass(frozen=True, slots=True)
class ValueFlow:
    """The registers of an instruction, by what becomes of their values.

    Those ``used`` have arrived: addresses, membermasks, all that leaves the function or says where
    threads go. ``stored`` are those that go to memory, in order, None for what is no register;
    ``sources`` those that results are made of, ``moves`` saying that it is all one, ``by_warp`` that each
    result is made of those of the whole warp. ``loads`` are the results of a load, in order; ``exchanged``
    is the result of a shuffle.
    """

    guard: tuple[NamedRegister, ...]
    used: tuple[NamedRegister, ...]
    stored: tuple[NamedRegister | None, ...]
    sources: tuple[NamedRegister, ...]
    moves: bool
    by_warp: bool
    writes: tuple[int, ...]
    loads: tuple[int | None, ...]
    exchanged: int | None


def flow_of(site: Site, layout: FrameLayout, names: Mapping[int, str]) -> ValueFlow:
    """Return the flow of an instruction in a function whose registers have these ``names``."""
    instruction = site.instruction
    operands, guard = instruction.operands, instruction.guard
    form = form_of(instruction)
    row, effects = form.row, form.effects
    guards = {} if guard is None else dict.fromkeys(slots(site, Name(guard.name)))
    addresses = {slot for operand in _addresses(operands) for slot in slots(site, operand)}
    writes = tuple(slot for slot, _ in _named(site.writes, names))
    stored: tuple[NamedRegister | None, ...] = ()
    reads = site.reads - guards.keys()
    used = reads & addresses
    if row.mix == "store" and not fills_parameter(instruction):
        named = slots(site, operands[1])
        stored = tuple(None if slot is None else (slot, names[slot]) for slot in named)
    elif row.mix in USING or not writes:
        used = reads
    elif row.mix == "warp":
        others = operands[2:] or operands[1:]  # which lanes, and those that take part
        used = used | {slot for operand in others for slot in slots(site, operand) if slot in reads}
    if effects.leads == "caller":
        used = used | set(layout.results)
    loading = bool(addresses) and row.mix in _LOADING
    target = operands[0] if operands else None
    first = target.first if isinstance(target, Pair) else target
    shuffled = None
    if effects.passes == "lane" and first is not None:
        [shuffled] = slots(site, first)
    return ValueFlow(
        guard=_named(site.reads & guards.keys(), names),
        used=_named(used, names),
        stored=stored,
        sources=_named(reads - used, names) if writes else (),
        moves=row.mix == "move" or shuffled is not None,
        by_warp=row.collective and shuffled is None,
        writes=writes,
        loads=slots(site, operands[0]) if loading and writes else (),
        exchanged=shuffled,
    )


def _named(slots: Iterable[int], names: Mapping[int, str]) -> tuple[NamedRegister, ...]:
    """Return the registers among numbers, which may be those of constants and addresses too."""
    return tuple((slot, names[slot]) for slot in sorted(slots) if slot in names)


def _addresses(operands: Iterable[Operand]) -> Iterator[Address]:
    return (operand for operand in operands if isinstance(operand, Address))


def results(site: Scoped) -> list[str]:
    """Return the registers that an instruction writes, but for a product's that runs on behind it."""
    instruction = site.instruction
    first = instruction.operands[0] if instruction.operands else None
    if first is None or isinstance(first, Address):
        return []
    row = _row_of(instruction)
    written = row is None or row.results or (row.tabled and row.effects.begins != "products")
    return site.registers(first) if written or isinstance(first, Group) else []


def loads(instruction: Instruction) -> bool:
    """Say whether the results of an instruction are what was in memory."""
    row = _row_of(instruction)
    loading = row is None or row.mix in _LOADING | {"atomic"}
    return loading and any(_addresses(instruction.operands))


def fills_parameter(instruction: Instruction) -> bool:
    """Say whether an instruction stores to a parameter of a call, or a result, which are registers."""
    row = _row_of(instruction)
    store = row is not None and row.mix == "store"
    return store and state_space(instruction.modifiers) == "param"


def reads(instruction: Instruction) -> bool:
    """Say whether an instruction has a result that is what was in memory."""
    row = _row_of(instruction)
    return row is not None and bool(row.results) and loads(instruction)


def _row_of(instruction: Instruction) -> Row | None:
    """Return the row of an instruction, None where only a GPU has it."""
    try:
        return form_of(instruction).row
    except (KeyError, UnknownForm):
        return None


class RegisterNames:
    """The names of registers by number, put together once for each scope."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Scope, dict[int, str]]] = {}

    def seen_from(self, scope: Scope) -> Mapping[int, str]:
        return ChainMap(*map(self._own, scope.outward()))

    def _own(self, scope: Scope) -> dict[int, str]:
        known = self._known.get(id(scope))
        if known is None:
            names = {register.slot: name for name, register in scope.registers.items()}
            known = self._known[id(scope)] = scope, names
        return known[1]


def slots(site: Site, operand: Operand) -> tuple[int | None, ...]:
    """Return the numbers of the registers of an operand, None for each that is no register."""
    if isinstance(operand, Vector):
        return tuple(slot for element in operand.elements for slot in slots(site, element))
    if isinstance(operand, Address) and operand.base is not None:
        operand = operand.base
    register = site.register(operand.text) if isinstance(operand, Name) else None
    return (None if register is None else register.slot,)


def groups_left(site: Site) -> int | None:
    """Return how many groups an instruction that waits for a queue leaves under way; None where it leaves none."""
    allowed = site.instruction.operands[:1]
    return allowed[0].value if allowed and isinstance(allowed[0], Integer) else None


# ---- fragments: all states are [warps, register, lane] ---------------------------------------


def multiplied(site: Site, states: dict[int, Array]) -> dict[int, Array] | None:
    """Return the states of D, of which an element depends on a row of A, a column of B and C's.

    ``states`` are those of the registers that are not written all over. None where the operands have
    other layouts, and any element may depend on any other.
    """
    form = form_of(site.instruction).matrix
    d, *factors = site.instruction.operands[:4]
    rest = {slot for operand in site.instruction.operands[4:] for slot in slots(site, operand)}
    if not isinstance(form, MatrixInstruction) or rest & states.keys():
        return None
    layouts = [form.operand(name) for name in "DABC"]
    if any(layout.matrices > 1 or layout.threads != WARP for layout in layouts):
        return None
    a, b, c = (
        _matrix(layout, [states.get(-1 if slot is None else slot) for slot in slots(site, operand)])
        for layout, operand in zip(layouts[1:], factors, strict=True)
    )
    result = np.maximum(np.maximum(a.max(axis=2)[:, :, None], b.max(axis=1)[:, None, :]), c)
    row, col = np.moveaxis(layouts[0].table(), -1, 0)[-2:]
    highest = result[:, row, col].max(axis=3)
    targets = enumerate(slots(site, d))
    return {slot: highest[:, :, at].reshape(-1) for at, slot in targets if slot is not None}


def _matrix(layout: FragmentLayout, states: Sequence[Array | None]) -> Array:
    """Return the state of each element, [warps, rows, cols], from those of the registers."""
    warps = max((state.size // WARP for state in states if state is not None), default=1)
    matrix = np.zeros((warps, layout.rows, layout.cols), np.int32)
    row, col = np.moveaxis(layout.table(), -1, 0)[-2:]
    for register, state in enumerate(states):
        if state is not None:
            at = row[:, register], col[:, register]
            matrix[:, *at] = state.reshape(-1, WARP, 1)
    return matrix


def loaded_rows(site: Site, states: Array) -> Array:
    """Return the states of ldmatrix's results, [threads, register], from those of the rows.

    ``states`` has that of the row whose address each thread gives.
    """
    form = form_of(site.instruction).matrix
    assert form is not None
    [layout] = form.operands
    rows = layout.table()[..., 0]  # as many as threads that give an address
    loaded: Array = states.reshape(-1, WARP)[:, rows].max(axis=3)
    return loaded.reshape(states.size, -1)
