"""The shared object that Python writes: loaded, jumped through, and read for a processor that is not here."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxlab.clients.driver.results import DriverResult
from ptxlab.clients.driver.shared_object import NOTHING, functions_of, shared_object
from ptxlab.clients.driver.starting import ASKED, Python
from ptxlab.device.cuda_driver import EMULATED

NAMES = [f"function_{number}" for number in range(300)]


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="the system's loader takes other files",
)
def test_functions_jump_to_what_the_slots_say(tmp_path: Path) -> None:
    path = tmp_path / "libptxlab-test.so.1"
    path.write_bytes(shared_object(path.name, NAMES, platform.machine()))
    library = ctypes.CDLL(str(path))
    slots = (ctypes.c_uint64 * len(NAMES)).in_dll(library, EMULATED)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 9)
    # Nine arguments: some of them are on the stack.
    called = kind(lambda *given: sum(value << position for position, value in enumerate(given)))
    slots[7] = ctypes.cast(called, ctypes.c_void_p).value or 0
    slots[8] = ctypes.cast(library[NOTHING], ctypes.c_void_p).value or 0
    given = [ctypes.c_uint64(value) for value in (3, 1, 4, 1, 5, 9, 2, 6, 5)]
    assert library.function_7(*given) == sum(word.value << at for at, word in enumerate(given))
    assert library.function_8(*given) == 0
    assert {library[name]() for name in (NAMES[0], NAMES[6], NAMES[9], NAMES[-1])} == {
        DriverResult.STUB_LIBRARY
    }
    assert not hasattr(library, "function_300")


def symbols(image: bytes) -> dict[str, int]:
    """Return the dynamic symbols by a reading of the file of its own: sections of PT_DYNAMIC."""
    count = struct.unpack_from("<H", image, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", image, 64 + 56 * i) for i in range(count)]
    [(_, _, at, *_)] = [header for header in headers if header[0] == 2]
    tags = {}
    while (row := struct.unpack_from("<QQ", image, at))[0]:
        tags[row[0]] = row[1]
        at += 16
    texts, table = tags[5], tags[6]
    total = struct.unpack_from("<II", image, tags[4])[1]
    addresses = {}
    for number in range(1, total):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, table + 24 * number)
        if section:
            addresses[image[texts + name : image.index(b"\0", texts + name)].decode()] = value
    return addresses


def run_aarch64(
    image: bytes, at: int, memory: dict[int, int], called: Callable[[int, dict[int, int]], int]
) -> tuple[str, dict[int, int]]:
    """Follow instructions of aarch64 from ``at`` on to a jump or return, and say where it leads, and the registers.

    ``called`` is told of a call: its address and the registers, of which all are lost that a function may change.
    """
    registers, end = {number: 0x5500 + number for number in range(32)} | {31: 1 << 20}, 0x5500 + 30
    while at != end:
        (word,) = struct.unpack_from("<I", image, at)
        register, base = word & 31, word >> 5 & 31
        offset = ((word >> 5 & 0x7FFFF) ^ 0x40000) - 0x40000
        if word >> 24 == 0x58:  # ldr x, literal
            registers[register] = memory[at + 4 * offset]
        elif word >> 24 in (0xB5, 0x35):  # cbnz x or w
            at += 4 * offset - 4 if registers[register] else 0
        elif word & 0x9F000000 == 0x10000000:  # adr
            registers[register] = at + 4 * offset + (word >> 29 & 3)
        elif word >> 26 == 5:  # b
            at += (((word & 0x3FFFFFF) ^ 0x2000000) - 0x2000000) * 4 - 4
        elif word >> 22 in (
            0x2A2,
            0x2A3,
            0x2A4,
            0x2A5,
            0x2A6,
            0x2A7,
        ):  # pairs: behind, at, before the address
            distance = 8 * (((word >> 15 & 127) ^ 64) - 64)
            address = registers[base] + (0 if word >> 23 & 3 == 1 else distance)
            for number, part in enumerate((register, word >> 10 & 31)):
                if word >> 22 & 1:
                    registers[part] = memory[address + 8 * number]
                else:
                    memory[address + 8 * number] = registers[part]
            registers[base] += distance if word >> 23 & 1 else 0
        elif word >> 22 in (0x3E4, 0x3E5):  # str and ldr x
            address = registers[base] + 8 * (word >> 10 & 4095)
            if word >> 22 & 1:
                registers[register] = memory[address]
            else:
                memory[address] = registers[register]
        elif word >> 21 == 0x294:  # movz w
            registers[register] = word >> 5 & 0xFFFF
        elif word & 0xFFE0FFE0 == 0x2A0003E0:  # mov w
            registers[register] = registers[word >> 16 & 31]
        elif word & 0xFFFFFC1F == 0xD63F0000:  # blr x
            result = called(registers[base], dict(registers))
            registers |= dict.fromkeys(range(19), 57005) | {0: result, 30: at + 4}
        elif word & 0xFFFFFC1F == 0xD61F0000:  # br x
            at = registers[base] - 4
            if not 0 <= at < len(image):
                return "jump", registers
        elif word == 0xD65F03C0:  # ret
            at = registers[30] - 4
        else:
            raise AssertionError(f"{word:#x} is no instruction that is written here")
        at += 4
    return "return", registers


def no_call(address: int, registers: dict[int, int]) -> int:
    raise AssertionError("nothing is called")


def test_stubs_for_aarch64_do_the_same() -> None:
    image = shared_object("lib.so.1", NAMES, "aarch64")
    assert struct.unpack_from("<H", image, 18) == (183,)
    assert functions_of(image) == NAMES
    addresses = symbols(image)
    assert set(addresses) == {*NAMES, NOTHING, EMULATED}
    for number in (0, 7, 299):
        at, slot = addresses[f"function_{number}"], addresses[EMULATED] + 8 * number
        how, registers = run_aarch64(image, at, {slot: 0x1234_5678_9ABC}, no_call)
        assert (how, registers[16]) == ("jump", 0x1234_5678_9ABC)
        how, registers = run_aarch64(image, at, {slot: 0}, no_call)
        assert (how, registers[0]) == ("return", DriverResult.STUB_LIBRARY)
    how, registers = run_aarch64(image, addresses[NOTHING], {}, no_call)
    assert (how, registers[0]) == ("return", 0)


@pytest.mark.parametrize("is_python", [False, True])
def test_python_is_started_for_aarch64(is_python: bool) -> None:
    """By the calls in their order and what they are given; the arguments of the function are then what they were."""
    image = shared_object(
        "lib.so.1", NAMES, "aarch64", Python("/lib/libpython3.so", "/home", "code")
    )
    addresses = symbols(image)
    slot = addresses[EMULATED] + 8 * 7
    words = addresses[EMULATED] + 8 * len(NAMES)
    memory = {slot: 0} | {words + 8 * number: 1 << 40 | number for number in range(len(ASKED))}
    calls: list[tuple[str, ...]] = []

    def text(address: int) -> str:
        return image[address : image.index(b"\0", address)].decode()

    def called(address: int, registers: dict[int, int]) -> int:
        name = ASKED[address & 0xFF]
        given = [registers[number] for number in range(3)]
        if name == "pthread_once":
            assert given[0] == words + 8 * len(ASKED)
            boot = {number: value for number, value in memory.items() if value >> 40}
            run_aarch64(image, given[1], boot, called)
            memory[slot] = 0x1234_5678_9ABC
        elif name == "setenv":
            calls.append((name, text(given[0]), text(given[1]), str(given[2])))
        elif name in ("unsetenv", "PyRun_SimpleString"):
            calls.append((name, text(given[0])))
        elif name in ("Py_InitializeEx", "PyGILState_Release"):
            calls.append((name, str(given[0])))
        else:
            calls.append((name,))
        return {"Py_IsInitialized": int(is_python), "PyGILState_Ensure": 7}.get(name, 0)

    how, registers = run_aarch64(image, addresses["function_7"], memory, called)
    assert how == "jump"
    kept = [*range(9), *range(19, 31)]
    assert {number: registers[number] for number in kept} == {n: 0x5500 + n for n in kept}
    assert registers[31] == 1 << 20
    starting = [
        ("setenv", "PYTHONHOME", "/home", "1"), ("Py_InitializeEx", "0"), ("unsetenv", "PYTHONHOME"),
        ("PyEval_SaveThread",),
    ]  # fmt: skip
    assert calls == [
        ("Py_IsInitialized",), *([] if is_python else starting), ("PyGILState_Ensure",),
        ("PyRun_SimpleString", "code"), ("PyGILState_Release", "7"),
    ]  # fmt: skip
