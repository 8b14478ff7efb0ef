"""Modules that are machine code: a cubin, a fatbin and what wraps one, loaded from memory and launched without PTX."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest

from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from ptxlab.toolchain import assemble_cuda, compile_cuda, link_ptx
from ptxlab.toolchain.machine_code import entries
from tests.clients.driver.calls import Driver
from tests.toolchain.binaries import CUBIN, container, member
from tests.toolchain.binaries import PTX as PTX_MEMBER

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .global .align 8 .b32 offset = 5;
.visible .entry scaled(.param .u64 out, .param .u32 factor) .maxntid 64
{
    .reg .b32 r<4>; .reg .b64 d;
    ld.param.u64 d, [out]; ld.param.u32 r1, [factor];
    mov.u32 r0, %tid.x;
    mad.wide.u32 d, r0, 4, d;
    ld.global.u32 r3, [offset];
    mad.lo.u32 r2, r0, r1, r3;
    st.global.u32 [d], r2;
    ret;
}
"""


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


@pytest.mark.parametrize("what", ["cubin", "fatbin", "wrapped"])
def test_machine_code_is_loaded_and_runs(what: str, driver: Driver) -> None:
    image = link_ptx(PTX, arch="sm_80").image
    if what != "cubin":
        image = container(member(CUBIN, 75, b"other"), member(CUBIN, 80, image))
    held = ctypes.create_string_buffer(
        image + b"\x5a" * 99
    )  # nothing says where it ends but itself
    address = ctypes.addressof(held)
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, address, 0))
    module = driver("cuModuleLoadData", ctypes.addressof(wrapper) if what == "wrapped" else address)
    function = driver("cuModuleGetFunction", module, b"scaled")
    assert [driver("cuFuncGetParamInfo", function, index) for index in (0, 1)] == [(0, 8), (8, 4)]
    assert driver("cuFuncGetAttribute", 0, function) == 64  # the threads of .maxntid
    assert driver("cuFuncGetAttribute", 4, function) > 0
    where, size = driver("cuModuleGetGlobal_v2", module, b"offset")
    assert size == 4
    out = driver.upload(bytes(4 * 32))
    values = ctypes.c_uint64(out), ctypes.c_uint32(3)
    pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, values))
    launch = function, 1, 1, 1, 32, 1, 1, 0, 0, ctypes.addressof(pointers), 0
    driver("cuLaunchKernel", *launch)
    memory = driver.session.device
    assert memory.read(out, 4 * 32).view("u4").tolist() == [3 * tid + 5 for tid in range(32)]
    memory.write(where, np.array([7], "u4"))
    driver("cuLaunchKernel", *launch)
    assert memory.read(out, 4 * 32).view("u4").tolist() == [3 * tid + 7 for tid in range(32)]
    launched = driver.session.last
    assert launched is not None
    code = launched.sass()
    assert repr(code) == "<machine code for sm_80>"
    assert code.as_text().startswith("scaled on sm_80\n")
    assert "STG.E" in code.as_text()


SPECIALISED = """
struct __align__(128) Told { float *out; int turns; };
extern "C" __global__ void __launch_bounds__(384) deal(const __grid_constant__ Told told)
{
    float *out = told.out;
    int turns = told.turns;
    float held[200];
    if (threadIdx.x < 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#pragma unroll
    for (int n = 0; n < 200; ++n) held[n] = out[threadIdx.x + 384 * n];
    for (int turn = 0; turn < turns; ++turn)
#pragma unroll
        for (int n = 0; n < 200; ++n) held[n] = held[n] * held[(n + 1) % 200] + 1.0f;
#pragma unroll
    for (int n = 0; n < 200; ++n) out[threadIdx.x + 384 * n] = held[n];
}
"""


