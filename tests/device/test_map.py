"""Memory of this process that kernels of the emulator use in place, and addresses that nobody else has."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Kernel
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import check
from tests.device.fake_driver import FakeDriver
from tests.together import in_one_test

SIZES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v4.b32": 16}


def accesses() -> str:
    """Return a kernel for each size, which copies an item from ``a`` to ``b``."""
    text = ".version 8.0\n.target sm_80\n.address_size 64\n"
    for name in SIZES:
        register = {"b8": "h", "b16": "h", "v4.b32": "{r0, r1, r2, r3}"}.get(name, f"{name}x")
        text += f"""
.visible .entry copy_{name.replace(".", "_")}(.param .u64 a, .param .u64 b)
{{
    .reg .b16 h; .reg .b32 r<4>, b32x; .reg .b64 b64x, p, q;
    ld.param.u64 p, [a];
    ld.param.u64 q, [b];
    ld.{name} {register}, [p];
    st.{name} [q], {register};
    ret;
}}
"""
    return text


DOUBLE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n)
{
    .reg .pred p; .reg .b32 i, m, v; .reg .b64 a;
    ld.param.u64 a, [x];
    ld.param.u32 m, [n];
    mov.u32 i, %ctaid.x;
    mov.u32 v, %tid.x;
    mad.lo.u32 i, i, 64, v;
    setp.ge.u32 p, i, m;
    @p ret;
    mad.wide.u32 a, i, 4, a;
    ld.global.u32 v, [a];
    add.u32 v, v, v;
    st.global.u32 [a], v;
    ret;
}
"""


@pytest.fixture
def device() -> Iterator[Device]:
    with open_device("emulator") as opened:
        yield opened


def doubled(device: Device) -> Kernel:
    return device.load(DOUBLE).kernel()


def test_kernels_write_the_array_itself(device: Device) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, (3, 100), dtype=np.uint32)
    before = x.copy()
    address = device.map(x)
    assert address == x.ctypes.data
    kernel = doubled(device)
    kernel.launch(5, 64, [address, 300])
    assert (x == before * np.uint32(2)).all()
    x[:] = 7
    kernel.launch(1, 64, [address + 400, 10])
    assert x.tolist() == [[7] * 100, [14] * 10 + [7] * 90, [7] * 100]
    device.unmap(x)
    with pytest.raises(LaunchError, match="is outside every allocation"):
        kernel.launch(1, 64, [address, 300])


def test_each_byte_and_no_other(device: Device) -> None:
    """Every size at every place about the ends of spans at any address, by whole numbers alone."""
    module, rng = device.load(accesses()), np.random.default_rng(2)
    there, out = rng.integers(0, 256, 256, dtype=np.uint8), np.zeros(16, np.uint8)
    origin, to = there.ctypes.data, device.map(out)
    right = 0
    for _ in range(60):
        begin, nbytes = int(rng.integers(64, 128)), int(rng.integers(1, 70))
        device.map(origin + begin, nbytes)
        for name, size in SIZES.items():
            kernel = module.kernel(f"copy_{name.replace('.', '_')}")
            at = (begin if rng.integers(2) else begin + nbytes) + int(rng.integers(-size, size + 1))
            inside = begin <= at and at + size <= begin + nbytes
            out[:] = 0
            if inside and (origin + at) % size == 0:
                kernel.launch(1, 1, [origin + at, to])
                assert (out[:size] == there[at : at + size]).all()
                right += 1
            else:
                words = "misaligned" if inside else "out of bounds"
                with pytest.raises(LaunchError, match=words) as caught:
                    kernel.launch(1, 1, [origin + at, to])
                if not inside:
                    where = rf"\({nbytes} bytes at {origin + begin:#x}\)|array uint8\[16\]"
                    assert re.search(where, str(caught.value.hint))
                with pytest.raises(LaunchError, match=words):
                    kernel.launch(1, 1, [to, origin + at])
        device.unmap(origin + begin)
    assert right > 30


