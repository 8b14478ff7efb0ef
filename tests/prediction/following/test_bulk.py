"""Bulk copies without a tensor map, pauses, and clocks read into uniform registers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.device.opening import open_device
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.operands import Predicate
from ptxlab.prediction.chip import find
from ptxlab.prediction.predict import as_machine_code, predict
from ptxlab.prediction.sm.timing import FIXED, timings
from ptxlab.prediction.sm.tma import Copy
from tests.prediction.running import issued, joined

THERE_AND_BACK = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) CLUSTER
{
  .reg .b64 p, q; .reg .b32 t; .reg .pred first, done; .reg .b16 both;
  .shared .align 128 .b8 s[32768]; .shared .align 8 .b64 b;
  ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0;
  @first mbarrier.init.shared::cta.b64 [b], 1;
  bar.sync 0;
  mov.u16 both, 3;
  @first mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], BYTES;
  @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytesFOR_ALL [s], [p+16], BYTES, [b]WHO;
w: mbarrier.try_wait.parity.shared::cta.b64 done, [b], 0;
  @!done bra w;
  @first cp.async.bulk.global.shared::cta.bulk_group [q+32], [s], BYTES;
  @first cp.async.bulk.commit_group;
  @first cp.async.bulk.wait_group 0;
  ret;
}
"""


def there_and_back(nbytes: int, *, multicast: bool = False) -> str:
    """Return a program that copies bytes from 16 behind a buffer to 32 behind another."""
    parts = {
        "CLUSTER": ".reqnctapercluster 2, 1, 1" if multicast else "",
        "FOR_ALL": ".multicast::cluster" if multicast else "",
        "WHO": ", both" if multicast else "",
        "BYTES": str(nbytes),
    }
    program = THERE_AND_BACK
    for word, text in parts.items():
        program = program.replace(word, text)
    return program


COPIES = joined(
    short=there_and_back(4096),
    long=there_and_back(32768),
    cluster=there_and_back(4096, multicast=True),
)


def copies(name: str, grid: int) -> tuple[list[Copy], int, int]:
    """Return what the first CTA has copied, and where the two buffers begin."""
    target = TARGETS["sm_90a"]
    module, cubin = load_assembled(COPIES, target)
    with closing(open_device("emulator", arch=target.name)) as device:
        kernel = device.load(module).kernel(name)
        source, out = (device.zeros(16384, np.float32) for _ in range(2))
        config = LaunchConfig.of(grid, 32)
        code, launch = as_machine_code(Assembly(module, cubin), kernel, config, [source, out])
        asked = issued(code, launch).copies
        return asked, source.address, out.address


def test_a_bulk_copy_is_the_sectors_of_its_bytes() -> None:
    """4096 bytes from the middle of a sector are in 129, and from the begin of one in 128."""
    (load, store), source, out = copies("short", 1)
    assert (load.nbytes, store.nbytes) == (4096, 4096)
    assert load.sectors == tuple(range(source // 32, source // 32 + 129))
    assert store.sectors == tuple(range(out // 32 + 1, out // 32 + 129))
    assert load.key is not None
    assert store.key is None


def test_a_bulk_copy_comes_to_all_that_its_mask_has() -> None:
    """Each of two CTAs loads for both, and stores for itself."""
    asked, _, _ = copies("cluster", 2)
    assert [(copy.ctas, len(copy.sectors)) for copy in asked if copy.loads] == [(2, 129)] * 2
    assert [(copy.ctas, len(copy.sectors)) for copy in asked if not copy.loads] == [(1, 128)] * 2


def test_bulk_copies_take_what_lies_beyond_the_sm() -> None:
    """Each way at the bytes a clock of an SM that has the L2 cache to itself."""
    data = np.zeros(16384, np.float32)
    short, long = (
        predict(COPIES, "h100", 1, 32, [data, data], kernel=name) for name in ("short", "long")
    )
    each = (long.cycles - short.cycles) / 2
    assert each == pytest.approx((32768 - 4096) / find("h100").used_by(1).memory.l2_bytes, rel=0.01)


PAUSE = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 time)
{
  .reg .b64 q; .reg .b32 n;
  ld.param.u64 q, [out]; ld.param.u32 n, [time];
  nanosleep.u32 WHAT; st.global.u32 [q], n; ret;
}
"""


PAUSES = joined(k=PAUSE.replace("WHAT", "2000"), told=PAUSE.replace("WHAT", "n"))


def test_a_pause_is_as_long_at_any_clock() -> None:
    """2000 ns are 2 cycles a MHz."""
    args = [np.zeros(32, np.int32), 1]
    slow, fast = (
        predict(PAUSES, "a100", 1, 32, args, kernel="k", clock=clock) for clock in (500, 1000)
    )
    assert fast.cycles - slow.cycles == pytest.approx(1000, abs=30)
    assert slow.stalls["sleeping"] > 0.9
    with pytest.raises(Unsupported, match="is not in the machine code"):
        predict(PAUSES, "a100", 1, 32, args, kernel="told")


def test_some_pauses_are_no_longer_than_they_have_to_be() -> None:
    """One that only some lanes make is refused; one at an mbarrier is over when that lets go."""
    chip = find("a100")
    module, cubin = load_assembled(PAUSES, TARGETS["sm_80"])
    code = decode(cubin, Assembly(module, cubin).functions, "k")
    pause = next(instruction for instruction in code if instruction.sass.opcode == "NANOSLEEP")
    at_barrier = replace(pause, sass=replace(pause.sass, modifiers=("SYNCS",)), number=0)
    assert timings([at_barrier], [0], chip, {})[0].kind == FIXED
    with pytest.raises(Unsupported, match="is not in the machine code"):
        timings([replace(pause, guard=Predicate(0), number=0)], [0], chip, {})
