"""Small PTX programs on the emulator: a body is wrapped into a kernel, run, and its output returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device

REGISTERS = """
    .reg .pred p<8>;
    .reg .b16 h<16>;
    .reg .b32 r<32>;
    .reg .b64 d<32>;
    .reg .f32 f<16>;
    .reg .f64 g<8>;
"""


def kernel_text(body: str, before: str = "", parameters: str = "") -> str:
    """Return a module whose kernel ``k`` is ``body`` with ``d0`` the address of its output."""
    return f"""
.version 8.0
.target sm_80
.address_size 64
{before}
.visible .entry k(.param .u64 out{parameters})
{{{REGISTERS}
    ld.param.u64 d0, [out];
{body}
}}
"""


Run = Callable[..., npt.NDArray[Any]]


@pytest.fixture(scope="session")
def emulator() -> Device:
    return open_device("emulator")


@pytest.fixture
def run(emulator: Device) -> Run:
    """Run a body over threads; each of them owns ``words`` 32-bit words of the output at d1."""

    def execute(
        body: str,
        *args: Any,
        grid: Any = 1,
        block: Any = 32,
        words: int = 1,
        shared: int = 0,
        before: str = "",
        parameters: str = "",
        device: Device | None = None,
    ) -> npt.NDArray[Any]:
        threads = int(np.prod(grid)) * int(np.prod(block))
        index = f"""
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, %ntid.x;
    mad.lo.u32 r1, r1, r2, r0;
    mad.wide.u32 d1, r1, {4 * words}, d0;
"""
        chosen = device or emulator
        module = chosen.load(kernel_text(index + body, before, parameters))
        with chosen.zeros((threads, words), "u32") as out:
            module.kernel("k").launch(grid, block, [out, *args], shared=shared)
            return out.numpy()

    return execute
