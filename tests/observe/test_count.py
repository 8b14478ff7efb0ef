"""What a launch is counted as a whole: instructions, divergence, arithmetic, lines, and loops."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from ptxlab.device.protocol import Kernel
from ptxlab.emulator.prepare.row import ROWS
from ptxlab.emulator.run import grid
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import LaunchConfig
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.observe.counters import COUNTERS, Counts, total
from ptxlab.observe.profile import Profile, count
from ptxlab.observe.work import InstructionWork, work
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import Instruction
from tests.observe.programs import PROBE, device, here, marked, probe
from tests.together import in_one_test

LANES = np.arange(32)


def test_every_counter_is_described() -> None:
    assert [counter.name for counter in COUNTERS] == [field.name for field in fields(Counts)]
    names = {counter.name for counter in COUNTERS}
    assert {counter.ideal for counter in COUNTERS} <= {"", *names}


# ---- who executes what ----

DIVERGENT = """\
and.b32 x1, i, 1;
setp.eq.u32 on, x1, size;
@on bra ODD; // here
add.u32 x2, x1, 1; // here
bra.uni JOINED;
ODD:
add.u32 x2, x1, 2; // here
JOINED:
@on add.u32 x3, x2, x2; // here
setp.eq.u32 on, size, 5;
@on exit; // here
bar.sync 0; // here"""


def test_divergence() -> None:
    """Of four warps two take both sides, one is half of a warp, and one half of one ends early."""
    sizes = np.array([1] * 32 + [2] * 32 + [1] * 16 + [5] * 16 + [1] * 16)
    profile = probe(DIVERGENT, 4 * np.arange(112), sizes)
    branch, even, odd, guarded, leave, barrier = (line.counts for line in marked(profile))
    assert (branch.executed, branch.threads, branch.threads_on) == (4, 112, 32)
    assert (branch.splits, branch.partial) == (3, 0)
    assert (even.executed, even.threads, even.partial) == (4, 80, 3)
    assert (odd.executed, odd.threads, odd.partial) == (3, 32, 3)
    assert (guarded.executed, guarded.partial) == (4, 0)
    assert (guarded.threads, guarded.threads_on) == (112, 32)
    assert (leave.threads_on, leave.splits) == (16, 1)
    # The warp whose other half has ended is whole without it.
    assert (barrier.executed, barrier.threads, barrier.partial) == (4, 96, 0)
    assert barrier.lanes == 24
    assert profile.barriers == 1


def test_printf_reads_no_memory() -> None:
    """What a call of the system reads belongs to no instruction, not even the one before it."""
    text = """\
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 hello[3] = {104, 105, 0};
.visible .entry talk(.param .u64 data)
{
    .reg .b64 p;
    .reg .b32 x;
    ld.param.u64 p, [data];
    ld.global.u32 x, [p];
    {
        .param .b64 f;
        .param .b64 a;
        .param .b32 r;
        cvta.global.u64 p, hello;
        st.param.b64 [f], p;
        st.param.b64 [a], 0;
        call.uni (r), vprintf, (f, a);
    }
    ld.param.u64 p, [data];
    st.global.u32 [p], x;
    ret;
}
"""
    emulator = device()
    said: list[str] = []
    emulator.console, before = said.append, emulator.console
    try:
        profile = count(
            emulator.load(text).kernel(), LaunchConfig.of(1, 32), [emulator.zeros(1, "u32")]
        )
    finally:
        emulator.console = before
    assert said == ["hi"] * 32
    totals = profile.totals
    assert (totals.requests, totals.global_read, totals.global_written) == (2, 128, 128)


# ---- independence of the wave ----

MIXED = """\
and.b32 x1, i, 3;
setp.eq.u32 on, x1, 0;
mov.u32 x4, 0;
AGAIN:
@on bra AFTER;
ld.shared.b32 x2, [offset+4];
atom.global.add.u32 x3, [q], 1;
AFTER:
st.shared.v2.b32 [offset], {x1, x2};
bar.sync 0;
st.local.b32 [mine], x2;
ld.global.v4.b32 {x1, x2, x3, x5}, [p];
add.u32 x4, x4, 1;
setp.lt.u32 on, x4, 3;
@on bra AGAIN;"""


