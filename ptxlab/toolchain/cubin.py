"""Machine code as the tools return it, with what ptxas said while it was made."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ptxlab.toolchain.ptxas_log import Remark, Resources, read_remarks, read_resources


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one ``arch``: the ELF ``image`` and the ``log`` of its making."""

    arch: str
    image: bytes
    log: str

    @property
    def kernels(self) -> dict[str, Resources]:
        """The resources of every kernel, by name, read from the log."""
        return {found.kernel: found for found in read_resources(self.log)}

    @property
    def remarks(self) -> list[Remark]:
        """What ptxas warned of, read from the log."""
        return read_remarks(self.log)


def packed(*parts: bytes) -> bytes:
    """Return several byte strings as one, for the cache."""
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


def unpacked(stored: bytes) -> list[bytes]:
    """Return what ``packed`` was given."""
    parts, at = [], 0
    while at < len(stored):
        (length,) = struct.unpack_from("<Q", stored, at)
        parts.append(stored[at + 8 : at + 8 + length])
        at += 8 + length
    return parts
