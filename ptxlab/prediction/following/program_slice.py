"""Which instructions decide where a kernel goes and what it asks memory for; the rest need not be run.

A register, predicate or memory is live where something that decides may read it before it is written
again. An instruction that writes nothing live is left out. What is read is told generously and what is
overwritten sparingly, so that nothing is left out that decides. Where a predicate says whether a load runs, its address is
live where that holds alone: what was in these registers before the same predicate, which may be kept in a register meanwhile,
had it made decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import or_

from ptxlab.garbage import record
from ptxlab.machine import kept_predicates, uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.kept_predicates import Condition
from ptxlab.machine.operands import Operand, SassAddress
from ptxlab.machine.row import accessed_bytes
from ptxlab.prediction.following.slow_paths import passed_by

STACK_POINTER = 1
_SPACES = {name: 1 << 528 + n for n, name in enumerate(("shared", "global", "local"))}
_EVERYWHERE = sum(_SPACES.values())
_SPACES |= {"copy": _SPACES["shared"], "generic": _SPACES["shared"] | _SPACES["global"]}
SPILLED = 531
"""The words of local memory, one by one, where they are known for registers that were spilled."""
_OF_OTHERS = _SPACES["generic"]
"""Memory in which one thread leaves something for others."""
_TOLD = ("alu", "fmaheavy", "lsu", "uniform")
"""Pipes of whose instructions it is known how many registers they write; others write one at least."""


class ProgramSlice:
    """What must be run of a kernel: for its control flow, and for the ``addresses`` of some instructions, by number."""

    def __init__(
        self,
        code: Sequence[DecodedInstruction],
        *,
        addresses: Collection[int],
        floats: bool = False,
    ) -> None:
        self.spilled, settled = _only_spills(code), passed_by(code)
        """Whether local memory is the compiler's alone, for registers that it spilled."""
        self._facts = [
            _Facts(i, i.number in addresses, self.spilled, i.number in settled, floats, told)
            for i, told in zip(code, kept_predicates.before(code), strict=True)
        ]
        self._live = _live(_successors(code, settled), self._facts)
        self._slices: dict[tuple[int, int, bool], list[int]] = {}

    def held(self, number: int) -> int:
        """Return what threads hold before an instruction that is read later, as the bits of ``machine.uses``, and words that were spilled."""
        return self._live[number].every & ~_EVERYWHERE

    def of(self, first: int, end: int, asked: bool) -> list[int]:
        """Return the numbers of the instructions to run of those from ``first`` to before ``end``.

        They follow each other. Where nobody has ``asked`` what they ask memory for, that is what later
        ones need.
        """
        key = (first, end, asked)
        if key not in self._slices:
            self._slices[key] = self._sliced(first, end, asked)
        return self._slices[key]

    def _sliced(self, first: int, end: int, asked: bool) -> list[int]:
        live, numbers = self._live[end], []
        for number in range(end - 1, first - 1, -1):
            facts = self._facts[number]
            if facts.unknown or facts.always or facts.is_needed(live):
                numbers.append(number)
            live = facts.before(live, asked)
        return numbers[::-1]


def read_by(i: DecodedInstruction) -> frozenset[int]:
    """Return the registers that running an instruction reads, and from 512 on the predicates."""
    reads = _Facts(i, addresses=True, spilled=False, settled=False, floats=True, told={}).reads
    return frozenset(bit for bit in range(reads.bit_length()) if reads >> bit & 1)


