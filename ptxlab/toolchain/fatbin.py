"""The members of a fatbin: machine code and PTX for several targets in one file.

NVIDIA's header fatbinary.h names the fields at the beginning. Which words of a member say its target and
how it is compressed was read from what ``nvcc -fatbin`` writes, of every target and ``--compress-mode``. What is
compressed is opened with this system's libzstd and liblz4, which hardly any Linux is without.

Source: the headers of those libraries: ``ZSTD_decompress``, ``LZ4_decompress_safe``.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache

from ptxlab.errors import ToolchainError
from ptxlab.toolchain.elf import CUDA, MAGIC, read_elf

FATBIN = struct.pack("<I", 0xBA55ED50)
"""How a fatbin begins."""

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes behind it
_MEMBER = struct.Struct("<HHIQIIIIQQQQ")
_PTX, _CUBIN = 1, 2
_ENDS = {1 << 20: "a", 1 << 21: "f"}  # flags: what the name of a target ends with
_COMPRESSIONS = {1 << 13: "LZ4", 1 << 15: "zstd"}
_LIBRARIES = {"LZ4": "lz4", "zstd": "zstd"}
_INSIDE = (".nv_fatbin", "__nv_relfatbin")
"""Sections of a program of the host."""


@dataclass(frozen=True, slots=True)
class Member:
    """PTX (``ptx``) or a cubin for ``arch``; ``compression`` is "" for what can be read here."""

    ptx: bool
    arch: str
    compression: str
    content: bytes

    @property
    def kind(self) -> str:
        return "PTX" if self.ptx else "machine code"

    def __str__(self) -> str:
        return f"{self.kind} for {self.arch}"


def starts_as_machine_code(beginning: bytes) -> bool:
    """Say whether so begins a file that may have machine code for a GPU: ELF, or a fatbin."""
    return beginning.startswith((MAGIC, FATBIN))


def is_cubin(image: bytes) -> bool:
    return image.startswith(MAGIC) and read_elf(image).machine == CUDA


def has_fatbins(image: bytes) -> bool:
    """Say whether a file is a program of the host with code for a GPU inside, as nvcc makes one."""
    return image.startswith(MAGIC) and any(s.name in _INSIDE for s in read_elf(image).sections)


def length(read: Callable[[int, int], bytes]) -> int:
    """Return how long a fatbin in memory is, of which ``read`` gives so many bytes."""
    _, _, header, behind = _CONTAINER.unpack(read(0, _CONTAINER.size))
    return int(header + behind)


def members(image: bytes) -> list[Member]:
    """Return the members of a fatbin, or of all fatbins in an ELF file of the host.

    Raises ToolchainError for what is damaged.
    """
    parts = [image]
    if image.startswith(MAGIC):
        parts = [section.content for section in read_elf(image).sections if section.name in _INSIDE]
    try:
        return [member for part in parts for member in _members(part)]
    except (ValueError, struct.error):
        raise ToolchainError("this fatbin is damaged: a part of it is cut off or none") from None


def _members(part: bytes) -> Iterator[Member]:
    """Yield the members of containers that follow each other, zeros between them."""
    at = 0
    while at < len(part):
        magic, _, header, size = _CONTAINER.unpack_from(part, at)
        if magic == 0:
            at += 8
            continue
        at, end = at + header, at + header + size
        if struct.pack("<I", magic) != FATBIN or end > len(part):
            raise ValueError
        while at < end:
            kind, _, head, size, packed, _, _, number, _, flags, _, open_size = _MEMBER.unpack_from(
                part, at
            )
            if head < _MEMBER.size or at + head + size > end:
                raise ValueError
            if kind in (_PTX, _CUBIN):
                suffix = "".join(end for flag, end in _ENDS.items() if flags & flag)
                compression = "".join(name for flag, name in _COMPRESSIONS.items() if flags & flag)
                content = part[at + head : at + head + (packed or size)]
                whole = _opened(content, compression, open_size) if compression else None
                if whole is not None:
                    compression, content = "", whole
                yield Member(kind == _PTX, f"sm_{number}{suffix}", compression, content)
            at += head + size


def _opened(content: bytes, compression: str, size: int) -> bytes | None:
    """Return the ``size`` bytes that were compressed, None where that cannot be said here."""
    library = _library(compression)
    if library is None or not 0 < size < 1 << 31:
        return None
    room = ctypes.create_string_buffer(size)
    if compression == "zstd":
        library.ZSTD_decompress.restype = ctypes.c_size_t
        sizes = [ctypes.c_size_t(nbytes) for nbytes in (size, len(content))]
        written = library.ZSTD_decompress(room, sizes[0], content, sizes[1])
    else:
        written = library.LZ4_decompress_safe(content, room, len(content), size)
    return room.raw if written == size else None


@cache
def _library(compression: str) -> ctypes.CDLL | None:
    name = find_library(_LIBRARIES[compression]) if compression in _LIBRARIES else None
    try:
        return ctypes.CDLL(name) if name else None
    except OSError:
        return None
