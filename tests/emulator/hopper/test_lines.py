"""What ptxas takes for sm_90a is taken and what it refuses is refused: thousands of written lines.

They are the products of what each instruction may have by the PTX ISA, and of what it may not.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product

import pytest

from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa.targets import TARGETS
from ptxlab.syntax import parse
from ptxlab.toolchain.nvjitlink import link_ptx
from tests.together import thorough

TARGET = "sm_90a"
HEAD = [
    ".version 9.0",
    f".target {TARGET}",
    ".address_size 64",
    ".visible .entry k(.param .u64 p) {",
    ".reg .pred p<8>; .reg .b16 h<8>; .reg .b32 r<16>; .reg .b64 d<16>; .reg .f32 f<8>; .reg .f64 g<8>;",
    ".shared .align 128 .b8 sm[1024];",
]
SHARED = "- shared shared::cta shared::cluster"
ORDER = "- release.cta release.cluster relaxed.cta relaxed.cluster acquire.cta acquire.cluster release.gpu"
SIGNAL = "mbarrier::complete_tx::bytes"
HINT = "- L2::cache_hint"
CAST = "- multicast::cluster"
OPERATIONS = "add min max inc dec and or xor"
TYPES = "u32 s32 u64 s64 b32 b64 f16 bf16 f32 f64 f16x2"
CLASSES = """
mbarrier.init|SHARED|b64|[r1], 4;[d1], r2;[sm], 1
mbarrier.inval|SHARED|b64|[r1];[d1]
mbarrier.expect_tx mbarrier.complete_tx|ORDER|SHARED|b64|[r1], 16;[d1], r2
mbarrier.arrive mbarrier.arrive_drop|- expect_tx noComplete|ORDER|SHARED|b64|\
d0, [r1];_, [r1];d0, [r1], 2;_, [r1], r2;d0, [d1], r2
mbarrier.test_wait mbarrier.try_wait|- parity|ORDER|SHARED|b64|\
p0, [r1], d1;p0, [r1], r2;p0, [r1], r2, 100;p0, [r1], d1, r3;p0, [r1], 1
mbarrier.pending_count|b64|r0, d1;d0, d1
cp.async.mbarrier.arrive|- noinc|SHARED|b64|[r1];[d1]
cp.async.bulk|shared::cluster.global shared::cta.global shared::cluster.shared::cta shared.global|SIGNAL|\
CAST|HINT|[r1], [d1], 16, [r2];[r1], [d1], r3, [r2], h1;[r1], [d1], 32, [r2], h1, d2;[r1], [r4], 16, [r2], d2
cp.async.bulk|global.shared::cta global.shared global.shared::cluster|bulk_group|HINT|- cp_mask|\
[d1], [r1], 16;[d1], [r1], r2, d2;[d1], [r1], 16, h1;[d1], [r1], 24
cp.async.bulk.prefetch.L2.global|HINT|[d1], 16;[d1], r2, d2
cp.reduce.async.bulk.shared::cluster.shared::cta|SIGNAL|OPERATIONS|TYPES|[r1], [r2], 16, [r3]
cp.reduce.async.bulk.global.shared::cta.bulk_group|OPERATIONS add.noftz|TYPES|[d1], [r2], 16
cp.async.bulk.commit_group||
cp.async.bulk.wait_group|- read|0;7;r1
cp.async.bulk.tensor.DIM|shared::cluster.global shared::cta.global|- tile im2col im2col::w im2col::w::128 tile::gather4|SIGNAL|\
CAST|HINT|[r1], [d1, C], [r2];[r1], [d1, C], [r2], h1;[r1], [d1, C], [r2], O;[r1], [d1, C], [r2], O, h1;\
[r1], [d1, C], [r2], O, h1, d2;[r1], [d1, C], [r2], d2;[r1], [d1, C], [r2], O, d2
cp.async.bulk.tensor.DIM.global.shared::cta|- tile im2col_no_offs tile::scatter4|bulk_group|HINT|\
[d1, C], [r1];[d1, C], [r1], d2
cp.reduce.async.bulk.tensor.DIM.global.shared::cta|OPERATIONS|- tile im2col_no_offs|bulk_group|HINT|\
[d1, C], [r1];[d1, C], [r1], d2
cp.async.bulk.prefetch.tensor.DIM.L2.global|- tile im2col im2col::w|HINT|[d1, C];[d1, C], O;[d1, C], O, d2;[d1, C], d2
st.async|- weak|- shared::cluster|SIGNAL|- v2 v4|b32 u32 f32 b64 s64 f64 b16|\
[r1], r2, [r3];[r1], d2, [r3];[r1], {r4, r5}, [r3];[r1], {d4, d5}, [r3];[r1], {r4, r5, r6, r7}, [r3];[r1], g2, [r3]
red.async|- relaxed.cluster relaxed.gpu|- shared::cluster|SIGNAL|OPERATIONS|u32 s32 u64 s64 b32 b64 f32|\
[r1], r2, [r3];[r1], d2, [r3]
mapa getctarank|- shared::cluster shared::cta|u32 u64|r0, r1, r2;d0, d1, r2;r0, sm, 1;r0, r1;r0, d1;r0, sm
barrier.cluster.arrive barrier.cluster.wait|- release relaxed acquire|- aligned|
elect.sync|r0%p0, r1;_%p0, r1;r0%p0, 0xffffffff;r0, r1;_%p0, -1
setmaxnreg.inc setmaxnreg.dec|sync.aligned|u32|24;40;256;264;16;25;r1
griddepcontrol|- wait launch_dependents|
fence.proxy|alias async async.global async.shared::cta async.shared::cluster async.shared|
fence.proxy.tensormap::generic.release|gpu cta cluster sys|
fence.proxy.tensormap::generic.acquire|gpu cta cluster sys|[d1], 128;[d1], 64
fence.proxy.async::generic fence|acquire release|sync_restrict::shared::cluster.cluster sync_restrict::shared::cta.cluster|
fence.mbarrier_init|- release|- cta cluster|
fence membar|- acq_rel sc acquire release proxy|- cta cluster gpu gl sys alias async|
createpolicy.fractional|L2::evict_last L2::evict_first.L2::evict_unchanged|b64|d0, 0f3F800000;d0;d0, f1
createpolicy.cvt|L2|b64|d0, d1;d0, 0x14F0000000000000
discard|- global|L2|[d1], 128;[d1], 64
applypriority|- global|L2::evict_normal|[d1], 128
prefetch|- const param global|tensormap|[d1];[r1]
wgmma|fence commit_group|sync|- aligned|
wgmma.wait_group|sync|- aligned|0;7;-1;r1
tensormap.replace|tile|global_address rank box_dim global_dim global_stride element_stride elemtype \
interleave_layout swizzle_mode fill_mode|- global shared::cta shared|b1024|b64 b32|\
[d1], d2;[d1], r2;[d1], 0, r2;[d1], 1, d2;[d1], 5, r2;[d1], 1;[d1], 9;[d1], 12;[d1], 13;[d1], 15;[r1], 1;[d1], 0, 1
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release|gpu sys|- sync.aligned|\
[d1], [r1], 128;[d1], [r1], 64
ld st|- shared::cluster|u32|r0, [r1];[r1], r0
atom red|shared::cluster|add|u32 b32 u64|r0, [r1], r2;[r1], r2;d0, [r1], d2
isspacep|shared::cluster shared::cta param::entry global|p0, d1
cvta|- to|shared::cluster shared::cta param param::entry|u64|d0, d1
"""
EXCEPTIONS = (
    ("a vector is as long as its modifier says, which ptxas does not look at here", "st.async."),
)


def lines() -> Iterator[str]:
    names = {name: globals()[name] for name in ("SHARED", "ORDER", "SIGNAL", "HINT", "CAST")}
    names |= {"OPERATIONS": OPERATIONS, "TYPES": TYPES}
    registers = ["r4", "r5", "r6", "r7", "r8"]
    for text in CLASSES.strip().splitlines():
        *parts, operands = text.split("|")
        for number in range(1, 6) if "DIM" in text else [0]:
            filled = [re.sub(r"[A-Z]+$", lambda m: names.get(m[0], m[0]), part) for part in parts]
            filled = [part.replace("OPERATIONS", OPERATIONS) for part in filled]
            places = f"{{{', '.join(registers[:number])}}}"
            offsets = f"{{{', '.join(['h1', 'h2', 'h3'][: max(number - 2, 1)])}}}"
            for chosen in product(*(part.replace("DIM", f"{number}d").split() for part in filled)):
                name = ".".join(part for part in chosen if part != "-")
                for given in operands.split(";"):
                    given = given.replace("C]", f"{places}]").replace("O", offsets)
                    yield f"{name} {given.replace('%', '|')};"


def refused_by_ptxas(asked: list[str]) -> set[int]:
    """Return which lines ptxas refuses; after a fatal error it has not looked at the rest."""
    text = "\n".join([*HEAD, *asked, "ret;", "}"])
    try:
        link_ptx(text, arch=TARGET, options=("-O0",))
    except ToolchainError as error:
        refused = set()
        for reported, kind in re.findall(r"line (\d+); (error|fatal) *:", error.log):
            line = int(reported) - len(HEAD) - 1
            refused.add(line)
            if kind == "fatal":
                rest = refused_by_ptxas(asked[line + 1 :])
                return refused | {line + 1 + number for number in rest}
        if not refused:
            raise
        return refused
    return set()


def taken(line: str) -> bool:
    try:
        prepare(parse("\n".join([*HEAD, line, "ret;", "}"])), TARGETS[TARGET], "k")
    except PtxlabError:
        return False
    return True


@pytest.mark.parametrize("count", [500, *thorough([5000])])
def test_each_line_is_taken_or_refused_as_by_ptxas(count: int) -> None:
    every = list(dict.fromkeys(lines()))
    assert len(every) > 5000
    chosen = random.Random(4).sample(every, count)
    refused = refused_by_ptxas(chosen)
    different = [
        f"{line} {'we take' if number in refused else 'ptxas takes'}"
        for number, line in enumerate(chosen)
        if taken(line) == (number in refused)
        and not any(line.startswith(start) for _, start in EXCEPTIONS)
    ]
    assert not different, "\n".join(different)
    assert 150 / 1200 < 1 - len(refused) / count < 1000 / 1200
