"""What device code asks of the host, clocks and other special registers, trap and fences."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.isa.targets import TARGETS
from tests.together import in_one_test

PRINTF = ".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 list);\n"


def text_variable(name: str, text: str) -> str:
    raw = text.encode() + b"\0"
    return f".global .align 1 .b8 {name}[{len(raw)}] = {{{', '.join(map(str, raw))}}};\n"


def printed(
    capfd: pytest.CaptureFixture[str], emulate: Any, text: str, *values: Any, before: str = ""
) -> str:
    """Print ``text`` with ``values`` from one thread; a value is an int, a float or PTX for a u64."""
    stores, at = "", 0
    for value in values:
        size = 4 if isinstance(value, int) and -(1 << 31) <= value < 1 << 32 else 8
        at = -(-at // size) * size
        if isinstance(value, str):
            stores += (
                f"mov.u64 d9, {value}; cvta.global.u64 d9, d9; st.local.u64 [list+{at}], d9;\n"
            )
        elif isinstance(value, float):
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            stores += f"mov.u64 d9, {bits:#x}; st.local.u64 [list+{at}], d9;\n"
        else:
            kind, register = ("u32", "r9") if size == 4 else ("u64", "d9")
            stores += f"mov.{kind} {register}, {value % (1 << 8 * size)}; "
            stores += f"st.local.{kind} [list+{at}], {register};\n"
        at += size
    body = f"""
    .local .align 8 .b8 list[{max(at, 8)}];
    setp.ne.u32 p1, r0, 0;
    @p1 ret;
    {stores}
    mov.u64 d5, format;
    cvta.global.u64 d5, d5;
    mov.u64 d6, list;
    cvta.local.u64 d6, d6;
    {{
        .param .b64 a; .param .b64 b; .param .b32 r;
        st.param.b64 [a], d5;
        st.param.b64 [b], d6;
        call.uni (r), vprintf, (a, b);
        ld.param.b32 r4, [r];
    }}
    st.global.u32 [d1], r4;
"""
    capfd.readouterr()
    words = emulate(body, before=PRINTF + text_variable("format", text) + before)
    assert words[0, 0] == len(values)
    return capfd.readouterr().out


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("plain\n", (), "plain\n"),
        ("100%% of %d", (7,), "100% of 7"),
        ("%d %i %u", (-1, -2, -1), "-1 -2 4294967295"),
        ("%5d|%-5d|%05d|%+d|% d", (42, 42, 42, 42, 42), "   42|42   |00042|+42| 42"),
        ("%x %X %#x %o %#o %#o", (255, 255, 255, 15, 15, 0), "ff FF 0xff 17 017 0"),
        ("%hd %hhd %hu %hhu", (65535, 255, 65536, 256), "-1 -1 0 0"),
        ("%ld %lld %llu %lx", (1 << 40, -(1 << 40), 1 << 63, 1 << 36), f"{1 << 40} {-(1 << 40)} {1 << 63} 1000000000"),
        ("%zu %td", (1 << 33, -(1 << 33)), f"{1 << 33} {-(1 << 33)}"),
        ("%c%c%c", (80, 84, 88), "PTX"),
        ("%f %5.2f %.0f %.3e %g %G", (0.5, 3.14159, 2.5, 12345.678, 1e-7, 1e20), "0.500000  3.14 2 1.235e+04 1e-07 1E+20"),
        ("%f %f %F %e", (float("inf"), float("nan"), float("-inf"), 0.0), "inf nan -INF 0.000000e+00"),
        ("%a %A %a %10a", (1.5, -0.1, 0.0, 1.0), "0x1.8p+0 -0X1.999999999999AP-4 0x0p+0     0x1p+0"),
        ("%.f|%.3d|%.d", (2.5, 7, 7), "2|007|7"),
        ("%*d|%-*d|%.*f", (4, 7, 4, 7, 1, 2.25), "   7|7   |2.2"),
        ("%s|%8s|%-8s|%.2s", ("word",) * 4, "word|    word|word    |wo"),
        ("%d %lld %d %f %c", (1, 1 << 50, 2, 1.0, 33), f"1 {1 << 50} 2 1.000000 !"),
        (" ".join(["%d"] * 32), tuple(range(32)), " ".join(map(str, range(32)))),
    ],
)  # fmt: skip
def test_printf(
    capfd: pytest.CaptureFixture[str], emulate: Any, text: str, values: Any, expected: str
) -> None:
    assert printed(capfd, emulate, text, *values, before=text_variable("word", "word")) == expected


def test_printf_of_pointers(capfd: pytest.CaptureFixture[str], emulate: Any) -> None:
    assert printed(capfd, emulate, "%p|%16p", 1 << 40, 1 << 44) == "0x10000000000|  0x100000000000"


def test_threads_print_in_their_order(capfd: pytest.CaptureFixture[str], emulate: Any) -> None:
    body = """
    .local .align 8 .b8 list[8];
    st.local.u32 [list], r1;
    mov.u64 d5, format;
    cvta.global.u64 d5, d5;
    mov.u64 d6, list;
    cvta.local.u64 d6, d6;
    and.b32 r4, r0, 1;
    setp.eq.u32 p1, r4, 1;
    @p1 call (r5), vprintf, (d5, d6);
