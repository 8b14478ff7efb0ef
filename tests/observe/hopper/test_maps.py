"""Tensor maps that a kernel changes before it copies with them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.emulator.run import grid
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from tests.emulator.hopper.conftest import hopper_text
from tests.observe.hopper.conftest import lines, only

RELEASE = "fence.proxy.tensormap::generic.release.gpu"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [d1], 128"
CHANGE = "tensormap.replace.tile.global_dim.global.b1024.b32 [d1], 0, 32"
COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r3], [d1, {r5, r5}], [r2]"
BODY = f"""
    @p0 mbarrier.init.shared.b64 [bar], 1;
    mov.u32 r5, 0;
    bar.sync 0;
    @!p0 bra W;
    {CHANGE};
    {RELEASE};
    {ACQUIRE};
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    {COPY};
W:  mbarrier.try_wait.parity.shared.b64 p1, [bar], 0;
    @!p1 bra W;
    ld.shared.u32 r6, [r3];
"""


@pytest.mark.parametrize(
    ("missing", "rules"),
    [(None, []), (RELEASE, ["map release"]), (ACQUIRE, ["map acquire"]), (CHANGE, [])],
)
def test_a_map_changed_before_a_copy(hopper: Device, missing: str | None, rules: list[str]) -> None:
    tensor = hopper.tensor_map(hopper.zeros((64, 64), "u16"), box=(8, 64))
    there = hopper.upload(np.frombuffer(tensor.data, np.uint8))
    body = BODY if missing is None else BODY.replace(f"    {missing};\n", "")
    kernel = hopper.load(hopper_text(body)).kernel("k")
    report = check(kernel, LaunchConfig.of(1, 128), [hopper.zeros(4, "u32"), there])
    assert [finding.rule for finding in report.findings] == rules
    if rules:
        finding = only(report)
        assert lines(report, finding) == (COPY, CHANGE)
        assert "copies with the tensor map at byte 0 of buffer" in finding.message


def copied(words: int) -> str:
    """Return a program that changes a map in shared memory, of which it has written so many words, and copies with it.

    From there tensormap.cp_fenceproxy puts it into global memory.
    """
    fill = f"""
        mul.lo.u32 r7, r0, 4; add.u32 r8, r7, r3; cvt.u64.u32 d2, r7; add.u64 d2, d2, d1; setp.lt.u32 p3, r0, 32;
        @!p3 bra H; ld.global.u32 r9, [d2]; setp.lt.u32 p1, r0, {words}; @p1 st.shared.u32 [r8], r9; bar.warp.sync -1;
        @p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [r3], 0, 32; bar.warp.sync -1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d1], [r3], 128;
    H:  bar.sync 0;"""
    body = BODY.replace(f"    {CHANGE};\n    {RELEASE};\n", "")
    body = body.replace("[r3], [d1", "[r3+1024], [d1").replace("ld.shared.u32 r6, [r3];", "")
    return body.replace("    @!p0 bra W;", f"{fill}\n    @!p0 bra W;")


def errors(hopper: Device, body: str) -> list[str]:
    """Return the rules of errors that are found in a program with a map in global memory."""
    tensor = hopper.tensor_map(hopper.zeros((64, 64), "u16"), box=(8, 64))
    there = hopper.upload(np.frombuffer(tensor.data, np.uint8))
    kernel = hopper.load(hopper_text(body)).kernel("k")
    report = check(kernel, LaunchConfig.of(1, 128), [hopper.zeros(4, "u32"), there])
    return [finding.rule for finding in report.findings if finding.severity == "error"]


def test_a_map_that_is_copied_for_the_copy_engine_is_released_by_that(hopper: Device) -> None:
    assert errors(hopper, copied(32)) == []
    assert errors(hopper, copied(32).replace(f"    {ACQUIRE};\n", "")) == ["map acquire"]


def test_what_lies_behind_the_fields_of_a_map_need_not_be_written(hopper: Device) -> None:
    """CuTe DSL's TensorMapManager stores the first 64 bytes; a field that nobody wrote is one."""
    assert errors(hopper, copied(16)) == []
    assert "shared" in errors(hopper, copied(15))


def test_each_cta_acquires_a_map_for_itself(
    hopper: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two in waves of their own the second one does not."""
    monkeypatch.setattr(grid, "WAVE_THREADS", 128)
    tensor = hopper.tensor_map(hopper.zeros((64, 64), "u16"), box=(8, 64))
    body = BODY.replace(f"    {CHANGE};", f"setp.ne.u32 p4, r1, 0; @p4 bra L;\n    {CHANGE};")
    for copies, rules in ((f"L: {COPY}", ["map acquire"]), (f"L: {ACQUIRE}; {COPY}", [])):
        there = hopper.upload(np.frombuffer(tensor.data, np.uint8))
        text = body.replace("    mbarrier.arrive.expect_tx", "L:  mbarrier.arrive.expect_tx")
        text = text.replace(f"    {COPY};", f"    {copies.removeprefix('L: ')};")
        kernel = hopper.load(hopper_text(text)).kernel("k")
        report = check(kernel, LaunchConfig.of(2, 128), [hopper.zeros(4, "u32"), there])
        findings = [finding for finding in report.findings if finding.kind == "async"]
        assert [finding.rule for finding in findings] == rules
        assert all("of CTA (1, 0, 0) copies" in finding.message for finding in findings)
