"""isspacep, and 128-bit registers put together and taken apart, in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

BEFORE = """
.global .align 4 .b8 somewhere[16];
.const .align 4 .b8 constant[16];
"""
SPACES = ("global", "const", "local", "shared", "shared::cta", "param")


def test_each_address_is_in_its_own_space(run: Any) -> None:
    tests = "\n".join(
        f"isspacep.{space} p1, d3; selp.u32 r3, {1 << bit}, 0, p1; or.b32 r4, r4, r3;"
        for bit, space in enumerate(SPACES)
    )
    body = """
    .shared .align 4 .b8 tile[64];
    .local .align 4 .b8 own[64];
    mov.u32 r5, %tid.x;
    cvta.global.u64 d3, somewhere;
    cvta.const.u64 d4, constant;
    mov.u64 d5, tile;
    cvta.shared.u64 d5, d5;
    mov.u64 d6, own;
    cvta.local.u64 d6, d6;
    setp.eq.u32 p2, r5, 1;
    selp.b64 d3, d4, d3, p2;
    setp.eq.u32 p2, r5, 2;
    selp.b64 d3, d5, d3, p2;
    setp.eq.u32 p2, r5, 3;
    selp.b64 d3, d6, d3, p2;
    mov.u32 r4, 0;
    """
    out = run(
        body + tests + "\nst.global.u32 [d1], r4;", before=BEFORE.replace("\n\n", "\n"), block=4
    )
    assert out.reshape(-1).tolist() == [0b000001, 0b000010, 0b011000, 0b000100]


def test_128_bits_in_two_and_in_four_parts(run: Any) -> None:
    body = """
    .reg .b128 q<2>;
    mov.b64 d3, 0x1122334455667788;
    mov.b64 d4, 0x99AABBCCDDEEFF00;
    mov.b128 q0, {d3, d4};
    mov.b128 {r3, r4, r5, r6}, q0;
    mov.b128 q1, {r6, r5, r4, r3};
    mov.b128 {_, d5}, q1;
    st.global.v4.u32 [d1], {r3, r4, r5, r6};
    st.global.u64 [d1+16], d5;
    """
    words = run(body, words=8).astype(np.uint32)
    assert words[0, :6].tolist() == [
        0x55667788, 0x11223344, 0xDDEEFF00, 0x99AABBCC, 0x11223344, 0x55667788,
    ]  # fmt: skip


def test_bytes_of_a_word(run: Any) -> None:
    body = """
    .reg .b8 c<5>;
    mov.b32 r3, 0x80FF017F;
    mov.b32 {c1, c2, c3, c4}, r3;
    mov.b32 r4, {c4, c3, c2, c1};
    st.global.u32 [d1], r4;
    """
    assert run(body)[0].tolist() == [0x7F01FF80]
