"""Operands that are computed: a register plus a constant, and an element of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.syntax.parser import parse
from ptxlab.syntax.printer import to_text

# ---- register + constant: IADD3 with an immediate in the machine code of ptxas -----------------


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("st.global.u32 [d1], r0+4;", lambda n: n + 4),
        ("mov.u32 r2, r0+4; st.global.u32 [d1], r2;", lambda n: n + 4),
        ("add.u32 r2, r0+1, r0+2; st.global.u32 [d1], r2;", lambda n: 2 * n + 3),
        ("sub.u32 r2, r0, r0+4; st.global.u32 [d1], r2;", lambda n: 0 * n - 4),
        ("mul.lo.u32 r2, r0+-1, r0; st.global.u32 [d1], r2;", lambda n: (n - 1) * n),
        ("neg.s32 r2, r0+4; st.global.u32 [d1], r2;", lambda n: -n - 4),
        ("mov.u32 r2, r0 + WARP_SZ; st.global.u32 [d1], r2;", lambda n: n + 32),
        # Added in the register's width: what does not fit is dropped, before and after.
        ("mov.u32 r2, r0+0x123456789; st.global.u32 [d1], r2;", lambda n: n + 0x23456789),
        ("cvt.u64.u32 d2, r0+-1; shr.u64 d2, d2, 4; st.global.u32 [d1], d2;",
         lambda n: ((n - 1) % 2**32) >> 4),
        ("cvt.u16.u32 h1, r0; mov.u16 h2, h1+65535; cvt.u32.u16 r2, h2; st.global.u32 [d1], r2;",
         lambda n: (n - 1) % 65536),
        ("st.global.b8 [d1], r0+254;", lambda n: (n + 254) % 256),
        ("cvt.u64.u32 d2, r0; st.global.u64 [d1], d2+-5;", lambda n: n - 5),
        ("mov.u32 r3, 0; st.global.u32 [d1], r3; red.global.add.u32 [d1], r0+3;", lambda n: n + 3),
    ],
)  # fmt: skip
def test_a_constant_is_added_to_a_register(run: Any, instruction: str, expected: Any) -> None:
    found = run(instruction, words=2)[:, 0]
    assert np.array_equal(found, expected(np.arange(32)).astype(np.int64).astype(np.uint32))


def test_the_register_itself_stays(run: Any) -> None:
    found = run("mov.u32 r2, r0+4; st.global.u32 [d1], r0;")[:, 0]
    assert np.array_equal(found, np.arange(32))


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("st.global.f32 [d1], f1+4;", "nothing can be added to a .f32 register"),
        ("mov.pred p1, p2+1;", "nothing can be added to a .pred register"),
        ("st.global.u32 [d1], temp+1;", "'temp' is not declared"),
        ("mov.u32 r1, d0+4;", "d0"),
    ],
)
def test_what_nothing_can_be_added_to(emulate: Any, instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        emulate(instruction)


# ---- array[index]: the offsets of LDG and of lo(array) in the machine code of ptxas --------------

BEFORE = """
.global .align 8 .u32 words[16] = {0,11,22,33,44,55,66,77,88,99};
.global .align 8 .u16 halves[8] = {0,1,2,3,4,5,6,7};
.global .align 4 .b8 bytes[8] = {0,1,2,3,4,5,6,7};
.global .align 8 .u32 table[4][4] = {{0,1,2,3},{4,5,6,7}};
.global .v2 .u32 pairs[4] = {{0,1},{2,3},{4,5},{6,7}};
.global .u32 lone = 5;
.const .u32 constants[4] = {5,6,7,8};
""".replace("\n", " ")


@pytest.mark.parametrize(
    ("instruction", "word"),
    [
        ("ld.global.u32 r2, words[4];", 44),
        ("ld.global.u32 r2, words[1+2];", 33),
        ("ld.global.u32 r2, bytes[4];", 0x07060504),
        ("ld.global.u16 r2, halves[4];", 4),
        ("ld.global.u32 r2, table[1];", 1),
        ("ld.global.u32 r2, pairs[2];", 2),
        ("ld.global.v2.u32 {r3, r2}, pairs[2];", 3),
        ("ld.const.u32 r2, constants[2];", 7),
        ("mov.u64 d2, words[1]; ld.global.u32 r2, [d2];", 11),
        ("cvta.global.u64 d2, words[2]; ld.u32 r2, [d2];", 22),
        ("mov.u32 r3, 9; st.global.u32 words[15], r3; ld.global.u32 r2, [words+60];", 9),
        (".shared .u32 own[8]; st.shared.u32 own[3], 8; mov.u32 r3, own[3]; "
         "ld.shared.u32 r2, [r3];", 8),
    ],
)  # fmt: skip
def test_an_index_counts_elements(run: Any, instruction: str, word: int) -> None:
    found = run(f"{instruction} st.global.u32 [d1], r2;", before=BEFORE, block=1)
    assert int(found[0, 0]) == word


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("ld.global.u32 r2, lone[1];", "'lone' is not an array"),
        ("ld.global.u32 r2, d0[1];", "'d0' is not an array"),
        ("ld.global.u32 r2, nowhere[1];", "'nowhere' is not an array"),
        ("ld.global.u32 r2, words[r3];", "'r3' as an index"),
        ("atom.global.add.u32 r2, words[2], 3;", "atom.global.add.u32 takes no element"),
        ("add.u64 d2, d0, words[1];", "add.u64 takes no element"),
        ("ld.global.u32 r2, table[1][2];", "expected"),
        ("ld.global.u32 r2, words[4]+4;", "expected"),
    ],
)
def test_what_has_no_elements(emulate: Any, instruction: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        emulate(instruction, before=BEFORE)


def test_computed_operands_are_printed_as_they_are_written() -> None:
    text = """.version 8.3 .target sm_80
.visible .entry k() { .reg .b32 r<2>; .global .u32 a[4]; .reg .b64 d;
    mov.u32 r0, r1+4; ld.global.u32 r0, a[2]; mov.u64 d, a[2]; ld.global.u32 r0, a[r1]; ret; }"""
    module = parse(text)
    assert "a[2]" in to_text(module)
    assert "a[r1]" in to_text(module)
    assert parse(to_text(module)) == module


def test_an_index_past_the_end_is_found_where_it_is_used(emulator: Device) -> None:
    text = """.version 8.3 .target sm_80
.global .u32 a[4];
.visible .entry k() { .reg .b32 r; ld.global.u32 r, a[4]; ret; }"""
    with pytest.raises(LaunchError, match="out of bounds"):
        emulator.load(text).kernel("k").launch(1, 1)
