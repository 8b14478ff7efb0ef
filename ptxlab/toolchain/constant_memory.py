"""What a cubin has in constant memory: numbers of the compiler, variables, and addresses of variables.

NVIDIA does not describe these sections: ``.nv.constant2.KERNEL`` has numbers, ``.nv.constant3`` the variables
of ``__constant__``, and ``.nv.constant4`` addresses, which relocations of ELF ask to be filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.toolchain.elf import read_elf, relocations, symbols

LITERALS, VARIABLES, ADDRESSES = 2, 3, 4
"""The banks."""


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
        {
            relocation.offset: (relocation.symbol.name, relocation.addend or 0)
            for relocation in relocations(elf, names[ADDRESSES])
        },
    )