"""
    emulate(body, grid=2, block=40, before=PRINTF + text_variable("format", "%d "))
    assert capfd.readouterr().out.split() == [str(i) for i in range(1, 80, 2)]


def test_text_in_memory_that_is_not_there(emulate: Any) -> None:
    body = "mov.u64 d5, 64; mov.u64 d6, 0; call (r5), vprintf, (d5, d6);"
    with pytest.raises(LaunchError, match="host read of 1 bytes at 0x40"):
        emulate(body, before=PRINTF)


HEAP = """
.extern .func (.param .b64 pointer) malloc (.param .b64 size);
.extern .func free (.param .b64 pointer);
"""


def test_every_thread_allocates_and_frees(run: Any) -> None:
    # Each thread writes to memory of its own, its right neighbour reads it, and frees it.
    body = """
    .shared .align 8 .b64 pointers[64];
    mul.lo.u32 r4, r0, 4;
    add.u32 r4, r4, 16;
    cvt.u64.u32 d5, r4;
    call (d6), malloc, (d5);
    add.s64 d7, d6, d5;
    st.u32 [d7+-4], r1;
    mov.u32 r5, pointers;
    mad.lo.u32 r6, r0, 8, r5;
    st.shared.u64 [r6], d6;
    bar.sync 0;
    xor.b32 r7, r0, 1;
    mad.lo.u32 r6, r7, 8, r5;
    ld.shared.u64 d8, [r6];
    mul.lo.u32 r4, r7, 4;
    cvt.u64.u32 d9, r4;
    add.s64 d9, d9, d8;
    ld.u32 r8, [d9+12];
    call free, (d8);
    st.global.u32 [d1], r8;
"""
    words = run(body, grid=3, block=64, before=HEAP)[:, 0]
    assert np.array_equal(words, np.arange(192) ^ 1)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("call (d5), malloc, (64); call free, (d5); call free, (d5);", "free already"),
        ("call (d5), malloc, (64); add.s64 d5, d5, 8; call free, (d5);", "malloc did not give"),
        ("call (d5), malloc, (64); call free, (d5); ld.u32 r4, [d5];", "out of bounds|outside"),
        ("call (d5), malloc, (64); st.u32 [d5+64], r4;", "out of bounds"),
    ],
)
def test_wrong_use_of_the_heap(emulate: Any, body: str, what: str) -> None:
    with pytest.raises(LaunchError, match=what):
        emulate(body, before=HEAP)


def test_the_heap_has_an_end(run_on: Any) -> None:
    # Threads of 1 MiB each: as many as fit get an address, the others none.
    body = """
    mov.u64 d7, 0;
    call free, (d7);
    call (d5), malloc, (1048576);
    setp.ne.u64 p1, d5, 0;
    selp.u32 r4, 1, 0, p1;
    st.global.u32 [d1], r4;
    bar.sync 0;
    @p1 call free, (d5);
