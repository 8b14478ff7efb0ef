"""Programs whose threads race have one result on any number of cores, with chunks as small as they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.emulator.native import segment, warp_operation
from ptxlab.emulator.operations import copy_native, matrix_native
from ptxlab.errors import LaunchError
from ptxlab.native import compiler, cores
from ptxlab.workers import VARIABLE
from tests.emulator.native.test_engines import FAULTS, RACES, kernel
from tests.native.test_tensor_core import PROGRAM

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

LOCAL = """
    .local .align 8 .b8 own[64];
    and.b32 r3, r0, 3; shl.b32 r3, r3, 2; mov.u32 r4, own; add.u32 r3, r3, r4; st.local.u32 [r3], r0;
    ld.local.u32 r5, [r3]; ld.global.u32 r6, [d1]; add.u32 r5, r5, r6; st.global.u32 [d1], r5;"""
ATOMICS = """
    atom.global.add.u32 r3, [d0], r0; atom.global.exch.b32 r4, [d0+4], r0; add.u32 r5, r3, r4;
    st.global.u32 [d1+8], r5;"""
LOOPS = """
    mov.u32 r10, 0; and.b32 r11, r0, 31; shl.b32 r11, r11, 4; mov.u32 r12, s; add.u32 r11, r11, r12;
    OUTER: mov.u32 r13, 0;
    INNER: xor.b32 r3, r0, r13; st.shared.u32 [r11], r3; st.global.u32 [d0], r3; ld.global.u32 r4, [d0];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {r5, r6}, [r11]; add.u32 r4, r4, r5;
        st.global.u32 [d1], r4; add.u32 r13, r13, 1; setp.lt.u32 p1, r13, 12; @p1 bra INNER;
    bar.sync 0; add.u32 r10, r10, 1; setp.lt.u32 p1, r10, 4; @p1 bra OUTER;"""
COPIES = """
    mov.u32 r10, 0; and.b32 r11, r0, 7; shl.b32 r11, r11, 4; mov.u32 r12, s; add.u32 r11, r11, r12;
    and.b32 r13, r0, 31; mul.wide.u32 d2, r13, 16; add.u64 d2, d2, d0;
    AGAIN: xor.b32 r3, r0, r10; st.global.u32 [d1], r3; bar.sync 0; cp.async.cg.shared.global [r11], [d2], 16;
        cp.async.commit_group; cp.async.ca.shared.global [r11+8], [d1], 4; cp.async.commit_group;
        mad.lo.u32 r3, r3, 5, r10; st.global.u32 [d1], r3; cp.async.wait_group 1; ld.shared.u32 r4, [r11+4];
        cp.async.wait_all; ld.shared.u32 r5, [r11+8]; add.u32 r4, r4, r5; st.global.u32 [d1], r4; bar.sync 0;
        add.u32 r10, r10, 1; setp.lt.u32 p1, r10, 40; @p1 bra AGAIN;"""
LINES = (
    RACES
    | FAULTS
    | {"loops": LOOPS, "copies": COPIES}
    | {"local memory": LOCAL, "atomics": ATOMICS}
)

Run = Callable[[str, int, int], tuple[bytes, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run kernel ``k`` on so many cores; return what its data are then, and what went wrong."""
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    monkeypatch.setattr(cores, "idle", lambda asking: 2)
    monkeypatch.setattr(segment, "WORTH", 1)
    monkeypatch.setattr(copy_native, "WORTH", 1)
    monkeypatch.setattr(matrix_native, "WORTH", 1)
    monkeypatch.setattr(warp_operation, "WARPS", 1)
    monkeypatch.setattr(cores, "CHUNKS", 8)

    def run(text: str, many: int, block: int) -> tuple[bytes, str]:
        monkeypatch.setenv(VARIABLE, str(many))
        device: Any = open_device("emulator", arch="sm_90a")
        buffer, message = device.upload(np.arange(1024, dtype=np.uint32) * 17), ""
        try:
            device.load(text).kernel("k").launch(1024 // block, block, [buffer])
        except LaunchError as error:
            message = str(error)
        return buffer.numpy().tobytes(), message

    return run


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_results_are_the_same_on_any_number_of_cores(run: Run, lines: str) -> None:
    text = kernel(lines)
    for block, several in ((32, (2, 3)), (128, (3,))):
        wanted = run(text, 1, block)
        for many in several:
            assert run(text, many, block) == wanted


def test_matrix_products_are_the_same_on_any_number_of_cores(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    words, outputs = np.random.default_rng(5).integers(0, 256, 24 * 256, np.uint8), []
    for many in (1, 3, 3):
        monkeypatch.setenv(VARIABLE, str(many))
        device: Any = open_device("emulator", arch="sm_80")
        out = device.zeros(4 * 256, "u32")
        device.load(PROGRAM).kernel("k").launch(2, 128, [device.upload(words), out])
        outputs.append(out.numpy().tolist())
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]
