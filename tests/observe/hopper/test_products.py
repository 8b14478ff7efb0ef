"""wgmma: registers and operands of products, from their beginning to a wait."""

from __future__ import annotations

import pytest

from tests.observe.hopper.conftest import Check, lines, only

START = """
    cvt.u64.u32 d3, r3;
    and.b64 d3, d3, 0x3ffff;
    shr.u64 d3, d3, 4;
    or.b64 d4, d3, 0x800400000;
    add.u64 d5, d4, 128;
    mad.lo.u32 r5, r0, 16, r3;
    mad.wide.u32 d2, r0, 4, d0;
    mov.f32 f0, 0f00000000;
    mov.f32 f1, f0;
    mov.f32 f2, f0;
    mov.f32 f3, f0;
"""
WRITE = """
    st.shared.v4.b32 [r5], {r0, r0, r0, r0};
    st.shared.v4.b32 [r5+2048], {r0, r0, r0, r0};
    fence.proxy.async.shared::cta;
    bar.sync 0;
"""
FENCE = "    wgmma.fence.sync.aligned;\n"
SHAPE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
PRODUCT = SHAPE + " {f0,f1,f2,f3}, d4, d5, 1, 1, 1, 0, 0"
COMMIT = "    wgmma.commit_group.sync.aligned;\n"
WAIT = "    wgmma.wait_group.sync.aligned 0;\n"
TWICE = f"    {PRODUCT};\n    {PRODUCT};\n"
OUT = "    st.global.f32 [d2], f0;\n"
AGAIN = "    st.shared.v4.b32 [r5], {r0, r0, r0, r0};\n"


def test_products_that_follow_each_other(checked: Check) -> None:
    right = START + WRITE + FENCE + TWICE + COMMIT + WAIT + OUT + "    bar.sync 0;\n" + AGAIN
    report = checked(right)
    assert (report.verdict, report.findings) == ("clean", ())


@pytest.mark.parametrize("adds", ["0", "1", "p1", "!p1"])
def test_d_is_read_where_the_product_is_added_to_it(checked: Check, adds: str) -> None:
    start = START[: START.index("    mov.f32 f0")] + "    setp.ne.u32 p1, r0, r0;\n"
    product = PRODUCT.replace("d5, 1", f"d5, {adds}")
    report = checked(start + WRITE + FENCE + f"    {product};\n" + COMMIT + WAIT + OUT)
    if adds in ("0", "p1"):
        assert (report.verdict, report.findings) == ("clean", ())
    else:
        finding = only(report)
        assert finding.kind == "uninitialized"
        assert lines(report, finding) == (product, "st.global.f32 [d2], f0")


def test_the_first_product_needs_a_fence(checked: Check) -> None:
    report = checked(START + WRITE + TWICE + COMMIT + WAIT + OUT)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("async", "fence", 1)
    assert lines(report, finding) == (PRODUCT, None)
    assert "begins its first product without wgmma.fence" in finding.message


def test_registers_touched_after_the_fence(checked: Check) -> None:
    report = checked(WRITE.replace("r5", "r3") + FENCE + START + TWICE + COMMIT + WAIT + OUT)
    finding = next(finding for finding in report.findings if finding.kind == "async")
    assert lines(report, finding) == (PRODUCT, "mov.f32 f3, f0")
    assert "with register f0, which line" in finding.message


@pytest.mark.parametrize(
    ("touch", "rule"),
    [("mov.f32 f4, f1", "registers"), ("mov.f32 f2, f4", "registers"), ("mov.f32 f4, f5", "")],
)
def test_registers_touched_before_the_wait(checked: Check, touch: str, rule: str) -> None:
    body = f"mov.f32 f4, 0f00000000; mov.f32 f5, f4;\n{START}{WRITE}{FENCE}{TWICE}{COMMIT}    {touch};\n{WAIT}{OUT}"
    report = checked(body)
    if not rule:
        assert report.verdict == "clean"
        return
    finding = only(report)
    assert (finding.kind, finding.rule) == ("async", "registers")
    assert lines(report, finding) == (touch, PRODUCT)
    assert "has until it is waited for" in finding.message


def test_a_wait_for_the_group_before(checked: Check) -> None:
    products = (
        f"    {PRODUCT};\n{COMMIT}    {PRODUCT.replace('f0,f1,f2,f3', 'f4,f5,f6,f7')};\n{COMMIT}"
    )
    zero = "".join(f"    mov.f32 f{i}, 0f00000000;\n" for i in range(4, 8))
    body = START + zero + WRITE + FENCE + products + WAIT.replace("0", "1")
    assert checked(body + OUT + WAIT).verdict == "clean"
    finding = only(checked(body + OUT.replace("f0", "f4") + WAIT))
    assert "touches register f4" in finding.message


def test_a_wait_for_the_first_of_two_products_on_the_same_registers(checked: Check) -> None:
    """They are the second one's still."""
    products = f"    {PRODUCT};\n{COMMIT}    {PRODUCT};\n{COMMIT}"
    body = START + WRITE + FENCE + products + WAIT.replace("0", "1")
    finding = only(checked(body + OUT + WAIT))
    assert (finding.severity, finding.rule) == ("error", "registers")
    assert checked(body + WAIT + OUT).verdict == "clean"


