"""How an element is loaded and stored: the C++ is evaluated, the PTX is run, both against the manual."""

from __future__ import annotations

import numpy as np

from ptxlab import open_device
from ptxlab.fragments.code import accesses, cuda, ptx
from ptxlab.matrix.catalog import find
from ptxlab.matrix.fragment import Place

BF16 = find("m16n8k16", "bf16")
COLUMNS = 11
"""Of the matrix in memory, more than the fragment has."""


def manual_d(lane: int, register: int) -> tuple[int, int]:
    """PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type: C and D."""
    group, in_group = lane >> 2, lane % 4
    return group + 8 * (register >= 2), in_group * 2 + (register & 1)


def manual_a(lane: int, i: int) -> tuple[int, int]:
    """The same of A, a_i."""
    row = lane >> 2 if 0 <= i < 2 or 4 <= i < 6 else (lane >> 2) + 8
    return row, (lane % 4) * 2 + (i & 1) + (8 if i >= 4 else 0)


def test_the_expression_of_cuda_names_the_place() -> None:
    for lane in range(32):
        for register in range(4):
            row, col = manual_d(lane, register)
            offset = eval(
                cuda(BF16.operand("D")),
                {"d": range(1000), "lane": lane, "reg": register, "ldd": COLUMNS},
            )
            assert offset == row * COLUMNS + col
        for i in range(8):
            row, col = manual_a(lane, i)
            names = {"a": range(1000), "lane": lane, "reg": i // 2, "element": i % 2, "lda": 23}
            assert eval(cuda(BF16.operand("A")), names) == row * 23 + col


def kernel(body: str) -> str:
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry move(.param .u64 memory, .param .u64 result)
{{
    .reg .b32 lane, lda, ldd, d0, d1, d2, d3, wide;
    .reg .u64 a, d, out;
    ld.param.u64 a, [memory];
    mov.u64 d, a;
    ld.param.u64 out, [result];
    mov.u32 lane, %tid.x;
    mov.u32 lda, 23;
    mov.u32 ldd, {COLUMNS};
    mad.wide.u32 out, lane, 16, out;
    {body}
}}"""


def test_ptx_stores_d_where_the_manual_says() -> None:
    layout = BF16.operand("D")
    body = "".join(
        f"mad.lo.u32 d{r}, lane, 4, {r};\n{{\n{chr(10).join(ptx(layout, Place(0, r, 0)))}\n}}\n"
        for r in range(4)
    )
    device = open_device("emulator")
    memory = device.zeros(16 * COLUMNS, np.uint32)
    device.load(kernel(body)).kernel().launch(1, 32, [memory, memory])
    expected = np.zeros((16, COLUMNS), np.uint32)
    for lane in range(32):
        for register in range(4):
            expected[manual_d(lane, register)] = 4 * lane + register
    assert memory.numpy().reshape(16, COLUMNS).tolist() == expected.tolist()


def test_ptx_loads_a_from_where_the_manual_says() -> None:
    layout = BF16.operand("A")
    body = "".join(
        f"{{\n{chr(10).join(ptx(layout, Place(0, i // 2, i % 2)))}\n"
        f"st.global.b16 [out+{2 * i}], part;\n}}\n"
        for i in range(8)
    )
    device = open_device("emulator")
    rng = np.random.default_rng(5)
    values = rng.integers(0, 1 << 16, (16, 23), np.uint16)
    out = device.zeros(32 * 8, np.uint16)
    device.load(kernel(body)).kernel().launch(1, 32, [device.upload(values), out])
    held = out.numpy().reshape(32, 8)
    for lane in range(32):
        assert held[lane].tolist() == [values[manual_a(lane, i)] for i in range(8)]


def test_nothing_is_said_of_less_than_a_byte() -> None:
    assert accesses(find("m16n8k64", "s4").operand("A"), Place(0, 0, 0)) == []
    assert accesses(find("m16n8k32", "s8").operand("A"), Place(0, 0, 3))[1].startswith("  a[")
