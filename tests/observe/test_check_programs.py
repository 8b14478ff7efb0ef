"""Whole programs: the project's own, those with a fault put in, and what Compute Sanitizer shows.

The situations are those of the samples that come with Compute Sanitizer, written anew; the counts of
hazards and how they are told apart are those its documentation gives for them ("Example Use of
Racecheck", "Example Use of Synccheck").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.cli.parser import Parser
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.protocol import LaunchResult
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.gemm.problem import uploaded
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import Checker, check
from ptxlab.observe.check_report import CHECKS, CheckReport
from ptxlab.observe.clocks import Clocks
from ptxlab.syntax.header import read_header
from ptxlab.verbs.check.verb import configure
from ptxlab.verbs.launching.launch import bind_launch, read_launch
from tests.gemm.simt import QUICK

CHECKED_IN_OTHER_TILES = re.compile(
    r"kernels/((block|warp|wgmma|tcgen05)_\w+|tensor_core|wgmma)\.cu"
)
"""Kernels that tests/gemm checks, each with several slips."""

PROGRAMS = [
    pytest.param(
        name,
        words[words.index("--kernel") + 1],
        marks=[pytest.mark.thorough] * bool(CHECKED_IN_OTHER_TILES.match(name)),
    )
    for name in resources.names()
    if not name.endswith(".cuh")
    for words in read_header(resources.path(name).read_text(), name).runs
]


def run_line(path: str, kernel: str) -> CheckReport:
    """Check what the header of a program says to run."""
    parser = Parser()
    configure(parser)
    args = parser.parse_args([path, "--kernel", kernel])
    asked = read_launch(args)
    launch = bind_launch(asked, EmulatorDevice(TARGETS[args.arch or "sm_90a"]))
    return check(launch.kernel, launch.config, launch.passed)


@pytest.mark.parametrize(("name", "kernel"), PROGRAMS)
def test_programs_are_clean(name: str, kernel: str) -> None:
    report = run_line(name, kernel)
    assert report.verdict == "clean", [finding.message for finding in report.findings]


ORDERING = re.compile(r"__syncthreads\(\);|cp_async_wait<(.*)>\(\);")


def faults(name: str) -> Iterator[tuple[str, int, str]]:
    """Yield the barriers and waits of a program, and waits that leave one group more in flight."""
    for match in ORDERING.finditer(resources.path(name).read_text()):
        yield name, match.start(), ""
        if match[1]:
            yield name, match.start(), f"cp_async_wait<{match[1]} + 1>();"


FAULTS = [*faults("kernels/tiled.cu"), *faults("kernels/tensor_core.cu")]


@pytest.mark.parametrize(
    ("name", "at", "instead"),
    [
        pytest.param(*fault, marks=[pytest.mark.thorough] * (number % 2))
        for number, fault in enumerate(FAULTS)
    ],
)
def test_every_barrier_and_wait_is_missed(name: str, at: int, instead: str, tmp_path: Path) -> None:
    text = resources.path(name).read_text()
    twin = tmp_path / Path(name).name
    twin.write_text(text[:at] + ORDERING.sub(instead, text[at:], count=1))
    algorithm = ALGORITHMS[twin.stem]
    problem = Problem(64, 64, 200, *algorithm.types[0])
    tile = algorithm.cut(QUICK.get(algorithm.name, {}), problem.dtype)
    device = EmulatorDevice(TARGETS["sm_90a"])
    with uploaded(device, problem, problem.inputs()) as x:
        kernel = device.load(twin, options=algorithm.options(problem, tile)).kernel()
        report = check(kernel, algorithm.launch(problem, tile), x.arguments())
    assert report.verdict == "findings"
    assert {finding.kind for finding in report.findings} <= {"race", "async"}
    if instead:
        assert "async" in {finding.kind for finding in report.findings}


MOST = 10
"""What a check may cost, in plain runs."""

MOST_CALLS = 6
"""What one of a small launch may, in the calls of a plain run."""


@pytest.mark.parametrize("algorithm", ["tensor_core", "naive"])
def test_a_check_costs_a_few_plain_runs(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXLAB_ENGINE", "array")  # what is checked has no other
    seconds: dict[bool, list[float]] = {False: [], True: []}
    plain = EmulatorKernel.run

    def timed(self: EmulatorKernel, *args: Any, **options: Any) -> LaunchResult:
        if self.watcher is not None:
            return plain(self, *args, **options)
        for checked in (False, True) * 2:
            kernel = self.watch(Checker(CHECKS)) if checked else self
            began = process_time()
            result = plain(kernel, *args, **options)
            seconds[checked].append(process_time() - began)
        return result

    monkeypatch.setattr(EmulatorKernel, "run", timed)
    dtype = "bf16" if algorithm == "tensor_core" else "f32"
    run(
        EmulatorDevice(TARGETS["sm_90a"]),
        Problem(128, 128, 128, dtype, "f32", 0),
        ALGORITHMS[algorithm],
    )
    assert min(seconds[True]) < MOST * min(seconds[False])


SMALL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b32 i, j, x, n;
    .reg .b64 p;
    .reg .pred on;
    .shared .align 4 .b8 tile[1024];
    ld.param.u64 p, [data];
    mov.u32 i, %tid.x;
    mad.wide.u32 p, i, 4, p;
    shl.b32 j, i, 2;
    mov.u32 n, 0;
    mov.u32 x, i;
AGAIN:
    st.shared.u32 [j], x;
    bar.warp.sync -1;
    xor.b32 i, j, 4;
    ld.shared.u32 x, [i];
    bar.sync 0;
    st.global.u32 [p], x;
    ld.global.u32 x, [p];
    add.u32 n, n, 1;
    setp.lt.u32 on, n, 100;
    @on bra AGAIN;
    ret;
}
"""


