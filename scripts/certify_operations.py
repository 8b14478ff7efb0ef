"""Ask ptxas whether it agrees with ptxlab on which targets and versions have an instruction.

python scripts/certify_operations.py

Each form of the register-to-register instructions that the emulator computes, and some of the others,
is assembled (nvJitLink, no GPU needed) for every target, in every .version that a row names. What
ptxas takes must be what the rows of the emulator's operations say, form by form. Exit status 1 where
they differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from ptxlab.emulator.prepare.forms import find, forms, opcodes
from ptxlab.emulator.prepare.row import ROWS, RowForm
from ptxlab.errors import ToolchainError
from ptxlab.isa.legality import Needs, Version
from ptxlab.isa.targets import TARGETS, ptx_since
from ptxlab.numbers.types import TYPES
from ptxlab.toolchain import link_ptx

NEWEST: Version = (9, 5)

_REGISTERS = (
    ".reg .pred %p<9>; .reg .b8 %c<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; "
    ".reg .b128 %q<9>;"
)
_LETTERS = {1: "h", 2: "h", 4: "r", 8: "d", 16: "q"}
_FIRST_LINE = 7
_REJECTED = re.compile(r"line (\d+); (error|fatal)")


# One or more for each need of memory and warps, and some that need nothing.
OTHERS = """
ld.b128 %q0, [%d8];
ld.relaxed.sys.global.b128 %q0, [%d8];
ld.volatile.local.u32 %r0, [%d8];
st.volatile.local.u32 [%d8], %r0;
ld.mmio.relaxed.sys.global.u32 %r0, [%d8];
ld.mmio.acquire.sys.global.u32 %r0, [%d8];
st.mmio.release.sys.global.u32 [%d8], %r0;
tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d8], 1;
ld.relaxed.cluster.global.u32 %r0, [%d8];
ld.acquire.gpu.global.u32 %r0, [%d8];
ld.shared::cta.v4.u32 {%r0, %r1, %r2, %r3}, [%d8];
ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r0, %r1, %r2, %r3}, [%d8];
ld.global.L1::evict_unchanged.u32 %r0, [%d8];
ld.global.L1::evict_normal.u32 %r0, [%d8];
ld.global.L1::evict_first.L2::64B.u32 %r0, [%d8];
ld.global.L2::256B.u32 %r0, [%d8];
ld.global.L2::cache_hint.u32 %r0, [%d8], %d7;
st.release.sys.global.b128 [%d8], %q0;
st.global.L1::evict_last.u32 [%d8], %r0;
st.release.cluster.shared::cta.u32 [%d8], %r0;
atom.global.add.noftz.bf16 %h0, [%d8], %h0;
atom.global.add.noftz.f16x2 %r0, [%d8], %r0;
atom.global.add.f64 %d0, [%d8], %d0;
atom.shared.cas.b128 %q0, [%d8], %q0, %q4;
atom.sys.global.exch.b128 %q0, [%d8], %q0;
atom.cas.b16 %h0, [%d8], %h0, %h4;
atom.global.add.v2.f32 {%r0, %r1}, [%d8], {%r0, %r1};
atom.global.L2::cache_hint.add.u32 %r0, [%d8], %r0, %d7;
red.global.add.v4.f32 [%d8], {%r0, %r1, %r2, %r3};
red.global.add.noftz.v8.f16 [%d8], {%h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7};
red.relaxed.cluster.global.add.u32 [%d8], %r0;
red.global.max.noftz.v2.bf16x2 [%d8], {%r0, %r1};
cvta.shared::cta.u64 %d0, %d1;
cvta.to.global.u64 %d0, %d1;
isspacep.param %p0, %d1;
isspacep.param::entry %p0, %d1;
isspacep.shared::cta %p0, %d1;
isspacep.shared::cluster %p0, %d1;
prefetch.global.L2::evict_normal [%d1];
prefetch.global.L2::evict_last [%d1];
prefetch.global.L1 [%d1];
ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%d8];
st.global.v8.f32 [%d8], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};
ld.global.v4.b64 {%d0, %d1, %d2, %d3}, [%d8];
st.global.v4.b64 [%d8], {%d0, %d1, %d2, %d3};
ld.global.v4.u64 {%d0, %d1, %d2, %d3}, [%d8];
st.global.v4.u64 [%d8], {%d0, %d1, %d2, %d3};
ld.global.v4.s64 {%d0, %d1, %d2, %d3}, [%d8];
st.global.v4.s64 [%d8], {%d0, %d1, %d2, %d3};
ld.global.v4.f64 {%d0, %d1, %d2, %d3}, [%d8];
st.global.v4.f64 [%d8], {%d0, %d1, %d2, %d3};
applypriority.global.L2::evict_normal [%d1], 128;
createpolicy.range.L2::evict_last.b64 %d0, [%d1], %r0, %r1;
nanosleep.u32 %r0;
cp.async.cg.shared.global.L2::256B [%r1], [%d1], 16;
cp.async.ca.shared.global.L2::cache_hint [%r1], [%d1], 4, %d7;
cp.async.wait_group 1;
fence.acq_rel.cluster;
fence.sc.sys;
membar.gl;
redux.sync.min.s32 %r0, %r1, %r2;
shfl.sync.bfly.b32 %r0|%p1, %r1, %r2, %r3, %r4;
vote.sync.ballot.b32 %r0, %p1, %r1;
match.any.sync.b64 %r0, %d1, %r2;
bar.cta.sync 0;
barrier.cta.arrive 0, 64;
bar.red.popc.u32 %r0, 0, %p1;
bar.warp.sync %r0;
ld.shared::cluster.u32 %r0, [%d8];
atom.shared::cluster.add.u32 %r0, [%d8], %r0;
cvta.shared::cluster.u64 %d0, %d1;
discard.global.L2 [%d1], 128;
discard.L2 [%d1], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5}], [%r2];
cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5, %r6}], [%r2], {%h1};
cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d1, {%r4}], [%r1];
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r1], [%d1, {%r4, %r5}], [%r2];
cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::1 [%r1], [%d1, {%r4, %r5, %r6, %r7, %r8}], [%r2];
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5, %r6, %r7, %r8}], [%r2];
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d1, {%r4, %r5, %r6, %r7, %r8}], [%r1];
cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5, %r6}], [%r2], {%h1, %h2};
cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5, %r6}], [%r2], {%h1, %h2};
cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w::128.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r5, %r6}], [%r2], {%h1, %h2};
cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs::w.bulk_group [%d1, {%r4, %r5, %r6}], [%r1];
clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r1], [%r2];
redux.sync.min.f32 %r0, %r1, -1;
st.bulk.shared::cta [%r1], %d2, 0;
tensormap.replace.tile.rank.global.b1024.b32 [%d1], %r1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%r1], 128;
elect.sync %r0|%p1, %r1;
barrier.cluster.arrive;
barrier.cluster.arrive.release.aligned;
barrier.cluster.arrive.relaxed;
barrier.cluster.wait;
barrier.cluster.wait.acquire;
griddepcontrol.wait;
setmaxnreg.inc.sync.aligned.u32 40;
wgmma.wait_group.sync.aligned 0;
prefetch.param.tensormap [%d1];
membar.proxy.alias;
membar.proxy.async;
mbarrier.pending_count.b64 %r0, %d1;
mbarrier.arrive.shared::cluster.multicast::cluster::32b.b64 _, [%r1], %r2, %r3;
mbarrier.expect_tx.relaxed.cta.multicast::cluster::32b.b64 [%d1], %r2, %r3;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::32b [%r1], [%d1], %r2, [%r3], %r4;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::32b [%r1], [%d1, {%r4, %r5}], [%r2], %r6;
applypriority.async.bulk.bulk_group.L2::evict_normal [%d1], 128;
applypriority.async.bulk.tensor.1d.global.bulk_group.L2::evict_normal [%d1, {%r1}];
spcompress.b8.b4.sp::2:4.x1 {%r0}, {%r1}, {%r2, %r3}, %r4;
spdecompress.b16.b4.sp::2:8.x1 {%r0, %r1, %r2, %r3}, {%r4}, {%r5};
tcgen05.ld.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2 {%r0}, {%r1, %r2}, [%r3];
fence.proxy.alias;
fence.proxy.async;
fence.proxy.async.shared::cta;
fence.mbarrier_init.release.cluster;
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
fence.acquire.sync_restrict::shared::cluster.cluster;
fence.release.sync_restrict::shared::cta.cluster;
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
mbarrier.init.b64 [%d1], %r0;
mbarrier.init.shared::cta.b64 [%r1], %r0;
mbarrier.inval.shared.b64 [%r1];
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], %r0;
mbarrier.expect_tx.shared::cluster.b64 [%r1], %r0;
mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], %r0;
mbarrier.arrive.shared.b64 %d0, [%r1];
mbarrier.arrive.shared::cta.b64 %d0, [%r1];
mbarrier.arrive.shared::cluster.b64 _, [%r1];
mbarrier.arrive.release.cta.shared.b64 %d0, [%r1];
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];
mbarrier.arrive.relaxed.cluster.shared::cta.b64 %d0, [%r1];
mbarrier.arrive_drop.relaxed.cta.shared.b64 %d0, [%r1];
mbarrier.arrive.expect_tx.shared.b64 %d0, [%r1], %r0;
mbarrier.arrive_drop.expect_tx.shared::cluster.b64 _, [%r1], %r0;
mbarrier.arrive_drop.noComplete.shared.b64 %d0, [%r1], %r0;
mbarrier.arrive.noComplete.release.cta.shared.b64 %d0, [%r1], %r0;
mbarrier.test_wait.shared.b64 %p0, [%r1], %d0;
mbarrier.test_wait.acquire.cta.shared.b64 %p0, [%r1], %d0;
mbarrier.test_wait.relaxed.cluster.shared::cta.b64 %p0, [%r1], %d0;
mbarrier.test_wait.parity.shared.b64 %p0, [%r1], %r0;
mbarrier.try_wait.shared.b64 %p0, [%r1], %d0;
mbarrier.try_wait.relaxed.cta.shared.b64 %p0, [%r1], %d0;
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r1], %r0, %r2;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
cp.async.mbarrier.arrive.shared::cta.b64 [%r1];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], %r0, [%r2];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d1], %r0, [%r2];
cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%d1], [%r1], %r0, %d7;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
cp.async.bulk.prefetch.L2.global [%d1], %r0;
cp.async.bulk.prefetch.L2.global.L2::evict_last [%d1], %r0;
cp.async.bulk.prefetch.tensor.1d.L2.global.L2::evict_last [%d1, {%r4}];
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%d1], [%r1], %r0;
st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r0, %r2, %r3, %r4}, [%r5];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s64 [%r1], %d0, [%r5];
ld.global.proxy::readonly.v2.u32 {%r0, %r1}, [%d8];
ld.relaxed.gpu.global.L1::evict_last.L2::evict_last.v4.b64 {%d0, %d1, %d2, %d3}, [%d8];
st.global.L2::evict_first.v8.b32 [%d8], {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7};
st.async.release.gpu.global.s8 [%d8], %c0;
st.async.mmio.release.sys.global.b32 [%d8], %r0;
red.async.relaxed.gpu.global.add.s64 [%d8], %d0;
red.async.mmio.release.sys.global.inc.u32 [%d8], %r0;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b128 [%r0], %q0, [%r5];
atom.global.add.noftz.f32 %r0, [%d8], %r1;
red.global.add.noftz.v2.f32 [%d8], {%r0, %r1};
prefetch.global.L1::32B.valid_addr [%d1];
fence.proxy.alias.release.sys;
cp.async.bulk.weak.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r1], [%d1], %r0, %r2, %r3, [%r5];
cp.async.bulk.relaxed.gpu.global.shared::cta.bulk_group.cp_mask.b128 [%d1], [%r1], %r0, %h0;
cp.async.bulk.relaxed.cta.shared::cluster.global.mbarrier::complete_tx::bytes.b128 [%r0], [%d1], %r1, [%r5];
cp.async.bulk.relaxed.cluster.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], [%r1], %r2, [%r5];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::16b [%r0], [%d1], %r1, [%r5], %h0;
cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::16b [%r1], [%d1, {%r4}], [%r2], %h0;
cp.reduce.async.bulk.relaxed.gpu.global.shared::cta.bulk_group.add.noftz.f32 [%d1], [%r1], %r0;
cp.reduce.async.bulk.relaxed.cta.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.min.u32 [%r0], [%r1], %r2, [%r5];
mbarrier.init.layout::v1.shared.b64 [%r1], %r0;
mbarrier.check_layout.layout::v0.shared::cta.b64 %p0, [%r1];
mbarrier.pending_count.layout::v0.b64 %r0, %d1;
mbarrier.test_wait.phase_type::primary.acquire.cta.shared.b64 %p0|%p1, %c0, [%r1], %d0;
mbarrier.try_wait.parity.phase_type::conditional.shared.b64 %p0, [%r1], %r0, %r2;
mbarrier.try_wait.parity.phase_type::primary.shared.b64 %p0|%p1, [%r1], %r0;
""".strip().splitlines()


def all_forms(one_of: int = 1) -> tuple[RowForm, ...]:
    """Return every form from registers to registers: of the many of four narrow numbers, one of so many."""
    every = (form for opcode in opcodes() for form in forms(opcode))
    return tuple(
        form for at, form in enumerate(every) if at % one_of == 0 or not _NARROW(form.modifiers[-1])
    )


_NARROW = re.compile(r"u?e\d+m\d(p4)?x4").fullmatch


def other_forms() -> tuple[RowForm, ...]:
    """Return the forms of ``OTHERS``."""
    names = [text.split()[0].rstrip(";").split(".") for text in OTHERS]
    return tuple(find(opcode, tuple(modifiers)) for opcode, *modifiers in names)


def needed(form: RowForm) -> Needs:
    """Return what the rows say that a form needs."""
    return form.needs


def line(form: RowForm) -> str:
    """Write ``form`` with registers as operands."""
    results = [_register(kind, i) for i, kind in enumerate(form.results) if kind != "cc"]
    sources = [_register(kind, (4 + i) % 9) for i, kind in enumerate(form.operands) if kind != "cc"]
    for position, operand in enumerate(form.row.sources):
        if operand.kind == "constant":
            sources[position] = "0x96"
    return f"{form.name} {', '.join(['|'.join(results), *sources])};"


def _register(name: str, index: int) -> str:
    if name in ("pred", "b8"):
        return f"%{name[0] if name == 'pred' else 'c'}{index}"
    return f"%{_LETTERS[TYPES[name].bytes]}{index}"


def rejected(lines: list[str], target: str, version: Version) -> set[int]:
    """Return which lines ptxas rejects in a module for ``target``."""
    text = "\n".join(
        [
            f".version {version[0]}.{version[1]}",
            f".target {target}",
            ".address_size 64",
            ".visible .entry k()",
            "{",
            _REGISTERS,
            *lines,
            "ret;",
            "}",
        ]
    )
    try:
        link_ptx(text, arch=target)
    except ToolchainError as error:
        said = [(int(n) - _FIRST_LINE, kind) for n, kind in _REJECTED.findall(error.log)]
        numbers = {number for number, _ in said if number >= 0}
        last = next((number for number, kind in said if kind == "fatal"), None)
        if last is not None:  # it has not looked at what follows
            return numbers | _behind(last + 1, lines, target, version)
        if numbers:
            return numbers
        if len(lines) == 1:
            raise
        half = (
            len(lines) // 2
        )  # it ended: some instructions are too much for it in what they follow
        return rejected(lines[:half], target, version) | _behind(half, lines, target, version)
    return set()


def _behind(first: int, lines: list[str], target: str, version: Version) -> set[int]:
    """Return which lines from ``first`` on ptxas rejects in a module of their own."""
    return {first + number for number in rejected(lines[first:], target, version)}


def differences(target: str, version: Version = NEWEST) -> Iterator[str]:
    """Say where ptxas and the rules differ on one target and version."""
    every = [(line(form), needed(form)) for form in all_forms()]
    every += zip(OTHERS, map(needed, other_forms()), strict=True)
    without = rejected([text for text, _ in every], target, version)
    for index, (text, need) in enumerate(every):
        legal = not need.missing(TARGETS[target]) and need.version(TARGETS[target]) <= version
        if legal == (index in without):
            taken = "rejects" if index in without else "takes"
            yield f"{target}, .version {version[0]}.{version[1]}: ptxas {taken} {text}"


def versions(target: str) -> list[Version]:
    """Return the versions to ask for a target: each that a row names and the one before it."""
    needs = [need for rows in ROWS.values() for row in rows for need in row.needs.values()]
    named = {need.version(TARGETS[target]) for need in needs}
    before = {(major, minor - 1) for major, minor in named if minor}
    oldest = ptx_since(target)
    assert oldest is not None
    return sorted({v for v in named | before if oldest <= v <= NEWEST} | {oldest, NEWEST})


def main() -> int:
    """Certify all, and print what differs."""
    rows = [
        problem
        for target in TARGETS
        for version in versions(target)
        for problem in differences(target, version)
    ]
    count = len(all_forms()) + len(OTHERS)
    print("\n".join(rows) or f"{count} forms on {len(TARGETS)} targets: ptxas agrees")
    return 1 if rows else 0


if __name__ == "__main__":
    sys.exit(main())
