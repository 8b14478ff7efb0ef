"""The carry flag from one instruction to the next, in every mixture of addition and subtraction.

What ptxas makes of them (IADD3 with -b for sub.cc, IADD3.X with ~b for subc) adds in every case, so the
flag is the carry of that sum: 1 where a subtraction borrows nothing.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ptxlab.device.protocol import Device
from tests.together import in_one_test

EDGES = (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
WORDS = (1 << 32) - 1
LOAD = """
    ld.param.u64 d2, [pairs];
    mad.wide.u32 d3, r1, 8, d2;
    ld.global.v2.u32 {r4, r5}, [d3];
"""


def add(a: int, b: int, flag: int) -> tuple[int, int]:
    total = a + b + flag
    return total & WORDS, total >> 32


# How each begins, goes on and ends: the instruction, whether it turns b over, and the flag it adds
# where it takes none.
FIRST = {"add.cc.u32": (0, 0), "sub.cc.u32": (WORDS, 1)}
MIDDLE = {"addc.cc.u32": 0, "subc.cc.u32": WORDS}
LAST = {"addc.u32": 0, "subc.u32": WORDS}


@in_one_test(("first", "middle", "last"), list(product(FIRST, MIDDLE, LAST)))
def test_every_mixture(run: Any, device: Device, first: str, middle: str, last: str) -> None:
    pairs = np.array(list(product(EDGES, EDGES)), np.uint32)
    body = f"""{LOAD}
    {first} r6, r4, r5;
    {middle} r7, r5, r4;
    {last} r8, r4, 5;
    st.global.u32 [d1], r6;
    st.global.u32 [d1+4], r7;
    st.global.u32 [d1+8], r8;
    """
    with device.upload(pairs) as given:
        sums = run(body, given, block=len(pairs), words=3, parameters=", .param .u64 pairs")
    turned, flag = FIRST[first]
    for (a, b), words in zip(pairs.tolist(), sums.tolist(), strict=True):
        low, carry = add(a, b ^ turned, flag)
        middling, carry = add(b, a ^ MIDDLE[middle], carry)
        high, _ = add(a, 5 ^ LAST[last], carry)
        assert words == [low, middling, high], (hex(a), hex(b))


def test_differences_of_many_words(run: Any, device: Device) -> None:
    pairs = np.array(list(product(EDGES, EDGES)), np.uint32)
    body = f"""{LOAD}
    sub.cc.u32 r6, r4, r5;
    subc.cc.u32 r7, r5, r4;
    subc.u32 r8, r4, r5;
    st.global.u32 [d1], r6;
    st.global.u32 [d1+4], r7;
    st.global.u32 [d1+8], r8;
    """
    with device.upload(pairs) as given:
        words = run(body, given, block=len(pairs), words=3, parameters=", .param .u64 pairs")
    for (a, b), (low, middle, high) in zip(pairs.tolist(), words.tolist(), strict=True):
        difference = (a - b) + ((b - a) << 32) + ((a - b) << 64)
        assert low | middle << 32 | high << 64 == difference & ((1 << 96) - 1), (hex(a), hex(b))
