"""Constant memory in PTX: sizes of the launch, the stack, parameters, variables, numbers of the compiler.

A word that instructions name is loaded once, where the kernel begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ptxlab.errors import Unsupported
from ptxlab.machine.launch import WINDOW, ConstantBank
from ptxlab.toolchain.constant_memory import ADDRESSES, VARIABLES

STACK_NAME, SHARED_NAME, DYNAMIC_NAME = "stack", "shared_memory", "dynamic_shared_memory"
RESERVED_NAME = "reserved_shared_memory"
_ADDRESS = re.compile(r"32@(?P<half>lo|hi)\(\(?(?P<symbol>[\w$.]+)(?: \+ (?P<addend>\S+?))?\)?\)*$")


def named_address(text: str) -> tuple[str, int, int] | None:
    """Return the variable that an operand such as ``32@hi(variable + 0x8)`` names, how far into it, and which byte of its address is the first."""
    match = _ADDRESS.match(text)
    if match is None or "@" in match["symbol"]:
        return None
    return match["symbol"], int(match["addend"] or "0", 0), 0 if match["half"] == "lo" else 4


@dataclass(frozen=True, slots=True)
class Placed:
    """A parameter, ``offset`` bytes behind where these begin, or a variable of constant memory in its bank."""

    name: str
    offset: int
    size: int


class Emits(Protocol):
    """Emits PTX where an instruction stands."""

    def made(self, operation: str, *operands: str, kind: str = "w") -> str: ...

    def refused(self, why: str) -> Unsupported: ...


class Constants(Protocol):
    """Says what words of constant memory are in PTX, see ``ConstantBanks``."""

    def word(self, bank: int, offset: int) -> str | None: ...

    def indexed(self, w: Emits, bank: int, offset: int, index: str, kind: str = "b32") -> str: ...

    def address_word(self, text: str) -> str | None: ...


class ConstantBanks:
    """What a kernel's constant memory is in PTX; ``prologue`` are the lines that load what was asked for."""

    def __init__(
        self,
        bank: ConstantBank,
        parameters: Sequence[Placed],
        stack: int,
        literals: Mapping[int, bytes],
        variables: Sequence[Placed],
        addresses: Mapping[int, tuple[str, int]],
        code: Mapping[str, int],
        kernel: str,
    ) -> None:
        self._bank = bank
        self._parameters = parameters
        self._stack = stack
        self._literals = literals
        self._variables = variables
        self._addresses = addresses
        self._code = code
        self._kernel = kernel
        self.tables: dict[str, str] = {}
        """The declarations of banks that are indexed, by name."""
        self.prologue: list[str] = []
        self.names: dict[str, str] = {}
        """The registers that hold words, and their types."""

    def word(self, bank: int, offset: int) -> str | None:
        """Return the register, or the number, that a word of a bank is; None if nothing is known of it."""
        if bank in self._literals and 0 <= offset <= len(self._literals[bank]) - 4:
            return str(int.from_bytes(self._literals[bank][offset : offset + 4], "little"))
        name = f"c{bank}_{offset:x}"
        if name in self.names:
            return name
        if bank == 0:
            lines = self._launch(name, offset) or self._parameter(name, offset)
        elif bank == VARIABLES:
            lines = self._variable(name, offset)
        elif bank == ADDRESSES:
            lines = self._address(name, offset)
        else:
            lines = None
        if lines is None:
            return None
        self.prologue += lines
        self.names[name] = "b32"
        return name

    def _launch(self, name: str, offset: int) -> list[str] | None:
        bank = self._bank
        for first, special in (
            (bank.block, "%ntid"),
            (bank.grid, "%nctaid"),
            (bank.cluster_sizes, "%cluster_nctaid"),
            (bank.clusters, "%nclusterid"),
        ):
            if first is not None and first <= offset < first + 12:
                return [f"mov.u32 {name}, {special}.{'xyz'[(offset - first) // 4]};"]
        if offset == bank.stack:
            end = f"{STACK_NAME}+{self._stack}" if self._stack else "0"
            return [f"mov.u32 {name}, {end};"]
        if bank.reciprocals is not None and offset in (bank.reciprocals, bank.reciprocals + 4):
            size = f"%cluster_nctaid.{'yz'[(offset - bank.reciprocals) // 4]}"
            return [
                f"mov.u32 {name}, {size};",
                f"cvt.rn.f32.u32 {name}, {name};",
                f"rcp.rn.f32 {name}, {name};",  # as ``machine.launch.reciprocal``
            ]
        if offset == bank.ranks:
            return [f"mov.u32 {name}, %cluster_nctarank;"]
        if offset == bank.dynamic:
            return [f"mov.u32 {name}, %dynamic_smem_size;"]
        if offset == bank.cluster:
            return [
                "mov.pred launched, %is_explicit_cluster;",
                f"selp.u32 {name}, 1, 0, launched;",
            ]
        for first, space in ((WINDOW, "shared"), (bank.local, "local")):
            if offset in (first, first + 4):
                return self._half(name, offset - first, [f"cvta.{space}.u64 wide, 0;"])
        halves = (0, 4, 8, 12) if bank.ends is None else (0, 4)  # the address of the last byte too
        if bank.generic is not None and offset - bank.generic in halves:
            return self._generic(name, offset - bank.generic)
        if offset == bank.ends and self._parameters:
            return [f"mov.u32 {name}, {bank.parameters + self._size - 1};"]
        if offset in (*bank.descriptor, bank.alias):
            return [f"mov.u32 {name}, 0;"]
        if offset - bank.constants in (0, 4) and not self._variables:
            # 4 GiB where nothing lies: of constant memory that no variable is in there is no address.
            return [f"mov.u32 {name}, {0xFFFFFFFF if offset > bank.constants else 0};"]
        return None

    @property
    def _size(self) -> int:
        """The bytes of the parameters."""
        return max(placed.offset + placed.size for placed in self._parameters)

    def _generic(self, name: str, at: int) -> list[str] | None:
        """Load half of the generic address of the parameters, of their last byte or, before Hopper, of the bank."""
        if not self._parameters:
            return None
        # What is addressed is a tensor map, or another large one: those lie at multiples of 64.
        placed = max(self._parameters, key=lambda parameter: parameter.size)
        before = placed.offset
        if self._bank.ends is not None:
            before += self._bank.parameters
        elif at >= 8:
            before -= self._size - 1
        lines = [f"mov.u64 wide, {placed.name};", "cvta.param.u64 wide, wide;"]
        return self._half(name, at % 8, [*lines, f"sub.u64 wide, wide, {before};"])

    def _half(self, name: str, at: int, lines: list[str]) -> list[str]:
        halves = (name, "rest") if at == 0 else ("rest", name)
        return [*lines, f"mov.b64 {{{halves[0]}, {halves[1]}}}, wide;"]

    def _parameter(self, name: str, offset: int) -> list[str] | None:
        """Load a word of the parameters, in parts where it is no part of one alone."""
        offset -= self._bank.parameters
        for parameter in self._parameters:
            at = offset - parameter.offset
            if at >= 0 and at + 4 <= parameter.size:
                return [f"ld.param.b32 {name}, [{parameter.name}+{at}];"]
        lines = [f"mov.b32 {name}, 0;"]
        for byte in range(4):
            for parameter in self._parameters:
                at = offset + byte - parameter.offset
                if 0 <= at < parameter.size:
                    lines += [
                        f"ld.param.u8 rest, [{parameter.name}+{at}];",
                        f"shl.b32 rest, rest, {8 * byte};",
                        f"or.b32 {name}, {name}, rest;",
                    ]
        return lines if len(lines) > 1 else None

    def _variable(self, name: str, offset: int) -> list[str] | None:
        for variable in self._variables:
            at = offset - variable.offset
            if at >= 0 and at + 4 <= variable.size:
                return [f"ld.const.b32 {name}, [{variable.name}+{at}];"]
        return None

    def _address(self, name: str, offset: int) -> list[str] | None:
        """Take a half of the address of a variable, or of code."""
        for at, (symbol, addend) in self._addresses.items():
            if offset - at in (0, 4):
                if symbol in self._code:
                    return [f"mov.u32 {name}, {self._code[symbol] if offset == at else 0};"]
                lines = [f"mov.u64 wide, {symbol};", f"add.u64 wide, wide, {addend};"]
                return self._half(name, offset - at, lines)
        return None

    def indexed(self, w: Emits, bank: int, offset: int, index: str, kind: str = "b32") -> str:
        """Load a number of some ``kind`` of a bank that lies behind ``offset`` where a register says."""
        own = self._bank
        firsts = (own.cluster_sizes, own.clusters)
        sizes = [first + 4 * axis for first in firsts if first is not None for axis in range(3)]
        if own.reciprocals is not None:
            sizes += [own.reciprocals, own.reciprocals + 4]
        if bank == 0 and offset in (own.ranks, own.dynamic, *sizes):
            word = self.word(bank, offset)
            assert word is not None
            return word  # SR_CgaSize leads away from there, which is 0 here
        if bank == 0:
            first = next(iter(self._parameters), None)
            if first is not None and offset >= self._bank.parameters:
                base = self._base("b32", first.name)
                at = offset - self._bank.parameters - first.offset
                return w.made(f"ld.param.{kind}", f"[{w.made('add.u32', base, index)}+{at}]")
        table, at = self._table(bank, offset)
        if table is None:
            raise w.refused(f"bank {bank} of constant memory is not indexed here")
        base = self._base("b64", table)
        wide = w.made("cvt.s64.s32", index, kind="d")
        address = w.made("add.u64", base, wide, kind="d")
        return w.made(f"ld.const.{kind}", f"[{address}+{at}]")

    def _table(self, bank: int, offset: int) -> tuple[str | None, int]:
        """Return what an index leads into, and where in there it begins to count."""
        if bank == VARIABLES:
            for variable in self._variables:
                if 0 <= offset - variable.offset < max(variable.size, 1):
                    return variable.name, offset - variable.offset
            return None, 0
        name = f"constant{bank}_{self._kernel}"
        if bank == ADDRESSES and self._addresses:
            size, entries = max(self._addresses) // 8 + 1, []
            for at in range(size):
                symbol, addend = self._addresses.get(8 * at, ("", 0))
                known = not symbol or symbol in self._code
                entries.append(str(self._code.get(symbol, 0)) if known else f"{symbol}+{addend}")
            self.tables[name] = f".const .align 8 .u64 {name}[{size}] = {{{', '.join(entries)}}};"
        elif bank in self._literals:
            data = self._literals[bank]
            numbers = ", ".join(map(str, data))
            self.tables[name] = f".const .align 16 .b8 {name}[{len(data)}] = {{{numbers}}};"
        return (name if name in self.tables else None), offset

    def _base(self, kind: str, variable: str) -> str:
        name = f"a_{variable}"
        if name not in self.names:
            self.prologue.append(f"mov.{kind} {name}, {variable};")
            self.names[name] = kind
        return name

    def address_word(self, text: str) -> str | None:
        """Return a half of the address that an operand names: ``32@lo(variable)``."""
        named = named_address(text)
        if named is None:
            return None
        symbol, addend, at = named
        name = f"{'hi' if at else 'lo'}_{symbol.replace('.', '_')}_{addend:x}"
        if name not in self.names:
            self.prologue += self._half(
                name, at, [f"mov.u64 wide, {symbol};", f"add.u64 wide, wide, {addend};"]
            )
            self.names[name] = "b32"
        return name
