"""A cubin read as a program, beside what its source says: parameters, variables, constants, addresses of functions."""

from __future__ import annotations

import struct

import pytest

from ptxlab.errors import ToolchainError, Unsupported
from ptxlab.machine.image import ModuleImage, Reference, read_image
from ptxlab.syntax.parser import parse
from ptxlab.toolchain import assemble_cuda, link_ptx

SOURCE = """
struct Mixed { char a; long long b[3]; short c; };
__constant__ float table[5] = {1, 2, 3, 4, 5};
__constant__ int zeros[7];
__device__ int counter[6] = {42};
__device__ float large[100];
__device__ int* pointer = counter + 5;
__device__ __align__(64) char text[10] = "hello";
__device__ float first(float x) { return x + 1; }
__device__ float second(float x) { return x * 3; }
__device__ float (*chosen[2])(float) = {first, second};
__device__ __noinline__ float helper(float x, int n) { return n ? helper(x * 2, n - 1) : x; }
extern "C" __global__ void mixed(float* x, int n, Mixed m, char last) {
    __shared__ float tile[65];
    tile[threadIdx.x] = x[n] + table[n] + zeros[n] + large[n] + *pointer + text[n] + m.b[n];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x] + helper(x[n], n) + last + m.c;
}
extern "C" __global__ void __launch_bounds__(128) indirect(float* x, int n) { x[0] = chosen[n](x[n]); }
extern "C" __global__ void nothing() {}
"""
ARCHS = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]


@pytest.fixture(scope="module", params=ARCHS)
def images(request: pytest.FixtureRequest) -> tuple[ModuleImage, ModuleImage]:
    """The image of a program assembled as a whole, and of its PTX assembled to be linked."""
    ptx, cubin = assemble_cuda(SOURCE, path="k.cu", arch=request.param)
    return read_image(cubin.image), read_image(link_ptx(ptx, arch=request.param).image)


def test_parameters_are_where_c_puts_them(images: tuple[ModuleImage, ModuleImage]) -> None:
    for image in images:
        assert {
            name: [(parameter.offset, parameter.size) for parameter in kernel.parameters]
            for name, kernel in image.kernels.items()
        } == {
            "mixed": [(0, 8), (8, 4), (16, 40), (56, 1)],
            "indirect": [(0, 8), (8, 4)],
            "nothing": [],
        }
        assert image.kernels["indirect"].entry.maxntid == (128, 1, 1)
        assert image.kernels["mixed"].entry.maxntid is None
        # ptxas puts what it needs itself behind the 65 numbers.
        assert 0 <= image.kernels["mixed"].entry.used.shared - 65 * 4 < 64


def test_variables_hold_what_the_source_says(images: tuple[ModuleImage, ModuleImage]) -> None:
    for image in images:
        held = {name: (variable.space, variable.data) for name, variable in image.variables.items()}
        addresses = held.pop("chosen"), held.pop("pointer")
        assert [(space, len(data)) for space, data in addresses] == [("global", 16), ("global", 8)]
        assert held == {
            "table": ("const", struct.pack("<5f", 1, 2, 3, 4, 5)),
            "zeros": ("const", bytes(28)),
            "counter": ("global", struct.pack("<6i", 42, 0, 0, 0, 0, 0)),
            "large": ("global", bytes(400)),
            "text": ("global", b"hello".ljust(10, b"\0")),
        }
        assert image.variables["text"].align == 64
        for variable in image.variables.values():
            assert variable.start % variable.align == 0
        (reference,) = image.variables["pointer"].references
        assert reference == Reference(offset=0, symbol="counter", addend=20, size=8)


def test_constant_banks_hold_the_variables(images: tuple[ModuleImage, ModuleImage]) -> None:
    for image in images:
        for kernel in image.kernels.values():
            table, zeros = image.variables["table"], image.variables["zeros"]
            for variable in (table, zeros):
                end = variable.start + len(variable.data)
                assert kernel.constants[3][variable.start : end] == variable.data
            assert 0 not in kernel.constants
    whole, _ = images
    # Assembled as a whole, a program takes the addresses of its variables from bank 4.
    named = {reference.symbol for reference in whole.kernels["mixed"].references[4]}
    assert {"counter", "large", "pointer", "text"} & named == named - {"chosen", "vprintf"}


def test_code_reaches_what_is_called_by_address(images: tuple[ModuleImage, ModuleImage]) -> None:
    whole, linked = images
    assert linked.variables["chosen"].references == (
        Reference(offset=0, symbol="_Z5firstf", addend=0, size=8),
        Reference(offset=8, symbol="_Z6secondf", addend=0, size=8),
    )
    functions = linked.kernels["indirect"].functions
    assert functions.keys() == {"indirect", "_Z5firstf", "_Z6secondf"}
    code = linked.kernels["indirect"].code
    assert [i.number for i in code] == list(range(len(code)))
    assert all(code[first].sass.address == 0 for first in functions.values())
    # A kernel that calls nothing by address does not have them behind it.
    assert linked.kernels["mixed"].functions.keys() == {"mixed", "_Z6helperfi"}
    assert whole.kernels["nothing"].functions == {"nothing": 0}


def test_parameters_of_a_page_and_of_a_byte_are_those_of_the_ptx() -> None:
    ptx = """.version 8.3
.target sm_90a
.address_size 64
.global .u32 g = 5;
.const .u64 address = g;
.visible .entry large(.param .u64 a, .param .align 64 .b8 page[4000], .param .u8 last)
.reqntid 64, 2, 1 .explicitcluster .reqnctapercluster 2, 1, 1
{ .reg .b64 %a; ld.const.b64 %a, [address]; st.global.b64 [%a], %a; ret; }
"""
    huge = ptx.replace("page[4000]", "page[6000]")
    for text, page in ((ptx, 4000), (huge, 6000)):
        kernel = read_image(link_ptx(text, arch="sm_90a").image).kernels["large"]
        declared = parse(text, "large.ptx").entries[0].parameters
        assert len(kernel.parameters) == len(declared) == 3
        a, middle, last = kernel.parameters
        assert (a.size, middle.size, last.size) == (8, page, 1)
        assert a.offset + a.size <= middle.offset
        assert last.offset == middle.offset + middle.size
        assert (kernel.entry.reqntid, kernel.entry.cluster) == ((64, 2, 1), (2, 1, 1))
        (reference,) = kernel.references[3]
        assert (reference.symbol, reference.size) == ("g", 8)


def test_what_is_not_linked_is_refused_and_what_is_no_cubin() -> None:
    _, cubin = assemble_cuda('extern "C" __global__ void k() {}', path="k.cu", arch="sm_80")
    image = bytearray(cubin.image)
    image[16] = 1  # ET_REL
    with pytest.raises(Unsupported, match="linked with others"):
        read_image(bytes(image))
    with pytest.raises(ToolchainError):
        read_image(b"\x7fELF" + bytes(100))
