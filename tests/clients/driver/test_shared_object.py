"""The shared object that Python writes: loaded, jumped through, and read for a processor that is not here."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from pathlib import Path

import pytest

from ptxlab.clients.driver.results import DriverResult
from ptxlab.clients.driver.shared_object import NOTHING, shared_object
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
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, table + 24 * number)
        addresses[image[texts + name : image.index(b"\0", texts + name)].decode()] = value
    return addresses


def run_aarch64(image: bytes, at: int, memory: dict[int, int]) -> tuple[str, int]:
    """Follow instructions of aarch64 from ``at`` on to a jump or return, and say where it leads, or w0."""
    registers = {0: 0x55}
    while True:
        (word,) = struct.unpack_from("<I", image, at)
        register = word & 31
        offset = (word >> 5 & 0x7FFFF) * 4
        if word >> 24 == 0x58:  # ldr x, literal
            registers[register] = memory[at + offset]
        elif word >> 24 == 0xB5:  # cbnz x
            at += offset - 4 if registers[register] else 0
        elif word >> 21 == 0x294:  # movz w
            registers[register] = word >> 5 & 0xFFFF
        elif word & 0xFFFFFC1F == 0xD61F0000:  # br x
            return "jump", registers[word >> 5 & 31]
        elif word == 0xD65F03C0:  # ret
            return "return", registers[0]
        else:
            raise AssertionError(f"{word:#x} is no instruction of a stub")
        at += 4


def test_stubs_for_aarch64_do_the_same() -> None:
    image = shared_object("lib.so.1", NAMES, "aarch64")
    assert struct.unpack_from("<H", image, 18) == (183,)
    addresses = symbols(image)
    assert set(addresses) == {*NAMES, NOTHING, EMULATED}
    for number in (0, 7, 299):
        at, slot = addresses[f"function_{number}"], addresses[EMULATED] + 8 * number
        assert run_aarch64(image, at, {slot: 0x1234_5678_9ABC}) == ("jump", 0x1234_5678_9ABC)
        assert run_aarch64(image, at, {slot: 0}) == ("return", DriverResult.STUB_LIBRARY)
    assert run_aarch64(image, addresses[NOTHING], {}) == ("return", 0)
