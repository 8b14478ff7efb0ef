"""A shared object without a compiler: functions that jump to wherever a table of slots says.

An ELF file of two segments. The first has the dynamic symbols, and for each function a stub that jumps
through the function's slot; the second, which can be written, has the slots. While a slot is 0, as in a
process that has found the file and is not the one that wrote it, its function returns
CUDA_ERROR_STUB_LIBRARY.

Sources: System V ABI, "Object Files" and "Program Loading and Dynamic Linking"; Intel's and Arm's
manuals for the instructions of a stub.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxlab.device.cuda_driver import EMULATED

NOTHING = "ptxlab_nothing"
"""The symbol of a function that returns 0, for slots whose time is over."""

STUB_LIBRARY = 34  # CUDA_ERROR_STUB_LIBRARY

_STUB_BYTES = 32
_PAGE = 1 << 16  # the largest that a kernel for aarch64 uses

_EHDR, _PHDR, _SYM, _DYN = 64, 56, 24, 16  # sizes of ELF's records
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551  # PT_LOAD, PT_DYNAMIC, PT_GNU_STACK
_X, _W, _R = 1, 2, 4
_DYNAMIC_ROWS = 7


def _x86_64(distance: int) -> bytes:
    """Return a stub whose slot lies ``distance`` bytes from its begin."""
    return (
        b"\x48\x8b\x05" + struct.pack("<i", distance - 7)  # mov rax, [rip + slot]
        + b"\x48\x85\xc0"                                  # test rax, rax
        + b"\x75\x06"                                      # jnz to the jmp
        + b"\xb8" + struct.pack("<I", STUB_LIBRARY)        # mov eax, 34
        + b"\xc3"                                          # ret
        + b"\xff\xe0"                                      # jmp rax
    )  # fmt: skip


def _aarch64(distance: int) -> bytes:
    """Return a stub whose slot lies ``distance`` bytes from its begin, less than 1 MiB away."""
    return struct.pack(
        "<5I",
        0x58000010 | distance // 4 << 5,  # ldr x16, slot
        0xB5000070,                       # cbnz x16, to the br
        0x52800000 | STUB_LIBRARY << 5,   # mov w0, #34
        0xD65F03C0,                       # ret
        0xD61F0200,                       # br x16
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Processor:
    elf: int  # e_machine
    stub: Callable[[int], bytes]
    nothing: bytes  # a function that returns 0


PROCESSORS = {
    "x86_64": _Processor(62, _x86_64, b"\x31\xc0\xc3"),  # xor eax, eax; ret
    "aarch64": _Processor(
        183, _aarch64, struct.pack("<2I", 0x52800000, 0xD65F03C0)
    ),  # mov w0, #0; ret
}
"""Where a shared object can be written for, as ``platform.machine()`` calls it."""


def shared_object(soname: str, functions: Sequence[str], machine: str) -> bytes:
    """Return the bytes of a shared object with a stub for each of ``functions``, and ``NOTHING``.

    ``EMULATED`` is the symbol of the slots, eight bytes a function, in their order.
    """
    processor = PROCESSORS[machine]
    names = [*functions, NOTHING, EMULATED]
    strings = b"\0".join([b"", soname.encode(), *(name.encode() for name in names), b""])
    symbols = _EHDR + 4 * _PHDR
    hashes = symbols + _SYM * (len(names) + 1)
    texts = hashes + 4 * (2 + 1 + len(names) + 1)
    code = _aligned(texts + len(strings), _STUB_BYTES)
    end = code + _STUB_BYTES * (len(functions) + 1)
    dynamic = _aligned(end, _PAGE)
    slots = dynamic + _DYN * _DYNAMIC_ROWS
    size = 8 * len(functions)

    stubs = b"".join(
        processor.stub(slots + 8 * number - (code + _STUB_BYTES * number)).ljust(_STUB_BYTES, b"\0")
        for number in range(len(functions))
    )
    text = _Image(end)
    text.put(0, _header(processor.elf))
    text.put(_EHDR, _segment(_LOAD, _R | _X, 0, end, _PAGE))
    text.put(_EHDR + _PHDR, _segment(_LOAD, _R | _W, dynamic, slots + size - dynamic, _PAGE))
    text.put(_EHDR + 2 * _PHDR, _segment(_DYNAMIC, _R | _W, dynamic, slots - dynamic, 8))
    text.put(_EHDR + 3 * _PHDR, _segment(_STACK, _R | _W, 0, 0, 16))
    text.put(symbols, _symbols(names, strings, code, slots, size))
    text.put(hashes, _one_bucket(len(names) + 1))
    text.put(texts, strings)
    text.put(code, stubs + processor.nothing)
    return (
        bytes(text.data).ljust(dynamic, b"\0")
        + _dynamic(hashes, texts, len(strings), symbols, soname_at=1)
        + bytes(size)
    )


class _Image:
    """Bytes to be filled at their places."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def put(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data


def _header(machine: int) -> bytes:
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little endian, version 1
    shared = 3  # ET_DYN
    return ident + struct.pack(
        "<HHIQQQIHHHHHH", shared, machine, 1, 0, _EHDR, 0, 0, _EHDR, _PHDR, 4, 0, 0, 0
    )


def _segment(kind: int, flags: int, at: int, size: int, alignment: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, alignment)


def _symbols(names: Sequence[str], strings: bytes, code: int, slots: int, size: int) -> bytes:
    """Return the table of symbols: the empty one, the functions, and the table of slots."""
    function, variable, section = 1 << 4 | 2, 1 << 4 | 1, 1  # STB_GLOBAL with STT_FUNC, STT_OBJECT
    table = bytearray(_SYM)
    at = strings.index(b"\0", 1) + 1
    for number, name in enumerate(names):
        if name == EMULATED:
            row = (at, variable, 0, section, slots, size)
        else:
            row = (at, function, 0, section, code + _STUB_BYTES * number, _STUB_BYTES)
        table += struct.pack("<IBBHQQ", *row)
        at += len(name) + 1
    return bytes(table)


def _one_bucket(count: int) -> bytes:
    """Return a hash table that finds ``count`` symbols, the empty one among them, one by one."""
    chain = [0, *range(2, count), 0]
    return struct.pack(f"<{3 + count}I", 1, count, 1, *chain)


def _dynamic(hashes: int, texts: int, size: int, symbols: int, soname_at: int) -> bytes:
    rows = [(14, soname_at), (4, hashes), (5, texts), (6, symbols), (10, size), (11, _SYM), (0, 0)]
    return b"".join(struct.pack("<QQ", tag, value) for tag, value in rows)


def _aligned(value: int, unit: int) -> int:
    return -(-value // unit) * unit
