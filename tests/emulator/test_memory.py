"""Loads and stores: every space and type, and every way an address can be wrong."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, cast

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.emulator import Elements
from ptxlab.errors import LaunchError, PtxSyntaxError
from tests.together import in_one_test


@in_one_test("kind", ["u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32"])
def test_narrow_loads_extend_by_their_type(run: Any, device: Device, kind: str) -> None:
    data = np.random.default_rng(1).integers(0, 256, 256).astype(np.uint8)
    size = int(kind[1:]) // 8
    body = f"""
    ld.param.u64 d2, [in];
    mad.wide.u32 d2, r1, {size}, d2;
    ld.global.{kind} r5, [d2];
    st.global.u32 [d1], r5;
"""
    expected = data.view(f"{'i' if kind[0] == 's' else 'u'}{size}")[:32].astype(np.int64)
    with device.upload(data) as source:
        words = run(body, source, parameters=", .param .u64 in")[:, 0]
    assert np.array_equal(words, expected.astype(np.uint32))


@in_one_test("space", ["global", "shared", "local", "generic"])
@in_one_test(("vector", "kind"), [(2, "u32"), (4, "u32"), (2, "u64"), (4, "u16"), (1, "u64")])
def test_vectors_round_trip_through_every_space(
    run: Any, space: str, vector: int, kind: str
) -> None:
    bits = int(kind[1:])
    width = vector * bits // 8
    register = {16: "h", 32: "r", 64: "d"}[bits]
    first = 4 if bits == 16 else 10
    names = [f"{register}{first + i}" for i in range(vector)]
    group = "{" + ", ".join(names) + "}" if vector > 1 else names[0]
    others = [f"{register}{first + 4 + i}" for i in range(vector)]
    back = "{" + ", ".join(others) + "}" if vector > 1 else others[0]
    suffix = f".v{vector}" if vector > 1 else ""
    fill = "\n".join(
        f"    cvt.u{bits}.u32 {name}, r20;\n    add.u32 r20, r20, 1000;" for name in names
    )
    address, spaced = {
        "global": ("d1", ".global"),
        "shared": ("d5", ".shared"),
        "local": ("d6", ".local"),
        "generic": ("d7", ""),
    }[space]
    body = f"""
    .shared .align 16 .b8 tile[{32 * width}];
    .local .align 16 .b8 mine[{width}];
    mov.u64 d5, tile;
    mad.wide.u32 d5, r0, {width}, d5;
    mov.u64 d6, mine;
    cvta.shared.u64 d7, d5;
    mov.u32 r20, r0;
{fill}
    st{spaced}{suffix}.{kind} [{address}], {group};
    ld{spaced}{suffix}.{kind} {back}, [{address}];
    st.global{suffix}.{kind} [d1], {back};
"""
    words = run(body, words=width // 4).reshape(-1).view(f"u{bits // 8}").reshape(32, vector)
    expected = np.arange(32)[:, None] + 1000 * np.arange(vector)
    assert np.array_equal(words, expected.astype(words.dtype))


def test_generic_addresses_of_different_spaces_in_one_instruction(run: Any) -> None:
    before = ".global .align 4 .b32 cell[32];"
    body = """
    .shared .align 4 .b32 tile[32];
    .local .align 4 .b32 mine[1];
    mov.u64 d2, tile;
    cvta.shared.u64 d2, d2;
    mad.wide.u32 d2, r0, 4, d2;
    mov.u64 d3, mine;
    cvta.local.u64 d3, d3;
    mov.u64 d4, cell;
    cvta.global.u64 d4, d4;
    mad.wide.u32 d4, r0, 4, d4;
    rem.u32 r3, r0, 3;
    setp.eq.u32 p1, r3, 0;
    selp.b64 d5, d2, d3, p1;
    setp.eq.u32 p2, r3, 1;
    selp.b64 d5, d4, d5, p2;
    mul.lo.u32 r4, r0, 11;
    st.u32 [d5], r4;
    ld.u32 r5, [d5];
    ld.shared.u32 r6, [tile];
    st.global.u32 [d1], r5;
"""
    assert run(body, before=before)[:, 0].tolist() == [11 * lane for lane in range(32)]


def test_initialised_variables(run: Any) -> None:
    before = """
