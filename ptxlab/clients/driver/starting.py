"""Machine code of a shared object: stubs that jump to what a slot says, and what starts Python to fill the slots.

A process that is not Python's finds a slot empty. Its stub then goes to ``begin``, which saves the arguments and
has ``pthread_once`` call ``boot``, and that runs a text of Python in the calling thread; the stub starts anew.

Sources: Intel's and Arm's manuals; the System V ABI and Arm's AAPCS64 for who saves which register; "Python/C API",
"Initialization, Finalization, and Threads"; POSIX, pthread_once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

STUB_BYTES = 32
STUB_LIBRARY = 34  # CUDA_ERROR_STUB_LIBRARY

ASKED = (
    "pthread_once", "setenv", "unsetenv", "Py_IsInitialized", "Py_InitializeEx", "PyEval_SaveThread",
    "PyGILState_Ensure", "PyRun_SimpleString", "PyGILState_Release",
)  # fmt: skip
"""Functions of C and Python that ``begin`` calls, each through the word that the loader fills in."""

Item = bytes | tuple[bytes, str]
"""An instruction, or one with the distance to what a name stands for."""


@dataclass(frozen=True, slots=True)
class Python:
    """The shared ``library`` of Python, the ``home`` of its own modules, and the ``code`` that it runs."""

    library: str
    home: str
    code: str

    @property
    def texts(self) -> Mapping[str, bytes]:
        """The texts that the machine code passes on, by what it calls them."""
        texts = {"name": "PYTHONHOME", "home": self.home, "code": self.code}
        return {name: text.encode() + b"\0" for name, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Processor:
    """How a processor says it: ``elf`` and ``fill`` are its numbers in e_machine and of a relocation to a symbol."""

    elf: int
    fill: int
    stub: Callable[[int, int], bytes]
    nothing: bytes  # a function that returns 0
    refuse: bytes  # what ``begin`` is where nothing can be started
    begin: Sequence[Item]
    boot: Sequence[Item]
    relative: Callable[[bytes, int], bytes]
    """An instruction of so many bytes from its own begin to what it means."""
    jump: Callable[[int], bytes]
    """What goes on at an address, anywhere."""

    def start(self, python: Python | None, at: int, filled: int) -> bytes:
        """Return what stands at ``at`` for stubs to begin with; from ``filled`` on are the words of ``ASKED``."""
        if python is None:
            return self.refuse
        places = {name: filled + 8 * number for number, name in enumerate(ASKED)}
        places["once"] = filled + 8 * len(ASKED)
        places["boot"] = at + len(b"".join(self._linked(self.begin, 0, {})))
        end = places["boot"] + len(b"".join(self._linked(self.boot, 0, {})))
        for name, text in python.texts.items():
            places[name] = end
            end += len(text)
        code = b"".join(self._linked([*self.begin, *self.boot], at, places))
        return code + b"".join(python.texts.values())

    def _linked(self, items: Sequence[Item], at: int, places: Mapping[str, int]) -> list[bytes]:
        linked: list[bytes] = []
        for item in items:
            instruction = (
                item
                if isinstance(item, bytes)
                else self.relative(item[0], places.get(item[1], at) - at)
            )
            linked.append(instruction)
            at += len(instruction)
        return linked


# ---- x86-64 ---------------------------------------------------------------------------------


def _stub_x86_64(slot: int, begin: int) -> bytes:
    """Return a stub whose slot and ``begin`` lie so many bytes from its own begin."""
    return (
        b"\x48\x8b\x05" + struct.pack("<i", slot - 7)  # mov rax, [rip + slot]
        + b"\x48\x85\xc0"                              # test rax, rax
        + b"\x75\x07"                                  # jnz to the jmp rax
        + b"\xe8" + struct.pack("<i", begin - 17)      # call begin
        + b"\xeb\xed"                                  # jmp to the first
        + b"\xff\xe0"                                  # jmp rax
    )  # fmt: skip


_RDI, _RSI = b"\x48\x8d\x3d", b"\x48\x8d\x35"  # lea rdi and rsi, [rip + ...]
_CALL = b"\xff\x15"  # call [rip + ...]

_X86_64 = Processor(
    elf=62,
    fill=6,  # R_X86_64_GLOB_DAT
    stub=_stub_x86_64,
    nothing=b"\x31\xc0\xc3",  # xor eax, eax; ret
    refuse=b"\x48\x83\xc4\x08\xb8" + struct.pack("<I", STUB_LIBRARY) + b"\xc3",  # without the stub
    begin=[
        b"\x57\x56\x52\x51\x41\x50\x41\x51",      # push rdi, rsi, rdx, rcx, r8, r9
        (_RDI, "once"), (_RSI, "boot"), (_CALL, "pthread_once"),
        b"\x41\x59\x41\x58\x59\x5a\x5e\x5f\xc3",  # pop them; ret
    ],
    boot=[
        b"\x53",                                  # push rbx
        (_CALL, "Py_IsInitialized"), b"\x85\xc0\x75\x34",  # test eax, eax; jnz to the next but one
        (_RDI, "name"), (_RSI, "home"), b"\xba\x01\x00\x00\x00", (_CALL, "setenv"),  # mov edx, 1
        b"\x31\xff", (_CALL, "Py_InitializeEx"),  # xor edi, edi
        (_RDI, "name"), (_CALL, "unsetenv"), (_CALL, "PyEval_SaveThread"),
        (_CALL, "PyGILState_Ensure"), b"\x89\xc3",  # mov ebx, eax
        (_RDI, "code"), (_CALL, "PyRun_SimpleString"),
        b"\x89\xdf", (_CALL, "PyGILState_Release"),  # mov edi, ebx
        b"\x5b\xc3",                              # pop rbx; ret
    ],
    relative=lambda instruction, distance: (
        instruction + struct.pack("<i", distance - len(instruction) - 4)
    ),
    jump=lambda to: b"\xff\x25" + struct.pack("<iQ", 0, to),  # jmp [rip]
)  # fmt: skip


# ---- aarch64 --------------------------------------------------------------------------------


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _stub_aarch64(slot: int, begin: int) -> bytes:
    """Return a stub whose slot lies less than 1 MiB away."""
    return _words(
        0x58000010 | slot // 4 << 5,                   # ldr x16, slot
        0xB5000070,                                    # cbnz x16, to the br
        0x10FFFFD1,                                    # adr x17, the first
        0x14000000 | (begin - 12) // 4 & 0x3FFFFFF,    # b begin
        0xD61F0200,                                    # br x16
    )  # fmt: skip


def _relative_aarch64(instruction: bytes, distance: int) -> bytes:
    (word,) = struct.unpack("<I", instruction)
    if word & 0x9F000000 == 0x10000000:  # adr, whose lowest two bits stand apart
        return _words(word | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5)
    return _words(word | (distance // 4 & 0x7FFFF) << 5)


_X0, _X1 = _words(0x10000000), _words(0x10000001)  # adr x0 and x1, ...
_X16 = _words(0x58000010)  # ldr x16, ...
_BLR = _words(0xD63F0200)  # blr x16

_AARCH64 = Processor(
    elf=183,
    fill=1025,  # R_AARCH64_GLOB_DAT
    stub=_stub_aarch64,
    nothing=_words(0x52800000, 0xD65F03C0),  # mov w0, #0; ret
    refuse=_words(0x52800000 | STUB_LIBRARY << 5, 0xD65F03C0),
    begin=[
        _words(0xA9B97BFD, 0xA90107E0, 0xA9020FE2),  # stp x29, x30, [sp, #-112]!; x0, x1; x2, x3
        _words(0xA90317E4, 0xA9041FE6, 0xA90547E8),  # stp x4, x5; x6, x7; x8, x17
        (_X0, "once"), (_X1, "boot"), (_X16, "pthread_once"), _BLR,
        _words(0xA94547E8, 0xA9441FE6, 0xA94317E4),  # ldp in turn
        _words(0xA9420FE2, 0xA94107E0, 0xA8C77BFD),
        _words(0xD61F0220),                          # br x17
    ],
    boot=[
        _words(0xA9BE7BFD, 0xF9000BF3),              # stp x29, x30, [sp, #-32]!; str x19, [sp, #16]
        (_X16, "Py_IsInitialized"), _BLR, _words(0x350001C0),  # cbnz w0, to the next but one
        (_X0, "name"), (_X1, "home"), _words(0x52800022), (_X16, "setenv"), _BLR,  # mov w2, #1
        _words(0x52800000), (_X16, "Py_InitializeEx"), _BLR,  # mov w0, #0
        (_X0, "name"), (_X16, "unsetenv"), _BLR, (_X16, "PyEval_SaveThread"), _BLR,
        (_X16, "PyGILState_Ensure"), _BLR, _words(0x2A0003F3),  # mov w19, w0
        (_X0, "code"), (_X16, "PyRun_SimpleString"), _BLR,
        _words(0x2A1303E0), (_X16, "PyGILState_Release"), _BLR,  # mov w0, w19
        _words(0xF9400BF3, 0xA8C27BFD, 0xD65F03C0),  # ldr x19; ldp x29, x30, [sp], #32; ret
    ],
    relative=_relative_aarch64,
    jump=lambda to: _words(0x58000050, 0xD61F0200) + struct.pack("<Q", to),  # ldr x16, #8; br x16
)  # fmt: skip

PROCESSORS = {"x86_64": _X86_64, "aarch64": _AARCH64}
"""Where a shared object can be written for, as ``platform.machine()`` calls it."""
