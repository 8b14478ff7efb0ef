"""What a cubin says of its kernels, beside what ptxas said when it made them; fatbins written by hand."""

from __future__ import annotations

import struct
from contextlib import suppress
from ctypes.util import find_library

import pytest

from ptxlab.errors import ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.binary import newest_ptx
from ptxlab.machine.sass import read_target
from ptxlab.toolchain import assemble_cuda, disassemble, link_ptx
from ptxlab.toolchain.fatbin import is_cubin, members
from ptxlab.toolchain.machine_code import entries
from tests.together import thorough
from tests.toolchain.binaries import CUBIN, LZ4, PTX, ZSTD, container, executable, member

SOURCE = """
__device__ __noinline__ float helper(float x, int n) { return n ? helper(x * 2, n - 1) : x; }
template<int N> __global__ void scale(float* x, int n) {
    __shared__ float tile[64 * N + 1];
    tile[threadIdx.x] = x[n];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x] * helper(x[n], n);
}
template __global__ void scale<2>(float*, int);
template __global__ void scale<5>(float*, int);
extern "C" __global__ void __launch_bounds__(1024) full(float* x) {
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; i++) held[i] = x[1024 * i + threadIdx.x];
    asm volatile("bar.sync 5; bar.sync 7, 64;");
    float sum = held[0];
#pragma unroll
    for (int i = 0; i < 96; i++)
        x[1024 * i + threadIdx.x] = sum = sum * held[95 - i] + held[7 * i % 96];
}
"""
SIZED = "\n.visible .entry sized()\n.reqntid 32, 3, 2\n{ bar.sync 3; ret; }\n"


@pytest.mark.parametrize(
    "arch",
    [
        "sm_75",  # in another format than later ones, and the first of those
        "sm_90a",
        *thorough(("sm_80", "sm_100a", "sm_120a")),
    ],
)
def test_a_cubin_says_what_ptxas_said(arch: str) -> None:
    ptx, cubin = assemble_cuda(SOURCE, path="k.cu", arch=arch)
    assert read_target(disassemble(cubin)) == arch
    for made in (cubin, link_ptx(ptx + SIZED, arch=arch)):  # whole, and linked
        assert is_cubin(made.image)
        said = made.kernels
        by_kernel = {entry.used.kernel: entry for entry in entries(made.image, arch)}
        assert by_kernel.keys() == said.keys()
        for name, entry in by_kernel.items():
            for number in ("registers", "shared", "stack", "barriers"):
                assert getattr(entry.used, number) == getattr(said[name], number), (name, number)
    assert {name: entry.threads for name, entry in by_kernel.items() if entry.threads} == {
        "full": 1024,
        "sized": 192,
    }
    assert by_kernel["full"].used.barriers == 8
    assert by_kernel["full"].used.stack > 0
    assert sorted(entry.used.shared for entry in by_kernel.values()) == [0, 0, 4 * 129, 4 * 321]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ('\t.target\tsm_120a\n\n\t.elftype\t@"ET_EXEC"\n', "sm_120a"),
        (
            '\t.headerflags\t@"EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM75)"\n',
            "sm_80",
        ),
        (
            '\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"\n',
            "sm_90a",
        ),
    ],
)
def test_the_target_is_what_nvdisasm_says(text: str, target: str) -> None:
    assert read_target(text) == target


PACKED = {
    "zstd": "28b52ffd2042050100d02e76657273696f6e20372e300a74617267657420736d5f37300a0100a19c5f",
    "LZ4": "df2e76657273696f6e20372e300a0d0015d074617267657420736d5f37300a",
}
"""Four lines of ``.version 7.0`` and one of ``.target sm_70``, by zstd 1.5 and lz4 1.9."""


@pytest.mark.parametrize(("compression", "flag"), [("zstd", ZSTD), ("LZ4", LZ4)])
def test_what_is_compressed_is_opened(compression: str, flag: int) -> None:
    if find_library(compression.lower()) is None:
        pytest.skip(f"there is no {compression} here")
    text, packed = b".version 7.0\n" * 4 + b".target sm_70\n", bytes.fromhex(PACKED[compression])
    part = bytearray(member(PTX, 70, packed, packed=flag))
    for size, whole in ((len(text), True), (len(text) + 1, False), (0, False)):
        part[56:64] = size.to_bytes(8, "little")  # of what was compressed
        [held] = members(container(bytes(part)))
        assert (held.compression, held.content) == (("", text) if whole else (compression, packed))
    assert newest_ptx(container(bytes(part)), TARGETS["sm_80"]) == b""


def test_a_gpu_takes_the_newest_ptx_that_it_can_run() -> None:
    parts = [
        member(CUBIN, 80, b"code"), member(PTX, 70, b"seventy\0\0"), member(PTX, 80, b"eighty"),
        member(PTX, 90, b"ninety", suffix="a"), member(PTX, 100, b"hundred", suffix="f"),
    ]  # fmt: skip
    image = container(*parts)
    taken = {name: newest_ptx(image, TARGETS[name]).decode() for name in
             ("sm_75", "sm_86", "sm_90", "sm_90a", "sm_100a", "sm_120a")}  # fmt: skip
    assert taken == {
        "sm_75": "seventy", "sm_86": "eighty", "sm_90": "eighty", "sm_90a": "ninety",
        "sm_100a": "hundred", "sm_120a": "eighty",
    }  # fmt: skip
    assert newest_ptx(executable(image), TARGETS["sm_80"]) == b""


def test_the_members_of_a_fatbin() -> None:
    parts = [
        member(CUBIN, 80, b"code"),
        member(CUBIN, 90, b"more", suffix="a"),
        member(PTX, 100, b"text", suffix="f"),
        member(PTX, 75, b"\x28\xb5\x2f\xfd", packed=ZSTD),
        member(PTX, 120, b"\xf3\x0a", packed=LZ4, suffix="a"),
        member(8, 80, b"something that is neither"),
    ]
    held = members(container(*parts))
    assert [(str(member), member.compression) for member in held] == [
        ("machine code for sm_80", ""),
        ("machine code for sm_90a", ""),
        ("PTX for sm_100f", ""),
        ("PTX for sm_75", "zstd"),
        ("PTX for sm_120a", "LZ4"),
    ]
    assert [member.content.rstrip(b"\0") for member in held[:3]] == [b"code", b"more", b"text"]
    # A program of the host has several, with gaps between them.
    inside = container(*parts[:2]) + bytes(16) + container(*parts[2:])
    assert members(executable(inside)) == held
    assert members(executable(b"")) == []


@pytest.mark.parametrize("end", [0, 3, 15, 17, 70, 150])
def test_what_is_cut_off_is_damaged(end: int) -> None:
    whole = container(member(CUBIN, 80, bytes(100)))
    assert len(members(whole)) == 1
    if end:
        with pytest.raises(ToolchainError, match="damaged"):
            members(whole[:end])
    with pytest.raises(ToolchainError, match="damaged"):
        members(b"\x7fELF" + whole[:end])


def test_no_byte_of_a_cubin_leads_further_than_a_sentence() -> None:
    _, cubin = assemble_cuda(SOURCE, path="k.cu", arch="sm_90a")
    for at in range(4, len(cubin.image), 97):
        damaged = bytearray(cubin.image)
        damaged[at : at + 4] = struct.pack("<I", 0xFFFFFFF7)
        with suppress(ToolchainError):
            entries(bytes(damaged), "sm_90a")
