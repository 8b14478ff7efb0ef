"""Loads and stores of 256 bits: eight words or four of 64 bits at once, in global memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported

GIVEN = np.random.default_rng(5).integers(0, 2**32, 256, np.uint32)
WORDS = "{r1,r2,r3,r4,r5,r6,r7,r8}"
REVERSED = "{r8,r7,r6,r5,r4,r3,r2,r1}"


def moved(body: str, arch: str = "sm_100a", version: str = "8.8", before: str = "") -> Any:
    """Return [32, 8] words that ``body`` moves from d2 to d1, 32 bytes a thread."""
    text = f""".version {version}
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) {{
    .reg .b32 r<16>; .reg .b64 d<16>; .reg .f32 f<9>; .reg .f64 g<5>; .reg .b16 h<9>;
    .reg .b128 q<3>; .reg .pred p;
    .shared .align 32 .b8 tile[1024];
    ld.param.u64 d1, [out]; ld.param.u64 d2, [in];
    mov.u32 r0, %tid.x;
    mad.wide.u32 d1, r0, 32, d1; mad.wide.u32 d2, r0, 32, d2;
    {body}
    ret;
}}"""
    device = open_device("emulator", arch=arch)
    with device.zeros(256, "u32") as out, device.upload(GIVEN) as given:
        device.load(text).kernel("k").launch(1, 32, [out, given])
        return out.numpy().reshape(32, 8)


TABLE = GIVEN.reshape(32, 8)


@pytest.mark.parametrize(
    ("load", "store"),
    [
        (f"ld.global.v8.b32 {WORDS}, [d2];", f"st.global.v8.b32 [d1], {WORDS};"),
        (f"ld.v8.u32 {WORDS}, [d2];", f"st.v8.s32 [d1], {WORDS};"),
        (f"ld.global.nc.v8.u32 {WORDS}, [d2];", f"st.volatile.global.v8.b32 [d1], {WORDS};"),
        (
            "ld.volatile.global.v8.f32 {f1,f2,f3,f4,f5,f6,f7,f8}, [d2];",
            "st.global.L1::no_allocate.v8.f32 [d1], {f1,f2,f3,f4,f5,f6,f7,f8};",
        ),
        (
            "ld.acquire.gpu.global.v4.b64 {d4,d5,d6,d7}, [d2];",
            "st.release.gpu.global.v4.b64 [d1], {d4,d5,d6,d7};",
        ),
        (
            "ld.global.L2::256B.v4.f64 {g1,g2,g3,g4}, [d2];",
            "st.global.wb.v4.f64 [d1], {g1,g2,g3,g4};",
        ),
    ],
)
def test_32_bytes_are_moved_as_they_are(load: str, store: str) -> None:
    assert np.array_equal(moved(f"{load} {store}"), TABLE)


def test_the_first_element_is_the_lowest() -> None:
    body = f"ld.global.v8.b32 {WORDS}, [d2]; st.global.v8.b32 [d1], {REVERSED};"
    assert np.array_equal(moved(body), TABLE[:, ::-1])


def test_some_threads_and_some_elements() -> None:
    body = """
    setp.lt.u32 p, r0, 5;
    mov.b32 r2, 9;
    @p ld.global.v8.b32 {r1,_,r3,r4,_,r6,r7,r8}, [d2];
    @p st.global.v8.b32 [d1], {r1,r2,r3,r4,r2,r6,r7,r8};
    """
    expected = np.where(np.arange(32)[:, None] < 5, TABLE, 0)
    expected[:5, [1, 4]] = 9
    assert np.array_equal(moved(body), expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"ld.shared.v8.b32 {WORDS}, [tile];", "v8"),
        ("ld.shared.v4.b64 {d4,d5,d6,d7}, [tile];", "in global memory only"),
        ("st.local.v4.b64 [d1], {d4,d5,d6,d7};", "in global memory only"),
        ("ld.global.v8.b16 {h1,h2,h3,h4,h5,h6,h7,h8}, [d2];", "a vector of 8 .b16"),
        ("ld.global.v2.b128 {q1,q2}, [d2];", "a vector of 2 .b128"),
        ("ldu.global.v4.b64 {d4,d5,d6,d7}, [d2];", "in global memory only"),
    ],
)
def test_vectors_that_do_not_exist(body: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        moved(body)


def test_they_need_blackwell_and_its_version() -> None:
    body = f"ld.global.v8.b32 {WORDS}, [d2];"
    with pytest.raises(Unsupported, match="does not exist on sm_90a"):
        moved(body, arch="sm_90a")
    with pytest.raises(PtxSyntaxError, match=r"newer than the module's .version 8.7"):
        moved(body, version="8.7")
    with pytest.raises(Unsupported, match="does not exist on sm_90a"):
        moved("ld.global.v4.b64 {d4,d5,d6,d7}, [d2];", arch="sm_90a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"ld.global.v8.b32 {WORDS}, [d2+16];", "misaligned"),
        (f"ld.global.v8.b32 {WORDS}, [d2+1024];", "out of bounds"),
        (f"cvta.shared.u64 d3, tile; ld.v8.b32 {WORDS}, [d3];", "32 bytes in shared memory"),
    ],
)
def test_faults(body: str, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        moved(body)
