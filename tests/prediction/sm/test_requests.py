"""What the machine code asks of memory, against what ``profile`` counts of the PTX."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from ptxlab import resources
from ptxlab.device.loading import Loadable, load_assembled
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Kernel
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.observe.profile import count
from ptxlab.prediction.following.interpreter import requests, run
from ptxlab.prediction.sm.requests import Request, of_global, of_shared

SHARED = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 lane, a, b, r<8>; .reg .b64 q;
  .shared .align 16 .b8 s[8192];
  ld.param.u64 q, [out]; mov.u32 lane, %tid.x; mov.u32 a, s;
  mad.lo.u32 b, lane, 72, a;          // rows of 72 bytes: some lanes meet in a bank
  st.shared.b32 [b], lane; st.shared.v2.b32 [b+8], {lane, lane};
  bar.sync 0;
  mad.lo.u32 b, lane, 48, a; ld.shared.b32 r0, [b];
  and.b32 r7, lane, 31; mad.lo.u32 b, r7, 80, a;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r1, r2, r3, r4}, [b];
  ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {r5, r6}, [b+16];
  add.u32 r0, r0, r1; add.u32 r0, r0, r2; add.u32 r0, r0, r3; add.u32 r0, r0, r4;
  add.u32 r0, r0, r5; add.u32 r0, r0, r6;
  mad.wide.u32 q, lane, 4, q; st.global.b32 [q], r0;
  ret;
}
"""


def issued(
    device: Device, source: Loadable, config: LaunchConfig, passed: Sequence[Any]
) -> tuple[Kernel, list[Request]]:
    """Return a kernel, and what the machine code of all its CTAs asks for."""
    chosen = device.load(source).kernel()
    buffers = [argument for argument in passed if isinstance(argument, Buffer)]
    regions = [MemoryRange(buffer.address, buffer.nbytes) for buffer in buffers]
    assembly = Assembly(*load_assembled(source, device.target))
    code = decode(assembly.cubin, assembly.functions, chosen.name)
    launch = Launch(device.target, config, bytes(chosen.packed(passed)), regions)
    ctas = range(config.grid[0])
    steps = run(code, launch, ctas)
    asked: dict[int, Any] = {}
    requests(code, launch, ctas, np.arange(steps.count), asked.__setitem__)
    return chosen, [answer for answer in asked.values() if isinstance(answer, Request)]


def test_sectors_are_those_of_profile() -> None:
    """A program whose loads the assembler takes as they are, with rows that end within a warp."""
    m, n, k = 70, 48, 33
    with closing(open_device("emulator", arch="sm_80")) as device:
        shapes = ((m, k), (k, n), (m, n))
        passed: list[Any] = [m, n, k]
        buffers = [device.zeros(shape, "f32") for shape in shapes]
        for buffer in buffers:
            passed += [buffer, buffer.shape[1]]
        passed += [1.0, 0.0, 0]
        kernel, steps = issued(
            device, resources.path("kernels/naive.cu"), LaunchConfig.of(6, (32, 32)), passed
        )
        counted = count(kernel, LaunchConfig.of(6, (32, 32)), passed)
    assert sum(len(request.every) for request in steps) == counted.totals.sectors


def test_wavefronts_are_those_of_profile() -> None:
    with closing(open_device("emulator", arch="sm_80")) as device:
        config, passed = LaunchConfig.of(2, 64), [device.zeros(128, "u32")]
        kernel, steps = issued(device, SHARED, config, passed)
        counted = count(kernel, config, passed)
    shared = [step.passes.sum() for step in steps if not len(step.every)]
    assert sum(map(int, shared)) == counted.totals.shared_wavefronts > 0


def test_lanes_that_ask_for_the_same_two_by_two_go_together() -> None:
    lanes = np.arange(32, dtype=np.uint64)[None]
    every = np.ones((1, 32), bool)
    assert of_shared(lanes * np.uint64(16), every, 16).tolist() == [4]
    assert of_shared(lanes // np.uint64(2) * np.uint64(16), every, 16).tolist() == [2]
    assert of_shared(lanes * np.uint64(8), every, 8).tolist() == [2]
    assert of_shared(lanes // np.uint64(2) * np.uint64(8), every, 8).tolist() == [1]
    assert of_shared(lanes * np.uint64(128), every, 4).tolist() == [32]
    nobody = np.zeros((1, 32), bool)
    assert of_shared(lanes, nobody, 4).tolist() == [0]


def test_of_each_sector_as_much_is_carried_as_its_lanes_ask_for() -> None:
    """Of 8 bytes a lane from the third word on the first and the last sector are parts; of a lane that does not ask nothing."""
    words = np.uint64(4096 + 8) + np.arange(32, dtype=np.uint64) * np.uint64(8)
    table, every = np.stack([words, words - np.uint64(8)]), np.ones((2, 32), bool)
    sectors, lines = of_global(table, every, 8)
    assert np.split(sectors.carried, sectors.bounds[1:-1])[0].tolist() == [24, *7 * [32], 8]
    assert np.split(sectors.carried, sectors.bounds[1:-1])[1].tolist() == 8 * [32]
    assert lines.tolist() == [3, 2]
    every[:, 1:] = every[1] = False
    few, _ = of_global(table, every, 8)
    assert (few.carried.tolist(), few.numbers.tolist()) == ([8], [128])
    nobody, lines = of_global(table, np.zeros((2, 32), bool), 8)
    assert (len(nobody.carried), lines.tolist()) == (0, [0, 0])
