"""What sm_107a alone has runs by the text of the PTX ISA, or is refused by name and line; ptxas takes it there."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.errors import LaunchError, PtxlabError, ToolchainError, Unsupported
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


def prepared(text: str, target: str = "sm_107a") -> None:
    prepare(parse(text), TARGETS[target], "k")


@pytest.mark.parametrize(
    "use", ["b::fill", "b::use", "b::lastuse", "b::discard", "a::fill.collector::b::use"]
)
def test_rubin_collects_b_too(use: str) -> None:
    """It keeps what may not change anyway, and does nothing; others have no such buffer, nor has .ws here."""
    text = MODULE.format(target="sm_107a", name=f"{FORM}::f16.collector::{use}")
    link_ptx(text, arch="sm_107a")
    prepared(text)
    with pytest.raises(Unsupported, match="does not exist on sm_103a"):
        prepared(text.replace("sm_107a", "sm_103a"), "sm_103a")
    with pytest.raises(PtxlabError, match="does not take"):
        prepared(text.replace("tcgen05.mma", "tcgen05.mma.ws"))


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
UNSAID = {
    f"{FORM}::ti16 [r], d, d, r, p;": "how numbers of 12 bits",
    "mul.bf16x2.bf16x2.f16x2 r, r, r;": "how the second factor is rounded",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.mbarrier::report::disabled [r], [d], r, [r];": "reports to an mbarrier",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile.override::global_address [d, d, {r, r}];": "overrides",
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.sync_restrict::shared::read::mma::a.shared::cluster.b64 [r];": "A was read",
}


@pytest.mark.parametrize(("line", "told"), [*NOWHERE.items(), *UNSAID.items()])
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
        "applypriority.async.bulk.bulk_group.L2::evict_normal [d], 128;",
        "applypriority.async.bulk.tensor.2d.global.bulk_group.tile.L2::evict_normal [d, {r, r}];",
    ],
)
def test_what_is_prefetched_may_be_evicted_last(line: str) -> None:
    text = MODULE.format(target="sm_107a", name="").replace(" [r], d, d, r, p;", line)
    link_ptx(text, arch="sm_107a")
    prepare(parse(text), TARGETS["sm_107a"], "k")
    with pytest.raises(Unsupported, match="does not exist on sm_103a"):
        prepare(parse(text.replace("sm_107a", "sm_103a")), TARGETS["sm_103a"], "k")


# ---- two of every four ----------------------------------------------------------------------

SPARSE = """\
.version 9.4
.target sm_107a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in, .param .b32 given)
{{
    .reg .b32 a<{read}>, b<{written}>, t, code; .reg .b64 o, i; .shared .b32 slot;
    ld.param.u64 o, [out]; ld.param.u64 i, [in]; ld.param.b32 code, [given];
    mov.u32 t, %tid.x;
    mad.wide.u32 i, t, {read} * 4, i; mad.wide.u32 o, t, {written} * 4, o;
    {loads}
    {line}
    {stores}
    ret;
}}
"""


def braces(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{letter}{first + at}" for at in range(count)) + "}"


def sparse(line: str, given: Any, written: int, code: int = 0) -> Any:
    """Run a line on words [threads, read]; return those that it has written, [threads, written]."""
    read = given.shape[1]
    text = SPARSE.format(
        read=read,
        written=written,
        line=line,
        loads=" ".join(f"ld.global.b32 a{at}, [i+{4 * at}];" for at in range(read)),
        stores=" ".join(f"st.global.b32 [o+{4 * at}], b{at};" for at in range(written)),
    )
    link_ptx(text, arch="sm_107a")
    gpu = open_device("emulator", arch="sm_107a")
    out = gpu.zeros(len(given) * written, "u32")
    launched = gpu.load(text).kernel("k").launch(
        grid=1, block=len(given), args=[out, gpu.upload(given.reshape(-1)), np.uint32(code)]
    )  # fmt: skip
    assert bool(launched.unverified) == ("spcompress" in line)
    return out.numpy().reshape(len(given), written)


def values_of(kind: str, words: Any) -> Any:
    bits = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s8": np.int8}
    narrow = {"e5m2": ml_dtypes.float8_e5m2, "e4m3": ml_dtypes.float8_e4m3fn}
    small = {"e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn}
    dtype = np.dtype((bits | narrow | small)[kind])
    masked = words & 63 if kind in small else words
    with np.errstate(invalid="ignore"):
        return masked.astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)


@pytest.mark.parametrize(
    ("element", "index", "kind", "number"),
    [
        ("b8", "b4", "s8", 1),
        ("b8", "b2", "u8", 0),
        ("b8", "b2", "e4m3", 3),
        ("b8", "b4", "e2m3", 5),
        ("b16", "b2", "f16", 0),
        ("b16", "b4", "bf16", 1),
    ],
)
def test_two_of_four_are_kept(element: str, index: str, kind: str, number: int) -> None:
    """Every pair of four is tried: none is larger than that which is kept, and indices say which it is."""
    bits, field, repeat = int(element[1:]), int(index[1:]), 4
    indices = -(-repeat * field // bits)
    given = np.random.default_rng(number).integers(0, 1 << 32, (40, 2 * repeat), np.uint32)
    given[0] = 0x80000000 if bits == 16 else 0x80008000  # zeros of both signs
    line = (
        f"spcompress.{element}.{index}.sp::2:4.x{repeat} {braces('b', 0, indices)}, "
        f"{braces('b', indices, repeat)}, {braces('a', 0, 2 * repeat)}, code;"
    )
    dense = given.view(f"u{bits // 8}").reshape(len(given), -1, 4)
    for operation, name in enumerate(("max", "maxabs", "min", "minabs")):
        words = sparse(line, given, indices + repeat, number << 2 | operation)
        kept = (
            np.ascontiguousarray(words[:, indices:])
            .view(f"u{bits // 8}")
            .reshape(*dense.shape[:2], 2)
        )
        shifts = np.arange(0, 32, field)
        at = (words[:, :indices, np.newaxis] >> shifts & (1 << field) - 1).reshape(len(given), -1)
        which = at[:, : kept[0].size].reshape(kept.shape).astype(int)
        assert (which[..., 0] < which[..., 1]).all()
        np.testing.assert_array_equal(np.take_along_axis(dense, which, -1), kept)
        of, chosen = values_of(kind, dense), values_of(kind, kept)
        signs = np.copysign(1e-300, of), np.copysign(1e-300, chosen)
        of, chosen = (np.where(v == 0, s, v) for v, s in zip((of, chosen), signs, strict=True))
        if "abs" in name:
            of, chosen = np.abs(of), np.abs(chosen)
        if name.startswith("min"):
            of, chosen = -of, -chosen
        of, chosen = (np.where(np.isnan(v), 1e300, v) for v in (of, chosen))
        best = np.max(
            [np.sort(of[..., list(pair)], -1) for pair in combinations(range(4), 2)], axis=0
        )
        np.testing.assert_array_equal(np.sort(chosen, -1), best)
    with pytest.raises(LaunchError, match=r"descriptor .*by thread"):
        sparse(line, given, indices + repeat, 6 << 2)


@pytest.mark.parametrize(
    ("element", "index", "factor", "repeat"),
    [
        ("b8", "b2", "2:4", 8),
        ("b8", "b4", "4:16", 4),
        ("b16", "b4", "1:8", 2),
        ("b16", "b2", "2:4", 4),
    ],
)
def test_kept_numbers_are_put_back(element: str, index: str, factor: str, repeat: int) -> None:
    bits, field = int(element[1:]), int(index[1:])
    few, many = map(int, factor.split(":"))
    data, metadata, kept = (-(-n * repeat // 32) for n in (many * bits, few * field, few * bits))
    generator = np.random.default_rng(repeat)
    places = np.array(
        [[np.sort(generator.permutation(many)[:few]) for _ in range(repeat)] for _ in range(9)]
    )
    numbers = generator.integers(0, 1 << bits, places.shape)
    known = np.zeros((len(places), repeat, many), int)
    np.put_along_axis(known, places, numbers, -1)

    def packed(fields: Any, width: int, words: int) -> Any:
        rows = [sum(int(v) << width * at for at, v in enumerate(row.reshape(-1))) for row in fields]
        return np.array(
            [[row >> 32 * at & 0xFFFFFFFF for at in range(words)] for row in rows], np.uint32
        )

    line = (
        f"spdecompress.{element}.{index}.sp::{factor}.x{repeat} {braces('b', 0, data)}, "
        f"{braces('a', 0, metadata)}, {braces('a', metadata, kept)};"
    )
    given = np.hstack([packed(places, field, metadata), packed(numbers, bits, kept)])
    np.testing.assert_array_equal(sparse(line, given, data), packed(known, bits, data))
    if many < 1 << field:
        given[3, 0] |= 0xF
        with pytest.raises(LaunchError, match="index of 15 in groups of"):
            sparse(line, given, data)


@pytest.mark.parametrize(("reduced", "modifiers"), [(False, "max"), (True, "min.abs.NaN")])
def test_loads_from_tensor_memory_keep_two_of_four(reduced: bool, modifiers: str) -> None:
    count = 8
    operation, *rest = modifiers.split(".")
    name = (
        f"tcgen05.ld{'.red' * reduced}.spcompress.sync.aligned.32x32b.x{count}.{operation}.sp::2:4"
    )
    line = (
        f"{name}{''.join(f'.{m}' for m in rest)}.f32.b2 {braces('b', 0, 1)}, {braces('b', 1, 4)}, "
        f"{'b5, ' * reduced}[code];"
    )
    stored = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32; ld.shared.b32 code, [slot]; "
        f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [code], {braces('a', 0, count)}; "
        f"tcgen05.wait::st.sync.aligned; {line} tcgen05.wait::ld.sync.aligned; "
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 code, 32;"
    )
    given = np.random.default_rng(8).standard_normal((32, count)).astype(np.float32)
    given[3, 2] = given[5, 1] = np.nan
    given[7, :4] = [0.0, -0.0, -0.0, -1.0]
    words = sparse(stored, given.view(np.uint32), 5 + reduced)
    for thread, row in enumerate(given):
        for group in (0, 1):
            four = row[4 * group : 4 * group + 4]
            keys = [
                (True, 0.0, 0) if np.isnan(x)
                else (False, -abs(float(x)), 0) if "abs" in rest
                else (False, float(x), -int(np.signbit(x)))
                for x in four
            ]  # fmt: skip
            best = sorted(sorted(range(4), key=lambda at: (keys[at], -at), reverse=True)[:2])
            field = int(words[thread, 0]) >> 4 * group
            assert [field & 3, field >> 2 & 3] == best
            kept = words[thread, 1 + 2 * group : 3 + 2 * group].view(np.float32)
            np.testing.assert_array_equal(kept, four[best])
    if reduced:
        least = np.abs(given).min(axis=1)
        np.testing.assert_array_equal(words[:, 5].view(np.float32), least)


# ---- masks of 32 CTAs -----------------------------------------------------------------------

CLUSTER = """\
.version 9.4
.target sm_107a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) .reqnctapercluster 4
{{
    .reg .b32 rank, value, a; .reg .b64 o, i, d; .reg .pred first, told, done;
    .shared .align 16 .b8 data[64]; .shared .align 8 .b64 bar;
    ld.param.u64 o, [out]; ld.param.u64 i, [in];
    mov.u32 rank, %cluster_ctarank;
    mul.wide.u32 d, rank, 4; add.u64 o, o, d;
    setp.eq.u32 first, rank, 0; setp.ne.u32 told, rank, 2;
    mov.b32 value, 0; st.shared.b32 [data+12], value;
    mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    @first mbarrier.arrive.expect_tx.release.cluster.shared::cluster.multicast::cluster::32b.b64 _, [bar], 64, {told};
    @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::32b [data], [i], 64, [bar], 0xB;
    @!told bra END;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [bar], 0;
    @!done bra WAIT;
    {more}
END:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    ld.shared.b32 value, [data+12];
    st.global.b32 [o], value;
    ret;
}}
"""
COMMITTED = """
    @first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster::32b.b64 [bar], 0xB;
SECOND:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [bar], 1;
    @!done bra SECOND;"""


@pytest.mark.parametrize("schedule", ["late", "early"])
@pytest.mark.parametrize("more", ["", COMMITTED])
def test_masks_name_up_to_32_ctas(schedule: str, more: str) -> None:
    """Arrivals, bytes, data and commits reach the CTAs of the mask, and no others."""
    gpu = open_device("emulator", arch="sm_107a", schedule=schedule)
    given = np.arange(7, 23, dtype=np.uint32)
    text = CLUSTER.format(told="0xB", more=more)
    link_ptx(text, arch="sm_107a")
    out = gpu.zeros(4, "u32")
    gpu.load(text).kernel("k").launch(grid=4, block=1, args=[out, gpu.upload(given)])
    assert out.numpy().tolist() == [10, 10, 0, 10]


def test_a_cta_that_the_mask_leaves_out_waits_for_ever() -> None:
    gpu = open_device("emulator", arch="sm_107a")
    with pytest.raises(LaunchError, match="mbarrier"):
        gpu.load(CLUSTER.format(told="0x3", more="")).kernel("k").launch(
            grid=4, block=1, args=[gpu.zeros(4, "u32"), gpu.zeros(16, "u32")]
        )
