"""Operands that are computed: a register plus a constant, and an element of an array."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.syntax.parser import parse
from ptxlab.syntax.printer import to_text
from ptxlab.toolchain import link_ptx
from tests.together import in_one_test

# ---- register + constant: IADD3 with an immediate in the machine code of ptxas -----------------


@in_one_test(
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
    words = run(instruction, words=2)[:, 0]
    assert np.array_equal(words, expected(np.arange(32)).astype(np.int64).astype(np.uint32))


def test_the_register_itself_stays(run: Any) -> None:
    words = run("mov.u32 r2, r0+4; st.global.u32 [d1], r0;")[:, 0]
    assert np.array_equal(words, np.arange(32))


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


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("mov.f64 g1, 0f3FC00000; st.global.f64 [d1], g1;", (0x3FC00000, 0)),
        ("mov.f64 g1, 1.5; st.global.f64 [d1], g1;", (0, 0x3FF80000)),
        ("mov.f64 g1, 0.0; add.f64 g1, g1, 0f7FFFFFFF; st.global.f64 [d1], g1;", (0x7FFFFFFF, 0)),
        ("st.global.v2.f32 [d1], {1.5, 0d3FF8000000000000};", (0x3FC00000, 0x3FC00000)),
        ("mov.b32 r2, 7; st.global.v2.f32 [d1], {r2, 1.5};", (7, 0x3FC00000)),
        ("st.global.v2.b32 [d1], {0f3FC00000, %ntid.x};", (0x3FC00000, 32)),
    ],
)
def test_a_constant_of_another_width(run: Any, instruction: str, words: tuple[int, int]) -> None:
    """A double becomes an f32; in the machine code of ptxas an f32 is the low half of a double."""
    assert run(instruction, words=2).tolist() == [[*words]] * 32


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


@in_one_test(
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
    words = run(f"{instruction} st.global.u32 [d1], r2;", before=BEFORE, block=1)
    assert int(words[0, 0]) == word


@in_one_test(
    ("instruction", "message"),
    [
        ("ld.global.u32 r2, lone[1];", "'lone' is not an array"),
        ("ld.global.u32 r2, d0[1];", "'d0' is not an array"),
        ("ld.global.u32 r2, nowhere[1];", "'nowhere' is not an array"),
        ("ld.global.u32 r2, words[f1];", "'f1' is a .f32, an index is an integer"),
        ("ld.global.u32 r2, words[p1];", "'p1' is a .pred, an index is an integer"),
        ("ld.global.u32 r2, words[%tid.x];", "'%tid.x' is not a declared register"),
        ("ld.global.u32 r2, words[r1-3];", "an offset is added"),
        ("ld.global.u32 r2, words[r1+r2];", "expected"),
        ("ld.shared.u32 r2, words[r1];", "'words' lies in .global"),
        ("mov.f64 g1, words[r1];", "an address where .f64 is needed"),
        ("cvta.to.global.u64 d2, words[r1];", "cvta.to.global.u64 takes no element"),
        ("atom.global.add.u32 r2, words[r1], 3;", "atom.global.add.u32 takes no element"),
        ("atom.global.add.u32 r2, words[2], 3;", "atom.global.add.u32 takes no element"),
        ("add.u64 d2, d0, words[1];", "add.u64 takes no element"),
        ("ld.global.u32 r2, table[1][2];", "expected"),
        ("ld.global.u32 r2, words[4]+4;", "expected"),
    ],
)
def test_what_has_no_elements(emulate: Any, instruction: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        emulate(instruction, before=BEFORE)


# What the machine code of ptxas makes of each: zeros above what the register has of the low 32 bits,
# the constant as one of the register's type, the sum and its product with the size in 32 bits.
INDICES = """ {{
    mov.b32 r3, {low}; mov.b64 d3, {value}; cvt.u16.u64 h3, d3; .reg .s16 sh; mov.b16 sh, h3;
    .reg .u8 b; cvt.u8.u64 b, d3; .reg .s32 s; mov.b32 s, r3; .reg .s8 sb; cvt.s8.u64 sb, d3;
    .shared .f64 own[4]; mov.u64 d5, {array};
    mov.u64 d4, {array}[{index}];
    sub.u64 d4, d4, d5; st.global.u64 [d1+{at}], d4;
}} """
WIDTHS = {"r3": (32, False), "s": (32, True), "d3": (64, False), "h3": (16, False),
          "sh": (16, True), "b": (8, False), "sb": (8, True)}  # fmt: skip


@in_one_test("array", ["words", "halves", "pairs", "own", "constants"])
@in_one_test("register", WIDTHS)
def test_a_register_counts_elements(run: Any, register: str, array: str) -> None:
    size, (bits, signed) = {"halves": 2, "own": 8}.get(array, 4), WIDTHS[register]
    cases = list(product((3, 0x1_8000_80FF, 0xFFFF_FFFF), (0, 5, -1, 0x1_0001_80F0)))
    body, expected = "", []
    for number, (value, constant) in enumerate(cases):
        added = constant % (1 << bits)
        added -= (signed and added >> bits - 1) << bits
        index = f"{register}+{constant}" if constant else register
        body += INDICES.format(
            low=value % (1 << 32), value=value, array=array, index=index, at=8 * number
        )
        expected.append((value % (1 << min(bits, 32)) + added) * size % (1 << 32))
    words = run(body, before=BEFORE, block=1, words=2 * len(cases)).view("u8")[0]
    assert dict(zip(cases, words.tolist(), strict=True)) == dict(zip(cases, expected, strict=True))


@in_one_test(
    ("instruction", "word"),
    [
        ("ld.global.u32 r2, words[r0];", lambda n: 11 * n),
        ("ld.global.u32 r2, words[r0+1];", lambda n: 11 * n + 11),
        ("add.u32 r4, r0, 7; ld.global.u32 r2, words[r4+-5];", lambda n: 11 * n + 22),
        ("ld.global.v2.u32 {r3, r2}, pairs[r3];", lambda n: 1),
        ("ldu.global.u32 r2, words[%laneid];", lambda n: 11 * n),
        ("cvta.global.u64 d2, words[r0+2]; ld.u32 r2, [d2];", lambda n: 11 * n + 22),
        (".local .u32 own[8]; st.local.u32 own[r0+1], r0; ld.local.u32 r2, own[r0+1];", lambda n: n),
        (".shared .u32 own[8]; st.shared.u32 own[r0], r0; bar.sync 0; xor.b32 r4, r0, 1;"
         "ld.shared.u32 r2, own[r4];", lambda n: n ^ 1),
        ("mov.u32 r2, 5; setp.eq.u32 p1, r0, 3; @p1 ld.global.u32 r2, words[r0];",
         lambda n: 33 if n == 3 else 5),
    ],
)  # fmt: skip
def test_memory_at_an_index(run: Any, instruction: str, word: Any) -> None:
    words = run(f"{instruction} st.global.u32 [d1], r2;", before=BEFORE, block=4)
    assert words[:, 0].tolist() == [word(n) for n in range(4)]


def test_an_index_into_a_parameter(emulator: Device) -> None:
    text = """.version 8.3 .target sm_80 .visible .entry k(.param .u64 out, .param .u32 given[4])
{ .reg .b32 r<3>; .reg .b64 d; ld.param.u64 d, [out]; mov.u32 r0, %tid.x; ld.param.u32 r1, given[r0];
  mad.wide.u32 d, r0, 4, d; st.global.u32 [d], r1; ret; }"""
    link_ptx(text, arch="sm_80")
    given = np.array([5, 3, 8, 1], np.uint32)
    with emulator.zeros(4, "u32") as out:
        emulator.load(text).kernel("k").launch(1, 4, [out, given])
        assert out.numpy().tolist() == given.tolist()


def test_computed_operands_are_printed_as_they_are_written() -> None:
    text = """.version 8.3 .target sm_80
.visible .entry k() { .reg .b32 r<2>; .global .u32 a[4]; .reg .b64 d;
    mov.u32 r0, r1+4; ld.global.u32 r0, a[2]; mov.u64 d, a[2]; ld.global.u32 r0, a[r1];
    mov.u64 d, a[r1+-3]; ret; }"""
    module = parse(text)
    assert "a[2]" in to_text(module)
    assert "a[r1]" in to_text(module)
    assert "a[r1+-3]" in to_text(module)
    assert parse(to_text(module)) == module


def test_an_index_past_the_end_is_found_where_it_is_used(emulator: Device) -> None:
    text = """.version 8.3 .target sm_80
.global .u32 a[4];
.visible .entry k() { .reg .b32 r; ld.global.u32 r, a[4]; ret; }"""
    with pytest.raises(LaunchError, match="out of bounds"):
        emulator.load(text).kernel("k").launch(1, 1)
