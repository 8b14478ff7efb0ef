"""Branches, calls and returns that go where a register says lead where they do in PTX, to the driver's functions too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.errors import LaunchError

CHOICE = """\
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .b64 x; .reg .b32 n, c; .reg .f32 f;
    ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, 4, x; ld.global.u32 n, [x];
    and.b32 c, n, 7;
    TS: .branchtargets L0, L1, L2, L3, L4, L5, L6, L7;
    brx.idx c, TS;
    L0: add.u32 n, n, 77; bra E;
    L1: mul.lo.u32 n, n, n;
    L2: not.b32 n, n; bra E;
    L3: xor.b32 n, n, 0x55; bra E;
    L4: popc.b32 n, n; bra E;
    L5: shl.b32 n, n, 3; bra E;
    L6: cvt.rn.f32.u32 f, n; sqrt.rn.f32 f, f; mov.b32 n, f; bra E;
    L7: brev.b32 n, n;
    E: st.global.u32 [x], n;
    ret;
}}
"""
CALLS = """\
#include <cstdio>
#include <cassert>
__device__ __noinline__ int f1(int a) { return a * 3; }
__device__ __noinline__ int f2(int a) { return a * a + 5; }
__device__ __noinline__ int f3(int a) { return a ^ 99; }
__device__ int (*table[3])(int) = {f1, f2, f3};
__constant__ unsigned char bytes[8] = {3, 1, 4, 1, 5, 9, 2, 6};
extern "C" __global__ void k(int *x) {
    int t = threadIdx.x;
    if (t == 3) printf("thread %d has %d and %f\\n", t, x[t], x[t] * 0.5);
    assert(x[t] != 0x7fffffff);
    int *own = (int *)malloc(16);
    if (own) { own[t & 3] = table[(unsigned)x[t] % 3](x[t]); x[t] = own[t & 3] + bytes[x[t] & 7]; free(own); }
}
"""
ASSERTS = """\
.version 8.0
.target sm_80
.address_size 64
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 what[3] = {110, 111};
.visible .entry k(.param .u64 data)
{
    .reg .b64 x, w; .reg .b32 n; .reg .pred p;
    ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, 4, x; ld.global.u32 n, [x];
    setp.ne.u32 p, n, 77; @p bra over;
    mov.u64 w, what; cvta.global.u64 w, w;
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
      st.param.b64 [a], w; st.param.b64 [b], w; st.param.b32 [c], 5; st.param.b64 [d], w; st.param.b64 [e], 1;
      call.uni __assertfail, (a, b, c, d, e); }
    over: mul.lo.u32 n, n, n; st.global.u32 [x], n;
    ret;
}
"""
SPACES = """\
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .b64 x, y; .reg .b32 n, t; .reg .pred p, q, odd; .shared .b8 s[256]; .local .align 4 .b8 l[8];
    ld.param.u64 x, [data]; mov.u32 t, %tid.x; mad.wide.u32 x, t, 4, x;
    and.b32 n, t, 1; setp.ne.u32 odd, n, 0;
    cvta.shared.u64 y, s; @odd cvta.local.u64 y, l; and.b32 n, t, 3; setp.eq.u32 p, n, 2; @p mov.b64 y, x;
    isspacep.shared p, y; isspacep.local q, y; selp.b32 n, 2, 1, p; selp.b32 n, n, 4, q;
    st.u32 [y], n; ld.u32 n, [y]; st.global.u32 [x], n;
    ret;
}}
"""


def left(program: str | Path, arch: str, engine: str) -> Array:
    device = open_device("emulator", arch=arch, engine=engine)
    data = device.upload(np.random.default_rng(2).integers(0, 1000, 64, np.uint32))
    device.load(program).kernel("k").launch(1, 64, [data])
    return data.numpy()


@pytest.mark.parametrize("text", [CHOICE, SPACES])
@pytest.mark.parametrize(
    "arch",
    [
        "sm_80",
        "sm_100a",
        pytest.param("sm_90a", marks=pytest.mark.thorough),
        pytest.param("sm_120a", marks=pytest.mark.thorough),
    ],
)
def test_both_engines_agree(text: str, arch: str) -> None:
    program = text.format(arch=arch)
    assert left(program, arch, "sass").tolist() == left(program, arch, "ptx").tolist()


@pytest.mark.parametrize(
    "arch",
    [
        "sm_80",
        "sm_100a",
        pytest.param("sm_90a", marks=pytest.mark.thorough),
        pytest.param("sm_120a", marks=pytest.mark.thorough),
    ],
)
def test_the_functions_of_a_program_and_of_the_driver_are_called(
    arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calls.cu"
    file.write_text(CALLS, encoding="utf-8")
    told = []
    for engine in ("ptx", "sass"):
        told.append((left(file, arch, engine).tolist(), capsys.readouterr().out))
    assert told[0] == told[1]
    assert "thread 3 has" in told[0][1]


def test_an_assertion_that_fails_names_the_line_of_machine_code(tmp_path: Path) -> None:
    file = tmp_path / "calls.cu"
    file.write_text(CALLS.replace("0x7fffffff", "x[t]"), encoding="utf-8")
    with pytest.raises(LaunchError, match=r"assertion failed: x\[t\] != x\[t\](.|\n)*CALL\.ABS"):
        left(file, "sm_80", "sass")


def test_a_call_may_name_what_the_driver_provides(tmp_path: Path) -> None:
    """So calls machine code that was made of PTX; what CUDA C becomes has the address in constant memory."""
    file = tmp_path / "asserts.ptx"
    file.write_text(ASSERTS, encoding="utf-8")
    assert np.array_equal(left(file, "sm_80", "sass"), left(file, "sm_80", "ptx"))
    file.write_text(ASSERTS.replace("setp.ne.u32 p, n, 77", "setp.eq.u32 p, n, 77"), "utf-8")
    with pytest.raises(LaunchError, match=r"assertion failed: no(.|\n)*CALL\.ABS"):
        left(file, "sm_80", "sass")