.const .align 4 .b32 table[2][3] = {{1, 2}, {4, 5, 6}};
.global .align 8 .u64 pointer = table;
.global .align 8 .u64 inside[2] = {table + 16, 0};
.global .f32 number = 0f3fc00000;
"""
    body = """
    mov.u64 d2, table;
    ld.const.u32 r3, [d2];
    ld.const.u32 r4, [table+12];
    ld.global.u64 d3, [inside];
    ld.const.u32 r5, [d3];
    ld.global.u32 r6, [number];
    ld.const.u32 r7, [table+8];
    st.global.v2.u32 [d1], {r3, r4};
    st.global.v2.u32 [d1+8], {r5, r6};
    st.global.u32 [d1+16], r7;
"""
    words = run(body, block=1, words=6, before=before)[0]
    assert words.tolist() == [1, 4, 5, 0x3FC00000, 0, 0]


def test_global_variables_live_from_launch_to_launch(device: Device) -> None:
    text = """
.version 7.0
.target sm_80
.address_size 64
.global .u32 count = 40;
.visible .entry step(.param .u64 out)
{
    .reg .b32 r; .reg .b64 d;
    ld.global.u32 r, [count];
    add.u32 r, r, 1;
    st.global.u32 [count], r;
    ld.param.u64 d, [out];
    st.global.u32 [d], r;
}
"""
    kernel = device.load(text).kernel()
    with device.zeros(1, "u32") as out:
        for expected in (41, 42, 43):
            kernel.launch(1, 1, [out])
            assert out.numpy()[0] == expected


def test_of_threads_that_store_to_one_place_the_last_wins(emulate: Any) -> None:
    assert emulate("    st.global.u32 [d0], r1;", grid=2, block=40)[0, 0] == 79


def test_shared_memory_begins_as_zero_and_what_is_discarded_stays(emulate: Any) -> None:
    body = """
    .shared .align 4 .b32 tile[32];
    mov.u32 r3, tile;
    mad.lo.u32 r3, r0, 4, r3;
    ld.shared.u32 r4, [r3];
    st.global.v2.u32 [d1], {r4, 7};
    discard.global.L2 [d0], 128;
"""
    assert (emulate(body, words=2) == [0, 7]).all()


def test_what_is_discarded_is_memory_that_may_be_written(emulate: Any) -> None:
    with pytest.raises(LaunchError, match=r"discard of 16 bytes .* is out of bounds"):
        emulate("discard.global.L2 [d0+128], 128;")


def test_dynamic_shared_memory_begins_after_static(emulate: Any) -> None:
    before = ".extern .shared .align 16 .b8 more[];\n.shared .align 4 .b32 fixed[3];"
    body = """
    mov.u32 r3, more;
    mad.lo.u32 r4, r0, 4, r3;
    st.shared.u32 [r4], r0;
    mov.u32 r6, 1;
    st.shared.u32 [fixed+8], r6;
    ld.shared.u32 r5, [r4];
    shl.b32 r3, r3, 16;
    or.b32 r5, r5, r3;
    st.global.u32 [d1], r5;
"""
    words = emulate(body, shared=128, before=before)[:, 0]
    assert words.tolist() == [(1024 + 16) << 16 | lane for lane in range(32)]


@in_one_test(
    ("body", "said"),
    [
        ("st.global.u32 [d1+128], r0;", "bytes past the end of the nearest allocation"),
        ("st.global.u32 [d0+-4], r0;", "4 bytes before the nearest allocation"),
        ("ld.global.u32 r3, [d1+2];", "misaligned"),
        ("ld.global.v4.u32 {r3, r4, r5, r6}, [d1];", "misaligned"),
        ("mov.u64 d2, 0; ld.global.u32 r3, [d2];", "out of bounds"),
        ("mov.u32 r3, 0xfffffffc; ld.shared.u32 r4, [r3];", "outside shared memory"),
        ("ld.shared.u32 r4, [tile+128];", "outside shared memory, which has 128 bytes"),
        ("ld.shared.u32 r4, [tile+2];", "misaligned"),
        ("mov.u64 d2, mine; ld.local.u32 r4, [d2+64];", "outside local memory"),
        ("mov.u64 d2, fixed; st.global.u32 [d2], r0;", "writes to constant memory 'fixed'"),
        ("cvta.shared.u64 d2, 4096; ld.u32 r4, [d2];", "outside shared memory"),
    ],
)
def test_wrong_addresses_stop_the_launch(emulate: Any, body: str, said: str) -> None:
    before = ".const .b32 fixed = 1;"
    declarations = "    .shared .align 16 .b8 tile[128];\n    .local .align 16 .b8 mine[16];\n"
    with pytest.raises(LaunchError) as caught:
        emulate(declarations + "    " + body, before=before)
    text = str(caught.value)
    assert said in text
    assert "of CTA (0, 0, 0)" in text
    assert caught.value.location is not None
    assert caught.value.location.text.strip() == body


def test_the_thread_at_fault_is_named(emulate: Any) -> None:
    body = """
    setp.eq.u32 p1, r1, 45;
    @p1 add.u64 d1, d1, 4096;
    @p1 st.global.u32 [d1], r0;
