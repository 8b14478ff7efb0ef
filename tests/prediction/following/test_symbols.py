"""What machine code names that lies outside of it: addresses of variables, and functions of the driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxlab.machine.operands import Immediate
from ptxlab.prediction.following.symbols import resolved, variables_named
from ptxlab.prediction.predict import predict
from tests.machine.test_operations import instruction

PROGRAM = """
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[4096];
.visible .entry named(.param .u64 out) {
  .reg .b32 t<4>; .reg .b64 p, q;
  mov.u64 q, table; mov.u32 t0, %tid.x; mul.wide.u32 p, t0, 4; add.s64 q, q, p; ld.global.u32 t1, [q+2048];
  ld.param.u64 q, [out]; mov.u32 t2, %ctaid.x; mad.lo.u32 t2, t2, 32, t0; mul.wide.u32 p, t2, 4; add.s64 q, q, p;
  st.global.u32 [q], t1; ret;
}
.visible .entry passed(.param .u64 out, .param .u64 table_) {
  .reg .b32 t<4>; .reg .b64 p, q;
  ld.param.u64 q, [table_]; mov.u32 t0, %tid.x; mul.wide.u32 p, t0, 4; add.s64 q, q, p; ld.global.u32 t1, [q+2048];
  ld.param.u64 q, [out]; mov.u32 t2, %ctaid.x; mad.lo.u32 t2, t2, 32, t0; mul.wide.u32 p, t2, 4; add.s64 q, q, p;
  st.global.u32 [q], t1; ret;
}
"""


@pytest.mark.parametrize("gpu", ["t4", "a100", "h100", "rtx5090"])
def test_a_variable_is_memory_as_what_is_passed(gpu: str) -> None:
    program = PROGRAM.replace("sm_80", "sm_75")
    out, table = np.zeros(64 * 32, "u4"), np.zeros(1024, "u4")
    named = predict(program, gpu, 64, 32, [out], kernel="named")
    passed = predict(program, gpu, 64, 32, [out, table], kernel="passed")
    assert named.dram_bytes == passed.dram_bytes
    assert named.cycles == pytest.approx(passed.cycles, rel=0.1)


def test_halves_of_addresses_are_put_where_they_are_named() -> None:
    texts = [
        "MOV R2, 32@lo((table + 0x10))",
        "MOV R3, 32@hi(table)",
        "MOV R4, 32@lo(other)",
        "EXIT",
    ]
    code = [instruction(text, n) for n, text in enumerate(texts)]
    assert variables_named(code) == {"table", "other"}
    placed = resolved(code, {}, {"table": 0x7_FFFF_FFF8})
    assert placed[0].sources == placed[0].operands[1:] == (Immediate(8),)
    assert placed[1].sources == (Immediate(7),)
    assert placed[2:] == code[2:]


SAYS = r"""
extern "C" __global__ void says(float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(x[i] < 3);
    x[i] *= 2;
    if (threadIdx.x == 0) printf("%d\n", blockIdx.x);
    x[i + 1] += 1;
}
extern "C" __global__ void says_nothing(float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (x[i] >= 3) __trap();
    x[i] *= 2;
    x[i + 1] += 1;
}
"""


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx5090"])
def test_what_is_printed_takes_nothing_and_what_is_asserted_holds(gpu: str, tmp_path: Path) -> None:
    """Whatever the data: here none of it is below 3."""
    source = tmp_path / "says.cu"
    source.write_text(SAYS)
    says, nothing = (
        predict(source, gpu, 64, 128, [np.full(8193, 5, "f4")], kernel=kernel)
        for kernel in ("says", "says_nothing")
    )
    assert says.cycles == pytest.approx(nothing.cycles, rel=0.3)
    assert (
        "what printf takes" in says.not_modelled,
        "what printf takes" in nothing.not_modelled,
    ) == (True, False)
