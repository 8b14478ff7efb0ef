"""Tensor maps that a kernel changes before it copies with them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.protocol import Device
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