"""
    with pytest.raises(LaunchError, match=r"thread \(5, 0, 0\) of CTA \(1, 0, 0\)"):
        emulate(body, grid=2, block=40)


def test_threads_of_one_instruction_may_use_several_allocations(run: Any, device: Device) -> None:
    body = """
    ld.param.u64 d2, [a];
    ld.param.u64 d3, [b];
    and.b32 r3, r0, 1;
    setp.eq.u32 p1, r3, 0;
    selp.b64 d4, d2, d3, p1;
    mad.wide.u32 d4, r0, 4, d4;
    ld.global.u32 r4, [d4];
    st.global.u32 [d1], r4;
"""
    with (
        device.upload(np.arange(32, dtype=np.uint32)) as a,
        device.upload(np.arange(100, 132, dtype=np.uint32)) as b,
    ):
        words = run(body, a, b, parameters=", .param .u64 a, .param .u64 b")[:, 0]
    assert words.tolist() == [lane + 100 * (lane % 2) for lane in range(32)]


def test_a_freed_buffer_is_gone(emulator: Device) -> None:
    text = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b64 d; ld.param.u64 d, [out]; st.global.u32 [d], 1; }
"""
    kernel = emulator.load(text).kernel()
    buffer = emulator.zeros(4, "u32")
    address = buffer.address
    kernel.launch(1, 1, [address])
    buffer.close()
    with pytest.raises(LaunchError, match="out of bounds"):
        kernel.launch(1, 1, [address])


@pytest.mark.parametrize(
    "line",
    [
        "ld.param.u32 r3, [out+6];",
        "add.u32 r3, nothing, 1;",
        "add.u32 r3, r4;",
        "add.u32 d3, r4, r5;",
        "bra nowhere;",
        "ld.global.v2.u32 {r3, r4, r5}, [d0];",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f0,f1,f2}, {r0,r1,r2,r3}, {r4,r5}, {f0,f1,f2,f3};",
    ],
)
def test_operands_that_do_not_fit_are_rejected_by_line(emulate: Any, line: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        emulate("    " + line)
    assert caught.value.location is not None
    assert caught.value.location.text.strip() == line


def test_a_program_that_nobody_holds_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, without Python's search for garbage; its variables have addresses in a device that lives on."""
    monkeypatch.setattr("ptxlab.emulator.run.executable._RECENT", deque(maxlen=0))
    text = """.version 8.0
.target sm_80
.address_size 64
.global .u32 counter = 7;
.visible .entry k() { ret; }
"""
    with open_device("emulator") as device:
        kernel = cast(EmulatorKernel, device.load(text).kernel("k"))
        kernel.launch(1, 32, [])
        module, code = weakref.ref(kernel.module), weakref.ref(kernel.executable)
        assert None not in (module(), code())
        del kernel
        assert (module(), code()) == (None, None)


@pytest.mark.parametrize(
    ("strides", "offset", "told"),
    [
        ((1,), 7, "x[7]"),
        ((1,), -3, "x[-3]"),
        ((64, 1), 3 * 64 + 5, "x[3, 5]"),
        ((1, 64), 3 * 64 + 5, "x[5, 3]"),  # by columns
        ((128, 1), 128 + 70, "x[1, 70]"),  # a part of wider rows, of which it is behind the end
        ((64, 1), -1, "x[-1, 63]"),
        ((0, 1), 5, "x[0, 5]"),  # the same row again and again
        ((), 0, "x"),
    ],
)
def test_an_element_is_called_as_in_the_program(
    strides: tuple[int, ...], offset: int, told: str
) -> None:
    assert Elements("x", 1 << 20, 4, strides).at((1 << 20) + 4 * offset + 1) == told
