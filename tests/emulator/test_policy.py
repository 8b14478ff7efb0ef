"""Cache policies and sleep: what they are as bits, and that results do not depend on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.emulator.prepare.row import ROWS
from ptxlab.errors import PtxSyntaxError, Unsupported
from tests.together import in_one_test

LAST = "createpolicy.fractional.L2::evict_last"
FIRST = "createpolicy.fractional.L2::evict_first"
RANGE = "createpolicy.range.global.L2::evict_last"


def policy(run: Any, instructions: str) -> int:
    """Return the word that ``instructions`` leave in d2."""
    words = run(f"{instructions} st.global.u64 [d1], d2;", block=1, words=2)[0]
    return int(words[0]) | int(words[1]) << 32


@in_one_test(
    ("instructions", "word"),
    [
        # CUTLASS, include/cute/arch/copy_sm90_desc.hpp: TMA::CacheHintSm90.
        (f"{FIRST}.b64 d2, 1.0;", 0x12F0000000000000),
        (f"{LAST}.b64 d2, 1.0;", 0x14F0000000000000),
        # The constants in the machine code that ptxas 13 makes for sm_90a.
        (f"{LAST}.b64 d2;", 0x14F0000000000000),
        (f"{LAST}.b64 d2, 0.5;", 0x1470000000000000),
        (f"mov.f32 f1, 0f3e800000; {LAST}.b64 d2, f1;", 0x1430000000000000),
        (f"{LAST}.L2::evict_unchanged.b64 d2, 0.5;", 0x1470000000000000),
        (f"{LAST}.L2::evict_first.b64 d2, 0.5;", 0x1570000000000000),
        ("createpolicy.fractional.L2::evict_normal.b64 d2, 0.5;", 0x1670000000000000),
        (
            "createpolicy.fractional.L2::evict_unchanged.L2::evict_first.b64 d2, 0.5;",
            0x1170000000000000,
        ),
        ("createpolicy.cvt.L2.b64 d2, 0x12F0000000000000;", 0x12F0000000000000),
        # The second block of 4096 bytes; three blocks of 8192 bytes from the first on.
        (
            f"mov.u64 d3, 4096; {RANGE}.b64 d2, [d3], 4096, 8192;",
            ((0x1C0 << 8 | 1) << 7 | 1) << 37,
        ),
        (
            f"mov.u64 d3, 4096; {RANGE}.L2::evict_first.b64 d2, [d3+16], 20000, 1048576;",
            ((0x1D1 << 8 | 0) << 7 | 3) << 37,
        ),
        (f"mov.u64 d3, 4096; {RANGE}.b64 d2, [d3], r0, 0;", 0x180 << 52),
    ],
)
def test_a_policy_is_the_word_that_the_machine_code_makes(
    run: Any, instructions: str, word: int
) -> None:
    assert policy(run, instructions) == word


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (f"{LAST}.b64 d2, 1.5;", "at most 1"),
        (f"{LAST}.b64 d2, 0.0;", "more than 0"),
        (f"{LAST}.b64 d2, 1;", "an integer where"),
        (f"{RANGE}.b64 d2, [d1], 512, 256;", "at most the total size"),
        (f"{RANGE}.b64 d2, [d1], d3, r2;", "d3"),
        ("applypriority.global.L2::evict_normal [d1], 64;", "takes 128 bytes"),
        ("nanosleep.u32 d3;", "d3"),
    ],
)
def test_wrong_hints_are_rejected(emulate: Any, instruction: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        emulate(instruction)


@pytest.mark.parametrize("second", [f"{LAST}.L2::evict_normal", "createpolicy.range.shared"])
def test_forms_that_ptxas_does_not_take(emulate: Any, second: str) -> None:
    with pytest.raises(Unsupported, match="createpolicy"):
        emulate(f"{second}.b64 d2, 0.5;")


HINTED = """
    {policy}
    ld.global.L2::cache_hint.u32 r2, [d1], d2;
    add.u32 r2, r2, r0;
    st.global.L2::cache_hint.u32 [d1], r2, d2;
    red.global.add.L2::cache_hint.u32 [d1], 5, d2;
    applypriority.global.L2::evict_normal [d0], 128;
"""


def test_no_result_depends_on_a_policy(run: Any) -> None:
    hints = [f"{LAST}.b64 d2, 0.25;", f"{FIRST}.b64 d2;", f"{RANGE}.b64 d2, [d0], 64, 128;"]
    for hint in hints:
        assert np.array_equal(run(HINTED.format(policy=hint))[:, 0], np.arange(32) + 5)


SPIN = """
    setp.eq.u32 p1, r0, 1;
    @p1 bra SET;
WAIT:
    {pause}
    ld.global.u32 r3, [d0+4];
    setp.eq.u32 p2, r3, 0;
    @p2 bra WAIT;
    st.global.u32 [d0], r3;
    exit;
SET:
    st.global.u32 [d0+4], 7;
"""


def instructions(device: Device, pause: str) -> int:
    """Return how many instructions run until thread 0 has seen what thread 1 writes."""
    text = f""".version 8.3 .target sm_80
.visible .entry k(.param .u64 out) {{
    .reg .b32 r<8>; .reg .b64 d<2>; .reg .pred p<3>;
    ld.param.u64 d0, [out];
    mov.u32 r0, %tid.x;
    {SPIN.format(pause=pause)}
}}"""
    with device.zeros(2, "u32") as out:
        counted = device.load(text).kernel("k").launch(1, 2, [out])
        assert list(out.numpy()) == [7, 7]
    return int(counted.counters["thread_instructions"])


def test_a_thread_that_sleeps_lets_others_go_on(emulator: Device) -> None:
    awake, asleep = (instructions(emulator, pause) for pause in ("", "nanosleep.u32 20;"))
    assert asleep * 8 < awake


def test_sleep_counts_as_nothing_else(emulate: Any) -> None:
    words = emulate("nanosleep.u32 r0; nanosleep.u32 1000000; st.global.u32 [d1], r0;")
    assert np.array_equal(words[:, 0], np.arange(32))
    assert {made.fidelity for made in ROWS["nanosleep"]} == {"ordering"}
