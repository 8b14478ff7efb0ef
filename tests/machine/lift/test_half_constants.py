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
