"""Parameters of a kernel by their address: in param space, and generic ones as cvta.param gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.errors import LaunchError

RECORD = np.arange(1, 9, dtype=np.uint32)
PARAMETERS = ", .param .align 16 .b8 s[32]"


def loaded(run: Any, body: str, **more: Any) -> Any:
    return run(f"mov.b64 d3, s; {body}", RECORD, parameters=PARAMETERS, **more)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("ld.param.u32 r2, [d3+4];", 2),
        ("mov.b64 d3, s+8; ld.param.u32 r2, [d3];", 3),
        ("cvta.param.u64 d4, d3; ld.u32 r2, [d4+4];", 2),
        ("cvta.param.u64 d4, d3; ld.v4.u32 {r5, r6, r7, r2}, [d4+16];", 8),
        ("cvta.param::entry.u64 d4, d3; cvta.to.param.u64 d5, d4; ld.param.u32 r2, [d5+20];", 6),
    ],
)
def test_a_parameter_is_read_at_its_address(run: Any, body: str, word: int) -> None:
    words = loaded(run, f"{body} st.global.u32 [d1], r2;")
    assert np.array_equal(words[:, 0], np.full(32, word))


def test_each_thread_may_read_its_own(run: Any) -> None:
    body = """
    cvta.param.u64 d4, d3; and.b32 r3, r0, 7; mad.wide.u32 d4, r3, 4, d4;
    ld.u32 r2, [d4]; st.global.u32 [d1], r2;
    """
    assert np.array_equal(loaded(run, body)[:, 0], np.tile(RECORD, 4))


def test_the_address_is_one_of_a_parameter_only(run: Any) -> None:
    tests = "\n".join(
        f"isspacep.{space} p1, d4; selp.u32 r3, {1 << bit}, 0, p1; or.b32 r4, r4, r3;"
        for bit, space in enumerate(("param", "global", "shared", "local"))
    )
    body = f"cvta.param.u64 d4, d3; mov.u32 r4, 0; {tests} st.global.u32 [d1], r4;"
    assert set(loaded(run, body)[:, 0]) == {1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cvta.param.u64 d4, d3; st.u32 [d4], r0;", "store of 4 bytes in param memory"),
        ("cvta.param.u64 d4, d3; ld.u32 r2, [d4+32];", "outside param memory"),
        ("cvta.param.u64 d4, d3; ld.u32 r2, [d4+2];", "misaligned"),
    ],
)
def test_faults(emulate: Any, body: str, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        loaded(emulate, body)