def mixed() -> Profile:
    draw = np.random.default_rng(5)
    offsets = 8 * draw.integers(0, 64, 7 * 80)
    sizes = draw.integers(0, 9, 7 * 80)
    return probe(
        f"mul.wide.u32 q, size, 32;\nadd.u64 q, q, p;\nmov.b64 p, q;\n{MIXED}",
        offsets,
        sizes,
        grid=7,
    )


@pytest.mark.parametrize("threads", [1, 200, 300])
def test_counts_do_not_depend_on_the_wave(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = mixed()
    monkeypatch.setattr(grid, "WAVE_THREADS", threads)
    apart = mixed()
    assert apart.instructions == together.instructions
    assert apart.barriers == together.barriers == 21
    assert together.totals.collisions
    assert together.totals.local_sectors
    assert any(instruction.conflict for instruction in together.instructions)


def test_a_profile_adds_up() -> None:
    profile = mixed()
    assert profile.totals == total(line.counts for line in profile.lines)
    assert sum(profile.mix.values()) == profile.totals.executed
    assert profile.totals.threads == profile.totals.lanes * profile.totals.executed
    assert (profile.ctas, profile.threads) == (7, 560)


# ---- arithmetic ----

CLASSES = (
    "floating point",
    "special function",
    "integer",
    "logic and bits",
    "comparison",
    "conversion",
    "move",
    "matrix multiply",
    "matrix move",
    "warp",
    "control",
    "synchronization",
    "atomic",
    "asynchronous copy",
    "cache",
    "load",
    "store",
)


def instruction(text: str) -> Instruction:
    """Return one instruction that names registers that nobody declares."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    module = parse(f"{head}.visible .entry f() {{ {text}; }}")
    body = module.functions[0].body
    assert body is not None
    assert isinstance(body[0], Instruction)
    return body[0]


@in_one_test(
    ("text", "expected"),
    [
        ("add.f32 a, b, c", InstructionWork("floating point", flops=1)),
        ("mul.rn.f64 a, b, c", InstructionWork("floating point", flops=1)),
        ("fma.rn.f32 a, b, c, d", InstructionWork("floating point", flops=2)),
        ("mad.rn.f32 a, b, c, d", InstructionWork("floating point", flops=2)),
        ("fma.rn.f16x2 a, b, c, d", InstructionWork("floating point", flops=4)),
        ("add.rn.bf16x2 a, b, c", InstructionWork("floating point", flops=2)),
        ("add.rn.f32x2 a, b, c", InstructionWork("floating point", flops=2)),
        ("max.f32 a, b, c", InstructionWork("floating point")),
        ("div.rn.f32 a, b, c", InstructionWork("floating point")),
        ("rcp.approx.f32 a, b", InstructionWork("special function")),
        ("add.s64 a, b, c", InstructionWork("integer", integer_ops=1)),
        ("mad.wide.u32 a, b, c, d", InstructionWork("integer", integer_ops=2)),
        ("add.u16x2 a, b, c", InstructionWork("integer", integer_ops=2)),
        ("dp4a.s32.s32 a, b, c, d", InstructionWork("integer", integer_ops=8)),
        ("min.s32 a, b, c", InstructionWork("integer")),
        ("shl.b32 a, b, 2", InstructionWork("logic and bits")),
        ("setp.lt.f32 p, a, b", InstructionWork("comparison")),
        ("cvt.rn.f32.s32 a, b", InstructionWork("conversion")),
        ("ld.global.nc.v4.f32 {a, b, c, d}, [e]", InstructionWork("global load")),
        ("st.shared::cta.b32 [a], b", InstructionWork("shared store")),
        ("ld.f32 a, [b]", InstructionWork("generic load")),
        ("red.global.add.f32 [a], b", InstructionWork("atomic")),
        ("cp.async.wait_all", InstructionWork("asynchronous copy")),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16 {a}, [b]", InstructionWork("matrix move")),
    ],
)
def test_what_an_instruction_computes(text: str, expected: InstructionWork) -> None:
    assert work(instruction(text)) == expected


def test_matrix_products_compute_2mnk() -> None:
    for form in MULTIPLICATIONS:
        match = re.search(r"\.m(\d+)n(\d+)k(\d+)", form.name)
        assert match
        m, n, k = map(int, match.groups())
        several = (
            4 if form.family == "mma" and (m, n, k) == (8, 8, 4) and form.a_type == "f16" else 1
        )
        opcode, *modifiers = form.name.split(".")
        does = work(Instruction(opcode, tuple(modifiers), ()))
        if form.family == "mma":
            assert work(Instruction(opcode, (*modifiers[2:], "aligned", "sync"), ())) == does
        assert does.by_warp
        assert max(does.flops, does.integer_ops) == 2 * m * n * k * several
        assert bool(does.integer_ops) == (form.d_type == "s32")


def test_every_opcode_has_a_class() -> None:
    for opcode, rows in ROWS.items():
        assert all(row.mix in CLASSES for row in rows), opcode


def test_only_threads_that_pass_compute() -> None:
    body = "@on fma.rn.f32 x1, x2, x3, x4; // here"
    assert here(probe(body, 4 * LANES, LANES % 4)).flops == 2 * 24
    tile = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {x0, x1, x2, x3}, {x4, x5}, {x6}, {x0, x1, x2, x3}"
    assert here(probe(f"{tile}; // here", 4 * np.arange(64))).flops == 2 * 2 * 16 * 8 * 8


# ---- kernels, by the numbers of the textbook ----

NAIVE = """\
extern "C" __global__ void naive(const float* a, const float* b, float* d, int n, int k) {
    int row = blockIdx.x * 32 + threadIdx.x, col = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int p = 0; p < k; p++)
        sum += a[row * k + p]
             * b[p * n + col];
    d[row * n + col] = sum;
}
"""


def test_naive_gemm_by_line(tmp_path: Path) -> None:
    """Neighbouring threads read 32 rows of A, one element of B, and write 32 rows of D."""
    file = tmp_path / "naive.cu"
    file.write_text(NAIVE)
    m = n = 64
    k = 16
    emulator = device()
    kernel = emulator.load(file, options=["--generate-line-info"]).kernel()
    a, b = emulator.zeros((m, k), "f32"), emulator.zeros((k, n), "f32")
    d = emulator.zeros((m, n), "f32")
    profile = count(kernel, LaunchConfig.of((2, 2), (32, 32)), [a, b, d, n, k])
    warps = m * n // 32
    assert profile.totals.flops == 2 * m * n * k
    assert profile.totals.requests == warps * (2 * k + 1)
    assert profile.totals.sectors == warps * (32 * k + k + 32)
    assert profile.totals.sectors_ideal == warps * (4 * k + k + 4)
    assert profile.bytes_per_flop == {
        "global": (2 * k + 1) * 4 / (2 * k),
        "sectors": warps * (33 * k + 32) * 32 / profile.totals.flops,
        "shared": 0.0,
        "tensor_memory": 0.0,
    }
    [(path, lines)] = profile.sources.items()
    assert path == str(file)
    sectors = {line.number: line.counts.sectors for line in lines if line.counts.sectors}
    assert sectors == {5: warps * 32 * k, 6: warps * k, 7: warps * 32}
    # The loop is unrolled, and another one for what is left over is not entered.
    body = profile.main_loop
    assert profile.main_loop_totals.flops == profile.totals.flops
    assert sum(site.instruction.opcode == "bra" for site in body) == 1
    assert {site.function for site in body} == {"naive"}
    assert len(profile.loops) > 1


def test_code_without_a_loop_has_no_main_loop() -> None:
    profile = probe("ld.global.b32 x1, [q];", 4 * LANES)
    assert profile.main_loop == ()
    assert profile.sources == {}
    assert profile.bytes_per_flop is None


def test_a_gpu_says_that_nobody_can_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = device().load(PROBE.format(target="sm_80", body="")).kernel()
    monkeypatch.setattr(type(kernel), "watch", Kernel.watch)
    with pytest.raises(PtxlabError, match="nobody can watch"):
        count(kernel, LaunchConfig.of(1, 1))
