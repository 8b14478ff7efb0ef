"""What the machine code of rungs is followed to do is what the emulator counts of their PTX.

ptxas merges loads of shared memory and moves arithmetic, but it takes away no copy, product, barrier or
request of global memory.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.device.opening import open_device
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.problem import uploaded
from ptxlab.gemm.run import cutting
from ptxlab.gemm.tensor_maps import arguments
from ptxlab.gemm.tile import AS_IT_IS
from ptxlab.gemm.tile_file import tile_for
from ptxlab.machine.assembly import Assembly
from ptxlab.observe.profile import Profile, count
from ptxlab.prediction.predict import as_machine_code
from tests.prediction.running import Issued, issued

SMALL_BF16 = Problem(256, 128, 128, "bf16", "f32")
RUNGS = [
    # One that repeats what another does is thorough.
    pytest.param("wgmma", SMALL_BF16, "sm_90a", marks=pytest.mark.thorough),
    ("wgmma_pipelined", SMALL_BF16, "sm_90a"),
    ("tensor_core", Problem(128, 128, 64, "bf16", "f32"), "sm_80"),
    ("tiled", Problem(64, 32, 64, "f32", "f32"), "sm_80"),
]
OPCODES = {
    "wgmma.mma_async": "HGMMA",
    "mma.sync": "HMMA",
    "ldmatrix.sync": "LDSM",
    "bar.sync": "BAR",
    "cp.async.bulk.tensor": "UTMALDG",
}
"""What becomes one instruction of the machine each."""


def by_both(rung: str, problem: Problem, arch: str) -> tuple[Profile, Issued]:
    """Count one launch of a rung on the emulator, and follow its machine code."""
    algorithm = ALGORITHMS[rung]
    with closing(open_device("emulator", arch=arch)) as device:
        tile = tile_for(device, algorithm, problem, AS_IT_IS)
        with cutting(algorithm, problem, tile, device.target) as (file, options, config):
            program, cubin = load_assembled(file, device.target, options)
        with uploaded(device, problem, problem.inputs()) as operands:
            kernel = device.load(program).kernel(algorithm.entry)
            args = arguments(device, operands, algorithm)
            followed = issued(*as_machine_code(Assembly(program, cubin), kernel, config, args))
            return count(kernel, config, args), followed


@pytest.mark.parametrize(("rung", "problem", "arch"), RUNGS)
def test_both_engines_count_the_same(rung: str, problem: Problem, arch: str) -> None:
    profile, followed = by_both(rung, problem, arch)
    executed: Counter[str] = Counter()
    wavefronts = 0
    for line in profile.instructions:
        words = ".".join((line.instruction.opcode, *line.instruction.modifiers))
        for name, opcode in OPCODES.items():
            if words.startswith(name):
                executed[opcode] += line.counts.executed
        if words.startswith("ldmatrix"):
            wavefronts += line.counts.shared_wavefronts
    assert executed
    assert executed == Counter(
        {opcode: n for opcode in OPCODES.values() if (n := followed.warps[opcode])}
    )
    totals = profile.totals
    assert (totals.requests, totals.sectors) == (followed.requests, followed.sectors)
    assert totals.engine_copies == len(followed.copies)
    assert totals.engine_global == sum(copy.nbytes for copy in followed.copies)
    assert wavefronts == followed.passes["LDSM"]
