"""Every check on a right program and on its faulty twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CHECKS, CheckReport, Finding, ordered, together
from ptxlab.syntax.tree import SourceText

Findings = list[tuple[str, str, str, str | None]]
"""Of each finding: severity, kind and rule, the text of its line, and of the other one."""

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.const .u32 fixed = 1;
.visible .entry k(.param .u64 data)
{
    .reg .b16 h;
    .reg .b32 i, at, to, lane, x, y, z, c<4>;
    .reg .b64 p, q, r;
    .reg .f32 f<4>;
    .reg .pred first, low, odd, never;
    .shared .align 16 .b8 tile[1024];
    .local .align 8 .b8 mine[16];
    ld.param.u64 p, [data];
    mov.u32 i, %tid.x;
    mov.u32 lane, %laneid;
    shl.b32 at, i, 2;
    xor.b32 to, at, 128;
    mad.wide.u32 q, i, 4, p;
    setp.lt.u32 first, i, 32;
    setp.lt.u32 low, lane, 16;
    and.b32 x, i, 1;
    setp.eq.u32 odd, x, 1;
    setp.eq.u32 never, i, 9999;
    mov.f32 f0, 0f00000000;
    mov.f32 f1, f0;
    mov.f32 f2, f0;
    mov.f32 f3, f0;
"""


@cache
def device() -> EmulatorDevice:
    return EmulatorDevice(TARGETS["sm_80"])


def checked(body: str, block: int = 64, **options: Any) -> CheckReport:
    """Check a kernel whose ``data`` are 256 words."""
    text = HEAD + "\n".join(f"    {line}" for line in body.strip().splitlines()) + "\n    ret;\n}\n"
    data = device().upload(np.arange(256, dtype=np.uint32))
    return check(device().load(text).kernel("k"), LaunchConfig.of(1, block), [data], **options)


def line(report: CheckReport, number: int) -> str:
    return report.source.line(number).strip().removesuffix(";")


def findings_of(report: CheckReport) -> Findings:
    return [
        (
            f.severity,
            f.kind if f.rule == "fault" else f"{f.kind} {f.rule}",
            line(report, f.line),
            None if f.other_line is None else line(report, f.other_line),
        )
        for f in report.findings
    ]


@dataclass(frozen=True)
class Twins:
    """A right program, the part of it to exchange, for what, and what is to be found then."""

    name: str
    right: str
    part: str
    fault: str
    findings: Findings
    block: int = 64


STORE = "st.shared.u32 [at], i"
LOAD = "ld.shared.u32 x, [to]"
BAR = "bar.sync 0;\n"
WARP = "bar.warp.sync -1;\n"
COPY = "cp.async.ca.shared.global [at], [q], 4"
COMMIT = "cp.async.commit_group;\n"
WAIT = "cp.async.wait_group 0;\n"
COPIED = f"{COPY};\n{COMMIT}{WAIT}{BAR}{LOAD};"
NEIGHBOUR = "xor.b32 to, at, 4;\n"
KEEP = "st.global.u32 [q], x"
OWN = f"{STORE};\nld.shared.u32 x, [at];\n{KEEP};"

ROWS = f"""\
shl.b32 to, lane, 4;
and.b32 x, lane, 8;
setp.eq.u32 low, x, 0;
@low st.shared.v4.u32 [to], {{1, 1, 1, 1}};
{WARP}
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{c0,c1,c2,c3}}, [to];"""
"""The first eight rows of A are written."""
MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
    "{f0,f1,f2,f3}, {c0,c1,c2,c3}, {i,i}, {f0,f1,f2,f3}"
)

TILE = """\
.reg .b32 w<8>;
mov.b32 z, 16;
ld.param.u64 r, [data];
wmma.load.a.sync.aligned.m16n16k16.row.global.f16 {w0,w1,w2,w3,w4,w5,w6,w7}, [r], z"""

