"""Parameters that code of the host in a cubin makes before a launch, as CUDA Tile's compiler puts it there."""

from __future__ import annotations

import ctypes
import struct

import pytest

from ptxlab.clients.driver import tiles
from ptxlab.clients.driver.results import Refused
from ptxlab.native import compiler
from ptxlab.toolchain import link_ptx
from tests.clients.driver.calls import Driver

pytestmark = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scaled(.param .u64 out, .param .u32 factor, .param .align 64 .b8 made[64])
{
    .reg .b32 x, y; .reg .b64 to;
    ld.param.u64 to, [out]; ld.param.u32 x, [factor]; ld.param.u32 y, [made+4];
    mul.lo.u32 x, x, y;
    st.global.u32 [to], x;
    ret;
}
"""

HOST = """
%row = type { ptr, [4 x i64], ptr, [2 x i64] }
@name = private constant [7 x i8] c"scaled\\00"
@rows = private constant %row { ptr @name, [4 x i64] zeroinitializer, ptr @change, [2 x i64] [i64 0, i64 0] }
@__CUDA_TILEIR_CALLBACKS = constant { i64, [3 x i64], i64, ptr, i64 }
    { i64 2, [3 x i64] zeroinitializer, i64 64, ptr @rows, i64 1 }
define i32 @change(ptr %a, ptr %b, ptr %c, ptr %block) {
    %at = getelementptr i8, ptr %block, i64 8
    %factor = load i32, ptr %at
    %to = getelementptr i8, ptr %block, i64 36
    %more = add i32 %factor, 100
    store i32 %more, ptr %to
    %none = icmp eq i32 %factor, 0
    %failed = zext i1 %none to i32
    ret i32 %failed
}
"""
"""It makes the second word of what lies 32 bytes behind where parameters begin, as these do 0x160 bytes into their bank."""


def compiled(text: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    code: bytes = machine.emit_object(llvm.parse_assembly(text))
    return code


def with_host_code(code: bytes) -> bytes:
    """Return the cubin that does not tell of its last parameter, and has code of the host in place of its call graph."""
    image = bytearray(link_ptx(PTX, arch="sm_80").image)
    (table,), (count, names) = (
        struct.unpack_from("<Q", image, 0x28),
        struct.unpack_from("<HH", image, 0x3C),
    )
    heads = [table + 64 * number for number in range(count)]
    (texts,) = struct.unpack_from("<Q", image, heads[names] + 24)
    for head in heads:
        name, _, _, _, at, size = struct.unpack_from("<IIQQQQ", image, head)
        called = bytes(image[texts + name : image.index(0, texts + name)])
        if called == b".nv.info.scaled":
            last = next(
                n
                for n in range(at, at + size, 4)
                if image[n + 1] in (0x17, 0x45)
                and image[n + 2 : n + 4] == b"\x0c\0"
                and image[n + 8] == 2
            )
            image[last + 1] = 0x7E
        if called == b".nv.callgraph":
            image[texts + name : texts + name + 9] = b".nv.host\0"
            struct.pack_into("<I", image, head + 4, 1)
            struct.pack_into("<QQ", image, head + 24, len(image), len(code))
            image += code
    return bytes(image)


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


def loaded(driver: Driver, code: bytes) -> int:
    held = ctypes.create_string_buffer(with_host_code(code))
    module = driver("cuModuleLoadData", ctypes.addressof(held))
    return int(driver("cuModuleGetFunction", module, b"scaled"))


def launched(driver: Driver, function: int, out: int, factor: int) -> str:
    values = ctypes.c_uint64(out), ctypes.c_uint32(factor)
    pointers = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, values))
    sizes = 1, 1, 1, 1, 1, 1
    return driver.result("cuLaunchKernel", function, *sizes, 0, 0, ctypes.addressof(pointers), 0)


def test_what_a_program_does_not_give_is_made(driver: Driver) -> None:
    function, out = loaded(driver, compiled(HOST)), driver.upload(bytes(4))
    given = [driver.result("cuFuncGetParamInfo", function, index) for index in range(3)]
    assert given == ["SUCCESS", "SUCCESS", "INVALID_VALUE"]
    for factor in (3, 7):
        assert launched(driver, function, out, factor) == "SUCCESS"
        assert driver.download(out, 4) == struct.pack("<I", factor * (factor + 100))
    assert launched(driver, function, out, 0) == "INVALID_VALUE"
    buffer = ctypes.create_string_buffer(struct.pack("<QI", out, 5))
    size = ctypes.c_uint64(12)
    extra = (ctypes.c_uint64 * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    at = ctypes.addressof(extra)
    driver("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, 0, 0, at)
    assert driver.download(out, 4) == struct.pack("<I", 5 * 105)
    report = driver.session.last.check() if driver.session.last else None
    assert report is not None
    assert report.verdict == "clean"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("{ i64 2,", "{ i64 3,"), "its table is of version 3"),
        (("[i64 0, i64 0]", "[i64 0, i64 9]"), "it wants to be called for more than arguments"),
        (('c"scaled\\00"', 'c"shrunk\\00"'), "it does not name scaled"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else None,
)
def test_code_of_the_host_that_is_not_known_is_refused(
    change: tuple[str, str], why: str, driver: Driver
) -> None:
    function = loaded(driver, compiled(HOST.replace(*change)))
    with pytest.raises(Refused, match=why) as refused:
        tiles.host_code(with_host_code(compiled(HOST.replace(*change)))).complete(
            "scaled", bytes(12), 96
        )
    assert refused.value.result.name == "NOT_SUPPORTED"
    assert launched(driver, function, driver.upload(bytes(4)), 1) == "NOT_SUPPORTED"


def test_code_for_another_processor_is_refused(driver: Driver) -> None:
    code = bytearray(compiled(HOST))
    struct.pack_into("<H", code, 18, 243)  # RISC-V
    function = loaded(driver, bytes(code))
    with pytest.raises(Refused, match="not for the processor of this machine"):
        tiles.host_code(with_host_code(bytes(code)))
    assert launched(driver, function, driver.upload(bytes(4)), 1) == "NOT_SUPPORTED"
