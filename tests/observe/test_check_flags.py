"""Flags in shared memory: what threads tell each other by strong accesses, fences and warp instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.observe.check_report import CheckReport
from tests.together import thorough

HEAD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 i, lane, w, at, x, y;
    .reg .b64 p;
    .reg .pred first, second, third, on, all;
    .shared .align 4 .b8 tile[256];
    .shared .align 4 .b8 flag[8];
    mov.u32 i, %tid.x;
    and.b32 lane, i, 31;
    shr.u32 w, i, 5;
    shl.b32 at, lane, 2;
    setp.eq.u32 on, i, 0;
    @on st.shared.u32 [flag], 0;
    bar.sync 0;
    setp.eq.u32 first, w, 0;
    setp.eq.u32 second, w, 1;
    setp.eq.u32 third, w, 2;
    setp.eq.u32 on, lane, 0;
    @second bra SECOND;
    @third bra THIRD;
"""
SECOND = """\
SECOND:
    @!on bra END;
B:  ld.relaxed.cta.shared.u32 y, [flag];
    setp.lt.u32 on, y, 1;
    @on bra B;
    HAND
    bra END;
"""
THIRD = """\
THIRD:
    @!on bra END;
C:  ASK
    setp.lt.u32 on, y, LAST;
    @on bra C;
    KNOW
    ld.shared.u32 x, [tile];
    ld.param.u64 p, [out];
    st.global.u32 [p], x;
END:
    ret;
}
"""
STORE, LOAD = "st.shared.u32 [tile], 7", "ld.shared.u32 x, [tile]"


def program(tell: str, ask: str, know: str = "", hand: str = "", last: int = 1) -> str:
    """Write what warp 0 tells, lane 0 of warp 1 hands on, and lane 0 of warp 2 asks for and knows."""
    third = THIRD.replace("ASK", ask).replace("KNOW", know).replace("LAST", str(last))
    return f"{HEAD}    {tell}\n    bra END;\n{SECOND.replace('HAND', hand)}{third}"


def checked(text: str) -> CheckReport:
    device = open_device("emulator", arch="sm_80")
    return check(device.load(text).kernel("k"), LaunchConfig.of(1, 96), [device.zeros(1, "u32")])


def findings_of(report: CheckReport) -> list[tuple[str, str, str]]:
    def text(line: int | None) -> str:
        """Return an instruction without its guard."""
        assert line is not None
        instruction = report.source.line(line).strip().removesuffix(";")
        return re.sub(r"^@\w+ ", "", instruction)

    assert all(finding.kind == "race" for finding in report.findings)
    return [
        (finding.rule, text(finding.line), text(finding.other_line)) for finding in report.findings
    ]


RELEASE = f"@on {STORE};\n    @on st.release.cta.shared.u32 [flag], 1;"
ACQUIRE = "ld.acquire.cta.shared.u32 y, [flag];"
FENCED = f"@on {STORE};\n    membar.cta;\n    @on st.volatile.shared.u32 [flag], 1;"
VOLATILE = "ld.volatile.shared.u32 y, [flag];"
COUNTED = f"@on {STORE};\n    @on red.release.cta.shared.add.u32 [flag], 1;"
FOR_WARP = (
    f"setp.eq.u32 all, lane, 5;\n    @all {STORE};\n    vote.sync.any.pred all, on, -1;\n"
    "    @on fence.acq_rel.cta;\n    @on red.relaxed.cta.shared.add.u32 [flag], 1;"
)
MORE = "red.relaxed.cta.shared.add.u32 [flag], 1;"

