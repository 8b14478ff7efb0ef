"""Machine code at edges: of integers, where this processor traps or a product is carried, and of memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.native import compiler
from tests.emulator.native.separate import Separate
from tests.emulator.native.test_engines import kernel

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

WORDS = [
    0,
    1,
    2,
    7,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**63 + 1,
    2**64 - 2,
    2**64 - 1,
]
PAIRS = [(a, b) for a in WORDS for b in WORDS]


def computed(lines: list[str]) -> list[list[int]]:
    """Return for each line what it makes of all pairs in d2 and d3, or the low halves in r2 and r3: d4 or r4."""
    os.environ["PTXLAB_ENGINE"] = "native"
    device: Any = open_device("emulator", arch="sm_90a")
    body = "mad.wide.u32 d1, r0, 16, d0; ld.global.v2.u64 {d2, d3}, [d1]; cvt.u32.u64 r3, d3;"
    outputs = []
    for line in lines:
        wide = "d4" if "d4" in line else "d5"
        text = kernel(
            f"{body} mov.b64 {{r2, r5}}, d2; {line}; cvt.u64.u32 d5, r4; st.global.u64 [d1], {wide};"
        )
        with device.upload(np.array(PAIRS, np.uint64)) as data:
            device.load(text).kernel("k").launch(1, len(PAIRS), [data])
            outputs.append([int(word) for word in data.numpy()[:, 0]])
    return outputs


def signed(word: int, bits: int) -> int:
    return (word & (1 << bits) - 1) - ((word >> bits - 1 & 1) << bits)


def divided(opcode: str, T: str, a: int, b: int) -> int:
    """Return what a GPU makes of it: all ones for a division by zero, and what is left of one is so too."""
    bits = int(T[1:])
    a, b = (signed(x, bits) if T[0] == "s" else x & (1 << bits) - 1 for x in (a, b))
    if b == 0:
        return (1 << bits) - 1
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return (quotient if opcode == "div" else a - b * quotient) & (1 << bits) - 1


def test_divisions_that_this_processor_traps_at(other: Separate) -> None:
    forms = [(opcode, T) for opcode in ("div", "rem") for T in ("s32", "u32", "s64", "u64")]
    registers = {"32": "r4, r2, r3", "64": "d4, d2, d3"}
    lines = [f"{opcode}.{T} {registers[T[1:]]}" for opcode, T in forms]
    for (opcode, T), quotients in zip(forms, other.call(computed, lines), strict=True):
        assert quotients == [divided(opcode, T, a, b) for a, b in PAIRS], (opcode, T)


def test_high_halves_of_products_of_negative_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXLAB_ENGINE", "native")  # ``computed`` sets it for good
    taken_as: dict[str, Callable[[int], int]] = {"s64": lambda x: signed(x, 64), "u64": int}
    for T, taken in taken_as.items():
        products = [taken(a) * taken(b) >> 64 for a, b in PAIRS]
        high, sums = computed([f"mul.hi.{T} d4, d2, d3", f"mad.hi.{T} d4, d2, d3, d2"])
        assert high == [product % 2**64 for product in products]
        assert sums == [
            (product + a) % 2**64 for product, (a, _) in zip(products, PAIRS, strict=True)
        ]


def read_at_the_end(count: int) -> list[int]:
    """Return what eight threads have read if the first ones read so many words, behind which a process may not read."""
    os.environ["PTXLAB_ENGINE"] = "native"
    memory, page = mmap.mmap(-1, 2 * mmap.PAGESIZE), mmap.PAGESIZE
    behind = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + page
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(behind), page, 0) == 0
    words = np.frombuffer(memory, np.uint32, count, page - 4 * count)
    words[:] = range(count)
    device: Any = open_device("emulator", arch="sm_90a")
    out = device.zeros(8, "u32")
    address = device.map(words)
    text = kernel(f"""
        add.u64 d2, d1, {address - out.address}; setp.lt.u32 p1, r0, {count}; mov.u32 r3, 77;
        @p1 ld.global.u32 r3, [d2]; st.global.u32 [d1], r3;""")
    device.load(text).kernel("k").launch(1, 8, [out])
    return [int(word) for word in out.numpy()]


@pytest.mark.skipif(os.name != "posix", reason="needs mprotect")
def test_what_threads_read_that_a_guard_holds_back_is_not_touched(other: Separate) -> None:
    assert other.call(read_at_the_end, 4) == [0, 1, 2, 3, 77, 77, 77, 77]