@record(frozen=True, slots=True)
class _Live:
    """What is live before an instruction: ``always``, and ``under`` conditions where these hold."""

    always: int = 0
    under: Mapping[Condition, int] = field(default_factory=dict)

    @property
    def every(self) -> int:
        return self.but(None)

    def but(self, guard: int | None) -> int:
        """Return all that is live where a predicate does not hold for certain."""
        bits = self.always
        for of, held in self.under.items():
            if of != guard:
                bits |= held
        return bits

    def joined(self, other: _Live) -> _Live:
        """Return what either has."""
        under = dict(self.under)
        for guard, bits in other.under.items():
            under[guard] = under.get(guard, 0) | bits
        return _Live(self.always | other.always, under)

    def before_decided(self, told: Mapping[Condition, Condition | None]) -> _Live:
        """Return the same before some conditions are made: what says so then is ``told``, or nobody knows yet which holds."""
        made = [condition for condition in told if condition in self.under]
        if not made:
            return self
        always, under = self.always, dict(self.under)
        moved = [(told[condition], under.pop(condition)) for condition in made]
        for condition, bits in moved:
            if condition is None:
                always |= bits
            else:
                under[condition] = under.get(condition, 0) | bits
        return _Live(always, under)

    def before_written(self, bits: int, guard: int | None) -> _Live:
        """Return what of it is live before some of it is written, where a predicate holds if one is given."""
        if not bits & self.every:
            return self
        if guard is None:
            under = {of: left for of, held in self.under.items() if (left := held & ~bits)}
            return _Live(self.always & ~bits, under)
        under = dict(self.under)
        under[guard] = under.get(guard, 0) & ~bits
        under[~guard] = under.get(~guard, 0) | self.always & bits
        return _Live(self.always & ~bits, {of: held for of, held in under.items() if held})

    def before_read(self, bits: int, guard: int | None) -> _Live:
        """Return the same with what is read, where a predicate holds if one is given."""
        if not bits & ~self.always:
            return self
        if guard is None:
            return _Live(self.always | bits, self.under)
        return _Live(self.always, {**self.under, guard: self.under.get(guard, 0) | bits})


def _live(following: Sequence[Sequence[int]], facts: Sequence[_Facts]) -> list[_Live]:
    """Return what is live before each instruction, and last where threads have ended: what others may load of memory."""
    live = [_Live()] * (len(facts) + 1)
    changed = True
    while changed:
        changed = False
        live[-1] = _Live(reduce(or_, (before.every for before in live)) & _OF_OTHERS)
        for number in range(len(facts) - 1, -1, -1):
            first, *others = following[number]
            after = live[first]
            for successor in others:
                after = after.joined(live[successor])
            before = facts[number].before(after, asked=True)
            if before != live[number]:
                live[number], changed = before, True
    return live


class _Facts:
    """What an instruction reads, may write, and surely overwrites, as sets of bits."""

    def __init__(
        self,
        i: DecodedInstruction,
        addresses: bool,
        spilled: bool,
        settled: bool,
        floats: bool,
        told: Mapping[Condition, Condition | None],
    ) -> None:
        row = i.row
        space = row.space if row else ""
        self.unknown = row is None or not row.timed
        """What is not known at all is run, to be refused."""
        self.writes = uses.written(i) if row is not None else _union(i.outs)
        apart = i.guard is None or row is None or not row.for_all
        self._kills = _written(i, 4 if row and row.pipe in _TOLD else 1) if apart else 0
        self._guard = kept_predicates.number_of(i.guard) if apart else None
        self._told = told
        """Which conditions say before it what others say afterwards, of those that it makes."""
        guard = uses.of(i.guard)
        self.reads = uses.read(i) if i.computed(floats) else guard
        self.roots = self.always = 0
        """What is read when memory is asked, and whoever asks."""
        if row is not None and row.asynchronous:
            placed = uses.coordinates(i) if row.boxes else 0
            tensor = row.does in ("tensor product", "tensor copy")
            given = _described(i) if tensor else uses.read(i) & ~placed
            self.always = guard | given | _SPACES["global"]
            self.roots = placed if addresses else 0
        elif row is not None and row.flow and not settled:
            self.roots = guard | _union(i.operands)
        elif space:
            places = guard | _union(i.ins)
            for operand in i.operands:
                if isinstance(operand, SassAddress):
                    places |= _address(operand, i.is_wide(operand))
            self.roots = places if addresses else 0
            self.reads = places
            spilling = spilled and space == "local"
            held = _words_of_stack(i) if spilling else _SPACES[space]
            if i.dest is not None:
                self.reads |= held
            if i.dest is None or i.known.stores:
                self.writes |= held
                self.reads |= uses.read(i)
                self._kills |= held if spilling else 0

    def is_needed(self, live: _Live) -> bool:
        """Say whether it may write what is live afterwards."""
        opposite = None if self._guard is None else ~self._guard
        return bool(self.writes & live.before_decided(self._told).but(opposite))

    def before(self, live: _Live, asked: bool) -> _Live:
        """Return what is live before the instruction, which memory may be ``asked`` by."""
        reads = self.always | (self.roots if asked else 0)
        if self.is_needed(live):
            reads |= self.reads
        before = live.before_decided(self._told).before_written(self._kills, self._guard)
        reads &= ~uses.FIXED
        guard = reads & (0 if self._guard is None else _bit(self._guard))
        return before.before_read(guard, None).before_read(reads & ~guard, self._guard)


