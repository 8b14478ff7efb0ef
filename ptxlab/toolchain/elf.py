"""The sections of an ELF file: of a cubin, or of a program that has some inside.

Format: System V ABI, "Object Files"; 64 bits, the lowest byte first, which is all that CUDA has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ptxlab.errors import ToolchainError

MAGIC = b"\x7fELF"
CUDA = 190
"""The machine that a cubin is for."""
EXECUTABLE = 2
"""The type of what is linked."""

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = {".rel": struct.Struct("<QII"), ".rela": struct.Struct("<QIIq")}
_DYNAMIC, _NEEDED = struct.Struct("<QQ"), 1
_NOBITS = 8  # a section that takes no room in the file


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: its name, ``flags``, ``size`` and ``align`` in memory, and what the file has of it."""

    name: str
    flags: int
    size: int
    align: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Elf:
    """What a file is for and of, and its sections in their order."""

    type: int
    machine: int
    sections: tuple[ElfSection, ...]


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A name for what lies ``value`` bytes into a ``section``, "" for none; ``other`` is the machine's own."""

    name: str
    section: str
    value: int
    size: int
    other: int


@dataclass(frozen=True, slots=True)
class ElfRelocation:
    """What stands at ``offset`` in a section is an address: ``addend`` bytes behind ``symbol``.

    ``kind`` is the machine's own and says how it is written there; an ``addend`` of None stands there itself.
    """

    offset: int
    kind: int
    symbol: ElfSymbol
    addend: int | None


def read_elf(image: bytes) -> Elf:
    """Read an ELF file. Raises ToolchainError for one that is damaged."""
    try:
        if image[:6] != MAGIC + b"\x02\x01":
            raise ValueError
        kind, machine, _, _, _, start, *_, each, count, names = _HEADER.unpack_from(image)
        if each != _SECTION.size:
            raise ValueError
        return Elf(kind, machine, tuple(_sections(image, start, count, names)))
    except (ValueError, IndexError, struct.error):
        raise ToolchainError("this ELF file is damaged, or not one of 64 bits") from None


def length(read: Callable[[int, int], bytes]) -> int:
    """Return how long a file in memory is, of which ``read`` gives so many bytes: as far as tables and sections reach."""
    _, _, _, _, segments, start, _, _, of_segment, in_all, each, count, _ = _HEADER.unpack(
        read(0, _HEADER.size)
    )
    ends = [_HEADER.size, segments + of_segment * in_all, start + each * count]
    for number in range(count):
        _, kind, _, _, offset, size, *_ = _SECTION.unpack(
            read(start + each * number, _SECTION.size)
        )
        if kind != _NOBITS:
            ends.append(offset + size)
    return int(max(ends))


def _sections(image: bytes, start: int, count: int, names: int) -> Iterator[ElfSection]:
    heads = [_SECTION.unpack_from(image, start + _SECTION.size * number) for number in range(count)]
    texts = _content(image, heads[names]) if heads else b""
    for head in heads:
        name, _, flags, _, _, size, _, _, align, _ = head
        yield ElfSection(text_at(texts, name), flags, size, align, _content(image, head))


def _content(image: bytes, head: tuple[int, ...]) -> bytes:
    _, kind, _, _, offset, size, *_ = head
    if kind == _NOBITS:
        return b""
    if offset + size > len(image):
        raise ValueError
    return image[offset : offset + size]


def text_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode(errors="replace")


def needed(elf: Elf) -> list[str]:
    """Return the shared libraries that a file says it needs."""
    contents = {section.name: section.content for section in elf.sections}
    rows = _DYNAMIC.iter_unpack(contents.get(".dynamic", b""))
    return [text_at(contents[".dynstr"], value) for tag, value in rows if tag == _NEEDED]


def symbols(elf: Elf, table: str = ".symtab", names: str = ".strtab") -> Iterator[ElfSymbol]:
    """Yield the symbols of a file, in the order of their numbers; ``.dynsym`` has those that the loader sees."""
    contents = {section.name: section.content for section in elf.sections}
    texts = contents.get(names, b"")
    for name, _, other, number, value, size in _SYMBOL.iter_unpack(contents.get(table, b"")):
        section = elf.sections[number].name if number < len(elf.sections) else ""
        yield ElfSymbol(text_at(texts, name), section, value, size, other)


def relocations(elf: Elf, section: str) -> Iterator[ElfRelocation]:
    """Yield what is to be filled in in a section, in the order of the file's tables."""
    known = list(symbols(elf))
    for table in elf.sections:
        form = _RELOCATION.get(table.name.removesuffix(section))
        if form is not None and table.name.endswith(section):
            for offset, kind, symbol, *addend in form.iter_unpack(table.content):
                yield ElfRelocation(offset, kind, known[symbol], addend[0] if addend else None)
