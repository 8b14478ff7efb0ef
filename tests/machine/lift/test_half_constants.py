"""A word that ptxas has half-precision arithmetic make is what it was, a NaN's bits too."""

from __future__ import annotations

import numpy as np

from ptxlab import open_device

TEXT = """
.version 8.7
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at; .reg .b32 thread; .reg .b16 h; .reg .pred low;
    ld.param.u64 at, [data]; mov.u32 thread, %tid.x; mad.wide.u32 at, thread, 2, at;
    setp.lt.u32 low, thread, 16; selp.s16 h, 32767, 32, low; st.global.u16 [at], h; ret;
}
"""


def test_a_constant_with_the_bits_of_a_nan_keeps_them() -> None:
    device = open_device("emulator", arch="sm_120a", engine="sass")
    data = device.upload(np.zeros(32, np.uint16))
    device.load(TEXT).kernel("k").launch(1, 32, [data])
    assert data.numpy().tolist() == [32767] * 16 + [32] * 16


ADDED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at; .reg .b32 thread, n, h;
    ld.param.u64 at, [data]; mov.u32 thread, %tid.x; mad.wide.u32 at, thread, 4, at;
    ld.global.b32 n, [at]; mov.b32 h, 0xE408D480; add.rn.f16x2 n, n, h; st.global.b32 [at], n; ret;
}
"""


def test_a_constant_of_two_halves_is_added() -> None:
    """As Marlin takes 1032 and 72 from numbers of four bits: HADD2 with two numbers."""
    halves = np.random.default_rng(2).standard_normal(64).astype(np.float16)
    device = open_device("emulator", arch="sm_80", engine="sass")
    data = device.upload(halves.view(np.uint32))
    device.load(ADDED).kernel("k").launch(1, 32, [data])
    added = np.tile(np.array([0xD480, 0xE408], np.uint16).view(np.float16), 32)
    np.testing.assert_array_equal(data.numpy().view(np.float16), halves + added)