def _bit(guard: int) -> int:
    return 1 << uses.PREDICATES + kept_predicates.predicate_of(guard)


def _successors(
    code: Sequence[DecodedInstruction], settled: Mapping[int, bool]
) -> list[tuple[int, ...]]:
    """Return which instructions may follow each, of those that are ``settled`` where they go; behind the last is the end."""
    returns = tuple(i.number + 1 for i in code if i.does == "call")
    successors: list[tuple[int, ...]] = []
    for i in code:
        onwards = (i.number + 1,)
        for_all = i.guard is None and not i.ins and not i.has("DIV")
        if i.does == "exit":
            successors.append((len(code), *(onwards * (not for_all))))
        elif i.does == "return":
            successors.append((*returns, *onwards))
        elif i.targets:
            successors.append((*i.targets, *onwards))
        elif i.does in ("branch", "call") and i.target is not None:
            jumps = settled.get(i.number, True)
            stays = not settled.get(i.number, i.does == "branch" and for_all)
            successors.append((*((i.target,) * jumps), *(onwards * stays)))
        else:
            successors.append(onwards)
    return successors


def _only_spills(code: Sequence[DecodedInstruction]) -> bool:
    """Say whether local memory is the compiler's alone, for registers that it spilled.

    Then every access is at a constant distance from a stack pointer that is set once, and words are as
    separate as registers, where an array's would be anywhere.
    """
    pointer = 1 << STACK_POINTER
    local = [i for i in code if i.row is not None and i.row.space == "local"]
    sets = [i.number for i in code if _written(i, 4) & pointer]
    last = max(sets, default=0)
    return (
        bool(local)
        and all(_on_stack(i) for i in local)
        and last < local[0].number
        and all(i.target is None or i.target > last for i in code)
    )


def _on_stack(i: DecodedInstruction) -> bool:
    (address,) = (operand for operand in i.operands if isinstance(operand, SassAddress))
    base = address.base
    whole = accessed_bytes(i.sass.modifiers) % 4 == 0 and address.offset % 4 == 0
    return whole and address.uniform is None and base is not None and base.number == STACK_POINTER


def _words_of_stack(i: DecodedInstruction) -> int:
    (address,) = (operand for operand in i.operands if isinstance(operand, SassAddress))
    words = (1 << accessed_bytes(i.sass.modifiers) // 4) - 1
    return words << SPILLED + address.offset // 4


def _written(i: DecodedInstruction, most: int) -> int:
    """Return what an instruction writes, of registers ``most`` at most."""
    bits = uses.registers(i.dest, min(i.written, most)) if i.row is not None else 0
    return (bits | _union(i.outs)) & ~uses.FIXED


def _described(i: DecodedInstruction) -> int:
    """Return the register that tells the shape of a product; of what is there in Tensor Memory nothing is followed."""
    bits = 0
    for operand in i.operands:
        if isinstance(operand, SassAddress) and operand.what == "idesc":
            bits |= uses.of(operand.uniform)
    return bits


def _union(operands: Iterable[Operand], words: int = 1) -> int:
    bits = 0
    for operand in operands:
        bits |= uses.of(operand, words)
    return bits


def _address(operand: SassAddress, wide: bool) -> int:
    words = 2 if wide else 1
    return uses.of(operand.base, words) | uses.of(operand.uniform, words)
