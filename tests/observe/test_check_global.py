"""Races in global memory: between CTAs and warps, by whole programs and their faulty twins."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport

HEAD = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag)
{
    .reg .b32 i, c, t, x, y;
    .reg .b64 p, q, o, f;
    .reg .pred first, other, last;
    ld.param.u64 p, [data];
    ld.param.u64 f, [flag];
    mov.u32 t, %tid.x;
    mov.u32 c, %ctaid.x;
    mad.lo.u32 i, c, 64, t;
    mad.wide.u32 q, i, 4, p;
    xor.b32 x, i, 32;
    mad.wide.u32 o, x, 4, p;
    setp.eq.u32 first, c, 0;
    setp.eq.u32 last, c, 299;
    setp.lt.u32 other, t, 32;
"""


def checked(body: str, grid: int = 2) -> CheckReport:
    device = EmulatorDevice(TARGETS["sm_90a"])
    text = HEAD + "\n".join(f"    {line}" for line in body.strip().splitlines()) + "\n    ret;\n}\n"
    data, flag = device.upload(np.arange(64 * grid, dtype=np.uint32)), device.zeros(1, "u32")
    return check(device.load(text).kernel("k"), LaunchConfig.of(grid, 64), [data, flag])


def findings_of(report: CheckReport) -> list[tuple[str, str, str, str | None]]:
    def text(line: int | None) -> str | None:
        return None if line is None else report.source.line(line).strip().removesuffix(";")

    return [(f.severity, f.rule, text(f.line) or "", text(f.other_line)) for f in report.findings]


