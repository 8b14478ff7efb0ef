"""What calls pass: vectors, arrays whose size the call decides, and values for variables and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import LaunchError, PtxSyntaxError
from ptxlab.toolchain import link_ptx
from tests.together import in_one_test

VECTORS = """
.func (.reg .v4 .b32 r) spread(.reg .v2 .b32 x, .reg .b32 y) {
    add.u32 r.x, x.x, 1; sub.u32 r.y, x.y, x.x; mul.lo.u32 r.z, x.x, y; mov.b32 r.w, x.y; ret; }
.func (.reg .v2 .f32 r) halves(.reg .v2 .f32 x) {
    mul.f32 r.x, x.x, 0.5; mul.f32 r.y, x.y, 0.25; ret; }
"""
VARIABLE = """
.func (.param .b32 total) sum(.param .b32 count, .param .align 8 .b8 va[]) {
    .reg .b32 n, a, b; .reg .pred p; .reg .b64 q;
    ld.param.b32 n, [count]; mov.b32 a, 0;
    setp.lt.u32 p, n, 1; @p bra done; ld.param.b32 b, [va]; add.u32 a, a, b;
    setp.lt.u32 p, n, 2; @p bra done; ld.param.b32 b, [va+4]; add.u32 a, a, b;
    setp.lt.u32 p, n, 3; @p bra done; ld.param.b64 q, [va+8]; cvt.u32.u64 b, q; add.u32 a, a, b;
done:
    st.param.b32 [total], a; ret; }
"""
MIXED = """
.func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }
"""


@pytest.mark.parametrize("address", ["", "mov.u64 d4, spread;"])
def test_vectors_are_passed_and_returned(run: Any, address: str) -> None:
    callee, prototype = ("d4", ", P") if address else ("spread", "")
    words = run(
        f"""{address} .reg .v2 .b32 x; .reg .v4 .b32 r;
        P: .callprototype (.reg .v4 .b32 _) _ (.reg .v2 .b32 _, .reg .b32 _);
        mov.b32 x.x, r0; mad.lo.u32 x.y, r0, 7, 3;
        call (r), {callee}, (x, 5){prototype};
        st.global.v4.b32 [d1], r;""",
        before=VECTORS,
        words=4,
    )
    n = np.arange(32)
    assert np.array_equal(words, np.stack([n + 1, 6 * n + 3, 5 * n, 7 * n + 3], axis=1))


def test_a_vector_of_another_type_keeps_its_bits(run: Any) -> None:
    words = run(
        """.reg .v2 .b32 x; cvt.rn.f32.u32 f1, r0; mov.b32 x.x, f1; mov.b32 x.y, f1;
        call (x), halves, (x); st.global.v2.b32 [d1], x;""",
        before=VECTORS,
        words=2,
    )
    n = np.arange(32, dtype=np.float32)
    assert np.array_equal(words.view(np.float32), np.stack([n / 2, n / 4], axis=1))


SUM = """.param .b32 count; .param .align 8 .b8 list[{size}]; .param .b32 total;
    st.param.b32 [count], {count}; st.param.b32 [list], r0; {more}
    call (total), sum, (count, list); ld.param.b32 r3, [total]; st.global.b32 [d1], r3;"""
MORE = "st.param.b32 [list+4], 100;"


def test_a_call_decides_how_much_it_passes(run: Any) -> None:
    """Two threads of a warp may pass different amounts, at calls of their own."""
    short = SUM.format(size=8, count=2, more=MORE)
    long = SUM.format(size=16, count=3, more=f"{MORE} st.param.b64 [list+8], 0x100001000;")
    body = f"setp.gt.u32 p1, r0, 9; @p1 bra long; {{ {short} }} bra end; long: {{ {long} }} end:"
    words = run(body, before=VARIABLE)[:, 0]
    assert words.tolist() == [n + 100 + 4096 * (n > 9) for n in range(32)]


def test_nothing_may_be_passed(run: Any) -> None:
    body = "call (r3), sum, (0); st.global.b32 [d1], r3;"
    assert run(body, before=VARIABLE)[:, 0].tolist() == [0] * 32


def test_what_is_not_passed_is_not_read(emulate: Any) -> None:
    with pytest.raises(
        LaunchError, match="bytes 4 to 8 of 'va', which has 4 in this call"
    ) as caught:
        emulate(SUM.format(size=4, count=2, more=""), before=VARIABLE)
    assert caught.value.location is not None


def test_variables_stand_for_registers_and_back(run: Any) -> None:
    words = run(
        """.param .b32 given; .param .f32 taken; st.param.b32 [given], r0;
        call (taken), twice, (given); ld.param.b32 r3, [taken]; st.global.b32 [d1], r3;""",
        before=MIXED,
    )[:, 0]
    assert words.tolist() == [2 * n for n in range(32)]


def test_the_programs_here_are_those_of_ptxas() -> None:
    link_ptx(
        ".version 8.3\n.target sm_80\n.address_size 64\n" + VECTORS + VARIABLE + MIXED, arch="sm_80"
    )


@in_one_test(
    ("body", "message"),
    [
        ("ld.param.b32 r3, [v];", "no call before returns 'v'"),
        ("@p1 st.param.b32 [v], r3;", "st.param.b32 of 'v', which a call passes, has no guard"),
        (".param .align 8 .b32 w; call (r3), sum, (w);", "'w' is aligned to 8 bytes, 4 are needed"),
        (".param .u64 w; call (r3), sum, (w);", "'w' is a .u64, a .b32 is needed"),
        ("call (r3), sum, (v, v);", "'v' is a .b32, a .b8[] is needed"),
        (".param .align 4 .b8 w[4]; call (r3), sum, (v, w);", "'w' is aligned to 4 bytes, 8 are"),
        ("call (r3), sum, (v, d3);", "a .param variable is needed here"),
        (".reg .v2 .b32 x; call (x.x), sum, (v);", "a call takes a vector as a whole"),
    ],
)
def test_what_a_call_does_not_pass(emulate: Any, body: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        emulate(f".param .b32 v; {body}", before=VARIABLE)
    assert message in caught.value.message
