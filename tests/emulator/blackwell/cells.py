"""Tensor Memory and shared memory in, a few instructions, Tensor Memory out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Kernel
from ptxlab.isa.targets import ptx_since
from tests.emulator.matrix.warpgroups import Placed

LANES, COLUMNS = 128, 512
CTA_BYTES = 4 * LANES * COLUMNS
CODES = {"none": 0, "128B.atom32B": 1, "128B": 2, "64B": 4, "32B": 6}
START = 0x400
"""Where static shared memory begins for programs."""


@dataclass(frozen=True)
class Tile(Placed):
    """How a matrix lies in shared memory, in the fields of a descriptor of tcgen05."""

    @property
    def descriptor(self) -> int:
        fields = ((self.start + START, 0), (self.leading, 16), (self.stride, 32))
        word = sum(value >> 4 << low for value, low in fields)
        return word | 1 << 46 | CODES[self.swizzle] << 61


def module(body: str, shared: int, group: int, target: str) -> str:
    """Return a kernel of 128 threads: ``body`` is what thread 0 (of the even CTA) does.

    It has the address of Tensor Memory in ``t``, that of shared memory in ``s``, 64-bit words of the
    caller in ``x0`` to ``x7``, and predicates ``yes`` and ``no``.
    """
    major, minor = max((9, 1), ptx_since(target) or (9, 1))
    return f"""
.version {major}.{minor}
.target {target}
.address_size 64
.visible .entry k(.param .u64 cells, .param .u64 shared, .param .u64 words)
{{
    .reg .pred first, leads, yes, no, more, done;
    .reg .b32 thread, cta, rank, t, s, quarter, r<40>;
    .reg .b64 pc, ps, pw, x<8>, at;
    .shared .align 1024 .b8 memory[{shared}];
    .shared .align 8 .b64 bar;
    .shared .align 16 .b32 slot;
    ld.param.u64 pc, [cells];
    ld.param.u64 ps, [shared];
    ld.param.u64 pw, [words];
    mov.u32 thread, %tid.x;
    mov.u32 cta, %ctaid.x;
    mov.u32 rank, %cluster_ctarank;
    setp.lt.u32 first, thread, 32;
    mov.u32 r0, slot;
    @first tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [r0], 512;
    setp.eq.u32 leads, thread, 0;
    @leads mbarrier.init.shared::cta.b64 [bar], 1;
    mov.u32 s, memory;
    mad.wide.u32 ps, cta, {shared}, ps;
    mul.lo.u32 r1, thread, 16;
fill:
    cvt.u64.u32 at, r1;
    add.u64 at, ps, at;
    ld.global.v4.b32 {{r2, r3, r4, r5}}, [at];
    add.u32 r6, s, r1;
    st.shared.v4.b32 [r6], {{r2, r3, r4, r5}};
    add.u32 r1, r1, 2048;
    setp.lt.u32 more, r1, {shared};
    @more bra fill;
    fence.proxy.async;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ld.shared.b32 t, [slot];
    mad.lo.u32 r1, cta, {LANES}, thread;
    mad.wide.u32 pc, r1, {4 * COLUMNS}, pc;
    shr.u32 quarter, thread, 5;
    mad.lo.u32 quarter, quarter, {32 << 16}, t;
    mov.u32 r1, 0;
put:
    mul.wide.u32 at, r1, 4;
    add.u64 at, pc, at;
{_moves("ld.global.v4.b32 {{{0}}}, [at+{1}];")}
    add.u32 r0, quarter, r1;
    tcgen05.st.sync.aligned.32x32b.x32.b32 [r0], {{{_registers(8, 40)}}};
    add.u32 r1, r1, 32;
    setp.lt.u32 more, r1, {COLUMNS};
    @more bra put;
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    tcgen05.fence::after_thread_sync;
{"".join(f"    ld.global.b64 x{i}, [pw+{8 * i}];" for i in range(8))}
    setp.eq.u32 yes, 0, 0;
    setp.ne.u32 no, 0, 0;
    setp.eq.and.u32 leads, rank, 0, leads;
    @!leads bra issued;
    {{
{body}
    mov.u32 r0, bar;
    {_commit(group)}
    }}
issued:
    mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;
    @!done bra issued;
    tcgen05.fence::after_thread_sync;
    mov.u32 r1, 0;
get:
    add.u32 r0, quarter, r1;
    tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{_registers(8, 40)}}}, [r0];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 at, r1, 4;
    add.u64 at, pc, at;
{_moves("st.global.v4.b32 [at+{1}], {{{0}}};")}
    add.u32 r1, r1, 32;
    setp.lt.u32 more, r1, {COLUMNS};
    @more bra get;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @first tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 t, 512;
    ret;
}}
"""


def _commit(group: int) -> str:
    start = f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
    if group == 1:
        return f"{start}.b64 [r0];"
    return f".reg .b16 both; mov.b16 both, 3; {start}.multicast::cluster.b64 [r0], both;"


def _registers(first: int, end: int) -> str:
    return ", ".join(f"r{i}" for i in range(first, end))


def _moves(line: str) -> str:
    return "\n".join(
        "    " + line.format(_registers(8 + 4 * i, 12 + 4 * i), 16 * i) for i in range(8)
    )


@cache
def device(target: str, schedule: str) -> Device:
    return open_device("emulator", arch=target, schedule=schedule)


@cache
def kernel(body: str, shared: int, group: int, target: str, schedule: str) -> Kernel:
    return device(target, schedule).load(module(body, shared, group, target)).kernel("k")


def after(
    body: str,
    cells: Array,
    shared: Array,
    words: Sequence[int] = (),
    target: str = "sm_100a",
    schedule: str = "late",
    group: int = 0,
) -> Array:
    """Return Tensor Memory [ctas, 128, 512] after ``body``, given it and shared memory [ctas, bytes] before.

    The CTAs are one group, or several of ``group`` CTAs.
    """
    gpu, group = device(target, schedule), group or len(cells)
    made = kernel(body, shared.shape[1], group, target, schedule)
    given = np.zeros(8, np.uint64)
    given[: len(words)] = words
    out = gpu.upload(np.ascontiguousarray(cells, dtype=np.uint32))
    arrays = [out, gpu.upload(np.ascontiguousarray(shared)), gpu.upload(given)]
    made.launch(grid=len(cells), block=128, cluster=group, args=arrays)
    return out.numpy()


def random_cells(rng: np.random.Generator, ctas: int = 1) -> Array:
    return rng.integers(0, 1 << 32, (ctas, LANES, COLUMNS), dtype=np.uint32)
