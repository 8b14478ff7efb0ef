"""Launches whose parameter block is packed already: by struct here, as a driver's client does it."""

import ctypes
import struct
from typing import Any

import numpy as np
import pytest

from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Dump
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import LaunchConfig
from tests.device.fake_driver import FakeDriver

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u8 a, .param .u64 out, .param .u16 b, .param .align 8 .b8 c[12], .param .f32 e)
{
    .reg .b16 h<2>;
    .reg .b32 r<5>;
    .reg .b64 d<2>;
    ld.param.u64 d0, [out];
    ld.param.u8 r0, [a];
    ld.param.u16 r1, [b];
    ld.param.u32 r2, [c];
    ld.param.u32 r3, [c+8];
    ld.param.b32 r4, [e];
    st.global.u32 [d0], r0;
    st.global.u32 [d0+4], r1;
    st.global.u32 [d0+8], r2;
    st.global.u32 [d0+12], r3;
    st.global.u32 [d0+16], r4;
    ret;
}
.visible .entry none() { ret; }
"""
# By C's rules: a at 0, out at 8, b at 16, c at 24, e at 36.
BLOCK = struct.Struct("<B7xQH6x12sf")
ONE = LaunchConfig.of(1, 1)


def test_it_is_what_the_arguments_become(device: Device) -> None:
    kernel, out = device.load(TEXT).kernel("k"), device.zeros(5, "u32")
    rng = np.random.default_rng(6)
    for _ in range(4):
        a, b, c = int(rng.integers(256)), int(rng.integers(65536)), rng.bytes(12)
        e = float(rng.standard_normal(dtype=np.float32))
        expected = [a, b, *np.frombuffer(c, np.uint32)[[0, 2]], np.float32(e).view(np.uint32)]
        packed = BLOCK.pack(a, out.address, b, c, e)
        args = [a, out, b, c, e]
        assert kernel.packed(args) == packed
        for form in (packed, bytearray(packed), memoryview(packed)):
            out.close()
            out = device.zeros(5, "u32")
            block = bytearray(form)
            struct.pack_into("<Q", block, 8, out.address)
            kernel.launch_packed(ONE, type(form)(block))
            assert out.numpy().tolist() == expected
    device.load(TEXT).kernel("none").launch_packed(ONE, b"")


def test_registers_on_the_way(device: Device) -> None:
    kernel, out = device.load(TEXT).kernel("k"), device.zeros(5, "u32")
    packed = BLOCK.pack(200, out.address, 3, b"", 0.0)
    dumped = kernel.launch_packed(ONE, packed, Dump("ld.param.u16", ("r0", "r1"))).dump
    assert dumped is not None
    assert dumped.words.tolist() == [[200, 3]]


@pytest.mark.parametrize(
    ("name", "packed", "words"),
    [
        ("k", b"", "kernel k takes 40 bytes of parameters, not 0 bytes"),
        ("k", bytes(39), "not 39 bytes"),
        ("k", bytes(48), "not 48 bytes"),
        ("k", 40, "not the int 40"),
        ("k", [0] * 40, r"not the list \[0, 0"),
        ("k", np.zeros(40, np.uint8), "not the ndarray"),
        ("none", b"\0", "kernel none takes 0 bytes of parameters, not 1 bytes"),
    ],
)
def test_the_size_is_held(device: Device, name: str, packed: Any, words: str) -> None:
    with pytest.raises(PtxlabError, match=words) as caught:
        device.load(TEXT).kernel(name).launch_packed(ONE, packed)
    assert caught.value.exit_status == 2
    if name == "k":
        listed = ".u8 a at 0, .u64 out at 8, .u16 b at 16, .b8[12] c at 24, .f32 e at 36"
        assert listed in str(caught.value.hint)


def test_what_a_kernel_declares_is_held() -> None:
    text = TEXT.replace("none()", "none() .reqntid 32")
    with open_device("emulator") as device:
        kernel = device.load(text).kernel("none")
        with pytest.raises(PtxlabError, match=r"\.reqntid"):
            kernel.launch_packed(ONE, b"")
    with pytest.raises(PtxlabError, match="is closed"):
        kernel.launch_packed(LaunchConfig.of(1, 32), b"")


def test_the_driver_is_given_each_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    seen: list[bytes] = []

    def play(pointers: int) -> None:
        addresses = (ctypes.c_void_p * 5).from_address(pointers)
        sizes = (1, 8, 2, 12, 4)
        seen.extend(ctypes.string_at(a, size) for a, size in zip(addresses, sizes, strict=True))

    driver.on_launch = play
    packed = BLOCK.pack(1, 2**40, 3, bytes(range(12)), 0.5)
    CudaDevice().load(TEXT).kernel("k").launch_packed(LaunchConfig.of(2, 3), packed)
    assert seen == [b"\1", (2**40).to_bytes(8, "little"), b"\3\0", bytes(range(12)), b"\0\0\0\x3f"]
    assert driver.named("cuLaunchKernel")[0][1:7] == (2, 1, 1, 3, 1, 1)
