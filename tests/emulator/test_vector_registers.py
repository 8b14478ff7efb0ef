"""Registers that are vectors, moved as a whole and by their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import PtxSyntaxError, Unsupported

FILL = """
    .reg .v4 .b32 a, b; .reg .v2 .b32 c; .reg .v4 .u16 s;
    add.u32 r2, r0, 10; add.u32 r3, r0, 20; add.u32 r4, r0, 30; add.u32 r5, r0, 40;
"""
STORE = "st.global.v4.u32 [d1], {r6, r7, r8, r9};"


@pytest.mark.parametrize(
    ("moves", "order"),
    [
        ("mov.v4.u32 a, {r2,r3,r4,r5}; mov.v4.b32 b, a; mov.v4.b32 {r6,r7,r8,r9}, b;", "0123"),
        ("mov.v4.b32 {r6,r7,r8,r9}, {r5,r4,r3,r2};", "3210"),
        ("mov.v2.b32 c, {r2,r3}; mov.v2.b32 {r6,r7}, c; mov.v2.s32 {r8,r9}, c;", "0101"),
        ("mov.v4.b32 {r6,r7,r8,r9}, {r2,r3,r4,r5}; mov.v2.b32 {r6,r7}, {r7,r6};", "1023"),
        ("mov.v4.b32 {r6,r7,r8,r9}, {r2,r2,r2,r2}; mov.v4.b32 {_,r7,_,_}, {r3,r3,r3,r3};", "0100"),
    ],
)
def test_the_elements_are_moved_in_their_order(run: Any, moves: str, order: str) -> None:
    words = run(FILL + moves + STORE, words=4)
    given = np.arange(32)[:, None] + np.array([10, 20, 30, 40])
    assert np.array_equal(words, given[:, [int(at) for at in order]])


def test_halves_of_words(run: Any) -> None:
    body = """
    cvt.u16.u32 h1, r2; cvt.u16.u32 h2, r3; mov.v4.u16 s, {h1, h2, h1, h2};
    mov.v4.u16 {h3, h4, h5, h6}, s; cvt.u32.u16 r6, h3; cvt.u32.u16 r7, h4; cvt.u32.u16 r8, h5;
    cvt.u32.u16 r9, h6;
    """
    words = run(FILL + body + STORE, words=4)
    assert np.array_equal(words, np.arange(32)[:, None] + np.array([10, 20, 10, 20]))


@pytest.mark.parametrize(
    ("move", "message"),
    [
        ("mov.v4.b64 {d1,d2,d3,d4}, {d5,d6,d7,d8};", "larger than 128 bits"),
        ("mov.v2.b32 c, a;", "found 4"),
        ("mov.v2.pred {p1,p2}, {p3,p4};", "pred"),
        ("mov.v4.b32 a, {r1,r2,r3};", "found 3"),
        ("mov.v2.b32 {d1,d2}, {r1,r2};", "d1"),
    ],
)
def test_what_mov_does_not_take(emulate: Any, move: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        emulate(FILL + move)