STORE, LOAD = "st.global.u32 [q], t", "ld.global.u32 x, [o]"
TOGETHER = "@first st.global.u32 [p], 7;\n@!first st.global.u32 [p+8], 7;"
PASSED = """\
@first st.global.u32 [q], t;
bar.sync 0;
@!first bra WAIT;
membar.gl;
atom.global.add.u32 y, [f], 1;
ret;
WAIT:
ld.volatile.global.u32 y, [f];
setp.lt.u32 first, y, 64;
@first bra WAIT;
sub.u64 q, q, 256;
ld.global.u32 x, [q];
"""
RESET = """\
setp.eq.u32 last, t, 0;
@!first bra WAIT;
red.relaxed.gpu.global.add.u32 [f], 1;
ret;
WAIT:
ld.acquire.gpu.global.u32 y, [f];
setp.lt.u32 first, y, 64;
@first bra WAIT;
bar.sync 0;
@last st.global.u32 [f], 0;
"""
READ_BY_ALL = """\
.reg .pred own;
setp.{}.u32 own, t, 32;
mul.wide.u32 o, c, 256;
add.u64 o, p, o;
ld.global.u32 x, [o];
bar.sync 0;
@own st.global.u32 [o], t;
"""
TWINS = {
    "warps of a CTA": (
        f"{STORE};\nbar.sync 0;\n{LOAD};", "bar.sync 0;\n", "",
        [("error", "global RAW", LOAD, STORE)],
    ),
    "write after read": (
        f"{LOAD};\nbar.sync 0;\n{STORE};", "bar.sync 0;\n", "",
        [("error", "global WAR", STORE, LOAD)],
    ),
    "a barrier is for one CTA": (
        f"{STORE};\nbar.sync 0;\n{LOAD};", LOAD, "ld.global.u32 x, [p]",
        [("error", "global RAW", "ld.global.u32 x, [p]", STORE)],
    ),
    "two places": (
        TOGETHER.replace("7", "c"), "[p+8]", "[p]",
        [("error", "global WAW", "@!first st.global.u32 [p], c", "@first st.global.u32 [p], c"),
         ("info", "global WAW", "@first st.global.u32 [p], c", "@first st.global.u32 [p], c"),
         ("info", "global WAW", "@!first st.global.u32 [p], c", "@!first st.global.u32 [p], c")],
    ),
    "one instruction": (
        f"{STORE};", "[q], t", "[p], t", [("error", "global WAW", "st.global.u32 [p], t", "st.global.u32 [p], t"),
         ("info", "global WAW", "st.global.u32 [p], t", "st.global.u32 [p], t")],
    ),
    "bytes of a word": (
        "@other st.global.u8 [p], 1;\n@!other st.global.u8 [p+1], 2;", "[p+1]", "[p]",
        [("error", "global WAW", "@!other st.global.u8 [p], 2", "@other st.global.u8 [p], 1"),
         ("info", "global WAW", "@other st.global.u8 [p], 1", "@other st.global.u8 [p], 1"),
         ("info", "global WAW", "@!other st.global.u8 [p], 2", "@!other st.global.u8 [p], 2")],
    ),
    "atomics": (
        "red.global.add.u32 [p], 1;", "red.global.add.u32 [p], 1", "@other red.global.add.u32 [p], 1;\n@!other ld.global.u32 x, [p]",
        [("error", "global RAW", "@!other ld.global.u32 x, [p]", "@other red.global.add.u32 [p], 1")],
    ),
    "read by several warps at once": (
        READ_BY_ALL.format("lt"), "bar.sync 0;", "",
        [("error", "global WAR", "@own st.global.u32 [o], t", "ld.global.u32 x, [o]")],
    ),
    "read by the writer's warp last": (
        READ_BY_ALL.format("ge"), "bar.sync 0;", "",
        [("error", "global WAR", "@own st.global.u32 [o], t", "ld.global.u32 x, [o]")],
    ),
    "read by another warp before": (
        READ_BY_ALL.format("ge").replace("ld.", "@!own ld.").replace("bar.", "@own ld.global.u32 y, [o];\nbar."),
        "bar.sync 0;\n", "",
        [("error", "global WAR", "@own st.global.u32 [o], t", "@!own ld.global.u32 x, [o]")],
    ),
    "a fence": (
        PASSED, "membar.gl;\n", "",
        [("error", "global RAW", "ld.global.u32 x, [q]", "@first st.global.u32 [q], t")],
    ),
    "a flag": (
        PASSED, "ld.volatile", "ld",
        [("error", "global RAW", "ld.global.u32 x, [q]", "@first st.global.u32 [q], t"),
         ("error", "global RAW", "ld.global.u32 y, [f]", "atom.global.add.u32 y, [f], 1")],
    ),
    "a flag is reset": (
        RESET, "ld.acquire.gpu", "ld",
        [("error", "global RAW", "ld.global.u32 y, [f]", "red.relaxed.gpu.global.add.u32 [f], 1"),
         ("error", "global WAW", "@last st.global.u32 [f], 0", "red.relaxed.gpu.global.add.u32 [f], 1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_twins(name: str) -> None:
    right, part, fault, expected = TWINS[name]
    assert [told for told in findings_of(checked(right)) if told[0] != "info"] == []
    assert right.count(part) == 1
    twin = findings_of(checked(right.replace(part, fault)))
    assert sorted(told for told in twin if told[0] == "error") == sorted(
        told for told in expected if told[0] == "error"
    )
    assert set(expected) >= set(twin)


def test_waves_are_of_one_launch() -> None:
    """A CTA races with one that has ended before it begins here: on a GPU both may run at once."""
    body = "@first st.global.u32 [p], 7;\n@last ld.global.u32 x, [{}];"
    assert findings_of(checked(body.format("p+256"), 300)) == [
        ("info", "global WAW", "@first st.global.u32 [p], 7", "@first st.global.u32 [p], 7")
    ]
    report = checked(body.format("p"), 300)
    assert ("error", "global RAW", "@last ld.global.u32 x, [p]", "@first st.global.u32 [p], 7") in (
        findings_of(report)
    )
    [message] = [f.message for f in report.findings if f.severity == "error"]
    assert "of CTA (299, 0, 0) reads byte 0 of buffer uint32[19200], which thread" in message
    assert "of CTA (0, 0, 0) wrote" in message


def test_a_clean_verdict_says_what_was_not_looked_at() -> None:
    report = checked(f"{STORE};")
    assert report.verdict == "clean"
    assert "inside a warp" in report.not_looked_at[0]
