"""Rewriting a kernel so that every thread leaves a trace of all that it computes.

A step is an instruction that a thread executes and that writes a register. A thread's row of the
buffer (see ``ptxlab.instrument.rewrite``) holds how many steps it has made, and a word for each step of
a window: a hash of everything computed up to it, and the number of its site.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.errors import Unsupported
from ptxlab.instrument.rewrite import (
    COUNT,
    LONGS,
    PASSING,
    ROW,
    Typed,
    do,
    insert,
    store,
    stores,
    word_of,
)
from ptxlab.instrument.sites import Scoped
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.tree import (
    Address,
    Block,
    Guard,
    Instruction,
    Integer,
    Name,
    Not,
    Operand,
    Position,
    PtxModule,
    Statement,
)

SITE_BITS = 20
"""The low bits of a word are the number of the site, the others are of the hash."""

HASH = LONGS[2]
"""Begins as what the computation of the row's address leaves: the thread's number in its CTA."""

_MIX = 0x9E3779B97F4A7C15  # odd, so that multiplying loses nothing; 2**64 / golden ratio
_SITES = (1 << SITE_BITS) - 1


@dataclass(frozen=True, slots=True)
class Traced:
    """A site to trace: the registers it writes, with their types."""

    site: Scoped
    registers: Typed

    @property
    def guard(self) -> Guard | None:
        """The guard under which its threads make a step; None where the instruction changes it."""
        guard = self.site.instruction.guard
        return None if guard is None or guard.name in dict(self.registers) else guard


def trace(
    module: PtxModule, kernel: str, sites: Sequence[Traced], first: int, steps: int
) -> PtxModule:
    """Return ``module`` with ``kernel`` tracing its steps from number ``first`` (from 0) on.

    Slot 0 is how many steps the thread has made in all, the slots after it are ``steps`` words.
    """
    if len(sites) > _SITES:
        raise Unsupported(
            f"{kernel} has {len(sites)} instructions to follow, at most {_SITES} can be",
            location=locate(module.source, sites[0].site.instruction.position),
        )
    blocks = {
        (traced.site.instruction.position, True): [Block(tuple(_step(traced, n, first, steps)))]
        for n, traced in enumerate(sites)
    }
    return insert(module, kernel, blocks, 1 + steps)


def _step(traced: Traced, number: int, first: int, steps: int) -> Iterator[Statement]:
    guard = traced.guard
    value, word, _ = LONGS
    for register, type_name in traced.registers:
        yield from word_of(register, type_name, value)
        yield do("xor.b64", HASH, HASH, value, guard=guard)
        yield do("mul.lo.u64", HASH, HASH, Integer(_MIX), guard=guard)
    yield do("sub.u64", value, COUNT, Integer(first))
    yield _inside(value, steps, guard)
    yield do("mad.lo.u64", value, value, Integer(8), ROW)
    yield do("and.b64", word, HASH, Integer(~_SITES % (1 << 64)))
    yield do("or.b64", word, word, Integer(number))
    yield do("st.global.u64", Address(Name(value), 8), word, guard=Guard(PASSING))
    yield do("add.u64", COUNT, COUNT, Integer(1), guard=guard)
    yield store(0, COUNT, guard)


def _inside(value: str, steps: int, guard: Guard | None) -> Instruction:
    """Return the test whether a thread stores: in the window, and under the guard if there is one."""
    if guard is None:
        return do("setp.lt.u64", PASSING, value, Integer(steps))
    name = Name(guard.name)
    under: Operand = Not(name) if guard.negated else name
    return do("setp.lt.and.u64", PASSING, value, Integer(steps), under)


def look_at_step(
    module: PtxModule,
    kernel: str,
    sites: Sequence[Traced],
    step: int,
    watched: Traced,
    before: Typed,
) -> PtxModule:
    """Return ``module`` with ``kernel`` storing registers where it makes step ``step`` at ``watched``.

    Slot 0 is 1 in the threads that do, then come the registers ``before`` (with their types) as they
    are before the instruction, then those it writes.
    """
    blocks: dict[tuple[Position, bool], list[Block]] = defaultdict(list)
    for traced in sites:
        here = traced.site.instruction.position
        guard = traced.guard
        after: list[Statement] = []
        if traced is watched:
            blocks[here, False].append(Block(tuple(_stores(before, 1, step, guard))))
            after += _stores(traced.registers, 1 + len(before), step, guard)
            after.append(do("mov.u64", LONGS[0], Integer(1)))
            after.append(store(0, LONGS[0], Guard(PASSING)))
        after.append(do("add.u64", COUNT, COUNT, Integer(1), guard=guard))
        blocks[here, True].append(Block(tuple(after)))
    return insert(module, kernel, blocks, 1 + len(before) + len(watched.registers))


def _stores(registers: Typed, slot: int, step: int, guard: Guard | None) -> Iterator[Statement]:
    value = LONGS[0]
    yield do("sub.u64", value, COUNT, Integer(step))
    yield _inside(value, 1, guard)
    yield from stores(registers, slot, Guard(PASSING))
