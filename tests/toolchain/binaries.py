"""Files of machine code, written byte by byte: fatbins, and ELF files of the host with some inside."""

from __future__ import annotations

import struct

PTX, CUBIN = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
ENDS = {"": 0, "a": 0x100000, "f": 0x200000}


def member(kind: int, number: int, content: bytes, *, suffix: str = "", packed: int = 0) -> bytes:
    """Return a member as nvcc 13 writes it: a header of 64 bytes, and its content in whole words."""
    stored = content + bytes(-len(content) % 8)
    head = struct.pack("<HHIQ", kind, 0x101, 64, len(stored))
    head += struct.pack("<IIHHI", len(content) if packed else 0, 0, 8, 1, number)
    head += struct.pack("<QQQQ", 0, ENDS[suffix] | packed | 0x11, 0, 1 if packed else 0)
    assert len(head) == 64
    return head + stored


def container(*members: bytes) -> bytes:
    body = b"".join(members)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def executable(fatbin: bytes) -> bytes:
    """Return an ELF file for x86-64 of which one section has fatbins."""
    names = b"\0.shstrtab\0.nv_fatbin\0"
    start = 64 + len(names) + len(fatbin)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 3, 1)
    sections = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 11, 1, 2, 0, 64 + len(names), len(fatbin), 0, 0, 8, 0),
    ]
    return head + names + fatbin + b"".join(sections)
