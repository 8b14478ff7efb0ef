"""Rewriting a kernel so that it stores registers into a buffer, and does what it did before.

What all rewritten kernels have in common:

- The kernel takes one more parameter, the last one: ``.param .u64 ptxlab_dump``, the address of the
  buffer in global memory, aligned to 8 bytes.
- The buffer is an array of little-endian 64-bit words of shape (threads of the grid, slots). A
  thread's row is its linear index over the whole grid: the linear index of its CTA (x fastest)
  times the threads of a CTA, plus its linear index in the CTA (x fastest).
- A word holds the register's bits, zero-extended: a predicate is 0 or 1, an f32 its 32 bits, a
  packed f16x2 its 32 bits with element 0 lowest.
- A thread that never comes by leaves its words as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ptxlab.instrument.sites import RESERVED, definition, dumped_type, instructions, site_at
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import (
    Address,
    Block,
    Declaration,
    Declarator,
    Function,
    Guard,
    Instruction,
    Integer,
    Name,
    Operand,
    Position,
    PtxModule,
    Statement,
)

DUMP_PARAMETER = f"{RESERVED}dump"
ROW = f"%{RESERVED}row"
"""The register that holds the address of the thread's row from the kernel's first instruction on."""

WORDS = tuple(f"%{RESERVED}w{i}" for i in range(4))
LONGS = tuple(f"%{RESERVED}x{i}" for i in range(3))
PASSING = f"%{RESERVED}p"
COUNT = f"%{RESERVED}n"
_HALF = f"%{RESERVED}h"

Typed = Sequence[tuple[str, str]]
"""Registers with their types."""

Insertions = Mapping[tuple[Position, bool], Sequence[Block]]
"""What to insert before (False) and after (True) the instruction at a place."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Registers to dump before, or ``after``, the instruction at ``position``.

    ``position`` is that of the instruction's guard if it has one. A guarded instruction is dumped
    whether its guard holds or not; after a branch, only the threads that fall through are.
    """

    position: Position
    registers: tuple[str, ...]
    after: bool


def dump_registers(module: PtxModule, kernel: str, probes: Sequence[Probe]) -> PtxModule:
    """Return ``module`` with ``kernel`` storing the probed registers of every thread.

    Slots are numbered over the probes in the order given, and in each over its registers in order.
    A word is written each time its probe is passed: after a loop it holds the last iteration's value.
    Nodes that were there keep their positions; the added ones are at NOWHERE.

    Raises PtxlabError when there is no such kernel, instruction or register, and Unsupported for a
    register wider than 64 bits.
    """
    blocks: dict[tuple[Position, bool], list[Block]] = defaultdict(list)
    slots = 0
    for probe, registers in _typed(module, kernel, probes):
        blocks[probe.position, probe.after].append(Block(tuple(stores(registers, slots))))
        slots += len(registers)
    return insert(module, kernel, blocks, slots)


def dump_nth(module: PtxModule, kernel: str, probes: Sequence[Probe], nth: int) -> PtxModule:
    """Return ``module`` with ``kernel`` storing registers the ``nth`` time (from 1) a thread passes a probe.

    All probes count together and share their slots, so they have equally many registers: the first
    slot is how often the thread has passed any of them in all, the others are the registers. Errors are
    those of ``dump_registers``.
    """
    slots = 1 + max((len(probe.registers) for probe in probes), default=0)
    blocks: dict[tuple[Position, bool], list[Block]] = defaultdict(list)
    for probe, registers in _typed(module, kernel, probes):
        passes = (
            do("add.u64", COUNT, COUNT, Integer(1)),
            do("setp.eq.u64", PASSING, COUNT, Integer(nth)),
            store(0, COUNT),
        )
        block = Block((*passes, *stores(registers, 1, Guard(PASSING))))
        blocks[probe.position, probe.after].append(block)
    return insert(module, kernel, blocks, slots)


def _typed(
    module: PtxModule, kernel: str, probes: Sequence[Probe]
) -> Iterator[tuple[Probe, Typed]]:
    function = definition(module, kernel)
    sites = {site.instruction.position: site for site in instructions(function)}
    for probe in probes:
        site = site_at(module, function, sites, probe.position)
        yield probe, [(name, dumped_type(module, site, name)) for name in probe.registers]


def insert(module: PtxModule, kernel: str, blocks: Insertions, slots: int) -> PtxModule:
    """Return ``module`` with the blocks in ``kernel``, and the row of ``slots`` words they store to."""
    parameter = Declaration("param", "u64", (Declarator(DUMP_PARAMETER),))

    def rewritten(item: Function) -> Function:
        body = item.body
        if body is not None:
            body = (*_REGISTERS, Block(tuple(_row_address(slots))), *_inserted(body, blocks))
        return replace(item, parameters=(*item.parameters, parameter), body=body)

    items = tuple(
        rewritten(item) if isinstance(item, Function) and item.name == kernel else item
        for item in module.items
    )
    return replace(module, items=items)


def _inserted(statements: Sequence[Statement], blocks: Insertions) -> tuple[Statement, ...]:
    result: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Block):
            inner = _inserted(statement.statements, blocks)
            result.append(replace(statement, statements=inner))
        elif isinstance(statement, Instruction):
            result += blocks.get((statement.position, False), ())
            result.append(statement)
            result += blocks.get((statement.position, True), ())
        else:
            result.append(statement)
    return tuple(result)


# ---- what blocks are made of ----------------------------------------------------------------


def do(name: str, *operands: str | Operand, guard: Guard | None = None) -> Instruction:
    """Return the instruction ``name`` with ``operands``, of which strings are names."""
    opcode, *modifiers = name.split(".")
    named = (Name(operand) if isinstance(operand, str) else operand for operand in operands)
    return Instruction(opcode, tuple(modifiers), tuple(named), guard)


def store(slot: int, value: str, guard: Guard | None = None) -> Instruction:
    """Return the store of a 64-bit register into a slot of the row."""
    return do("st.global.u64", Address(Name(ROW), 8 * slot), value, guard=guard)


def stores(registers: Typed, first: int, guard: Guard | None = None) -> Iterator[Instruction]:
    for slot, (register, type_name) in enumerate(registers, first):
        yield from word_of(register, type_name, LONGS[0])
        yield store(slot, LONGS[0], guard)


def word_of(register: str, type_name: str, long: str) -> Iterator[Instruction]:
    """Yield what puts a register's bits, zero-extended, into the 64-bit register ``long``."""
    bits = TYPES[type_name].bits
    # mov.bN takes a register of any type of N bits, cvt only integers; 8 bits have cvt alone.
    if bits == 1:
        yield do("selp.u64", long, Integer(1), Integer(0), register)
    elif bits == 8:
        yield do("cvt.u64.u8", long, register)
    elif bits == 64:
        yield do("mov.b64", long, register)
    else:
        narrow = _HALF if bits == 16 else WORDS[0]
        yield do(f"mov.b{bits}", narrow, register)
        yield do(f"cvt.u64.u{bits}", long, narrow)