def test_a_small_launch_is_checked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXLAB_ENGINE", "array")  # what is checked has no other
    device = EmulatorDevice(TARGETS["sm_80"])
    kernel = device.load(SMALL).kernel("k")
    assert isinstance(kernel, EmulatorKernel)
    data, config = device.zeros(64, "u32"), LaunchConfig.of(1, 64)
    for _ in range(2):  # the first prepares what the others find
        plain = _calls(lambda: kernel.run(config, [data]))
        checked = _calls(lambda: kernel.watch(Checker(CHECKS)).run(config, [data]))
    assert checked < MOST_CALLS * plain


def _calls(what: Callable[[], object]) -> int:
    """Return how many functions are called meanwhile: of so few threads that is what takes time, whatever else runs."""
    every = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal every
        every += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(before)
    return every


# ---- Compute Sanitizer's samples ------------------------------------------------------------

RACE_IN_BLOCK = """
extern "C" __global__ void sum(const int* in, int* out) {
    __shared__ int values[128];
    values[threadIdx.x] = in[threadIdx.x] + threadIdx.x;
    if (threadIdx.x == 0) {
        int total = 0;
        for (int i = 0; i < 128; i++) total += values[i];
        *out = total;
    }
}
"""
RACE_IN_WARP = """
extern "C" __global__ void sum(const int* in, int* out) {
    __shared__ int values[64];
    __shared__ int sums[2];
    const int thread = threadIdx.x, warp = thread / 32;
    values[thread] = in[thread] + thread;
    if (thread % 32 == 0) {
        sums[warp] = 0;
#pragma unroll 1
        for (int i = 0; i < 32; i++) sums[warp] += values[32 * warp + i];
    }
    __syncthreads();
    if (thread == 0) *out = sums[0] + sums[1];
}
"""
DIVERGENT = """
extern "C" __global__ void sum(const int* in, int* out) {
    __shared__ int values[64];
    const int thread = threadIdx.x;
    values[thread] = 0;
    __syncthreads();
    for (int block = 0; block < 16; block++) {
        const int at = 64 * block + thread;
        if (at < 16 * 64 - 16) {
            values[thread] += in[at];
            __syncthreads();
        }
    }
    if (thread == 0) {
        *out = 0;
        for (int i = 0; i < 48; i++) *out += values[i];
    }
}
"""
SYNCWARP = """
extern "C" __global__ void sum(const int* in, int* out) {
    __shared__ int values[32];
    const int thread = threadIdx.x;
    const unsigned mask = __ballot_sync(0xffffffff, thread < 16);
    if (thread <= 16) {
        values[thread] = thread;
        __syncwarp(mask);
        if (thread == 0) {
            *out = 0;
            for (int i = 0; i < 16; i++) *out += values[i];
        }
    }
}
"""
UNALIGNED = """
extern "C" __global__ void sum(const int* in, int* out) {
    *(int*)((char*)out + 1) = 42;
}
"""
OUT_OF_BOUNDS = """
extern "C" __global__ void sum(const int* in, int* out) {
    *(int*)0x87654320 = 42;
}
"""
UNINITIALIZED = """
extern "C" __global__ void sum(const int* in, int* out) {
    extern __shared__ int values[];
    if (threadIdx.x == 0) *out = values[0];
}
"""

