"""setmaxnreg: registers that warps of a CTA give back, and others wait for; and how many there are at first."""

from __future__ import annotations

from typing import Any

import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.isa.occupancy import most_registers
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.check import check
from ptxlab.toolchain.nvrtc import assemble_cuda
from tests.emulator.hopper.conftest import Run, hopper_text

THREE = ".maxntid 384, 1, 1 .minnctapersm 1"

# One warpgroup gives registers back when the others have asked, and each writes when it has its own.
GROUPS = """
    setp.lt.u32 p1, r0, 128;
    mad.wide.u32 d2, r0, 4, d0;
    @!p1 bra CONSUME;
    {produce}
    st.global.u32 [d2], 1;
    bra DONE;
CONSUME:
    setmaxnreg.inc.sync.aligned.u32 {consumers};
    st.global.u32 [d2], 2;
DONE:
"""


def body(produce: str, consumers: int = 232) -> str:
    return GROUPS.format(produce=produce, consumers=consumers)


GIVE = "setmaxnreg.dec.sync.aligned.u32 40;"


@pytest.mark.parametrize("grid", [1, 3])
def test_consumers_wait_for_what_the_producer_gives_back(run: Run, grid: int) -> None:
    """384 threads of 168 registers: 40 + 2 * 232 are 3 * 168, as in CUTLASS."""
    words = run(body(GIVE), words=384, block=384, grid=grid, directives=THREE)
    assert words.tolist() == [1] * 128 + [2] * 256


@pytest.mark.parametrize(
    ("produce", "consumers", "lacking"),
    [
        ("", 232, "64 more, and 0 are free"),
        ("setmaxnreg.dec.sync.aligned.u32 48;", 232, "64 more, and 32 are free"),
        (GIVE, 240, "72 more, and 8 are free"),
    ],
)
def test_registers_that_nobody_gives_back_are_a_deadlock(
    run: Run, produce: str, consumers: int, lacking: str
) -> None:
    with pytest.raises(LaunchError, match=lacking) as caught:
        run(body(produce, consumers), words=384, block=384, directives=THREE)
    assert "threads wait for registers of their CTA on line" in caught.value.message
    assert caught.value.location is not None
    assert "setmaxnreg.inc" in caught.value.location.text


def test_a_check_finds_a_producer_that_keeps_its_registers(hopper: Device) -> None:
    out = hopper.zeros(384, "u32")
    for produce, verdict in ((GIVE, "clean"), ("", "findings")):
        kernel = hopper.load(hopper_text(body(produce), directives=THREE)).kernel("k")
        report = check(kernel, LaunchConfig.of(1, 384), [out, out])
        assert report.verdict == verdict
        assert [finding.kind for finding in report.findings] == ["deadlock"] * (verdict != "clean")


def test_registers_come_back_as_often_as_they_go(run: Run) -> None:
    """Two warpgroups of 232 take turns with 24 more, by a barrier."""
    turns = """
        setp.lt.u32 p1, r0, 128;
        mov.u32 r4, 0;
        @!p1 bra SECOND;
    FIRST:
        setmaxnreg.dec.sync.aligned.u32 200;
        bar.sync 1;
        bar.sync 2;
        setmaxnreg.inc.sync.aligned.u32 232;
        bar.sync 3;
        add.u32 r4, r4, 1;
        setp.lt.u32 p2, r4, 4;
        @p2 bra FIRST;
        bra DONE;
    SECOND:
        bar.sync 1;
        setmaxnreg.inc.sync.aligned.u32 256;
        setmaxnreg.dec.sync.aligned.u32 {kept};
        bar.sync 2;
        bar.sync 3;
        add.u32 r4, r4, 1;
        setp.lt.u32 p2, r4, 4;
        @p2 bra SECOND;
    DONE:
        mad.wide.u32 d2, r0, 4, d0;
        st.global.u32 [d2], r4;
    """
    directives = ".maxnreg 232"
    words = run(turns.format(kept=232), words=256, block=256, directives=directives)
    assert words.tolist() == [4] * 256
    with pytest.raises(LaunchError, match="32 more, and 0 are free"):
        run(turns.format(kept=256), words=256, block=256, directives=directives)


LOOK = """
        mov.u32 r4, 0;
    LOOK{0}:
        ld.volatile.global.u32 r5, [d0+1532];
        setp.eq.u32 p2, r5, {0};
        @p2 bra SEEN{0};
        add.u32 r4, r4, 1;
        setp.lt.u32 p2, r4, 2000;
        @p2 bra LOOK{0};
        mov.u32 r5, 9;
    SEEN{0}:
"""


def test_who_waits_is_told_at_once(run: Run) -> None:
    """The producer gives back when it sees that others ask, and sees them go on before it has looked 2000 times."""
    produce = f"{LOOK.format(1)} {GIVE} {LOOK.format(2)} st.global.u32 [d2], r5; bra DONE;"
    text = body(produce).replace("CONSUME:", "CONSUME: st.global.u32 [d2], 1;")
    assert run(text, words=384, block=384, directives=THREE).tolist() == [2] * 384


@pytest.mark.parametrize("directives", ["", ".maxntid 384, 1, 1", ".minnctapersm 1"])
def test_it_does_nothing_where_nobody_says_how_many_there_are(run: Run, directives: str) -> None:
    """ptxas ignores it then: C7508, "unable to determine register count at entry"."""
    words = run(body("", 256), words=384, block=384, directives=directives)
    assert words.tolist() == [1] * 128 + [2] * 256


def test_more_registers_than_there_are_cannot_be_launched(run: Run) -> None:
    """A GPU says so too: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES."""
    with pytest.raises(PtxlabError, match="needs 168 registers for each of 512 threads"):
        run(body(GIVE), words=512, block=512, directives=".maxnreg 168")


CUDA = """
extern "C" __global__ void {bounds} k(float* p) {{
  if (threadIdx.x < 128) {{ asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); p[threadIdx.x] = 1; }}
  else {{ asm volatile("setmaxnreg.inc.sync.aligned.u32 256;"); p[threadIdx.x] = 2; }}
}}"""


@pytest.mark.parametrize(
    ("threads", "ctas"), [(384, 1), (256, 1), (256, 2), (128, 3), (416, 1), (640, 1), (1024, 1)]
)
def test_ptxas_gives_as_many_at_first(threads: int, ctas: int) -> None:
    source = CUDA.format(bounds=f"__launch_bounds__({threads}, {ctas})")
    _, cubin = assemble_cuda(source, path="k.cu", arch="sm_90a")
    expected = most_registers(ctas * threads // 32)
    assert f"Used {expected} registers" in cubin.log


def test_all_warps_of_a_cta_together_deadlock_on_both_engines(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Any = "setmaxnreg.inc.sync.aligned.u32 176; st.global.u32 [d0], 1;"
    for engine in ("array", "native"):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        with pytest.raises(LaunchError, match="8 more, and 0 are free"):
            run(taken, words=1, block=384, directives=THREE)
