"""What is under way beside threads becomes the PTX again that ptxas made it of, and mbarriers do the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.device.loading import load_assembled
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import target_named
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.hazards import HazardCheck
from ptxlab.machine.image import read_image
from ptxlab.machine.latencies import Latencies
from ptxlab.machine.lift import lift
from ptxlab.machine.lift.table import RULES
from ptxlab.machine.lift.writer import Writer
from ptxlab.syntax.functions import statements
from ptxlab.syntax.tree import Instruction
from tests.machine.test_operations import instruction

_BYTES = "mbarrier::complete_tx::bytes"
_REDUCED = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
_LOADED, _STORED = (
    "cp.async.bulk.tensor.{}.shared::cluster.global.{}",
    "cp.async.bulk.tensor.{}.global.shared::cta.{}",
)
_XY, _FIVE = "[x, {a, b}]", "[x, {a, b, s, t, a}]"
HOPPER = [
    *((f"{_REDUCED}.{end}", "[x], [s], t") for end in (
        "add.f32", "add.noftz.f16", "add.noftz.bf16", "max.f16", "add.f64", "add.u32", "min.s32", "min.u64", "inc.u32", "xor.b64",
    )),
    (f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_BYTES}.add.u64", "[s], [t], 64, [t]"),
    ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", f"{_XY}, [s]"),
    ("cp.reduce.async.bulk.tensor.5d.global.shared::cta.or.im2col_no_offs.bulk_group", f"{_FIVE}, [s]"),
    (_STORED.format("5d", "im2col_no_offs.bulk_group"), f"{_FIVE}, [s]"),
    (_LOADED.format("3d", f"im2col.{_BYTES}"), "[s], [x, {a, b, s}], [t], {h}"),
    (_LOADED.format("4d", f"im2col.{_BYTES}"), "[s], [x, {a, b, s, t}], [t], {h, g}"),
    (_LOADED.format("5d", f"im2col.{_BYTES}.multicast::cluster"), f"[s], {_FIVE}, [t], {{h, g, h}}, g"),
    ("mbarrier.inval.shared::cta.b64", "[s]"),
    ("cp.async.mbarrier.arrive.shared::cta.b64", "[s]"),
    ("cp.async.mbarrier.arrive.noinc.shared::cta.b64", "[s]"),
    ("mbarrier.arrive.release.cta.shared::cluster.b64", "_, [s], t"),
    ("mbarrier.arrive_drop.release.cta.shared::cluster.b64", "_, [s]"),
    ("mbarrier.complete_tx.relaxed.cta.shared::cluster.b64", "[s], t"),
    *((f"red.async.relaxed.cluster.shared::cluster.{_BYTES}.{end}", f"[s], {value}, [t]") for end, value in (
        ("add.u32", "a"), ("inc.u32", "a"), ("min.s32", "a"), ("add.u64", "x"),
    )),
    (f"st.async.weak.shared::cluster.{_BYTES}.v4.b32", "[s], {a, b, s, t}, [t]"),
    ("griddepcontrol.wait", ""),
    ("griddepcontrol.launch_dependents", ""),
]  # fmt: skip
BLACKWELL = [
    (_LOADED.format("2d", f"tile::gather4.{_BYTES}"), f"[s], {_FIVE}, [t]"),
    (_STORED.format("2d", "tile::scatter4.bulk_group"), f"{_FIVE}, [s]"),
    (_LOADED.format("3d", f"im2col::w.{_BYTES}"), "[s], [x, {a, b, s}], [t], {h, g}"),
    (_LOADED.format("4d", f"im2col::w::128.{_BYTES}.cta_group::2"), "[s], [x, {a, b, s, t}], [t], {h, g}"),
    ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask", "[x], [s], t, h"),
]  # fmt: skip
PROGRAM = """\
.version 9.0
.target {arch}
.address_size 64
.visible .entry k(.param .u64 px, .param .u32 ps)
{{
    .reg .b32 a, b, s, t; .reg .b64 x; .reg .b16 h, g;
    ld.param.u64 x, [px]; ld.param.u32 s, [ps]; ld.global.v2.b32 {{a, b}}, [x]; ld.global.b32 t, [x + 8];
    cvt.u16.u32 h, a; cvt.u16.u32 g, b;
    {lines}
    ret;
}}
"""


@pytest.mark.parametrize(("arch", "forms"), [("sm_90a", HOPPER), ("sm_100a", BLACKWELL)])
def test_every_form_comes_back(arch: str, forms: list[tuple[str, str]]) -> None:
    text = PROGRAM.format(
        arch=arch, lines="\n    ".join(f"{name} {operands};" for name, operands in forms)
    )
    module, cubin = load_assembled(text, target_named(arch))
    [function] = lift(read_image(cubin.image, cubin.arch), ["k"], "k.sass", module).entries
    names = [each.name for each in statements(function) if isinstance(each, Instruction)]
    assert [name for name, _ in forms if name not in names] == []


HINTED = [
    (_LOADED.format("2d", f"tile.{_BYTES}.multicast::cluster"), f"[s], {_XY}, [t], h, x"),
    (_LOADED.format("2d", f"tile.{_BYTES}"), f"[s], {_XY}, [t], x"),
    (_STORED.format("2d", "tile.bulk_group"), f"{_XY}, [s], x"),
    (f"cp.async.bulk.shared::cluster.global.{_BYTES}", "[s], [x], 64, [t], x"),
    ("cp.async.bulk.prefetch.L2.global", "[x], 64, x"),
]  # fmt: skip


def test_how_to_cache_what_is_copied_changes_nothing() -> None:
    """It stands as a descriptor behind the others, whose registers are known to the check of control bits too."""
    lines = "".join(f"{name}.L2::cache_hint {operands};" for name, operands in HINTED)
    text = PROGRAM.format(arch="sm_90a", lines=lines)
    module, cubin = load_assembled(text, target_named("sm_90a"))
    [function] = lift(read_image(cubin.image, cubin.arch), ["k"], "k.sass", module).entries
    names = [each.name for each in statements(function) if isinstance(each, Instruction)]
    assert [name for name, _ in HINTED[:-1] if name not in names] == []
    code = decode(cubin, Assembly(None, cubin).functions, "k")
    hinted = [i.sass.text for i in code if i.sass.opcode[0] == "U" and ", desc[UR" in i.sass.text]
    assert len(hinted) == len(HINTED)
    assert HazardCheck(code, Latencies(90)).run() == []


# ---- what mbarriers tell --------------------------------------------------------------------

AMPERE = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 px)
{
    .shared .align 8 .b8 bar[8]; .shared .align 4 .b8 own[256]; .shared .align 4 .f32 total;
    .reg .b64 x, st; .reg .b32 t, at, n; .reg .pred p, first; .reg .f32 f;
    ld.param.u64 x, [px]; mov.u32 t, %tid.x; mad.wide.u32 x, t, 16, x; setp.eq.u32 first, t, 0;
    @first mbarrier.init.shared.b64 [bar], 67; @first st.shared.f32 [total], 0f00000000; bar.sync 0;
    mov.u32 at, own; mad.lo.u32 at, t, 4, at; cp.async.ca.shared.global [at], [x], 4;
    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    setp.lt.u32 p, t, 2; @p mbarrier.arrive.noComplete.shared.b64 st, [bar], 1;
    @first mbarrier.arrive_drop.shared.b64 st, [bar];
A:  mbarrier.test_wait.parity.shared.b64 p, [bar], 0; @!p bra A;
    xor.b32 n, t, 1; mov.u32 at, own; mad.lo.u32 at, n, 4, at; ld.shared.f32 f, [at];
    mbarrier.arrive.shared.b64 st, [bar];
    mbarrier.pending_count.b64 n, st; st.global.u32 [x + 4], n;
    cp.async.mbarrier.arrive.shared.b64 [bar];
    setp.lt.u32 p, t, 2; @p mbarrier.arrive.shared.b64 st, [bar];
B:  mbarrier.test_wait.shared.b64 p, [bar], st; @!p bra B;
    atom.shared.add.f32 f, [total], f; st.global.f32 [x + 8], f;
    bar.sync 0; atom.shared.cas.b32 n, [total], 7, t;
    cp.async.ca.shared.global [at], [x + 0x100000], 4, 0; cp.async.wait_all;
    ld.shared.b32 t, [at]; add.u32 n, n, t; st.global.b32 [x + 12], n;
    ret;
}
"""
HOPPER_STATES = """\
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 px)
{
    .shared .align 8 .b8 bar[8]; .shared .align 16 .b8 own[64];
    .reg .b64 x, st, now; .reg .b32 t, n; .reg .pred p, first;
    ld.param.u64 x, [px]; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0;
    mov.u32 n, own; mad.lo.u32 n, t, 4, n; setp.lt.u32 p, t, 16; @p st.shared.b32 [n], t;
    @first mbarrier.init.shared.b64 [bar], 130; fence.proxy.async; bar.sync 0;
    @first cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [x], [own], 64;
    @first cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bar.sync 0;
    mad.wide.u32 x, t, 16, x;
    mbarrier.arrive.shared.b64 st, [bar], 2;
    mbarrier.pending_count.b64 n, st; st.global.u32 [x], n;
    @first mbarrier.arrive.expect_tx.shared.b64 now, [bar], 64;
    @first mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64;
    @first mbarrier.arrive_drop.shared.b64 now, [bar];
A:  mbarrier.test_wait.shared.b64 p, [bar], st; @!p bra A;
    mbarrier.arrive.shared.b64 st, [bar], 2;
    mbarrier.pending_count.b64 n, st; st.global.u32 [x + 4], n;
    mbarrier.test_wait.shared.b64 p, [bar], st; selp.u32 n, 1, 0, p; st.global.u32 [x + 8], n;
    ret;
}
"""
EIGHT_WORDS = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 px)
{
    .reg .b64 x, d<4>; .reg .b32 t, r<8>;
    ld.param.u64 x, [px]; mov.u32 t, %tid.x; and.b32 t, t, 15; mad.wide.u32 x, t, 64, x;
    ld.global.v8.b32 {r0, r1, r2, r3, r4, r5, r6, r7}, [x]; ld.global.v4.b64 {d0, d1, d2, d3}, [x];
    add.u32 r0, r0, r7; mov.b64 {r1, r6}, d2;
    st.global.v8.b32 [x + 32], {r0, r1, r2, r3, r4, r5, r6, r7};
    ret;
}
"""


def left(text: str, arch: str, engine: str) -> Array:
    device = open_device("emulator", arch=arch, engine=engine)
    data = device.upload(np.random.default_rng(1).random(256, np.float32))
    device.load(text).kernel("k").launch(1, 64, [data])
    return data.numpy().view(np.uint32)


@pytest.mark.parametrize(
    ("text", "arch"), [(AMPERE, "sm_80"), (HOPPER_STATES, "sm_90a"), (EIGHT_WORDS, "sm_100a")]
)
def test_both_engines_leave_the_same(text: str, arch: str) -> None:
    assert left(text, arch, "sass").tolist() == left(text, arch, "ptx").tolist()


OWN_COUNTS = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 px)
{
    .reg .b64 x; .reg .b32 t, n; .reg .pred p; .shared .b64 bar;
    ld.param.u64 x, [px]; mov.u32 t, %tid.x; mad.wide.u32 x, t, 4, x; ld.global.b32 n, [x];
    setp.eq.u32 p, t, 0; @p mbarrier.init.shared.b64 [bar], n;
    ret;
}
"""


