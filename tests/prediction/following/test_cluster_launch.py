"""Clusters that have not begun, and who takes over their work: the answers, and how long a grid takes then."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.gemm.algorithms import ALGORITHMS
from ptxlab.gemm.predicted import predict_rung
from ptxlab.gemm.problem import Problem
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import MemoryRange
from ptxlab.prediction.chip import find
from ptxlab.prediction.following.interpreter import Interpreter
from ptxlab.prediction.predict import predict

TURNS = 16
"""How many answers there is room for."""
KERNEL = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 16 .b8 answer[64];
    .shared .align 8 .b64 told;
    .reg .pred over, more;
    .reg .b32 at, cta, turn, parity, x, y, z, w;
    .reg .b64 to, offset;
    .reg .b128 word;
    ld.param.u64 to, [out];
    mov.u32 cta, %ctaid.x;
    mul.wide.u32 offset, cta, 256;
    add.u64 to, to, offset;
    mbarrier.init.shared::cta.b64 [told], 1;
    mov.u32 turn, 0;
work:
    and.b32 parity, turn, 1;
    shl.b32 at, parity, 5;
    mov.u32 x, answer;
    add.u32 at, at, x;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [told], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [at+16], [told];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 over, [told], parity;
    @!over bra wait;
    ld.shared.b128 word, [at+16];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 more, word;
    @!more bra end;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, w}, word;
    selp.b32 w, 1, 0, more;
    st.global.v4.b32 [to], {x, y, z, w};
    add.u64 to, to, 16;
    add.u32 turn, turn, 1;
    bra work;
end:
    ret;
}
"""
GRID = (5, 3, 2)


@pytest.fixture(scope="module")
def assembly() -> Assembly:
    return Assembly(*load_assembled(KERNEL, TARGETS["sm_100a"]))


@pytest.mark.parametrize("running", [3, 7, 0])
def test_a_cta_goes_on_as_many_later_as_run(assembly: Assembly, running: int) -> None:
    """What ptxas makes of the query instructions reads x, y and z of the CTA; where all run there is none."""
    config, base, nbytes = LaunchConfig.of(GRID, 1), 1 << 32, 3 * 16 * TURNS
    held = MemoryRange(base, nbytes, np.zeros(nbytes // 4, np.uint32))
    launch = Launch(TARGETS["sm_100a"], config, base.to_bytes(8, "little"), [held], running=running)
    code = decode(assembly.cubin, assembly.functions, "k")
    machine = Interpreter(code, launch, [0, 2])
    machine.run()
    words = machine.memory.load(np.arange(base, base + nbytes, 4, dtype=np.uint64))
    assert words is not None
    told = words.reshape(3, TURNS, 4)
    for cta in (0, 2):
        later = range(cta + running, 30, running) if running else ()
        expected = [(n % 5, n // 5 % 3, n // 15, 1) for n in later]
        assert told[cta].tolist() == [[*answer] for answer in expected] + [[0] * 4] * (
            TURNS - len(expected)
        )


def test_ctas_that_were_cancelled_never_begin() -> None:
    """Of B200's 74 pairs each takes one more tile, or all have one more to begin: those that are there begin once."""

    def predicted(tiles: int) -> tuple[float, int, int]:
        problem = Problem(256 * tiles, 256, 128)
        prediction = predict_rung(problem, ALGORITHMS["tcgen05_persistent"], find("b200"))
        return prediction.cycles, prediction.generations, prediction.tail

    all_at_once, *begun = predicted(74)
    assert begun == [1, 0]
    twice, *begun = predicted(148)
    assert begun == [1, 0]
    multiplied = 2 * 256 * 256 * 128 / (2 * 8192)
    assert all_at_once + multiplied <= twice < 2 * all_at_once


def test_a_program_that_asks_is_predicted() -> None:
    """ptx/cluster_launch_control.ptx: 32 CTAs of an SM do 1024 rows a turn, so a row is not a CTA to launch."""
    chip = find("b200")
    rows = chip.gpu.sms * 32
    taken = []
    for turns in (1, 2, 4):
        numbers = np.zeros((rows * turns, 32), np.uint32)
        taken.append(
            predict("ptx/cluster_launch_control.ptx", "b200", rows * turns, 32, [numbers, numbers])
        )
    assert {(each.generations, each.tail) for each in taken} == {(1, 0)}
    single, two, four = (each.cycles for each in taken)
    assert (four - two) / (two - single) == pytest.approx(2, rel=0.2)
