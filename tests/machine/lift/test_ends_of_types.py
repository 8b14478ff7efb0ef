"""Machine code at the ends of integers: what saturates, and constants of 64 bits of which an instruction has 32."""

from __future__ import annotations

import numpy as np

from ptxlab import open_device

TEXT = """
.version 9.0
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 at, x, y; .reg .b32 thread, a, b, c;
    ld.param.u64 at, [data]; mov.u32 thread, %tid.x; mad.wide.u32 at, thread, 64, at;
    ld.global.u64 x, [at]; ld.global.v2.u32 {a, b}, [at + 8];
    sub.sat.s32 c, a, b; st.global.u32 [at + 16], c; sub.sat.s32 c, 5, a; st.global.u32 [at + 20], c;
    sub.sat.s32 c, a, -2147483648; st.global.u32 [at + 24], c; add.sat.s32 c, a, b; st.global.u32 [at + 28], c;
    min.u64 y, x, 18446744073709551615; st.global.u64 [at + 32], y;
    max.u64 y, x, 18446744073709551614; st.global.u64 [at + 40], y;
    min.s64 y, x, -2; st.global.u64 [at + 48], y;
    ret;
}
"""
LEAST, MOST = -(1 << 31), (1 << 31) - 1
ENDS = (LEAST, LEAST + 1, -1, 0, 1, MOST)


def test_machine_code_computes_what_whole_numbers_do() -> None:
    rows = np.zeros((64, 8), np.int64)
    rows[:, 0] = np.random.default_rng(1).integers(LEAST << 32, MOST << 32, 64)
    rows[:4, 0] = [-1, -2, -3, 0]
    words = rows.view(np.int32)
    words[:36, 2:4] = [(a, b) for a in ENDS for b in ENDS]
    words[36:, 2:4] = np.random.default_rng(2).integers(LEAST, MOST, (28, 2))
    device = open_device("emulator", arch="sm_120a", engine="sass")
    data = device.upload(rows.copy())
    device.load(TEXT).kernel("k").launch(1, 64, [data])
    left = data.numpy()
    for row, (x, (a, b)) in enumerate(
        zip(rows[:, 0].tolist(), words[:, 2:4].tolist(), strict=True)
    ):
        sums = [min(max(total, LEAST), MOST) for total in (a - b, 5 - a, a - LEAST, a + b)]
        assert left.view(np.int32)[row, 4:8].tolist() == sums
        unsigned = x % (1 << 64)
        assert left.view(np.uint64)[row, 4:6].tolist() == [unsigned, max(unsigned, (1 << 64) - 2)]
        assert left[row, 6] == min(x, -2)
