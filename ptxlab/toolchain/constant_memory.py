"""What a cubin has in constant memory: numbers of the compiler, variables, and addresses of variables.

NVIDIA does not describe these sections: ``.nv.constant2.KERNEL`` has numbers, ``.nv.constant3`` the variables
of ``__constant__``, and ``.nv.constant4`` addresses, which relocations of ELF ask to be filled in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.toolchain.elf import Elf, read_elf, symbols

LITERALS, VARIABLES, ADDRESSES = 2, 3, 4
"""The banks."""

_RELOCATION = {".rel": struct.Struct("<QII"), ".rela": struct.Struct("<QIIq")}


@dataclass(frozen=True, slots=True)
class ConstantMemory:
    """The ``banks`` of a kernel as the cubin has them.

    ``variables`` says where in bank 3 each is, ``addresses`` of which variable, and how far into it,
    the addresses in bank 4 are, by their offset there.
    """

    banks: dict[int, bytes]
    variables: dict[str, int]
    addresses: dict[int, tuple[str, int]]


def constant_memory(image: bytes, kernel: str) -> ConstantMemory:
    """Read the constant memory of a kernel. Raises ToolchainError for a cubin that is damaged."""
    elf = read_elf(image)
    contents = {section.name: section.content for section in elf.sections}
    names = {
        LITERALS: f".nv.constant{LITERALS}.{kernel}",
        VARIABLES: f".nv.constant{VARIABLES}",
        ADDRESSES: f".nv.constant{ADDRESSES}",
    }
    return ConstantMemory(
        {bank: contents.get(name, b"") for bank, name in names.items()},
        {
            symbol.name: symbol.value
            for symbol in symbols(elf)
            if symbol.section == names[VARIABLES] and symbol.size
        },
        dict(_addresses(elf, names[ADDRESSES])),
    )


def _addresses(elf: Elf, section: str) -> Iterator[tuple[int, tuple[str, int]]]:
    known = list(symbols(elf))
    for relocations in elf.sections:
        kind = relocations.name.removesuffix(section)
        if relocations.name.endswith(section) and kind in _RELOCATION:
            for offset, _, symbol, *addend in _RELOCATION[kind].iter_unpack(relocations.content):
                yield offset, (known[symbol].name, addend[0] if addend else 0)