def test_a_prediction_takes_machine_code_beside_ptx_where_setmaxnreg_counts(tmp_path: Path) -> None:
    """nvJitLink ignores it in PTX; a compiler of CUDA C does not."""
    driver = Driver("sm_90a")
    ptx = compile_cuda(SPECIALISED, path="deal.cu", arch="sm_90a").encode() + b"\0"
    whole = assemble_cuda(SPECIALISED, path="deal.cu", arch="sm_90a")[1].image
    alone = container(member(PTX_MEMBER, 90, ptx, suffix="a"))
    both = container(member(PTX_MEMBER, 90, ptx, suffix="a"), member(CUBIN, 90, whole, suffix="a"))
    spilled, kept = (_predicted(driver, image) for image in (alone, both))
    assert any(each.startswith("setmaxnreg") for each in spilled.not_modelled)
    assert not any(each.startswith("setmaxnreg") for each in kept.not_modelled)
    file = tmp_path / "deal.cubin"
    file.write_bytes(whole)
    told = (np.zeros(200 * 384, "f4"), np.int32(3), *[np.int32(0)] * 29)
    itself = predict(file, "h100", 1, 384, [told])
    assert kept.cycles == itself.cycles != spilled.cycles


def _predicted(driver: Driver, image: bytes) -> Prediction:
    held = ctypes.create_string_buffer(image)
    module = driver("cuModuleLoadData", ctypes.addressof(held))
    function = driver("cuModuleGetFunction", module, b"deal")
    out = driver.upload(bytes(4 * 200 * 384))
    told = ctypes.create_string_buffer(struct.pack("<QI116x", out, 3))
    pointers = (ctypes.c_uint64 * 1)(ctypes.addressof(told))
    driver("cuLaunchKernel", function, 1, 1, 1, 384, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
    launched = driver.session.last
    assert launched is not None
    return launched.predict("h100")


@pytest.mark.parametrize("what", ["fatbin", "beside"])
def test_machine_code_that_came_with_ptx_says_what_a_kernel_uses(
    what: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not be assembled for that. Here the PTX has shared memory besides, which the machine code has not."""
    image = link_ptx(PTX, arch="sm_80").image
    text = PTX.replace("ret;", ".shared .b32 tile[64]; st.shared.u32 [tile], r1; ret;")
    if what == "fatbin":
        image = container(member(PTX_MEMBER, 80, text.encode()), member(CUBIN, 80, image))
    else:
        monkeypatch.setattr(driver.gpu, "made_of", text)
    held = ctypes.create_string_buffer(image, len(image))
    module = driver("cuModuleLoadData", ctypes.addressof(held))
    function = driver("cuModuleGetFunction", module, b"scaled")
    [own] = entries(link_ptx(PTX, arch="sm_80").image, "sm_80")
    assert [driver("cuFuncGetAttribute", which, function) for which in (1, 4)] == [
        0,
        own.used.registers,
    ]
    assert driver("cuFuncGetAttribute", 0, function) == 64


@pytest.mark.parametrize("call", ["cuModuleLoad", "cuLibraryLoadFromFile"])
def test_a_cubin_is_loaded_from_its_file(call: str, driver: Driver, tmp_path: Path) -> None:
    image = link_ptx(PTX, arch="sm_80").image
    assert image.endswith(b"\0")  # which belongs to it
    file = tmp_path / "k.cubin"
    file.write_bytes(image)
    assert driver(call, str(file).encode())


def test_machine_code_for_another_gpu_is_refused(driver: Driver) -> None:
    held = ctypes.create_string_buffer(link_ptx(PTX, arch="sm_90").image)
    assert driver.result("cuModuleLoadData", ctypes.addressof(held)) == "NO_BINARY_FOR_GPU"


@pytest.mark.parametrize("of_tiles", [True, False])
def test_a_kernel_of_tiles_has_its_own_threads(of_tiles: bool, driver: Driver) -> None:
    """CUDA Tile launches with blocks of one thread, and has sections of its own, of which one is made up here."""
    image = link_ptx(PTX.replace(".maxntid 64", ".reqntid 32"), arch="sm_80").image
    if of_tiles:
        image = image.replace(b"\0.nv.callgraph\0", b"\0.nv.tileir.xx\0")
    held = ctypes.create_string_buffer(image)
    module = driver("cuModuleLoadData", ctypes.addressof(held))
    function = driver("cuModuleGetFunction", module, b"scaled")
    out = driver.upload(bytes(4 * 32))
    values = ctypes.c_uint64(out), ctypes.c_uint32(3)
    pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, values))
    launch = function, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0
    assert driver.result("cuLaunchKernel", *launch) == ("SUCCESS" if of_tiles else "INVALID_VALUE")
    if of_tiles:
        numbers = np.frombuffer(driver.download(out, 4 * 32), np.uint32)
        assert numbers.tolist() == [3 * thread + 5 for thread in range(32)]