_REGISTERS = (
    Declaration("reg", "b16", (Declarator(_HALF),)),
    Declaration("reg", "b32", tuple(map(Declarator, WORDS))),
    Declaration("reg", "b64", tuple(map(Declarator, (*LONGS, ROW, COUNT)))),
    Declaration("reg", "pred", (Declarator(PASSING),)),
)


def _row_address(slots: int) -> Iterator[Instruction]:
    """Yield the computation of the address of this thread's row, and a count of 0."""
    a, b, c, d = WORDS
    x, y, z = LONGS
    yield do("mov.u32", a, "%ctaid.z")
    yield do("mov.u32", b, "%nctaid.y")
    yield do("mov.u32", c, "%ctaid.y")
    yield do("mad.lo.u32", a, a, b, c)
    yield do("mov.u32", b, "%nctaid.x")
    yield do("mov.u32", c, "%ctaid.x")
    yield do("cvt.u64.u32", x, c)
    yield do("mad.wide.u32", x, a, b, x)  # x: linear index of the CTA
    yield do("mov.u32", a, "%tid.z")
    yield do("mov.u32", b, "%ntid.y")
    yield do("mov.u32", c, "%tid.y")
    yield do("mad.lo.u32", a, a, b, c)
    yield do("mov.u32", c, "%ntid.x")
    yield do("mov.u32", d, "%tid.x")
    yield do("mad.lo.u32", a, a, c, d)  # a: linear index in the CTA
    yield do("mul.lo.u32", b, b, c)
    yield do("mov.u32", c, "%ntid.z")
    yield do("mul.lo.u32", b, b, c)  # b: threads of a CTA
    yield do("cvt.u64.u32", y, b)
    yield do("cvt.u64.u32", z, a)
    yield do("mad.lo.u64", x, x, y, z)
    yield do("ld.param.u64", y, Address(Name(DUMP_PARAMETER)))
    yield do("cvta.to.global.u64", y, y)
    yield do("mad.lo.u64", ROW, x, Integer(8 * slots), y)
    yield do("mov.u64", COUNT, Integer(0))
