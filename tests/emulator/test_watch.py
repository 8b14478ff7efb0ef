"""What a watcher is told of a launch, and that watching changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.emulator import Site, Watcher
from ptxlab.isa.targets import TARGETS

if TYPE_CHECKING:
    from ptxlab.emulator.prepare.program import Access
    from ptxlab.emulator.run.threads import Threads
    from ptxlab.emulator.run.wave import Frame

REVERSE = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 data)
{
    .reg .b32 i, j, x;
    .reg .b64 p, q;
    .reg .pred odd;
    .shared .align 4 .b32 tile[64];
    ld.param.u64 p, [data];
    mov.u32 i, %tid.x;
    mad.wide.u32 q, i, 4, p;
    ld.global.u32 x, [q];
    shl.b32 j, i, 2;
    st.shared.u32 [j], x;
    bar.sync 0;
    sub.u32 j, 252, j;
    ld.shared.u32 x, [j];
    and.b32 i, i, 1;
    setp.ne.u32 odd, i, 0;
    @odd add.u32 x, x, 1000;
    st.global.u32 [q], x;
    ret;
}
"""


class Log(Watcher):
    """Keeps what it is told, in words."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, int]] = []
        self.accesses: list[tuple[str, bool, int, int]] = []
        self.barriers: list[tuple[int, int]] = []
        self.values: dict[int, Any] = {}
        self.waves = [0, 0]

    def begin(self, wave: Any) -> None:
        self.waves[0] += 1

    def before(self, site: Site, frame: Frame, lanes: Threads, passing: Threads | None) -> None:
        passed = 0 if passing is None else passing.size
        self.lines.append((site.instruction.name, lanes.size, passed))

    def after(self, site: Site, frame: Frame, lanes: Threads, passing: Threads | None) -> None:
        x = site.register("x")
        if x is not None:
            self.values[site.line] = frame.registers[x.slot]

    def access(self, access: Access, frame: Frame, lanes: Threads) -> None:
        self.accesses.append((access.space, access.writes, access.nbytes, lanes.size))

    def synchronize(self, number: int, arrived: Any, released: Any) -> None:
        self.barriers.append((int(arrived.sum()), int(released.sum())))

    def end(self, wave: Any) -> None:
        self.waves[1] += 1


def test_a_watcher_is_told_everything() -> None:
    device = EmulatorDevice(TARGETS["sm_80"])
    data = device.upload(np.arange(64, dtype=np.uint32))
    log = Log()
    device.load(REVERSE).kernel("reverse").watch(log).launch(1, 64, [data])
    expected = np.arange(63, -1, -1, dtype=np.uint32)
    expected[1::2] += 1000
    assert (data.numpy() == expected).all()
    assert [name for name, _, _ in log.lines] == [
        line.replace("@odd ", "").split(";")[0].split()[0]
        for line in REVERSE.splitlines()
        if line.startswith("    ") and not line.lstrip().startswith(".")
    ]
    passed = {name: count for name, _, count in log.lines}
    assert passed["add.u32"] == 32
    assert passed["ret"] == passed["bar.sync"] == 64
    assert [(space, writes) for space, writes, _, _ in log.accesses] == [
        ("global", False),
        ("shared", True),
        ("shared", False),
        ("global", True),
    ]
    assert log.barriers == [(64, 64)]
    assert log.waves == [1, 1]
    # x is not read any more after the last store, and still there.
    assert (log.values[max(log.values)] == expected).all()


PRODUCER = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry producer()
{
    .reg .b32 i;
    .reg .pred first;
    mov.u32 i, %tid.x;
    setp.lt.u32 first, i, 32;
    @first bra PRODUCE;
    bar.sync 3, 64;
    ret;
PRODUCE:
    bar.arrive 3, 64;
    ret;
}
"""


def test_who_arrived_and_who_was_released() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    log = Log()
    device.load(PRODUCER).kernel("producer").watch(log).launch(2, 64)
    assert sum(arrived for arrived, _ in log.barriers) == 128
    assert sum(released for _, released in log.barriers) == 64


def test_guarded_off_for_all_is_still_seen() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    log = Log()
    text = PRODUCER.replace("setp.lt.u32 first, i, 32;", "setp.lt.u32 first, i, 0;").replace(
        "bar.sync 3, 64;", "@first bar.sync 3, 64;"
    )
    device.load(text).kernel("producer").watch(log).launch(1, 64)
    assert ("bar.sync", 64, 0) in log.lines


RANKS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry ranks(.param .u64 out)
{
    .reg .b32 c;
    .reg .b64 p;
    ld.param.u64 p, [out];
    mov.u32 c, %ctaid.x;
    mad.wide.u32 p, c, 4, p;
    mov.u32 c, %cluster_ctarank;
    add.u32 c, c, 1;
    st.global.u32 [p], c;
    ret;
}
"""


@pytest.mark.parametrize(
    ("cluster", "cta", "ran"),
    [(1, 2, [0, 0, 1, 0, 0, 0]), (2, 3, [0, 0, 1, 2, 0, 0]), (2, None, [1, 2] * 3)],
)
def test_the_cluster_of_a_cta_runs_alone(cluster: int, cta: int | None, ran: list[int]) -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    kernel = device.load(RANKS).kernel()
    assert isinstance(kernel, EmulatorKernel)
    out = device.zeros(6, "u32")
    kernel.watch(Watcher(), cta).launch(6, 1, [out], cluster=cluster)
    assert out.numpy().tolist() == ran
