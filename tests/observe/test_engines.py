"""PTX beside what another program of the same meaning gives, in place of its machine code: where they part, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.diff import DeviceLaunch
from ptxlab.observe.engines import Bound, EnginesReport, _alike, compare

THREADS = 64
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{
.reg .pred p<4>; .reg .b32 a<20>; .reg .b64 d<20>; .reg .f32 f<20>; .reg .f64 g<9>; .reg .b16 h<9>;
.shared .align 4 .b8 tile[512];
ld.param.u64 d0, [out]; ld.param.u64 d1, [in];
mov.u32 a0, %tid.x;
mad.wide.u32 d0, a0, 8, d0; mad.wide.u32 d1, a0, 8, d1;
ld.global.b32 a1, [d1]; ld.global.b32 a2, [d1+4];
ld.global.f64 g1, [d1+1024]; ld.global.f64 g2, [d1+2048]; ld.global.f64 g3, [d1+3072];
cvt.rn.f32.f64 f1, g1; cvt.rn.f32.f64 f2, g2; cvt.rn.f32.f64 f3, g3;
"""


def compared(
    ptx: str, machine: str, origins: Mapping[int, int] | None = None, arch: str = "sm_80"
) -> EnginesReport:
    rng = np.random.default_rng(1)
    whole = rng.integers(-99, 99, 2 * 128).astype("i4")
    given = np.concatenate([whole.view("u8"), rng.normal(size=3 * 128).view("u8")])

    def bound(body: str) -> Bound:
        def launch() -> DeviceLaunch:
            device = EmulatorDevice(TARGETS[arch])
            head = HEAD.replace("sm_80", arch)
            kernel = device.load(f"{head}{body}\nret;\n}}\n").kernel("k")
            out, into = device.zeros((THREADS, 2), "u32"), device.upload(given)
            return DeviceLaunch(kernel, [out, into], {}, [("out", out), ("in", into)])

        return launch

    config = LaunchConfig.of(1, THREADS, 0, None, False)
    return compare(config, bound(ptx), bound(machine), origins or {})


def texts(report: EnginesReport) -> list[list[str]]:
    """What is told of both sides, without the store."""
    assert report.sides is not None
    return [[step.text for step in side.steps[:-1]] for side in report.sides]


ABSOLUTE = "neg.s32 a3, a1;\nmax.s32 a4, a1, a3;\nmax.s32 a5, a4, a2;\nst.global.b32 [d0], a5;"


def test_programs_that_give_the_same_are_the_same() -> None:
    report = compared(ABSOLUTE, "abs.s32 a9, a1;\nmax.s32 a9, a2, a9;\nst.global.b32 [d0], a9;")
    assert (report.same, report.verdict, report.sides) == (True, "same", None)


def test_a_lost_negation_is_found_between_what_agrees_and_the_store() -> None:
    """The registers are others, and so is the order; only values tell what is what."""
    twin = "max.s32 a12, a1, a2;\nmov.b32 a1, 0;\nst.global.b32 [d0], a12;"
    report = compared(ABSOLUTE, twin, origins={14: 16})
    assert report.verdict == "may not"
    assert texts(report) == [
        ["neg.s32 a3, a1;", "max.s32 a4, a1, a3;", "max.s32 a5, a4, a2;"],
        ["max.s32 a12, a1, a2;"],
    ]
    assert report.sides is not None
    assert [side.store and side.store.text for side in report.sides] == [
        "st.global.b32 [d0], a5;",
        "st.global.b32 [d0], a12;",
    ]
    ptx, machine = report.first
    assert ptx is not None
    assert machine is not None
    assert (ptx.text, machine.text) == ("max.s32 a5, a4, a2;", "max.s32 a12, a1, a2;")
    out = report.outputs[0]
    assert out.index is not None
    assert ptx.registers == {"a5": f"0x{int(out.a):08x}"}
    assert machine.registers == {"a12": f"0x{int(out.b):08x}"}