TWINS = (
    Twins(
        "read after write", f"{STORE};\n{BAR}{LOAD};", BAR, "",
        [("error", "race RAW", LOAD, STORE)],
    ),
    Twins(
        "turns of warps, the first of which begins by itself",
        "@first bar.arrive 1, 64;\nshr.u32 x, i, 5;\nsub.u32 y, 2, x;\nadd.u32 x, x, 1;\nshl.b32 to, lane, 2;\n"
        f"bar.sync x, 64;\n@first st.shared.u32 [to], i;\n@!first {LOAD};\nbar.arrive y, 64;",
        "bar.sync", "@first bar.sync",
        [("error", "race RAW", f"@!first {LOAD}", "@first st.shared.u32 [to], i")],
    ),
    Twins(
        "write after read", f"{STORE};\n{BAR}{LOAD};\n{BAR}st.shared.u32 [at], lane;",
        f"{LOAD};\n{BAR}", f"{LOAD};\n",
        [("error", "race WAR", "st.shared.u32 [at], lane", LOAD)],
    ),
    Twins(
        "write after write", f"@first {STORE};\n{BAR}@!first st.shared.u32 [to], lane;", BAR, "",
        [("info", "race WAW", "@!first st.shared.u32 [to], lane", f"@first {STORE}")],
    ),
    Twins(
        "write after write of another value",
        f"@first {STORE};\n{BAR}@!first st.shared.u32 [to], i;", BAR, "",
        [("error", "race WAW", "@!first st.shared.u32 [to], i", f"@first {STORE}")],
    ),
    Twins(
        "one value from all threads", "st.shared.u32 [tile], 7;", "7", "i",
        [("error", "race WAW", "st.shared.u32 [tile], i", "st.shared.u32 [tile], i")],
    ),
    Twins(
        "within a warp", f"{NEIGHBOUR}{STORE};\n{WARP}{LOAD};", WARP, "",
        [("warning", "race RAW", LOAD, STORE)],
    ),
    Twins(
        "a shuffle is no barrier", f"{NEIGHBOUR}{STORE};\n{WARP}{LOAD};",
        WARP, "shfl.sync.bfly.b32 y, i, 1, 31, -1;\n",
        [("warning", "race RAW", LOAD, STORE)],
    ),
    Twins(
        "half a warp", f"{NEIGHBOUR}{STORE};\n@low bar.warp.sync 0xffff;\n@low {LOAD};",
        f"@low {LOAD}", f"@!low {LOAD}",
        [("warning", "race RAW", f"@!low {LOAD}", STORE)],
    ),
    Twins(
        "warps know each other's warps",
        # Warp 0 tells lane 0 of its stores, lane 0 arrives with its warp, and warp 1 hears of it.
        f"@first {STORE};\n@first bar.arrive 1, 64;\n@!first bar.sync 1, 64;\n@!first {LOAD};",
        "@first bar.arrive 1, 64;\n@!first bar.sync 1, 64;",
        "@!first bar.arrive 1, 64;\n@first bar.sync 1, 64;",
        [("error", "race RAW", f"@!first {LOAD}", f"@first {STORE}")],
    ),
    Twins(
        "what is done after an arrival that does not wait",
        f"@first {STORE};\n@first bar.arrive 1, 64;\n@!first bar.sync 1, 64;\n@!first {LOAD};",
        f"@first {STORE};\n@first bar.arrive 1, 64;",
        f"@first bar.arrive 1, 64;\n@first {STORE};",
        [("error", "race RAW", f"@!first {LOAD}", f"@first {STORE}")],
    ),
    Twins(
        "arrivals at two barriers",
        f"@first bar.arrive 1, 64;\n@first {STORE};\n@first bar.arrive 2, 64;\n"
        f"@!first bar.sync 1, 64;\n@!first bar.sync 2, 64;\n@!first {LOAD};",
        f"@!first bar.sync 2, 64;\n@!first {LOAD};",
        f"@!first {LOAD};\n@!first bar.sync 2, 64;",
        [("error", "race RAW", f"@!first {LOAD}", f"@first {STORE}")],
    ),
    Twins(
        "atomics", f"{STORE};\n{BAR}red.shared.add.u32 [tile], 1;",
        "red.shared", "@!first st.shared.u32 [tile], 5;\n@first red.shared",
        [
            ("error", "race WAW", "@first red.shared.add.u32 [tile], 1",
             "@!first st.shared.u32 [tile], 5"),
            ("info", "race WAW", "@!first st.shared.u32 [tile], 5",
             "@!first st.shared.u32 [tile], 5"),
        ],
    ),
    Twins(
        "volatile", "st.volatile.shared.u32 [at], i;\nld.volatile.shared.u32 x, [to];",
        "ld.volatile", "ld",
        [("error", "race RAW", LOAD, "st.volatile.shared.u32 [at], i")],
    ),
    Twins(
        "bytes of one word", "st.shared.u8 [i], i;\nand.b32 x, i, 56;\nld.shared.u8 x, [i];",
        "u8 x, [i]", "v2.u32 {y, z}, [x]",
        [("warning", "race RAW", "ld.shared.v2.u32 {y, z}, [x]", "st.shared.u8 [i], i")],
    ),
    Twins(
        "a generic address", f"cvt.u64.u32 r, to;\ncvta.shared.u64 r, r;\n{STORE};\n{BAR}ld.u32 x, [r];",
        BAR, "",
        [("error", "race RAW", "ld.u32 x, [r]", STORE)],
    ),
    Twins(
        "copies not committed", COPIED, COMMIT, "",
        [
            ("error", "async reads", LOAD, COPY),
            ("warning", "async end", COPY, None),
        ],
    ),
    Twins(
        "copies not waited for", COPIED, WAIT, "cp.async.wait_group 1;\n",
        [
            ("error", "async reads", LOAD, COPY),
            ("warning", "async end", COPY, None),
        ],
    ),
    Twins(
        "no barrier after the wait", COPIED, WAIT + BAR, BAR + WAIT,
        [("error", "async RAW", LOAD, COPY)],
    ),
    Twins(
        "one group too few", f"{COPY};\n{COMMIT}{COMMIT}cp.async.wait_group 1;\n{BAR}{LOAD};",
        "group 1", "group 2",
        [
            ("error", "async reads", LOAD, COPY),
            ("warning", "async end", COPY, None),
        ],
    ),
    Twins(
        "wait_all needs no commit", f"{COPY};\ncp.async.wait_all;\n{BAR}{LOAD};",
        "cp.async.wait_all", "cp.async.wait_group 0",
        [
            ("error", "async reads", LOAD, COPY),
            ("warning", "async end", COPY, None),
        ],
    ),
    Twins(
        "a destination overwritten", f"{COPY};\n{COMMIT}{WAIT}{STORE};", WAIT + STORE, STORE + ";\n" + WAIT.strip(";\n"),
        [("error", "async overwrites", STORE, COPY)],
    ),
    Twins(
        "a source overwritten", f"{COPY};\n{COMMIT}{WAIT}st.global.u32 [q], i;",
        f"{WAIT}st.global.u32 [q], i", f"st.global.u32 [q], i;\n{WAIT}".strip(";\n"),
        [("error", "async source", "st.global.u32 [q], i", COPY)],
    ),
    Twins(
        "no part of a source that is ignored",
        "cp.async.ca.shared.global [at], [q], 4, 2;\n" + COMMIT + "mov.b16 h, 0;\nst.global.u16 [q+2], h;\n" + WAIT,
        "[q+2]", "[q]",
        [("error", "async source", "st.global.u16 [q], h",
          "cp.async.ca.shared.global [at], [q], 4, 2")],
    ),
    Twins(
        "a stage filled again", f"{COPY};\n{COMMIT}{WAIT}{BAR}{LOAD};\n{BAR}" + "cp.async.ca.shared.global [at], [q], 4;\n".replace("[q]", "[q+0]") + COMMIT + WAIT,
        f"{LOAD};\n{BAR}", f"{LOAD};\n",
        [("error", "race WAR", "cp.async.ca.shared.global [at], [q+0], 4", LOAD)],
    ),
    Twins(
        "two copies to one place", f"{COPY};\n{COMMIT}{WAIT}", "[at]", "[tile]",
        [("error", "race twice", "cp.async.ca.shared.global [tile], [q], 4",
          "cp.async.ca.shared.global [tile], [q], 4")],
    ),
    Twins(
        "two copies of the same to one place",
        "cp.async.ca.shared.global [at], [p], 4;\n" + COMMIT + WAIT, "[at]", "[tile]",
        [("info", "race twice", "cp.async.ca.shared.global [tile], [p], 4",
          "cp.async.ca.shared.global [tile], [p], 4")],
    ),
    Twins(
        "two copies of parts of the same to one place",
        "cp.async.ca.shared.global [at], [p], 4, 2;\n" + COMMIT + WAIT, "[at]", "[tile]",
        [("error", "race twice", "cp.async.ca.shared.global [tile], [p], 4, 2",
          "cp.async.ca.shared.global [tile], [p], 4, 2")],
    ),
    Twins(
        "part of a warp ends before a barrier", "bar.sync 0;", "bar", "@low exit;\nbar",
        [("error", "barrier absent from warp", "bar.sync 0", None)],
    ),
    Twins(
        "a whole warp ends before a barrier", "bar.sync 0;", "bar", "@first exit;\nbar",
        [("warning", "barrier absent from CTA", "bar.sync 0", None)],
    ),
    Twins(
        "a barrier that counts does not miss a warp", "@first exit;\nbar.sync 1, 32;", " 1, 32", " 1",
        [("warning", "barrier absent from CTA", "bar.sync 1", None)],
    ),
    Twins(
        "a warp at two barriers", "@low barrier.sync 1;\n@!low barrier.sync 1;", "@!low barrier", "@!low bar",
        [("error", "barrier apart in warp", "@!low bar.sync 1", "@low barrier.sync 1")],
    ),
    Twins(
        "warps at two barriers", "@first bar.sync 1, 64;\n@!first bar.sync 1, 64;", "64", "64",
        [],
    ),
    Twins(
        "a deadlock", "@first bar.sync 1, 64;\n@!first bar.sync 1, 64;", "@!first bar.sync 1", "@!first bar.sync 2",
        [("error", "deadlock", "@first bar.sync 1, 64", None)],
    ),
    Twins(
        "a membermask", "@low bar.warp.sync 0xffff;", "0xffff", "0xfffe",
        [("error", "barrier", "@low bar.warp.sync 0xfffe", None)],
    ),
    Twins(
        "past the end", "ld.global.u32 x, [q+768];", "768", "772",
        [("error", "bounds", "ld.global.u32 x, [q+772]", None)],
    ),
    Twins(
        "past the end of shared memory", "st.shared.u32 [at+768], i;", "768", "772",
        [("error", "bounds", "st.shared.u32 [at+772], i", None)],
    ),
    Twins(
        "past the end of a variable",
        ".shared .align 8 .b8 more[256];\nmov.u32 y, tile;\nadd.u32 y, y, at;\nst.shared.u32 [y+768], i;",
        "768", "772",
        [("error", "bounds overrun", "st.shared.u32 [y+772], i", None)],
    ),
    Twins(
        "before a variable", ".shared .align 8 .b8 more[256];\nst.shared.u32 [more+252], 7;", "more+252", "more+-4",
        [("error", "bounds overrun", "st.shared.u32 [more+-4], 7", None)], 1,
    ),
    Twins(
        "one variable or another",
        ".shared .align 8 .b8 more[256];\nmov.u32 y, tile;\n@odd mov.u32 y, more;\nst.shared.u32 [y+252], 7;",
        "@odd mov.u32 y, more;\nst.shared.u32 [y+252]", "st.shared.u32 [y+1024]",
        [("error", "bounds overrun", "st.shared.u32 [y+1024], 7", None)], 1,
    ),
    Twins(
        "an address with an offset that was loaded",
        ".shared .align 8 .b8 more[256];\nst.local.u32 [mine], 1024;\nld.local.u32 z, [mine];\n"
        "mov.u32 y, tile;\nadd.u32 y, y, z;\nst.shared.u32 [y], 7;",
        "ld.local.u32 z, [mine];", "mov.u32 z, 1024;",
        [("error", "bounds overrun", "st.shared.u32 [y], 7", None)], 1,
    ),
    Twins(
        "an address from another lane",
        ".shared .align 8 .b8 more[256];\nmov.u32 y, tile;\nadd.u32 y, y, at;\n"
        "shfl.sync.bfly.b32 y, y, 1, 31, -1;\nst.shared.u32 [y+768], i;",
        "768", "772",
        [("error", "bounds overrun", "st.shared.u32 [y+772], i", None)],
    ),
    Twins(
        "an address of one variable or another from another lane",
        ".shared .align 8 .b8 more[256];\nmov.u32 y, tile;\n@odd mov.u32 y, more;\n"
        "shfl.sync.bfly.b32 z, y, 1, 31, -1;\nadd.u32 z, z, at;\nst.shared.u32 [z], i;",
        "@odd mov.u32 y, more;", "add.u32 y, y, 1020;",
        [("error", "bounds overrun", "st.shared.u32 [z], i", None)],
    ),
    Twins(
        "constant memory", "mov.u64 r, fixed;\nld.global.u32 x, [r];", "ld.global.u32 x, [r]", "st.global.u32 [r], i",
        [("error", "bounds", "st.global.u32 [r], i", None)],
    ),
    Twins(
        "alignment", "ld.global.u32 x, [q+4];", "+4", "+2",
        [("error", "alignment", "ld.global.u32 x, [q+2]", None)],
    ),
    Twins(
        "rows of ldmatrix",
        f"shl.b32 to, lane, 4;\n{STORE};\n{BAR}ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{x}}, [to];".replace(
            STORE, "@first st.shared.v4.u32 [to], {i, i, i, i}"
        ),
        "[to];", "[to+8];",
        [("error", "alignment", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {x}, [to+8]", None)],
    ),
    Twins(
        "shared memory before it is written", OWN, f"{STORE};\n", "",
        [("error", "uninitialized shared", "ld.shared.u32 x, [at]", KEEP)],
    ),
    Twins(
        "one byte before it is written", OWN, "st.shared.u32 [at], i;", "st.shared.u16 [at], i;\nst.shared.u8 [at+2], i;",
        [("error", "uninitialized shared", "ld.shared.u32 x, [at]", KEEP)],
    ),
    Twins(
        "local memory before it is written",
        f"st.local.u32 [mine], i;\nld.local.u32 x, [mine];\nadd.u32 x, x, 1;\n{KEEP};",
        "x, [mine]", "x, [mine+4]",
        [("error", "uninitialized x", "add.u32 x, x, 1", KEEP)],
    ),
    Twins(
        "a hole that is copied",
        "st.local.u32 [mine], i;\nld.local.v2.u32 {x, y}, [mine];\n"
        "st.local.v2.u32 [mine+8], {7, y};\nld.local.u32 z, [mine+8];\nst.global.u32 [q], z;",
        "z, [mine+8]", "z, [mine+12]",
        [("error", "uninitialized z", "st.global.u32 [q], z", None)],
    ),
    Twins(
        "a register before it is written", f"mov.u32 z, 1;\nadd.u32 x, z, 1;\n{KEEP};", "mov", "@odd mov",
        [("error", "uninitialized z", "add.u32 x, z, 1", KEEP)],
    ),
    Twins(
        "a copy of a register", f"mov.u32 z, 1;\nmov.u32 y, z;\nadd.u32 x, y, 1;\n{KEEP};",
        "mov.u32 z, 1;\n", "",
        [("error", "uninitialized y", "add.u32 x, y, 1", KEEP)],
    ),
    Twins(
        "what is computed from it is dropped", f"add.u32 y, z, 1;\nmul.lo.u32 y, y, 3;\n{KEEP};",
        KEEP, "st.shared.u32 [at], y",
        [("error", "uninitialized z", "add.u32 y, z, 1", "st.shared.u32 [at], y")],
    ),
    Twins(
        "what selp does not choose", f"@odd mov.u32 z, 1;\nselp.u32 x, z, i, odd;\n{KEEP};",
        "z, i, odd", "z, i, low",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "what selp does not choose, the other way",
        f"@!odd mov.u32 z, 1;\nselp.u32 x, i, z, odd;\n{KEEP};", "i, z, odd", "z, i, odd",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "what slct does not choose",
        f"@odd mov.u32 z, 1;\nselp.s32 y, 0, -1, odd;\nslct.u32.s32 x, z, i, y;\n{KEEP};",
        "z, i, y", "i, z, y",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "what slct does not choose by a float",
        f"@odd mov.u32 z, 1;\nselp.f32 f1, 0f80000000, 0f7FC00000, odd;\n"
        f"slct.u32.f32 x, z, i, f1;\n{KEEP};",
        "0f80000000, 0f7FC00000", "0f7FC00000, 0f80000000",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "bytes that prmt does not take", f"prmt.b32 x, i, z, 0x2301;\n{KEEP};", "0x2301", "0x2341",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "bytes that prmt does not take in some threads",
        f"@odd mov.u32 z, 1;\nselp.b32 y, 0x7654, 0x3210, odd;\nprmt.b32 x, i, z, y;\n{KEEP};",
        "0x7654, 0x3210", "0x3210, 0x7654",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "bytes that prmt takes and a mask leaves out",
        f"prmt.b32 z, i, z, 0x7610;\nand.b32 x, z, 0xffff;\n{KEEP};", "0xffff", "0x1ffff",
        [("error", "uninitialized z", "and.b32 x, z, 0x1ffff", KEEP)],
    ),
    Twins(
        "bytes that two tables of lop3 leave out",
        f"prmt.b32 z, i, z, 0x7610;\nlop3.b32 x, 0xffff0000, z, i, 0xac;\n{KEEP};", "0xac", "0xca",
        [("error", "uninitialized z", "lop3.b32 x, 0xffff0000, z, i, 0xca", KEEP)],
    ),
    Twins(
        "what an unwritten word makes with itself",
        f"xor.b32 y, z, z;\nadd.u32 x, y, i;\n{KEEP};", "xor.b32 y, z, z", "xor.b32 y, z, c0",
        [("error", "uninitialized c0", "xor.b32 y, z, c0", KEEP),
         ("info", "uninitialized z", "xor.b32 y, z, c0", None)],
    ),
    Twins(
        "bits that are set one by one",
        f"and.b32 z, z, 0xfffffffe;\n@odd or.b32 z, z, 1;\nand.b32 y, z, 1;\nsetp.ne.u32 low, y, 0;\n@low {KEEP};",
        "y, z, 1", "y, z, 3",
        [("error", "uninitialized z", "and.b32 z, z, 0xfffffffe", f"@low {KEEP}")],
    ),
    Twins(
        "bytes that are shifted out",
        f"prmt.b32 z, i, z, 0x7610;\nshl.b32 x, z, 16;\n{KEEP};", "16", "15",
        [("error", "uninitialized z", "shl.b32 x, z, 15", KEEP)],
    ),
    Twins(
        "how far unwritten words say",
        f"mov.u32 z, 40;\nshl.b32 x, i, z;\n{KEEP};", "mov.u32 z, 40", "@odd mov.u32 z, 40",
        [("error", "uninitialized z", "shl.b32 x, i, z", KEEP)],
    ),
    Twins(
        "a half of a word that a store takes",
        "prmt.b32 z, i, z, 0x7610;\nst.global.u16 [q], z;", "u16", "u32",
        [("error", "uninitialized z", "st.global.u32 [q], z", None)],
    ),
    Twins(
        "halves that a move takes asunder",
        f".reg .b16 g;\nmov.b32 z, {{h, g}};\nprmt.b32 z, i, z, 0x7610;\nmov.b32 {{h, g}}, z;\n"
        f"mov.b32 x, {{h, h}};\n{KEEP};", "{h, h}", "{h, g}",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "halves that local memory holds",
        f"prmt.b32 z, i, z, 0x7610;\nst.local.u32 [mine], z;\nld.local.u32 y, [mine];\n"
        f"and.b32 x, y, 0xffff;\n{KEEP};", "0xffff", "0x1ffff",
        [("error", "uninitialized y", "and.b32 x, y, 0x1ffff", KEEP)],
    ),
    Twins(
        "by what slct chooses",
        f"mov.u32 z, 1;\nslct.u32.s32 x, z, i, z;\n{KEEP};", "mov.u32 z, 1;", "@odd mov.u32 z, 1;",
        [("error", "uninitialized z", "slct.u32.s32 x, z, i, z", KEEP)],
    ),
    Twins(
        "what and leaves undecided",
        f".reg .pred u;\n@odd setp.eq.u32 u, i, i;\nand.pred low, u, odd;\n@low {KEEP};",
        "and", "or",
        [("error", "uninitialized u", "or.pred low, u, odd", f"@low {KEEP}")],
    ),
    Twins(
        "what or leaves undecided",
        f".reg .pred u;\n@odd setp.eq.u32 u, i, i;\nor.pred low, !odd, u;\n@low {KEEP};",
        "!odd", "odd",
        [("error", "uninitialized u", "or.pred low, odd, u", f"@low {KEEP}")],
    ),
    Twins(
        "what decides must be written",
        ".reg .pred u, v;\nsetp.ne.u32 u, i, i;\n@odd setp.ne.u32 v, i, i;\n"
        f"and.pred low, u, v;\n@low {KEEP};",
        "setp.ne.u32 u", "@never setp.ne.u32 u",
        [("error", "uninitialized v", "and.pred low, u, v", f"@low {KEEP}"),
         ("info", "uninitialized u", "and.pred low, u, v", None)],
    ),
    Twins(
        "an address", "add.u32 y, z, 1;\nst.shared.u32 [at], i;\nmul.lo.u32 y, y, 0;", "mul.lo.u32 y, y, 0",
        "mul.lo.u32 y, y, 0;\nst.shared.u32 [y], 7",
        [("error", "uninitialized z", "add.u32 y, z, 1", "st.shared.u32 [y], 7")], 1,
    ),
    Twins(
        "a branch", "setp.ne.u32 low, z, z;\n@odd bra ON;\nON: add.u32 x, i, 1;", "@odd", "@low",
        [("error", "uninitialized z", "setp.ne.u32 low, z, z", "@low bra ON")],
    ),
    Twins(
        "a part of what a mask keeps for others", "vote.sync.any.pred low, odd, -1;\n@low " + KEEP + ";",
        "vote.sync.any.pred low, odd", "@odd setp.eq.u32 never, i, 0;\nsetp.ne.u32 never, z, 1;\n"
        "vote.sync.any.pred low, never",
        [("error", "uninitialized z", "setp.ne.u32 never, z, 1", "@low " + KEEP)],
    ),
    Twins(
        "a lane that the membermask does not name",
        f"@low shfl.sync.idx.b32 x, i, 3, 31, 0xffff;\n@low {KEEP};", "3, 31", "19, 31",
        [("error", "uninitialized lane", "@low shfl.sync.idx.b32 x, i, 19, 31, 0xffff", f"@low {KEEP}")],
    ),
    Twins(
        "a lane that has ended", f"@odd exit;\nshfl.sync.idx.b32 x, i, 2, 31, -1;\n{KEEP};", "i, 2", "i, 3",
        [("error", "uninitialized lane", "shfl.sync.idx.b32 x, i, 3, 31, -1", KEEP)],
    ),
    Twins(
        "a lane that never was", f"shfl.sync.down.b32 x, i, 1, 31, -1;\n@low {KEEP};", "@low ", "",
        [("error", "uninitialized lane", "shfl.sync.down.b32 x, i, 1, 31, -1", KEEP)], 24,
    ),
    Twins(
        "a register of another lane", f"@!odd mov.u32 z, 1;\nshfl.sync.idx.b32 x, z, 2, 31, -1;\n{KEEP};",
        "z, 2", "z, 3",
        [("error", "uninitialized x", KEEP, None)],
    ),
    Twins(
        "rows of a tile that are dropped", f"{ROWS}\n{MMA};\nst.global.f32 [q], f0;", "f0;", "f2;",
        [("error", "uninitialized shared", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {c0,c1,c2,c3}, [to]",
          "st.global.f32 [q], f2")],
        32,
    ),
    Twins(
        "the distance of a matrix's rows", f"{TILE};\nst.global.u32 [r], w0;", "z, 16", "x, 16",
        [("error", "uninitialized z", TILE.splitlines()[-1], "st.global.u32 [r], w0")], 32,
    ),
)  # fmt: skip


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins.name)
def test_twins(twins: Twins) -> None:
    right = checked(twins.right, twins.block)
    assert [told for told in findings_of(right) if told[0] != "info"] == []
    assert right.verdict == "clean"
    assert not right.failed(strict=True)
    assert twins.right.count(twins.part) >= 1
    fault = checked(twins.right.replace(twins.part, twins.fault, 1), twins.block)
    assert findings_of(fault) == twins.findings


def test_warps_at_two_barriers_of_the_cta() -> None:
    """PTX allows it, and CUDA C does not."""
    report = checked("@first bar.sync 0;\n@!first bar.sync 0;")
    assert findings_of(report) == [
        ("warning", "barrier apart in CTA", "@!first bar.sync 0", "@first bar.sync 0")
    ]
    assert report.verdict == "findings"
    assert not report.failed()
    assert report.failed(strict=True)


def test_mma_on_part_of_a_warp() -> None:
    mma = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    body = f"{mma}{{c0,c1,c2,c3}}, {{i,i,i,i}}, {{i,i}}, {{i,i,i,i}};".replace("c<4>", "")
    report = checked(body, 48)
    assert [told[:2] for told in findings_of(report)] == [("error", "barrier")]
    assert "needs all 32 threads of the warp" in report.findings[0].message
    assert checked(body, 64).verdict == "clean"


def test_a_guard_that_is_not_written() -> None:
    report = checked("@never setp.eq.u32 low, i, 0;\n@low add.u32 x, x, 1;")
    assert report.verdict == "clean"  # low was written before
    report = checked(".reg .pred unknown;\n@unknown add.u32 x, x, 1;")
    assert findings_of(report) == [
        ("error", "uninitialized unknown", "@unknown add.u32 x, x, 1", None)
    ]
    assert (report.findings[0].count, report.findings[0].unit) == (64, "threads")


CALLS = """\
.version 8.0
.target sm_80
.address_size 64
.func (.reg .u32 result) twice(.reg .u32 given)
{{
    .local .align 4 .b8 kept[4];
    .reg .pred p;
    setp.lt.u32 p, given, {limit};
    @p st.local.u32 [kept], given;
    ld.local.u32 result, [kept];
    add.u32 result, result, given;
    ret;
}}
.visible .entry k(.param .u64 data)
{{
    .reg .u32 i, a, b;
    mov.u32 i, %tid.x;
    call (a), twice, (i);
    add.u32 i, a, 1000;
    call (b), twice, (i);
    ret;
}}
"""


@pytest.mark.parametrize(("limit", "count"), [(9999, 0), (1000, 64), (0, 2 * 64)])
def test_local_memory_is_new_in_each_call(limit: int, count: int) -> None:
    kernel = device().load(CALLS.format(limit=limit)).kernel("k")
    report = check(kernel, LaunchConfig.of(1, 64), [device().zeros(1, "u32")])
    assert sum(finding.count for finding in report.findings) == count
    assert {finding.rule for finding in report.findings} <= {"result"}


AWAY = (
    ".func (.reg .u32 there) away(.reg .u32 here)\n{\n    add.u32 there, here, 1024;\n    ret;\n}\n"
)


@pytest.mark.parametrize(
    ("move", "rules"), [("call (y), away, (y);", set()), ("add.u32 y, y, 1024;", {"overrun"})]
)
def test_an_address_that_a_function_gave_is_of_no_variable(move: str, rules: set[str]) -> None:
    head = HEAD.replace(".visible .entry", f"{AWAY}.visible .entry")
    body = f".shared .align 8 .b8 more[1024];\nmov.u32 y, tile;\nadd.u32 y, y, at;\n{move}\n"
    kernel = device().load(f"{head}{body}st.shared.u32 [y], i;\nret;\n}}\n").kernel("k")
    report = check(kernel, LaunchConfig.of(1, 64), [device().zeros(64, "u32")])
    assert {finding.rule for finding in report.findings} == rules


def test_what_a_flag_orders_is_said_not_to_be_followed() -> None:
    report = checked(f"{STORE};\nmembar.cta;\n{LOAD};")
    [finding] = report.findings
    assert finding.severity == "error"
    assert "what the membar.cta on line" in finding.hint


def test_counts_are_bytes_of_accesses_in_all_ctas() -> None:
    text = f"{HEAD}    {STORE};\n    {LOAD};\n    ret;\n}}\n"
    data = device().zeros(256, "u32")
    report = check(device().load(text).kernel("k"), LaunchConfig.of(300, 64), [data])
    assert [finding.count for finding in report.findings] == [300 * 64 * 4]
    assert "tile+0x80 in shared memory" in report.findings[0].message


def test_checks_are_chosen() -> None:
    body = f"{LOAD};\nld.shared.u32 y, [at];\n{STORE};\n{LOAD};"
    assert {finding.kind for finding in checked(body).findings} == {"race", "uninitialized"}
    report = checked(body, checks=("race", "async"))
    assert {finding.kind for finding in report.findings} == {"race"}
    assert report.checks == ("race", "async")


@pytest.mark.parametrize("checks", [CHECKS, ("race",)])
def test_a_launch_that_stops_is_never_clean(checks: tuple[str, ...]) -> None:
    report = checked("@odd trap;", checks=checks)
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert "trap in thread (1, 0, 0)" in report.unchecked[0]
    assert report.failed()
    stopped = checked("ld.global.u32 x, [q+4096];", checks=checks)
    assert stopped.verdict == ("findings" if "bounds" in checks else "incomplete")
    assert stopped.unchecked


def test_checking_changes_nothing() -> None:
    body = f"{STORE};\n{BAR}{LOAD};\nadd.u32 x, x, lane;\n@odd st.global.u32 [q], x;"
    text = HEAD + body + "\n    ret;\n}\n"
    results = []
    for watched in (False, True):
        kernel = device().load(text).kernel("k")
        data = device().upload(np.arange(256, dtype=np.uint32))
        if watched:
            assert check(kernel, LaunchConfig.of(1, 64), [data]).verdict == "clean"
        else:
            kernel.launch(1, 64, [data])
        results.append(data.numpy())
    assert (results[0] == results[1]).all()


LOST = """\
@low shfl.sync.down.b32 x, i, 16, 31, 0xffff;
@low shfl.sync.down.b32 y, x, 1, 31, 0xffff;
"""


@pytest.mark.parametrize(
    ("body", "left", "unwritten"),
    [
        (f"ld.shared.u32 x, [at];\n{KEEP};", range(64), "shared"),
        (f"{LOST}@low {KEEP};", [*range(16), *range(32, 48)], "lane"),
    ],
)
def test_what_has_no_value_shows_where_it_is_checked(
    body: str, left: Sequence[int], unwritten: str
) -> None:
    text = HEAD + body + "\n    ret;\n}\n"
    data = device().upload(np.arange(256, dtype=np.uint32))
    report = check(device().load(text).kernel("k"), LaunchConfig.of(1, 64), [data])
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == [
        unwritten
    ]
    expected = np.arange(256, dtype=np.uint32)
    expected[left] = 0xFFFFFFFF
    assert data.numpy().tolist() == expected.tolist()


def test_what_a_lane_does_not_give_is_told_once() -> None:
    assert findings_of(checked(f"{LOST}@low {KEEP};")) == [
        ("error", "uninitialized lane", LOST.splitlines()[0].removesuffix(";"), f"@low {KEEP}"),
        ("info", "uninitialized lane", LOST.splitlines()[1].removesuffix(";"), None),
    ]
    [told] = checked(LOST.splitlines()[0]).findings
    assert (told.severity, told.count, told.unit) == ("info", 32, "threads")
    assert "reaches no store" in told.hint


def test_an_end_is_no_arrival_at_a_barrier_that_counts() -> None:
    body = f"@first {STORE};\n@first exit;\n{{}};\n{LOAD};"
    assert findings_of(checked(body.format("bar.sync 1, 32"))) == [
        ("error", "race RAW", LOAD, f"@first {STORE}")
    ]
    assert [told[:2] for told in findings_of(checked(body.format("bar.sync 1")))] == [
        ("warning", "barrier absent from CTA")
    ]


def test_launches_with_several_schedules_are_told_together() -> None:
    """Each finding once, also where its numbers differ, and several of one launch at the same lines all."""

    def finding(line: int, other: int | None = None, count: int = 4) -> Finding:
        words = "race", "RAW", "error", line, "a message", "a hint", count, "bytes", other
        return Finding(*words)

    def report(*findings: Finding, unchecked: tuple[str, ...] = ()) -> CheckReport:
        return CheckReport("k", ("race",), findings, unchecked, SourceText("", "k.ptx"))

    twice = finding(9, 7), finding(9, 7, count=8)
    late, early = report(*twice, unchecked=("x",)), report(finding(9, 7, count=16), finding(3, 7))
    told = together([late, early], ["late", "early"])
    assert told.findings == (finding(3, 7), *twice)
    assert (told.unchecked, told.schedules) == (("x",), ("late", "early"))
    assert together([report(), early], ["late", "early"]).findings == ordered(early.findings)