TWINS = {
    # right, what is taken out of it, what it becomes
    "a release": (program(RELEASE, ACQUIRE), "st.release", "st.relaxed"),
    "an acquire": (program(RELEASE, ACQUIRE), "ld.acquire", "ld.relaxed"),
    "a fence before": (program(FENCED, VOLATILE, "membar.cta;"), "membar.cta;\n    @on st", "@on st"),
    "a fence after": (program(FENCED, VOLATILE, "membar.cta;"), "membar.cta;\n    ld", "ld"),
    "a fence and a release": (program(FENCED, ACQUIRE), "membar.cta;\n", ""),
    "what is told after the fence": (
        program(FENCED, ACQUIRE), f"@on {STORE};\n    membar.cta;", f"membar.cta;\n    @on {STORE};"
    ),
    "an atomic adds": (
        program(COUNTED, ACQUIRE, hand=MORE, last=2), MORE, "st.relaxed.cta.shared.u32 [flag], 2;"
    ),
    "another flag": (
        program(COUNTED, ACQUIRE), "red.release.cta.shared.add.u32 [flag], 1;",
        "st.release.cta.shared.u32 [flag+4], 1;\n    @on red.relaxed.cta.shared.add.u32 [flag], 1;"
    ),
    "a lane for its warp": (program(FOR_WARP, ACQUIRE), "vote.sync.any.pred all, on, -1;\n", ""),
    "an atomic that acquires": (
        program(COUNTED, "atom.acquire.cta.shared.or.b32 y, [flag], 0;"), "acquire", "relaxed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_twins(name: str) -> None:
    right, part, fault = TWINS[name]
    assert (checked(right).verdict, findings_of(checked(right))) == ("clean", [])
    assert right.count(part) == 1
    twin = checked(right.replace(part, fault))
    assert findings_of(twin) == [("RAW", LOAD, STORE)]


# ---- pipelines and barriers of libcu++ --------------------------------------------------------

PIPELINES = """
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>

constexpr int SIZE = 64, STAGES = 2;

// Each thread sums up a column; the next rows are AHEAD under way.
template <int AHEAD> __global__ void ahead(const float* in, float* out, int rows) {
    __shared__ float stage[STAGES + 1][SIZE];
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    const int t = threadIdx.x;
    float sum = 0;
    for (int row = 0, next = 0; row < rows; row++) {
        for (; next <= row + AHEAD && next < rows; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stage[next % (STAGES + 1)][t], &in[next * SIZE + t], sizeof(float), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        __syncthreads();
        sum += stage[row % (STAGES + 1)][SIZE - 1 - t];
        pipe.consumer_release();
    }
    out[t] = sum;
}

// A warp copies, two others add; the last to leave takes the mbarriers of the stages away.
template <bool EARLY> __global__ void parted(const float* in, float* out, int rows) {
    __shared__ float stage[STAGES][SIZE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    const int t = threadIdx.x;
    const bool adds = t < SIZE;
    auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state,
                                    adds ? cuda::pipeline_role::consumer : cuda::pipeline_role::producer);
    float sum = 0;
    for (int row = 0; row < rows; row++) {
        float* tile = stage[row % STAGES];
        if (adds) {
            pipe.consumer_wait();
            if (EARLY) pipe.consumer_release();
            sum += tile[SIZE - 1 - t];
            if (!EARLY) pipe.consumer_release();
        } else {
            pipe.producer_acquire();
            for (int i = t - SIZE; i < SIZE; i += 32)
                cuda::memcpy_async(&tile[i], &in[row * SIZE + i], sizeof(float), pipe);
            pipe.producer_commit();
        }
    }
    if (adds) out[t] = sum;
}

// All copy, and meet at a barrier that hears of the copies; a thread of each warp makes it.
template <bool MEET> __global__ void met(const float* in, float* out, int rows) {
    __shared__ float tile[SIZE];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    const int t = threadIdx.x;
    if (t % 32 == 0) init(&bar, SIZE);
    __syncthreads();
    float sum = 0;
    for (int row = 0; row < rows; row++) {
        cuda::memcpy_async(&tile[t], &in[row * SIZE + t], sizeof(float), bar);
        bar.arrive_and_wait();
        sum += tile[SIZE - 1 - t];
        if (MEET) bar.arrive_and_wait();
    }
    out[t] = sum;
}
"""
ROWS, SIZE = 6, 64
KERNELS = {
    # kernel: threads, kinds and rules of errors
    "ahead<1>": (64, set()),
    "ahead<2>": (64, {"race WAR"}),  # a slow thread may still read what is overwritten
    "ahead<3>": (64, {"async overwrites", "async reads"}),  # as in NVIDIA's sample: one too many
    "parted<false>": (96, set()),
    "parted<true>": (96, {"race WAR"}),
    "met<true>": (64, set()),
    "met<false>": (64, {"race WAR"}),
}


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of the source, which is compiled once."""
    path = tmp_path_factory.mktemp("pipelines") / "pipelines.cu"
    made = "".join(
        f"template __global__ void {name}(const float*, float*, int);\n" for name in KERNELS
    )
    path.write_text(PIPELINES + made)
    return str(path)


@pytest.mark.parametrize(
    "schedule",
    ["late", *thorough(("early", "random:3"))],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_libcudacxx(kernel: str, schedule: str, pipelines: str) -> None:
    threads, expected = KERNELS[kernel]
    device = open_device("emulator", arch="sm_80", schedule=schedule)
    rows = np.arange(ROWS * SIZE, dtype=np.float32).reshape(ROWS, SIZE)
    given, out = device.upload(rows), device.zeros(SIZE, "f32")
    launched = device.load(pipelines).kernel(kernel)
    report = check(launched, LaunchConfig.of(1, threads), [given, out, ROWS])
    errors = [finding for finding in report.findings if finding.severity != "info"]
    assert {f"{error.kind} {error.rule}" for error in errors} == expected
    assert report.verdict == ("findings" if expected else "clean")
    again = [finding for finding in report.findings if finding.rule == "again"]
    assert [finding.count for finding in again] == [1] * kernel.startswith("met")
    if not expected:
        assert np.array_equal(out.numpy(), rows.sum(0)[::-1])
