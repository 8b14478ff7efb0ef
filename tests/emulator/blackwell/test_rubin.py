"""What sm_107a alone has is refused by name and line; ptxas takes it there, and on sm_103a does not."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.errors import ToolchainError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax import parse
from ptxlab.toolchain import link_ptx

MODULE = """\
.version 9.4
.target {target}
.address_size 64
.visible .entry k()
{{
    .reg .b32 r; .reg .b64 d; .reg .pred p;
    {name} [r], d, d, r, p;
    ret;
}}
"""
FORM = "tcgen05.mma.cta_group::1.kind"
ALONE = {
    f"{FORM}::ti16": "::ti16 is not modelled",
    f"{FORM}::f16.collector::b::fill": "modifier .collector::b::fill is not modelled",
    f"{FORM}::tf32.collector::b::discard": "modifier .collector::b::discard is not modelled",
}


@pytest.mark.parametrize(("name", "told"), ALONE.items())
def test_what_rubin_alone_has(name: str, told: str) -> None:
    text = MODULE.format(target="sm_107a", name=name)
    link_ptx(text, arch="sm_107a")
    with pytest.raises(ToolchainError):
        link_ptx(text.replace("sm_107a", "sm_103a"), arch="sm_103a")
    with pytest.raises(Unsupported, match=told) as caught:
        prepare(parse(text), TARGETS["sm_107a"], "k")
    assert caught.value.location is not None
    assert caught.value.location.line == 7


def test_rubin_has_no_integers() -> None:
    """The faulty twin is f16, which both take."""
    text = MODULE.format(target="sm_107a", name=f"{FORM}::i8")
    with pytest.raises(Unsupported, match="does not exist on sm_107a"):
        prepare(parse(text), TARGETS["sm_107a"], "k")
    with pytest.raises(ToolchainError, match="kind::i8"):
        link_ptx(text, arch="sm_107a")
    text = MODULE.format(target="sm_107a", name=f"{FORM}::f16")
    assert link_ptx(text, arch="sm_107a").kernels
    prepare(parse(text), TARGETS["sm_107a"], "k")


NOWHERE = {
    "fabric.submit;": "no fabric between several",
    "fence.proxy.generic::fabric.alias.acquire.sys;": "no fabric between several",
    "cp.async.bulk.wait_group.sync_restrict::proxy::async 0;": "not in the public text",
    "fence.alias.sync_restrict::read.release.sys;": "not in the public text",
    "tensormap.query.alloc_class_large.global.b1024 p, [d];": "not in the public text",
    "cvt.rn.satfinite.relu.s2f6x2.f32 h, r, r;": "leaves open",
}
NEW_WITH_RUBIN = (
    "spcompress.b8.b2.sp::2:4.x1 {r}, {s}, {t, u}, r;",
    "applypriority.async.bulk.global.bulk_group.L2::evict_normal [d], r;",
    "mbarrier.arrive.release.cta.shared::cluster.multicast::cluster::32b.b64 _, [r], r, r;",
    "cvt.rn.f16x2.ue5m3x2 r, h;",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.sync_restrict::shared::read::mma::a.shared::cluster.b64 [r];",
)


@pytest.mark.parametrize(
    ("line", "told"), [*NOWHERE.items(), *((line, "new with sm_107") for line in NEW_WITH_RUBIN)]
)
def test_what_ptxas_takes_and_nobody_says_what_it_does_is_refused_by_name(
    line: str, told: str
) -> None:
    text = MODULE.replace(".reg .pred p;", ".reg .pred p; .reg .b16 h; .reg .b32 s, t, u;").format(
        target="sm_107a", name=""
    )
    text = text.replace(" [r], d, d, r, p;", line).replace(".version 9.4", ".version 9.5")
    link_ptx(text, arch="sm_107a")
    with pytest.raises(Unsupported, match=re.escape(line.split()[0].rstrip(";"))) as caught:
        prepare(parse(text), TARGETS["sm_107a"], "k")
    assert told in (caught.value.hint or "")
    assert caught.value.location is not None
    assert caught.value.location.line == 7


CONVERTED = """\
.version 9.4
.target sm_107a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
    .reg .b32 r, t; .reg .b64 o, i; .reg .b16 h; .reg .f32 x, y;
    ld.param.u64 o, [out]; ld.param.u64 i, [in];
    mov.u32 t, %tid.x;
    mad.wide.u32 i, t, 8, i; mad.wide.u32 o, t, 2, o;
    ld.global.v2.f32 {{x, y}}, [i];
    {line}
    st.global.b16 [o], h;
    ret;
}}
"""


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("cvt.rz.satfinite.e4m3x2.f32 h, y, x;", ml_dtypes.float8_e4m3fn),
        ("cvt.rn.f16x2.f32 r, y, x; cvt.rz.satfinite.relu.e2m3x2.f16x2 h, r;", ml_dtypes.float6_e2m3fn),
    ],
)  # fmt: skip
def test_narrow_numbers_are_cut_off(line: str, dtype: type) -> None:
    """The last bits are lost, beside all numbers that there are."""
    given = np.random.default_rng(1).standard_normal((256, 2)).astype(np.float32) * 8
    given = given.astype(np.float16).astype(np.float32)
    given[:4] = np.array([[0, -0.0], [np.inf, -np.inf], [1e-6, -1e-6], [448, -500]])
    codes = np.arange(128 if dtype is ml_dtypes.float8_e4m3fn else 32, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float64)
    values = values[np.isfinite(values)]
    known = values[np.searchsorted(values, np.abs(given).astype(np.float64), "right") - 1]
    known = np.where(np.signbit(given), 0.0 if "relu" in line else -known, known)
    gpu = open_device("emulator", arch="sm_107a")
    out = gpu.zeros(512, "u8")
    text = CONVERTED.format(line=line)
    link_ptx(text, arch="sm_107a")
    gpu.load(text).kernel("k").launch(grid=1, block=256, args=[out, gpu.upload(given)])
    actual = out.numpy().view(dtype).astype(np.float64).reshape(256, 2)
    np.testing.assert_array_equal(actual, known)
    with pytest.raises(Unsupported, match="does not exist on sm_103a"):
        prepare(parse(text.replace("sm_107a", "sm_103a")), TARGETS["sm_103a"], "k")


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.bulk.prefetch.L2.global.L2::evict_last [d], r;",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::evict_last [d, {r, r}];",
    ],
)
def test_what_is_prefetched_may_be_evicted_last(line: str) -> None:
    text = MODULE.format(target="sm_107a", name="").replace(" [r], d, d, r, p;", line)
    link_ptx(text, arch="sm_107a")
    prepare(parse(text), TARGETS["sm_107a"], "k")
    with pytest.raises(Unsupported, match="does not exist on sm_103a"):
        prepare(parse(text.replace("sm_107a", "sm_103a")), TARGETS["sm_103a"], "k")