def test_threads_on_both_sides_of_an_edge(device: Device) -> None:
    """Neighbours in one line of memory are two arrays, of which each thread may be in either."""
    whole = np.arange(24, dtype=np.uint32)
    first, second = whole[3:11], whole[11:14]
    device.map(first)
    device.map(second)
    kernel = doubled(device)
    kernel.launch(1, 64, [first.ctypes.data, 11])
    assert whole[:3].tolist() == [0, 1, 2]
    assert whole[3:14].tolist() == list(range(6, 28, 2))
    assert whole[14:].tolist() == list(range(14, 24))
    for start, count in (
        (first.ctypes.data - 4, 3),
        (first.ctypes.data, 12),
        (second.ctypes.data, 4),
    ):
        with pytest.raises(LaunchError, match=r"\(\d+, 0, 0\) of CTA \(0, 0, 0\) is out of bounds"):
            kernel.launch(1, 64, [start, count])
    down = device.load(
        DOUBLE.replace("mad.wide.u32 a", "mad.wide.s32 a").replace("i, 4, a", "i, -4, a")
    )
    down.kernel().launch(1, 64, [second.ctypes.data, 9])
    assert whole[3:14].tolist() == [4 * i for i in range(3, 12)] + [24, 26]
    with pytest.raises(
        LaunchError, match=r"thread \(9, 0, 0\) of CTA \(0, 0, 0\) is out of bounds"
    ):
        down.kernel().launch(1, 64, [second.ctypes.data, 10])
    assert whole[2] == 2
    device.unmap(first)
    for side, start in ((kernel, second.ctypes.data - 4), (down.kernel(), second.ctypes.data)):
        with pytest.raises(LaunchError, match="out of bounds"):
            side.launch(1, 64, [start, 2])
    kernel.launch(1, 64, [second.ctypes.data, 3])


def test_a_read_only_array_takes_no_stores(device: Device) -> None:
    x = np.arange(8, dtype=np.uint32)
    x.flags.writeable = False
    address = device.map(x)
    with pytest.raises(LaunchError, match=r"writes to array uint32\[8\]") as caught:
        doubled(device).launch(1, 64, [address, 8])
    assert "read-only" in str(caught.value.hint)
    assert x.tolist() == list(range(8))
    out = np.zeros(4, np.uint32)
    device.load(accesses()).kernel("copy_v4_b32").launch(1, 1, [address + 16, device.map(out)])
    assert out.tolist() == [4, 5, 6, 7]