@pytest.mark.parametrize(
    ("kind", "store", "r"),
    [("f32", "st.global.f32", "f"), ("f64", "st.global.f64", "g"), ("f16x2", "st.global.b32", "a")],
)
@pytest.mark.parametrize("sign", ["add", "sub", "less"])
def test_what_became_one_fma_may_differ_unless_it_says_how_it_is_rounded(
    kind: str, store: str, r: str, sign: str
) -> None:
    taken = "".join(f"mov.b32 a{n}, f{n}; " for n in (1, 2, 3)) if kind == "f16x2" else ""
    product = f"{taken}mul.{kind} {r}4, {r}1, {r}2;\n"
    total, fused = {
        "add": (f"add.{kind} {r}5, {r}3, {r}4;", f"fma.rn.{kind} {r}5, {r}1, {r}2, {r}3;"),
        "sub": (
            f"sub.{kind} {r}5, {r}4, {r}3;",
            f"neg.{kind} {r}6, {r}3;\nfma.rn.{kind} {r}5, {r}1, {r}2, {r}6;",
        ),
        "less": (
            f"sub.{kind} {r}5, {r}3, {r}4;",
            f"neg.{kind} {r}6, {r}1;\nfma.rn.{kind} {r}5, {r}6, {r}2, {r}3;",
        ),
    }[sign]
    end = f"\n{store} [d0], {r}5;"
    fused = taken + fused
    report = compared(product + total + end, fused + end)
    assert report.verdict == "may"
    assert report.liberty is not None
    assert (report.liberty.rule, report.liberty.line) == ("contraction", 15)
    rounded = (product + total).replace(f".{kind}", f".rn.{kind}")
    assert compared(rounded + end, fused + end).verdict == "may not"
    wrong = taken + fused.removeprefix(taken).replace(f"{r}2,", f"{r}3,")
    assert compared(product + total + end, wrong + end).verdict == "may not"


def test_an_approximation_may_have_other_bits() -> None:
    end = "\nst.global.f32 [d0], f4;"
    twin = "rcp.approx.f32 f5, f2;\nmul.rn.f32 f4, f1, f5;\nmul.rn.f32 f4, f4, 0f3F800001;" + end
    report = compared("div.full.f32 f4, f1, f2;" + end, twin)
    assert report.liberty is not None
    assert (report.verdict, report.liberty.rule) == ("may", "approximation")
    assert compared("div.rn.f32 f4, f1, f2;" + end, twin).verdict == "may not"


def test_a_clock_may_tell_another_time() -> None:
    end = "\nst.global.b32 [d0], a5;"
    report = compared("mov.u32 a5, %clock;" + end, "add.u32 a4, a1, a2;\nmov.u32 a5, %clock;" + end)
    assert report.liberty is not None
    assert (report.verdict, report.liberty.rule) == ("may", "time")
    assert compared("mov.u32 a5, %tid.x;" + end, "mov.u32 a5, %tid.y;" + end).verdict == "may not"


EXCHANGE = """mul.wide.u32 d5, a0, 4; mov.u64 d6, tile; add.u64 d6, d6, d5;
add.s32 a3, a1, {term};
st.shared.b32 [d6], a3;
bar.sync 0;
xor.b32 a4, a0, 33; mul.wide.u32 d5, a4, 4; mov.u64 d6, tile; add.u64 d6, d6, d5;
ld.shared.b32 a5, [d6];
st.global.b32 [d0], a5;"""


def test_it_goes_on_in_the_thread_that_stored_what_is_loaded() -> None:
    report = compared(EXCHANGE.format(term="a2"), EXCHANGE.format(term="a0"))
    assert report.sides is not None
    for side in report.sides:
        assert side.store is not None
        writers = {step.thread for step in side.steps if step.text.startswith("add.s32 a3")}
        assert writers == {side.store.thread ^ 33}
    assert [side[0] for side in texts(report)] == ["add.s32 a3, a1, a2;", "add.s32 a3, a1, a0;"]