def test_products_of_other_shapes_on_the_same_registers(checked: Check) -> None:
    other = PRODUCT.replace("m64n8k16.f32.f16.f16", "m64n8k16.f32.bf16.bf16")
    assert (
        checked(START + WRITE + FENCE + f"{PRODUCT};\n{other};\n" + COMMIT + WAIT).verdict
        == "clean"
    )
    other = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {f0,f1,f2,f3}, d4, d5, 1, 1, 1"
    finding = only(checked(START + WRITE + FENCE + f"{PRODUCT};\n{other};\n" + COMMIT + WAIT))
    assert finding.rule == "registers"


def test_a_in_registers(checked: Check) -> None:
    held = SHAPE + " {f0,f1,f2,f3}, {r20,r21,r22,r23}, d5, 1, 1, 1, 0"
    zero = "".join(f"    mov.b32 r{i}, 0;\n" for i in range(20, 24))
    body = START + zero + WRITE + FENCE + f"    {held};\n    {held};\n" + COMMIT
    assert checked(body + WAIT + OUT).verdict == "clean"
    finding = only(checked(body + "    mov.b32 r21, 1;\n" + WAIT + OUT))
    assert (finding.severity, finding.rule) == ("error", "registers")
    finding = only(checked(body + "    mov.b32 r24, r21;\n" + WAIT + OUT))
    assert finding.severity == "warning"


def test_operands_written_with_no_fence_of_the_proxies(checked: Check) -> None:
    report = checked(
        START
        + WRITE.replace("fence.proxy.async.shared::cta;", "")
        + FENCE
        + f"{PRODUCT};\n"
        + COMMIT
        + WAIT
    )
    first, second = report.findings
    assert (first.severity, first.rule, first.count, second.count) == ("error", "proxy", 2048, 256)
    assert lines(report, first) == (PRODUCT, "st.shared.v4.b32 [r5], {r0, r0, r0, r0}")


def test_operands_of_other_warps_need_a_barrier(checked: Check) -> None:
    report = checked(
        START
        + WRITE.replace("bar.sync 0;", "bar.warp.sync -1;")
        + FENCE
        + f"{PRODUCT};\n"
        + COMMIT
        + WAIT
    )
    first, second = report.findings
    assert (first.kind, first.rule, first.count, second.count) == ("async", "RAW", 2048, 256)
    assert "this product reads buffer+0x0" in first.message


def test_operands_written_before_the_wait(checked: Check) -> None:
    body = START + WRITE + FENCE + TWICE + COMMIT
    report = checked(body + AGAIN + WAIT + OUT)
    finding = only(report)
    assert (finding.rule, finding.count) == ("WAR", 2048)
    assert lines(report, finding) == (AGAIN.strip().removesuffix(";"), PRODUCT)
    assert "wgmma.wait_group for its group" in finding.hint


def test_products_that_nobody_waits_for(checked: Check) -> None:
    report = checked(START + WRITE + FENCE + TWICE + COMMIT)
    finding = only(report)
    assert (finding.rule, lines(report, finding)) == ("end", (PRODUCT, None))
    assert finding.hint == "wgmma.commit_group, then wgmma.wait_group 0"


def test_two_warpgroups_read_one_operand(checked: Check) -> None:
    """The one that waits first must not write it: the other one still reads it."""
    tail = "    setp.ge.u32 p2, r0, 128;\n    @p2 bra E;\n" + AGAIN + "E:\n"
    body = START + WRITE.replace("[r5+2048]", "[r5]") + FENCE + TWICE + COMMIT + WAIT
    met = checked(body + "    bar.sync 0;\n" + tail, block=256)
    assert met.verdict == "clean"
    finding = only(checked(body + tail, block=256))
    assert (finding.rule, finding.count) == ("WAR", 2048)


def test_one_warp_waits_for_its_warpgroup(checked: Check) -> None:
    """A wait is for the warp that executes it, and the ISA has all four execute it together."""
    body = START + WRITE + FENCE + TWICE + COMMIT
    alone = f"    setp.ge.u32 p2, r0, 32;\n    @p2 bra Y;\n{WAIT}Y:\n{OUT}"
    report = checked(body + alone)
    early, part = report.findings
    assert (early.rule, lines(report, early)[1]) == ("registers", PRODUCT)
    assert early.message.startswith("thread (32, 0, 0) of CTA (0, 0, 0) touches register f0")
    assert (part.kind, part.severity, part.rule, part.count) == (
        "barrier",
        "error",
        "divergent",
        32,
    )
    assert part.message.endswith("wgmma.wait_group.sync.aligned without the rest of its warpgroup")
    assert checked(body + alone.replace("    @p2 bra Y;\n", "")).verdict == "clean"
    two = (
        body.replace("[r5+2048]", "[r5]") + alone.replace("r0, 32", "r0, 128") + "    bar.sync 0;\n"
    )
    _, early = checked(two, block=256).findings
    assert early.message.startswith("thread (128, 0, 0) of CTA (0, 0, 0) touches register f0")


def test_operands_that_a_copy_still_fills(checked: Check) -> None:
    """Of one CTA: its first engine is not taken for its first warpgroup."""
    copy = (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1], 4096, [r2]"
    )
    fill = f"""
    @!p0 bra W;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4096;
    {copy};
W:  bar.sync 0;
    """
    wait = "X: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;\n    @!p1 bra X;\n"
    product = FENCE + f"    {PRODUCT};\n" + COMMIT + WAIT
    assert checked(START + fill + wait + product).verdict == "clean"
    report = checked(START + fill + product + wait)
    finding = only(report)
    assert (finding.kind, finding.rule, finding.count) == ("async", "RAW", 2048 + 256)
    assert lines(report, finding) == (PRODUCT, copy)
