"""Small PTX programs on the emulator: a body is wrapped into a kernel, run, and its output returned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
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


def module_text(entries: Mapping[str, str], before: str = "", target: str = "sm_80") -> str:
    """Return a module whose kernels are bodies with ``d0`` the address of their output, by their names."""
    return f"""
.version 8.3
.target {target}
.address_size 64
{before}
""" + "".join(_entry(name, body) for name, body in entries.items())


def kernel_text(body: str, before: str = "", parameters: str = "", target: str = "sm_80") -> str:
    """Return a module whose kernel ``k`` is ``body`` with ``d0`` the address of its output."""
    return module_text({}, before, target) + _entry("k", body, parameters)


def _entry(name: str, body: str, parameters: str = "") -> str:
    return f"""
.visible .entry {name}(.param .u64 out{parameters})
{{{REGISTERS}
    ld.param.u64 d0, [out];
{body}
}}
"""


def functions(sass: str) -> dict[str, str]:
    """Return the part of each function of what ``disassemble`` gives."""
    return dict(re.findall(r"\.section\t\.text\.(\w+),(.*?)(?=\.section\t|\Z)", sass, re.S))


Run = Callable[..., Array]


@pytest.fixture(scope="session")
def emulator() -> Device:
    return open_device("emulator")


@pytest.fixture
def run(device: Device) -> Run:
    """Run a body over threads; each of them owns ``words`` 32-bit words of the output at d1.

    It runs where the tests run: what it computes is what a GPU computes, too.
    """
    return runner(device)


@pytest.fixture
def emulate(emulator: Device) -> Run:
    """Run a body as ``run`` does, on the emulator alone: to see what a GPU does not show or say."""
    return runner(emulator)


@pytest.fixture
def run_on() -> Callable[[Device], Run]:
    """Give ``run`` for a device of the test's own."""
    return runner


def runner(device: Device) -> Run:
    """Return what ``run`` and ``emulate`` are."""

    def execute(
        body: str,
        *args: Any,
        grid: Any = 1,
        block: Any = 32,
        words: int = 1,
        shared: int = 0,
        before: str = "",
        parameters: str = "",
        target: str = "sm_80",
    ) -> Array:
        threads = int(np.prod(grid)) * int(np.prod(block))
        index = f"""
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, %ntid.x;
    mad.lo.u32 r1, r1, r2, r0;
    mad.wide.u32 d1, r1, {4 * words}, d0;
"""
        module = device.load(kernel_text(index + body, before, parameters, target))
        with device.zeros((threads, words), "u32") as out:
            module.kernel("k").launch(grid, block, [out, *args], shared=shared)
            return out.numpy()

    return execute