def test_what_nobody_wrote_explains_any_value() -> None:
    report = compared("add.s32 a3, a15, 777;\nst.global.b32 [d0], a3;", "st.global.b32 [d0], a2;")
    assert report.liberty is not None
    assert (report.verdict, report.liberty.rule) == ("may", "no value")


def test_a_condition_is_what_it_is_made_of() -> None:
    ptx = "setp.lt.s32 p1, a1, {limit};\nselp.b32 a3, a1, a2, p1;\nst.global.b32 [d0], a3;"
    report = compared(ptx.format(limit=5), ptx.format(limit=50))
    assert report.verdict == "may not"
    assert texts(report) == [
        [f"setp.lt.s32 p1, a1, {limit};", "selp.b32 a3, a1, a2, p1;"] for limit in (5, 50)
    ]


def test_a_store_that_is_not_there_is_no_verdict_on_values() -> None:
    report = compared(ABSOLUTE, "mov.b32 a5, a1;")
    assert report.sides is not None
    assert report.sides[0].store is not None
    assert report.sides[1].store is None
    assert report.verdict == "unknown"


def test_sums_of_atomics_come_in_any_order() -> None:
    ptx = "ld.param.u64 d0, [out];\nred.global.add.f32 [d0], f1;"
    twin = "ld.param.u64 d0, [out];\nadd.rn.f32 f1, f1, f2;\nred.global.add.f32 [d0], f1;"
    report = compared(ptx, twin)
    assert report.liberty is not None
    assert (report.verdict, report.liberty.rule) == ("may", "order")


def test_two_nans_are_alike_and_a_number_is_no_nan() -> None:
    a, b = np.array([np.nan, np.nan, 1, 2]), np.array([-np.nan, 3, np.nan, 4])
    alike = _alike(a, b)
    assert (alike.view(np.uint64) == np.array([np.nan, 3, np.nan, 4]).view(np.uint64)).all()
    whole = np.array([1, 2], np.int32)
    assert (_alike(whole, whole[::-1]) == [2, 1]).all()


COPIED = """max.s32 a5, {most}, a2;
ld.param.u64 d1, [in]; ld.param.u64 d0, [out]; mad.wide.u32 d2, a0, 8, d1;
st.global.b32 [d2], a5;
fence.proxy.async; bar.sync 0;
setp.eq.u32 p1, a0, 0; mov.u32 a6, near; add.u32 a7, a6, 512;
@!p1 bra WAIT;
mbarrier.init.shared::cta.b64 [a7], 1; fence.proxy.async;
mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [a7], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a6], [d1], 512, [a7];
WAIT: bar.sync 0;
TRY: mbarrier.try_wait.parity.shared::cta.b64 p2, [a7], 0;
@!p2 bra TRY;
mad.lo.u32 a8, a0, 8, a6; ld.shared.b32 a9, [a8];
st.shared.b32 [a8], a9;
fence.proxy.async; bar.sync 0;
@p1 cp.async.bulk.global.shared::cta.bulk_group [d0], [a6], 512;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""


def test_what_bulk_copies_bring_is_followed_to_who_stored_its_source() -> None:
    """A maximum goes to global memory, in one copy to shared memory, in another from there to what is compared."""
    shared = ".shared .align 16 .b8 near[520];\n"
    right = shared + "neg.s32 a3, a1;\nmax.s32 a4, a1, a3;\n" + COPIED.format(most="a4")
    wrong = shared + COPIED.format(most="a1")
    report = compared(right, wrong, arch="sm_90")
    assert report.verdict == "may not"
    assert report.sides is not None
    copy = "@p1 cp.async.bulk.global.shared::cta.bulk_group [d0], [a6], 512;"
    assert [side.store and side.store.text for side in report.sides] == [copy, copy]
    ours, theirs = ([step.text.split()[0] for step in side.steps] for side in report.sides)
    brought = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    between = ["max.s32", "st.global.b32", brought, "mad.lo.u32", "st.shared.b32", "@p1"]
    assert (ours, theirs) == (["neg.s32", "max.s32", *between], between)
