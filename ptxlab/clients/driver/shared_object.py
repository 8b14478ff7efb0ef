"""A shared object without a compiler: functions that jump to wherever a table of slots says.

An ELF file of two segments. The first has the dynamic symbols, and for each function a stub that jumps through
the function's slot; the second, which can be written, has the slots. A function whose slot is 0 has Python fill
the slots, in a file that is made for that; else it returns CUDA_ERROR_STUB_LIBRARY, as in a process that has
found the file and is not the one that wrote it. Each function has a version, called as the file is, which
programs that were linked with NVIDIA's runtime ask for.

Sources: System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; Linux Standard Base, "Symbol
Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ptxlab.clients.driver.starting import ASKED, PROCESSORS, STUB_BYTES, Python
from ptxlab.device.cuda_driver import EMULATED

NOTHING = "ptxlab_nothing"
"""The symbol of a function that returns 0, for slots whose time is over."""

_PAGE = 1 << 16  # the largest that a kernel for aarch64 uses

_EHDR, _PHDR, _SYM, _DYN, _RELA, _VERSION = 64, 56, 24, 16, 24, 28  # sizes of ELF's records
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551  # PT_LOAD, PT_DYNAMIC, PT_GNU_STACK
_X, _W, _R = 1, 2, 4


def shared_object(
    soname: str, functions: Sequence[str], machine: str, python: Python | None = None
) -> bytes:
    """Return the bytes of a shared object with a stub for each of ``functions``, and ``NOTHING``.

    ``EMULATED`` is the symbol of the slots, eight bytes a function, in their order. ``python`` is started by
    the first call of a function whose slot is empty.
    """
    processor = PROCESSORS[machine]
    own, asked = [*functions, NOTHING, EMULATED], list(ASKED) if python else []
    needed = [python.library] if python else []
    strings, name_at = _string_table([soname, *own, *asked, *needed])
    count = 1 + len(own) + len(asked)

    symbols = _EHDR + 4 * _PHDR
    hashes = symbols + _SYM * count
    versions = hashes + 4 * (2 + 1 + count)
    definitions = _aligned(versions + 2 * count, 8)
    relocations = definitions + 2 * _VERSION
    texts = _aligned(relocations, 8) + _RELA * len(asked)
    code = _aligned(texts + len(strings), STUB_BYTES)
    begin = code + STUB_BYTES * (len(functions) + 1)
    dynamic = _aligned(begin + len(processor.start(python, 0, 0)), _PAGE)
    relocations = _aligned(relocations, 8)
    rows = [
        (14, name_at[soname]), (4, hashes), (5, texts), (6, symbols), (10, len(strings)), (11, _SYM),
        (0x6FFFFFF0, versions), (0x6FFFFFFC, definitions), (0x6FFFFFFD, 2),
        *((1, name_at[library]) for library in needed),
        (7, relocations), (8, _RELA * len(asked)), (9, _RELA), (0, 0),
    ]  # fmt: skip
    slots = dynamic + _DYN * len(rows)
    filled = slots + 8 * len(functions)  # by the loader: where the functions are that are asked for
    end = filled + 8 * (len(asked) + 1)
    addresses = [code + STUB_BYTES * number for number in range(len(functions) + 1)]

    text = _Image(dynamic)
    text.put(0, _header(processor.elf))
    text.put(_EHDR, _segment(_LOAD, _R | _X, 0, dynamic, _PAGE))
    text.put(_EHDR + _PHDR, _segment(_LOAD, _R | _W, dynamic, end - dynamic, _PAGE))
    text.put(_EHDR + 2 * _PHDR, _segment(_DYNAMIC, _R | _W, dynamic, slots - dynamic, 8))
    text.put(_EHDR + 3 * _PHDR, _segment(_STACK, _R | _W, 0, 0, 16))
    text.put(symbols, bytes(_SYM))
    for number, (name, address) in enumerate(zip(own, [*addresses, slots], strict=True), 1):
        kind, size = (1, filled - slots) if name == EMULATED else (2, STUB_BYTES)
        text.put(symbols + _SYM * number, _symbol(name_at[name], kind, 1, address, size))
    for number, name in enumerate(asked):
        symbol = 1 + len(own) + number
        text.put(symbols + _SYM * symbol, _symbol(name_at[name], 2, 0, 0, 0))
        relocation = (filled + 8 * number, processor.fill, symbol, 0)
        text.put(relocations + _RELA * number, struct.pack("<QIIq", *relocation))
    text.put(hashes, _one_bucket(count))
    text.put(versions, struct.pack(f"<{count}H", 0, *[2] * len(own), *[1] * len(asked)))
    text.put(definitions, _version(1, 1, soname, name_at[soname], _VERSION))
    text.put(definitions + _VERSION, _version(0, 2, soname, name_at[soname], 0))
    text.put(texts, strings)
    for number, at in enumerate(addresses[:-1]):
        text.put(at, processor.stub(slots + 8 * number - at, begin - at))
    text.put(addresses[-1], processor.nothing)
    text.put(begin, processor.start(python, begin, filled))
    return bytes(text.data) + b"".join(struct.pack("<QQ", *row) for row in rows).ljust(
        end - dynamic, b"\0"
    )


def functions_of(image: bytes) -> list[str]:
    """Return the functions with a slot in a file that ``shared_object`` wrote, in the order of the slots."""
    (dynamic,) = struct.unpack_from("<Q", image, _EHDR + _PHDR + 8)
    (texts,) = struct.unpack_from("<Q", image, dynamic + 2 * _DYN + 8)  # DT_STRTAB is the third row
    _, _, *names = image[texts:dynamic].split(b"\0")
    return [name.decode() for name in names[: names.index(NOTHING.encode())]]


class _Image:
    """Bytes to be filled at their places."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def put(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data


def _string_table(texts: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Return the texts, each behind a NUL and with one behind it, and where each begins."""
    table, at = bytearray(1), {}
    for text in texts:
        at[text] = len(table)
        table += text.encode() + b"\0"
    return bytes(table), at


def _header(machine: int) -> bytes:
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little endian, version 1
    shared = 3  # ET_DYN
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", shared, machine, 1, 0, _EHDR, 0, 0, _EHDR, _PHDR, 4, 0, 0, 0
    )


def _segment(kind: int, flags: int, at: int, size: int, alignment: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, alignment)


def _symbol(name: int, kind: int, section: int, address: int, size: int) -> bytes:
    """Return a row of the symbols: an object (``kind`` 1) or a function, of no ``section`` where it is elsewhere."""
    return struct.pack("<IBBHQQ", name, 1 << 4 | kind, 0, section, address, size)


def _version(flags: int, index: int, name: str, name_at: int, behind: int) -> bytes:
    """Return the definition of a version, 1 being that of the file itself; the next is so many bytes ``behind``."""
    hashed = 0
    for letter in name.encode():
        hashed = (hashed << 4) + letter
        high = hashed & 0xF0000000
        hashed = (hashed ^ high >> 24) & ~high
    return struct.pack("<HHHHIIIII", 1, flags, index, 1, hashed, 20, behind, name_at, 0)


def _one_bucket(count: int) -> bytes:
    """Return a hash table that finds ``count`` symbols, the empty one among them, one by one."""
    chain = [0, *range(2, count), 0]
    return struct.pack(f"<{3 + count}I", 1, count, 1, *chain)


def _aligned(value: int, unit: int) -> int:
    return -(-value // unit) * unit
