"""Programs for sm_90: a body is wrapped into a kernel and run on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device

Run = Callable[..., Array]


def hopper_text(body: str, before: str = "", directives: str = "") -> str:
    """Return a kernel ``k`` with ``d0`` its output, ``d1`` its input, and the usual special registers."""
    return f"""
.version 9.5
.target sm_90a
.address_size 64
{before}
.visible .entry k(.param .u64 out, .param .u64 in) {directives}
{{
    .reg .pred p<8>;
    .reg .b8 c<2>;
    .reg .b16 h<16>;
    .reg .b32 r<32>;
    .reg .b64 d<32>;
    .reg .f32 f<16>;
    .shared .align 16 .b64 bar[8];
    .shared .align 1024 .b8 buffer[4096];
    ld.param.u64 d0, [out];
    ld.param.u64 d1, [in];
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, bar;
    mov.u32 r3, buffer;
    setp.eq.u32 p0, r0, 0;
{body}
    ret;
}}
"""


@pytest.fixture(scope="session")
def hopper() -> Device:
    return open_device("emulator", arch="sm_90a")


@pytest.fixture
def run(hopper: Device) -> Run:
    """Run a body; return its output, of ``words`` 32-bit words."""

    def run_body(
        body: str,
        *,
        words: int,
        data: npt.ArrayLike = 0,
        grid: int = 1,
        block: int = 32,
        cluster: int | None = None,
        **text: str,
    ) -> Array:
        kernel = hopper.load(hopper_text(body, **text)).kernel("k")
        out = hopper.zeros(words, "u32")
        given = hopper.upload(np.asarray(data))
        kernel.launch(grid=grid, block=block, cluster=cluster, args=[out, given])
        return out.numpy()

    return run_body
