"""A cubin as a program: its kernels with their machine code, and its variables, without any PTX.

What the sections are called is what ptxas calls them: ``.nv.global`` and ``.nv.global.init`` have the variables of
global memory, ``.nv.constant3`` those of ``__constant__``, and ``.nv.constantN.KERNEL`` what the compiler put into a
bank for a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import Target, target_named
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode, numbers
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.sass import read_target
from ptxlab.toolchain.constant_memory import VARIABLES
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.elf import EXECUTABLE, Elf, ElfSection, read_elf, relocations, symbols
from ptxlab.toolchain.machine_code import CubinEntry, Parameter, entries
from ptxlab.toolchain.nvdisasm import disassemble

_SPACES = {
    ".nv.global": "global",
    ".nv.global.init": "global",
    f".nv.constant{VARIABLES}": "const",
}
_BANK = re.compile(r"\.nv\.constant(?P<number>\d+)(?:\.(?P<kernel>.+))?$")
_WHOLE = {1: 4, 2: 8, 3: 4, 4: 8}
"""Kinds of relocations that fill in a whole address, and its bytes: R_CUDA_32, _64, _G32 and _G64, where G says a
generic address. Those within instructions nvdisasm writes as operands."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The ``size`` bytes at ``offset`` are the address of ``symbol``, and ``addend`` bytes more."""

    offset: int
    symbol: str
    addend: int
    size: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in ``space``, "global" or "const": its bytes, some of which are addresses.

    ``start`` is where it begins in its section, which for "const" is where it is in bank 3.
    """

    name: str
    space: str
    start: int
    align: int
    data: bytes
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class KernelImage:
    """A kernel of a cubin: what the cubin says of it, and what is in its constant banks but bank 0.

    ``constants`` has the banks by number, bank 3 with the variables of the module, and ``references`` the addresses
    in each. ``addressed`` are the functions whose addresses memory has.
    """

    name: str
    entry: CubinEntry
    constants: Mapping[int, bytes]
    references: Mapping[int, tuple[Reference, ...]]
    addressed: tuple[str, ...]
    assembly: Assembly

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, and what is made behind them."""
        made = self.entry.made
        return self.entry.parameters + (() if made is None else (made,))

    @cached_property
    def functions(self) -> dict[str, int]:
        """The number of the first instruction of the kernel, 0, and of each function that it may call."""
        return numbers(self.assembly.functions, self.name, self.addressed)

    @cached_property
    def code(self) -> tuple[DecodedInstruction, ...]:
        """The instructions of the kernel, and behind it of what it may call."""
        assembly = self.assembly
        return tuple(decode(assembly.cubin, assembly.functions, self.name, self.addressed))


@dataclass(frozen=True)
class ModuleImage:
    """A cubin for ``target``: its kernels and variables by name."""

    target: Target
    kernels: Mapping[str, KernelImage]
    variables: Mapping[str, Variable]


def read_image(cubin: bytes, arch: str = "") -> ModuleImage:
    """Read a cubin, which says itself for which target it is, but not always all of it.

    Raises ToolchainError for what is none or damaged, Unsupported for what is not linked.
    """
    assembly = Assembly(None, Cubin(arch or read_target(disassemble(cubin)), cubin, ""))
    described = entries(cubin, assembly.cubin.arch)
    elf = read_elf(cubin)
    if elf.type != EXECUTABLE:
        raise Unsupported(
            "this cubin is to be linked with others, and does not say where things are",
            hint="nvcc -dlink makes one that can be run",
        )
    variables = {variable.name: variable for variable in _variables(elf)}
    banks = [(match, section) for section in elf.sections if (match := _BANK.match(section.name))]
    references = {section.name: tuple(_references(elf, section)) for _, section in banks}
    held = [*references.values(), *(variable.references for variable in variables.values())]
    addressed = {
        ref.symbol: None for each in held for ref in each if ref.symbol in assembly.functions
    }
    kernels = {}
    for entry in described:
        name = entry.used.kernel
        own = {
            int(match["number"]): section
            for match, section in banks
            if match["kernel"] in (None, name)
        }
        kernels[name] = KernelImage(
            name,
            entry,
            {number: section.content for number, section in own.items() if number},
            {number: references[section.name] for number, section in own.items() if number},
            tuple(addressed),
            assembly,
        )
    return ModuleImage(target_named(assembly.cubin.arch), kernels, variables)


def _variables(elf: Elf) -> Iterator[Variable]:
    """Yield the variables: what a section has none of in the file is zeros."""
    sections = {section.name: section for section in elf.sections if section.name in _SPACES}
    references = {name: list(_references(elf, section)) for name, section in sections.items()}
    for symbol in symbols(elf):
        section = sections.get(symbol.section)
        if section is None or not symbol.size:
            continue
        start, end = symbol.value, symbol.value + symbol.size
        yield Variable(
            symbol.name,
            _SPACES[section.name],
            start,
            gcd(start, section.align) or 1,
            section.content[start:end].ljust(symbol.size, b"\0"),
            tuple(
                replace(reference, offset=reference.offset - start)
                for reference in references[section.name]
                if start <= reference.offset < end
            ),
        )


def _references(elf: Elf, section: ElfSection) -> Iterator[Reference]:
    for relocation in relocations(elf, section.name):
        size = _WHOLE.get(relocation.kind)
        if size is None:
            raise Unsupported(
                f"relocation {relocation.kind} of {relocation.symbol.name} in {section.name} is not modelled"
            )
        at, addend = relocation.offset, relocation.addend
        if addend is None:
            addend = int.from_bytes(section.content[at : at + size], "little")
        yield Reference(at, relocation.symbol.name, addend, size)
