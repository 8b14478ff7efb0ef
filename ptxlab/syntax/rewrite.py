"""Rewriting a module: finding instructions, and dumping registers around them into a buffer.

The dump buffer, as :func:`dump_registers` lays it out:

- The kernel takes one more parameter, the last one: ``.param .u64 ptxlab_dump``, the address of the
  buffer in global memory, aligned to 8 bytes.
- The buffer is an array of little-endian 64-bit words of shape (threads of the grid, slots). A
  thread's row is its linear index over the whole grid: the linear index of its CTA (x fastest)
  times the threads of a CTA, plus its linear index in the CTA (x fastest).
- Slots are numbered over the probes in the order given, and in each over its registers in order.
- A word holds the register's bits, zero-extended: a predicate is 0 or 1, an f32 its 32 bits, a
  packed f16x2 its 32 bits with element 0 lowest.
- A word is written each time its probe is passed: after a loop it holds the last iteration's value,
  and a thread that never comes by leaves its words as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.types import TYPES
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.tree import (
    Address,
    Block,
    Declaration,
    Declarator,
    Function,
    Instruction,
    Integer,
    Module,
    Name,
    Operand,
    Position,
    Statement,
)

DUMP_PARAMETER = "ptxlab_dump"
_RESERVED = "ptxlab_"
_WORDS = tuple(f"%{_RESERVED}w{i}" for i in range(4))
_LONGS = tuple(f"%{_RESERVED}x{i}" for i in range(3))
_HALF = f"%{_RESERVED}h"


@dataclass(frozen=True, slots=True)
class Probe:
    """Registers to dump before, or ``after``, the instruction at ``position``.

    ``position`` is that of the instruction's guard if it has one. A guarded instruction is dumped
    whether its guard holds or not; after a branch, only the threads that fall through are.
    """

    position: Position
    registers: tuple[str, ...]
    after: bool


class Site(NamedTuple):
    """An instruction and the declarations it can see, the outermost first."""

    instruction: Instruction
    declarations: tuple[Declaration, ...]


def instructions(function: Function) -> Iterator[Site]:
    """Yield every instruction of ``function`` in text order, those of nested blocks included."""
    yield from _sites(function.body or (), function.results + function.parameters)


def register_type(declarations: Sequence[Declaration], name: str) -> str | None:
    """Return the PTX type of register ``name`` where ``declarations`` are visible, or None.

    ``name`` may be one of a ``%r<5>``, or a component such as ``%v.x`` of a vector register.
    """
    base, _, component = name.partition(".")
    for declaration in reversed(declarations):
        if any(_declares(declarator, base) for declarator in declaration.names):
            matches = declaration.space == "reg" and (declaration.vector > 1) == bool(component)
            return declaration.type if matches else None
    return None


def dump_registers(module: Module, kernel: str, probes: Sequence[Probe]) -> Module:
    """Return ``module`` with ``kernel`` storing the probed registers of every thread.

    The buffer's layout is described at the top of this file. Nodes that were there keep their
    positions; the added ones are at NOWHERE.

    Raises PtxlabError when there is no such kernel, instruction or register, and Unsupported for a
    register wider than 64 bits.
    """
    definition = _definition(module, kernel)
    sites = {site.instruction.position: site for site in instructions(definition)}
    slots = sum(len(probe.registers) for probe in probes)
    blocks: dict[tuple[Position, bool], list[Block]] = defaultdict(list)
    first = 0
    for probe in probes:
        site = _site(module, definition, sites, probe)
        stores: list[Statement] = []
        for slot, register in enumerate(probe.registers, start=first):
            stores += _store(register, _type(module, site, register), slot)
        first += len(probe.registers)
        block = Block((*_REGISTERS, *_row_address(slots), *stores))
        blocks[probe.position, probe.after].append(block)
    parameter = Declaration("param", "u64", (Declarator(DUMP_PARAMETER),))

    def rewritten(function: Function) -> Function:
        body = None if function.body is None else _insert(function.body, blocks)
        return replace(function, parameters=(*function.parameters, parameter), body=body)

    items = tuple(
        rewritten(item) if isinstance(item, Function) and item.name == kernel else item
        for item in module.items
    )
    return replace(module, items=items)


def _sites(statements: Sequence[Statement], visible: tuple[Declaration, ...]) -> Iterator[Site]:
    for statement in statements:
        if isinstance(statement, Declaration):
            visible = (*visible, statement)
        elif isinstance(statement, Block):
            yield from _sites(statement.statements, visible)
        elif isinstance(statement, Instruction):
            yield Site(statement, visible)


def _declares(declarator: Declarator, name: str) -> bool:
    if declarator.count is None:
        return declarator.name == name
    index = name.removeprefix(declarator.name)
    if len(index) == len(name) or not index.isdecimal() or len(index) > 10:
        return False
    return str(int(index)) == index and int(index) < declarator.count


def _insert(
    statements: Sequence[Statement], blocks: dict[tuple[Position, bool], list[Block]]
) -> tuple[Statement, ...]:
    """Return ``statements`` with the blocks placed before and after their instructions."""
    result: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Block):
            inner = _insert(statement.statements, blocks)
            result.append(replace(statement, statements=inner))
        elif isinstance(statement, Instruction):
            result += blocks.get((statement.position, False), ())
            result.append(statement)
            result += blocks.get((statement.position, True), ())
        else:
            result.append(statement)
    return tuple(result)


# ---- what is looked up, and refused ---------------------------------------------------------


def _definition(module: Module, kernel: str) -> Function:
    names = [function.name for function in module.entries]
    if kernel not in names:
        raise PtxlabError(
            f"{module.source.path} has no kernel named {kernel}",
            hint=f"its kernels: {', '.join(names)}" if names else None,
        )
    return module.entries[names.index(kernel)]


def _site(module: Module, definition: Function, sites: dict[Position, Site], probe: Probe) -> Site:
    location = locate(module.source, probe.position)
    site = sites.get(probe.position)
    if site is None:
        raise PtxlabError(f"no instruction of {definition.name} starts here", location=location)
    for declaration in site.declarations:
        for declarator in declaration.names:
            if declarator.name.lstrip("%").startswith(_RESERVED):
                raise PtxlabError(
                    f"the name {declarator.name} is needed for the dump",
                    location=locate(module.source, declarator.position),
                    hint=f"names that begin with {_RESERVED} are reserved",
                )
    return site


def _type(module: Module, site: Site, register: str) -> str:
    location = locate(module.source, site.instruction.position)
    found = register_type(site.declarations, register)
    if found is None:
        raise PtxlabError(
            f"no register named {register} is declared here",
            location=location,
            hint=_suggestion(site.declarations, register),
        )
    if found not in TYPES or TYPES[found].bits > 64:
        raise Unsupported(
            f"cannot dump {register}: .{found} is no register of 64 bits or fewer",
            location=location,
        )
    return found


def _suggestion(declarations: Sequence[Declaration], register: str) -> str | None:
    names = {
        declarator.name + (f"<{declarator.count}>" if declarator.count is not None else "")
        for declaration in declarations
        if declaration.space == "reg"
        for declarator in declaration.names
    }
    near = get_close_matches(register, sorted(names), n=1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else None


# ---- what is inserted -----------------------------------------------------------------------


def _do(name: str, *operands: str | Operand) -> Instruction:
    opcode, *modifiers = name.split(".")
    named = (Name(operand) if isinstance(operand, str) else operand for operand in operands)
    return Instruction(opcode, tuple(modifiers), tuple(named))


_REGISTERS = (
    Declaration("reg", "b16", (Declarator(_HALF),)),
    Declaration("reg", "b32", tuple(map(Declarator, _WORDS))),
    Declaration("reg", "b64", tuple(map(Declarator, _LONGS))),
)


def _row_address(slots: int) -> Iterator[Instruction]:
    """Yield the computation of the address of this thread's row, left in the first long register."""
    a, b, c, d = _WORDS
    x, y, z = _LONGS
    yield _do("mov.u32", a, "%ctaid.z")
    yield _do("mov.u32", b, "%nctaid.y")
    yield _do("mov.u32", c, "%ctaid.y")
    yield _do("mad.lo.u32", a, a, b, c)
    yield _do("mov.u32", b, "%nctaid.x")
    yield _do("mov.u32", c, "%ctaid.x")
    yield _do("cvt.u64.u32", x, c)
    yield _do("mad.wide.u32", x, a, b, x)  # x: linear index of the CTA
    yield _do("mov.u32", a, "%tid.z")
    yield _do("mov.u32", b, "%ntid.y")
    yield _do("mov.u32", c, "%tid.y")
    yield _do("mad.lo.u32", a, a, b, c)
    yield _do("mov.u32", c, "%ntid.x")
    yield _do("mov.u32", d, "%tid.x")
    yield _do("mad.lo.u32", a, a, c, d)  # a: linear index in the CTA
    yield _do("mul.lo.u32", b, b, c)
    yield _do("mov.u32", c, "%ntid.z")
    yield _do("mul.lo.u32", b, b, c)  # b: threads of a CTA
    yield _do("cvt.u64.u32", y, b)
    yield _do("cvt.u64.u32", z, a)
    yield _do("mad.lo.u64", x, x, y, z)
    yield _do("ld.param.u64", y, Address(Name(DUMP_PARAMETER)))
    yield _do("cvta.to.global.u64", y, y)
    yield _do("mad.lo.u64", x, x, Integer(8 * slots), y)


def _store(register: str, type_name: str, slot: int) -> Iterator[Instruction]:
    """Yield the store of one register's bits into its slot of the row."""
    row, value, _ = _LONGS
    bits = TYPES[type_name].bits
    # mov.bN takes a register of any type of N bits, cvt only integers; 8 bits have cvt alone.
    if bits == 1:
        yield _do("selp.u64", value, Integer(1), Integer(0), register)
    elif bits == 8:
        yield _do("cvt.u64.u8", value, register)
    elif bits == 64:
        yield _do("mov.b64", value, register)
    else:
        narrow = _HALF if bits == 16 else _WORDS[0]
        yield _do(f"mov.b{bits}", narrow, register)
        yield _do(f"cvt.u64.u{bits}", value, narrow)
    yield _do("st.global.u64", Address(Name(row), 8 * slot), value)