def test_an_mbarrier_that_is_stored_as_words_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"SYNCS.CCTL.IVALL.* a count of its own is not modelled"):
        left(OWN_COUNTS, "sm_100a", "sass")


@pytest.mark.parametrize(
    ("text", "arch", "lines"),
    [
        ("DEPBAR.LE SB0, 0x3", "sm_80", ["cp.async.wait_group 3;"]),
        ("DEPBAR.LE SB0, 0x3, {4,2}", "sm_80", ["cp.async.wait_group 3;"]),
        ("DEPBAR {5,4,3,2,1,0}", "sm_80", ["cp.async.wait_group 0;"]),
        ("DEPBAR.LE SB1, 0x3", "sm_80", []),
        ("DEPBAR {5,4}", "sm_80", []),
        (
            "DEPBAR {0}",
            "sm_90a",
            ["cp.async.wait_group 0;", "cp.async.bulk.wait_group 0;"],
        ),
    ],
)
def test_scoreboard_0_is_that_of_copies(text: str, arch: str, lines: list[str]) -> None:
    """It may stand in a set of those that are waited for wholly."""
    nothing: Any = None
    writer = Writer(target_named(arch), nothing, nothing)
    writer.begin(instruction(text))
    RULES["DEPBAR"](writer)
    writer.end()
    assert writer.lines == lines