"""
    run = run_on(open_device("emulator"))
    for _ in range(2):
        assert run(body, before=HEAP).sum() == 8


def test_what_a_launch_took_from_the_heap_is_there_again_when_memory_is(run_on: Any) -> None:
    """A launch that is made again, to be looked at, finds memory as it was: three times 6 of 8 MiB."""
    body = "call (d5), malloc, (6291456); st.global.u64 [d1], d5;"
    device = EmulatorDevice(TARGETS["sm_80"])
    run = run_on(device)
    for _ in range(3):
        with device.memory.kept():
            assert run(body, block=1, words=2, before=HEAP).any()
            assert not run(body, block=1, words=2, before=HEAP).any()  # there is no room for more


def test_a_function_nobody_provides(emulate: Any) -> None:
    with pytest.raises(Unsupported, match="cudaLaunchDevice"):
        emulate(
            "call cudaLaunchDevice, (r0);", before=".extern .func cudaLaunchDevice (.param .b32 a);"
        )


@pytest.mark.parametrize("opcode", ["trap", "brkpt"])
def test_trap_stops_in_the_name_of_its_thread(emulate: Any, opcode: str) -> None:
    with pytest.raises(LaunchError, match=rf"{opcode} in thread \(13, 0, 0\)") as caught:
        emulate(f"setp.eq.u32 p1, r0, 13; @p1 {opcode};")
    assert caught.value.location is not None
    assert opcode in caught.value.location.text


@in_one_test(
    "text",
    [
        *(f"membar.{level};" for level in ("cta", "gl", "sys")),
        *(f"fence{sem}.{scope};" for sem in ("", ".sc", ".acq_rel", ".acquire", ".release")
          for scope in ("cta", "cluster", "gpu", "sys")),
        "pmevent 3;",
    ],
)  # fmt: skip
def test_what_changes_nothing_the_program_sees(run: Any, text: str) -> None:
    body = f"mov.u32 r4, r0;\n{text}\nsetp.gt.u32 p1, r0, 3;\n@p1 {text}\nst.global.u32 [d1], r4;"
    assert run(body, target="sm_90")[:, 0].tolist() == list(range(32))


def test_clocks_grow(run: Any) -> None:
    body = """
    mov.u64 d5, %clock64;
    mov.u32 r4, %clock;
    mov.u64 d6, %globaltimer;
    mov.u32 r6, 0;
loop:
    add.u32 r6, r6, 1;
    setp.lt.u32 p1, r6, r0;
    @p1 bra loop;
    mov.u64 d7, %clock64;
    sub.s64 d7, d7, d5;
    cvt.u32.u64 r5, d7;
    mov.u32 r7, %clock;
    sub.u32 r7, r7, r4;
    mov.u64 d8, %globaltimer;
    setp.ge.u64 p2, d8, d6;
    selp.u32 r8, 1, 0, p2;
    mov.u32 r9, %clock_hi;
    st.global.v4.u32 [d1], {r5, r7, r8, r9};
"""
    words = run(body, block=64, words=4)
    assert (words[:, :2] > 0).all()
    assert (words[:, 2] == 1).all()


def test_a_thread_can_wait_for_time_to_pass(run: Any) -> None:
    body = """
    mov.u64 d5, %globaltimer;
wait:
    mov.u64 d6, %globaltimer;
    sub.s64 d6, d6, d5;
    setp.lt.u64 p1, d6, 1000;
    @p1 bra wait;
    st.global.u32 [d1], 1;
"""
    assert (run(body) == 1).all()


def test_special_registers_of_a_launch_without_clusters(emulator: Device) -> None:
    names = {
        "%clusterid.x": 2, "%nclusterid.x": 3, "%cluster_ctaid.y": 0, "%cluster_nctaid.z": 1,
        "%cluster_ctarank": 0, "%cluster_nctarank": 1, "%dynamic_smem_size": 48,
        "%total_smem_size": 112, "%aggr_smem_size": 112 + 1024, "%envreg31": 0, "%pm7": 0, "%nsmid": 1,
        "%smid": 0, "%nwarpid": 3, "%warpid": 2,
    }  # fmt: skip
    moves = "".join(
        f"mov.u32 r1, {name}; st.global.u32 [d0+{4 * i}], r1;\n" for i, name in enumerate(names)
    )
    text = f"""
.version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .pred p<3>; .reg .b32 r<4>; .reg .b64 d<4>; .shared .align 16 .b8 cells[64];
    ld.param.u64 d0, [out];
    mov.u32 r0, %ctaid.x;
    mov.u32 r1, %tid.x;
    setp.ne.u32 p0, r0, 2;
    setp.ne.u32 p1, r1, 70;
    or.pred p0, p0, p1;
    @p0 ret;
    {moves}
    mov.pred p2, %is_explicit_cluster;
    selp.u32 r2, 7, 5, p2;
    st.global.u32 [d0+{4 * len(names)}], r2;
    mov.u64 d1, %pm3_64;
    mov.u64 d2, %gridid;
    add.u64 d1, d1, d2;
    st.global.u64 [d0+{4 * len(names) + 4}], d1;
}}
"""
    with emulator.zeros(len(names) + 3, "u32") as out:
        emulator.load(text).kernel("k").launch(3, 96, [out], shared=48)
        assert out.numpy().tolist() == [*names.values(), 5, 0, 0]


def test_a_special_register_nobody_knows_is_refused_by_name() -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n.reg .b32 r;\nmov.u32 r, %NAME;\n}"
    for name in ("reserved_smem_offset_2", "ctaid.w"):
        with pytest.raises(Unsupported, match=name):
            open_device("emulator").load(text.replace("NAME", name)).kernel()
    with pytest.raises((PtxSyntaxError, Unsupported), match="clok"):
        open_device("emulator").load(text.replace("NAME", "clok")).kernel()