def test_what_is_mapped_is_global(device: Device) -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 out)
{
    .reg .pred p<2>; .reg .b32 r<2>; .reg .b64 a, o;
    ld.param.u64 a, [x];
    ld.param.u64 o, [out];
    isspacep.global p0, a;
    isspacep.const p1, a;
    selp.u32 r0, 1, 0, p0;
    selp.u32 r1, 1, 0, p1;
    st.global.v2.u32 [o], {r0, r1};
    ret;
}
"""
    x, out = np.zeros(1, np.float32), device.zeros(2, "u32")
    x.flags.writeable = False
    device.load(text).kernel().launch(1, 1, [device.map(x), out])
    assert out.numpy().tolist() == [1, 0]


def test_an_array_stays_while_it_is_mapped(device: Device) -> None:
    x = np.zeros(4, np.uint32)
    alive, address = weakref.ref(x), device.map(x)
    del x
    gc.collect()
    assert alive() is not None
    device.unmap(address)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("array", [np.zeros((3, 4)).T, np.zeros(3, ml_dtypes.bfloat16)[::-1][:1]])
def test_any_order_of_elements_that_lie_together(device: Device, array: Any) -> None:
    device.unmap(device.map(array))


@in_one_test(
    ("memory", "nbytes", "words", "hint"),
    [
        (np.zeros((4, 4), np.float32)[:, :2], None, r"array float32\[4, 2\] has gaps", "np.ascontiguous"),
        (np.zeros(4)[::-1], None, "has gaps between its elements", "upload"),
        (np.zeros(4, ">f4"), None, "is in another byte order", ""),
        (np.array([None]), None, "elements of type object have no place", ""),
        (np.zeros(0), None, r"array float64\[0\] has 0 bytes, of which 0", ""),
        (np.zeros(2), 17, "has 16 bytes, of which 17 cannot be mapped", ""),
        (4096, None, "how many bytes are at 0x1000", "give nbytes"),
        (4096, 0, "a number of bytes to map, not 0", ""),
        (4096, 1.5, "nbytes takes integers", ""),
        (0, 4, "4 bytes at 0x0 are no memory of a process", ""),
        (-4, 4, "are no memory of a process", ""),
        (2**48 - 4, 8, "are no memory of a process", "what the device allocated"),
        ([1, 2], None, "a list is no memory to map", "data_ptr"),
        (True, 4, "a bool is no memory", ""),
    ],
)  # fmt: skip
def test_what_is_refused(device: Device, memory: Any, nbytes: Any, words: str, hint: str) -> None:
    with pytest.raises(PtxlabError, match=words) as caught:
        device.map(memory, nbytes)
    assert caught.value.exit_status == 2
    assert hint in (caught.value.hint or "")


def test_overlaps_and_what_is_not_mapped(device: Device) -> None:
    x = np.zeros(32, np.uint8)
    device.map(x[8:16])
    for overlapping in (x[8:16], x[:9], x[15:], x, x[10:11]):
        with pytest.raises(
            PtxlabError, match=r"overlaps array uint8\[8\] \(8 bytes at 0x\w+\), which"
        ):
            device.map(overlapping)
    device.map(x[:8])
    device.map(x[16:])
    buffer = device.zeros(4, "u32")
    for unknown in (x[1:], x.ctypes.data + 9, buffer.address, 4096):
        with pytest.raises(PtxlabError, match="nothing is mapped at 0x"):
            device.unmap(unknown)
    device.unmap(x[8:16])
    with pytest.raises(PtxlabError, match="nothing is mapped"):
        device.unmap(x[8:16])
    device.map(x[8:16])
    assert buffer.numpy().tolist() == [0] * 4


def test_checks_look_at_it_too(device: Device) -> None:
    x = np.zeros(5, np.uint32)
    report = check(doubled(device), LaunchConfig.of(1, 64), [device.map(x), 6])
    [finding] = report.findings
    assert finding.kind == "bounds"
    assert (
        "0 bytes past the end of the nearest allocation, array uint32[5] (20 bytes" in finding.hint
    )
    [finding] = check(
        doubled(device), LaunchConfig.of(2, 64), [device.map(np.zeros(9, np.uint8)[1:]), 1]
    ).findings
    assert finding.kind == "alignment"


def test_no_address_of_the_device_is_one_of_a_process(device: Device) -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.func f() { ret; }
.visible .const .u32 c = 1;
.visible .entry k(.param .u64 out)
{
    .shared .u32 s; .local .u32 l; .reg .b64 o, a;
    ld.param.u64 o, [out];
    mov.u64 a, s; cvta.shared.u64 a, a; st.global.u64 [o], a;
    mov.u64 a, l; cvta.local.u64 a, a; st.global.u64 [o+8], a;
    mov.u64 a, c; cvta.const.u64 a, a; st.global.u64 [o+16], a;
    mov.u64 a, f; st.global.u64 [o+24], a;
    st.global.u64 [o+32], o;
    ret;
}
"""
    out = device.zeros(5, "u64")
    device.load(text).kernel().launch(1, 1, [out])
    addresses = out.numpy().tolist()
    assert len(set(addresses)) == 5
    with open("/proc/self/maps") as maps:
        ends = [
            int(line.split()[0].partition("-")[2], 16) for line in maps if "vsyscall" not in line
        ]
    assert max(ends) <= min(addresses)


def test_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (FakeDriver(), ""))
    x = np.zeros(4)
    with pytest.raises(Unsupported, match="is not mapped on Fake GPU") as caught:
        CudaDevice().map(x)
    assert "device.upload" in str(caught.value.hint)
    with pytest.raises(PtxlabError, match="nothing of this process is mapped on Fake GPU"):
        CudaDevice().unmap(x)


def test_a_closed_device_maps_nothing(device: Device) -> None:
    x = np.zeros(4)
    device.map(x)
    device.close()
    for use in (device.map, device.unmap):
        with pytest.raises(PtxlabError, match="is closed"):
            use(x)
