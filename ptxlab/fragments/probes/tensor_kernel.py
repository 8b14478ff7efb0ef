"""Kernels around an instruction on Tensor Memory: what it holds comes from the record, and goes back to it.

A CTA is a warpgroup; those of a pair are a cluster. Each thread has a lane of Tensor Memory, ``columns`` of it, and an
equal share of shared memory. Registers that hold addresses of Tensor Memory, and matrix descriptors, count
from the beginning of what is allocated, and of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.probe_kernel import ALIGNMENT, WORD_BYTES, TypedRegister, registers, statement
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.form import Form

CELL_BYTES = 4
STEP = 32
"""Columns that are filled, and read, at a time."""
_ALLOCATIONS = (32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class TensorBody:
    """What a kernel does between its records: the instruction of ``form``, by all warps or ``issued`` by one thread.

    It is for ``group`` CTAs together, with ``columns`` of Tensor Memory, a multiple of 32, and ``shared_bytes``
    in each. ``commit`` is how the commit behind what is issued is written.
    """

    form: Form
    columns: int
    shared_bytes: int = 0
    group: int = 1
    issued: bool = False
    commit: str = ""

    @property
    def threads(self) -> int:
        return WARPGROUP

    @property
    def sources(self) -> tuple[TypedRegister, ...]:
        return registers(self.form, "tensor memory", "source")

    @property
    def results(self) -> tuple[TypedRegister, ...]:
        return registers(self.form, "result")

    def kernel(self, name: str) -> str:
        """Return the kernel, which takes the addresses of the records it reads and writes."""
        cells, share = CELL_BYTES * self.columns, self.shared_bytes // self.threads
        given = WORD_BYTES * len(self.sources) + cells + share
        wanted = WORD_BYTES * len(self.results) + cells
        kept = ", ".join(f"v{i}" for i in range(STEP))
        lines = [
            *(f".reg .{kind} {register};" for register, kind in (*self.sources, *self.results)),
            f".reg .b32 lane, thread, truth, memory, base, own, at, column, {kept};",
            ".reg .b64 from, to, place, units;",
            ".reg .pred first, leads, more, done;",
            ".shared .align 8 .b64 over;",
            ".shared .align 4 .b32 slot;",
            "mov.u32 lane, %tid.x;",
            "mov.u32 thread, %ctaid.x;",
            f"mad.lo.u32 thread, thread, {self.threads}, lane;",
            "ld.param.u64 from, [in];",
            "ld.param.u64 to, [out];",
            f"mad.wide.u32 from, thread, {given}, from;",
            f"mad.wide.u32 to, thread, {wanted}, to;",
            f"setp.lt.u32 first, lane, {WARP};",
            "setp.eq.u32 leads, lane, 0;",
            *self._begin(),
            *self._load(),
            *self._fill(),
            *self._work(),
            *self._drain(),
            f"@first tcgen05.dealloc.{self._group}.sync.aligned.b32 memory, {self._allocated};",
            "ret;",
        ]
        shape = "\n.reqnctapercluster 2, 1, 1" if self.group > 1 else ""
        head = f".visible .entry {name}(.param .u64 in, .param .u64 out){shape}"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])

    @property
    def _group(self) -> str:
        return f"cta_group::{self.group}"

    @property
    def _allocated(self) -> int:
        return next(size for size in _ALLOCATIONS if size >= self.columns)

    @property
    def _meet(self) -> tuple[str, ...]:
        """Have all threads meet, and what they have done to Tensor Memory be over."""
        return (
            "tcgen05.fence::before_thread_sync;",
            "barrier.cluster.arrive.aligned;",
            "barrier.cluster.wait.aligned;",
            "tcgen05.fence::after_thread_sync;",
        )

    def _begin(self) -> Iterator[str]:
        start = f"tcgen05.alloc.{self._group}.sync.aligned.shared::cta.b32"
        yield f"@first {start} [slot], {self._allocated};"
        yield f"@first tcgen05.relinquish_alloc_permit.{self._group}.sync.aligned;"
        yield "@leads mbarrier.init.shared::cta.b64 [over], 1;"
        if self.shared_bytes:
            share = self.shared_bytes // self.threads
            yield f".shared .align {ALIGNMENT} .b8 tile[{self.shared_bytes}];"
            yield "mov.u32 base, tile;"
            yield f"mad.lo.u32 own, lane, {share}, base;"
            first = WORD_BYTES * len(self.sources) + CELL_BYTES * self.columns
            for at in range(0, share, WORD_BYTES):
                yield f"ld.global.v2.b32 {{v0, v1}}, [from+{first + at}];"
                yield f"st.shared.v2.b32 [own+{at}], {{v0, v1}};"
            yield "fence.proxy.async;"
        yield "fence.mbarrier_init.release.cluster;"
        yield from self._meet
        yield "ld.shared.b32 memory, [slot];"

    def _load(self) -> Iterator[str]:
        """Yield what gives the operands their values: of addresses where they are."""
        addresses = {register for register, _ in registers(self.form, "tensor memory")}
        for i, (register, kind) in enumerate(self.sources):
            held, into = ("b32", "truth") if kind == "pred" else (kind, register)
            yield f"ld.global.{held} {into}, [from+{WORD_BYTES * i}];"
            if kind == "pred":
                yield f"setp.ne.b32 {register}, truth, 0;"
            elif register in addresses:
                yield f"add.u32 {register}, {register}, memory;"
            elif register.endswith("_desc0"):
                yield "cvt.u64.u32 units, base;"
                yield "shr.u64 units, units, 4;"
                yield f"add.u64 {register}, {register}, units;"

    def _fill(self) -> Iterator[str]:
        yield f"add.u64 place, from, {WORD_BYTES * len(self.sources)};"
        yield from self._each_step("fill", ("ld.global.v2.b32 {{{0}}}, [place+{1}];",), "st")
        yield "tcgen05.wait::st.sync.aligned;"
        yield from self._meet

    def _work(self) -> Iterator[str]:
        if not self.issued:
            yield statement(self.form)
            wait = "ld" if self.results else "st"
            yield f"tcgen05.wait::{wait}.sync.aligned;"
            for i, (register, kind) in enumerate(self.results):
                yield f"st.global.{kind} [to+{WORD_BYTES * i}], {register};"
            return
        name, mask = self._commit
        yield ".reg .b32 rank; .reg .b16 both; .reg .pred issues;"
        yield "mov.u32 rank, %cluster_ctarank;"
        yield "setp.eq.and.u32 issues, rank, 0, leads;"
        yield "mov.u32 at, over;"
        yield f"mov.b16 both, {(1 << self.group) - 1};"
        yield "@!issues bra issued;"
        yield statement(self.form)
        yield f"{name} [at]{mask};"
        yield "issued:"
        if not mask:  # in the odd CTA of a pair nobody is told
            yield "setp.ne.u32 more, rank, 0;"
            yield "@more bra told;"
        yield "mbarrier.try_wait.parity.shared::cta.b64 done, [over], 0;"
        yield "@!done bra issued;"
        yield "told:"

    @property
    def _commit(self) -> tuple[str, str]:
        default = f"tcgen05.commit.{self._group}.mbarrier::arrive::one.shared::cluster.b64"
        name = self.commit or default
        return name, ", both" if "multicast" in name else ""

    def _drain(self) -> Iterator[str]:
        yield from self._meet
        yield f"add.u64 place, to, {WORD_BYTES * len(self.results)};"
        wait = "tcgen05.wait::ld.sync.aligned;"
        yield from self._each_step("read", (wait, "st.global.v2.b32 [place+{1}], {{{0}}};"), "ld")
        yield from self._meet

    def _each_step(self, label: str, lines: tuple[str, ...], verb: str) -> Iterator[str]:
        """Yield a loop over all columns, in which a lane's words are moved to, or from, Tensor Memory."""
        kept = ", ".join(f"v{i}" for i in range(STEP))
        moved = f"tcgen05.{verb}.sync.aligned.32x32b.x{STEP}.b32"
        yield "and.b32 at, lane, 0x60;"
        yield "shl.b32 at, at, 16;"
        yield "add.u32 at, at, memory;"
        yield "mov.u32 column, 0;"
        yield f"{label}:"
        if verb == "ld":
            yield f"{moved} {{{kept}}}, [at];"
        for line in lines:
            for i in range(0, STEP, 2) if "{0}" in line else (0,):
                yield line.format(f"v{i}, v{i + 1}", CELL_BYTES * i)
        if verb == "st":
            yield f"{moved} [at], {{{kept}}};"
        yield f"add.u64 place, place, {CELL_BYTES * STEP};"
        yield f"add.u32 at, at, {STEP};"
        yield f"add.u32 column, column, {STEP};"
        yield f"setp.lt.u32 more, column, {self.columns};"
        yield f"@more bra {label};"


def in_words(cells: Array) -> Array:
    """Return cells [..., columns] as words of a record, two in each."""
    return np.ascontiguousarray(cells, np.uint32).view(np.uint64)