SAMPLES = {
    # source, threads, line of each finding, (kind, severities, count), what makes it right
    "race in a block": (
        RACE_IN_BLOCK, 128, 7, 4, ("race", {"error", "warning"}, 508),
        ("    if (threadIdx.x == 0)", "    __syncthreads();\n    if (threadIdx.x == 0)"),
    ),
    "race in a warp": (
        RACE_IN_WARP, 64, 10, 6, ("race", {"warning"}, 248),
        ("    if (thread % 32 == 0)", "    __syncwarp();\n    if (thread % 32 == 0)"),
    ),
    "divergent threads": (
        DIVERGENT, 64, 11, None, ("barrier", {"error"}, 16),
        ("            __syncthreads();\n        }", "        }\n        __syncthreads();"),
    ),
    "illegal syncwarp": (
        SYNCWARP, 32, 8, None, ("barrier", {"error"}, 1), ("thread <= 16", "thread < 16")
    ),
    "misaligned": (UNALIGNED, 1, 3, None, ("alignment", {"error"}, 1), ("+ 1", "+ 0")),
    "out of bounds": (
        OUT_OF_BOUNDS, 1, 3, None, ("bounds", {"error"}, 1), ("(int*)0x87654320", "out")
    ),
    "uninitialized": (
        UNINITIALIZED, 32, 4, 4, ("uninitialized", {"error"}, 4),
        ("    if (", "    if (threadIdx.x == 0) values[0] = 1;\n    if ("),
    ),
}  # fmt: skip


def checked(source: str, path: Path, threads: int) -> CheckReport:
    path.write_text(source)
    device = EmulatorDevice(TARGETS["sm_90a"])
    module = device.load(path, options=["--generate-line-info"])
    given: Sequence[Any] = [device.upload(np.arange(1024, dtype=np.int32)), device.zeros(2, "s32")]
    return check(module.kernel("sum"), LaunchConfig.of(1, threads, 256), given)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_told_apart(name: str, tmp_path: Path) -> None:
    source, threads, line, other, (kind, severities, count), (part, right) = SAMPLES[name]
    report = checked(source, tmp_path / "wrong.cu", threads)
    assert {finding.kind for finding in report.findings} == {kind}
    assert {finding.severity for finding in report.findings} == severities
    assert sum(finding.count for finding in report.findings) == count
    for finding in report.findings:
        assert finding.source == (str(tmp_path / "wrong.cu"), line)
        assert finding.other_source == (None if other is None else (finding.source[0], other))
    assert source.count(part) == 1
    assert checked(source.replace(part, right), tmp_path / "right.cu", threads).verdict == "clean"


ALIKE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{
    .reg .b32 i, x;
    .reg .pred odd;
    .shared .align 4 .b32 word;
    mov.u32 i, %tid.x;
    setp.eq.u32 odd, i, 300;
    selp.u32 x, 8, 7, odd;
    st.shared.u32 [word], x;
    ret;
}
"""


def test_many_threads_that_write_one_place_are_looked_at_by_warps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def of(self: Clocks, heard: Array, by: Array, *layer: int, part: bool = False) -> Array:
        asked.append(heard.size)
        return known(self, heard, by, *layer, part=part)

    known = Clocks.of
    monkeypatch.setattr(Clocks, "of", of)
    report = check(EmulatorDevice(TARGETS["sm_80"]).load(ALIKE).kernel(), LaunchConfig.of(1, 512))
    # Each is held against the last thread of another warp: 511, and 479 for those of its warp.
    counts = {(each.rule, each.severity): each.count for each in report.findings}
    assert counts == {("WAW", "error"): 4, ("WAW", "info"): 4 * 511}
    assert sum(asked) <= 512 * (512 // 32) + 2 * 512, "each warp is asked of each thread"
