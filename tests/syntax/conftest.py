"""What the assembler makes of PTX text, as bytes that two texts can be compared by."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ptxlab.toolchain.nvjitlink import link_ptx

Sections = dict[str, bytes]
Assemble = Callable[..., Sections]

_CODE_AND_DATA = (".text", ".nv.global.init", ".nv.constant", ".nv.shared", ".nv.info.")


def sections(image: bytes) -> Sections:
    """Return the code, data and attributes in an ELF image: no names, no line numbers."""
    (table,) = struct.unpack_from("<Q", image, 40)
    count, names = struct.unpack_from("<HH", image, 60)
    headers = [struct.unpack_from("<IIQQQQ", image, table + 64 * i) for i in range(count)]
    contents = {}
    for name, kind, _, _, offset, size in headers:
        start = headers[names][4] + name
        text = image[start : image.index(b"\0", start)].decode()
        if text.startswith(_CODE_AND_DATA) and kind != 8:
            contents[text] = image[offset : offset + size]
    return contents


@pytest.fixture(scope="session")
def assemble() -> Assemble:
    """Assemble PTX text for ``arch`` and return its sections; ToolchainError if ptxas refuses."""

    def assembled(text: str, arch: str = "sm_90a") -> Sections:
        return sections(link_ptx(text, arch=arch).image)

    return assembled
