"""The model of an SM on kernels whose time follows from one rule each, by pencil."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.sm import Sm
from ptxlab.prediction.sm.timing import EXIT, FIXED, InstructionTiming
from ptxlab.prediction.sm.warps import Warp
from tests.prediction.running import joined

HEAD = """\
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out)
{{
  .reg .b32 t<8>, turn; .reg .f32 f<20>; .reg .b64 q; .reg .pred u;
  .shared .align 16 .b8 s[4096];
  ld.param.u64 q, [out]; mov.u32 t0, %tid.x; mad.wide.u32 q, t0, 4, q; cvt.rn.f32.u32 f0, t0;
"""
TAIL = "st.global.f32 [q], f0;\nret;\n}\n"
ARCHS = {"rtx3090": "sm_86", "a100": "sm_80", "rtx4090": "sm_89"}

CHAIN = "fma.rn.f32 f0, f0, f0, f0;"
ADD = "add.f32 f0, f0, 0f3F800001;"
LOAD = "ld.volatile.shared.f32 f1, [t1]; add.f32 f0, f0, f1;"
SPREAD = "and.b32 t1, t0, 31; shl.b32 t1, t1, 2; mov.u32 t2, s; add.u32 t1, t1, t2;"
CHOICE, ENDS = "mov.u32 t1, %laneid;", "cvt.rn.f32.u32 f0, t0;"
TIMES = 32

PRODUCTS = {
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": 16,  # 660 TOP/s
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": 32,  # 330 TFLOP/s
    "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32": 16,  # half as much
    "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16": 16,  # 660 TFLOP/s
}
"""How many cycles each holds a tensor core of an RTX 4090, by NVIDIA's rates."""


def multiplied(product: str) -> tuple[str, str, str]:
    """Return what is repeated, and what is done before and after."""
    a = "{t1, t2, t3, t4}" if "k32" in product else "{t1, t2}"
    b = "{t5, t6}" if "k32" in product else "{t5}"
    sums = "{s0, s1}" if product.endswith("f16") else "{s0, s1, s2, s3}"
    kind = "f32" if product.endswith("f32") else "b32"
    setup = f".reg .{kind} s<4>;" + "".join(f"shl.b32 t{n}, t0, {n};" for n in range(1, 7))
    start = "".join(f"mov.{kind} s{n}, {'0f00000000' if kind == 'f32' else 0};" for n in range(4))
    end = f"{'mov.f32' if kind == 'f32' else 'mov.b32'} f0, s0;"
    return f"{product} {sums}, {a}, {b}, {sums};", setup + start, end


BODIES = {
    "rtx3090": {
        "chain": (CHAIN, "", ""),
        "add": (ADD, "", ""),
        "permute": ("prmt.b32 t0, t0, t0, t1;", CHOICE, ENDS),
        "apart": (LOAD, SPREAD, ""),
        "one_bank": (LOAD, SPREAD.replace("t1, 2;", "t1, 7;"), ""),
    },
    "a100": {"add": (ADD, "", "")},
    "rtx4090": {f"product{n}": multiplied(product) for n, product in enumerate(PRODUCTS)},
}
"""What is repeated on a GPU, and what is done before and after."""


def repeated(gpu: str) -> str:
    """Return all that is repeated on a GPU, once and three times ``TIMES``."""
    head = HEAD.format(arch=ARCHS[gpu])
    return joined(
        **{
            f"{name}{turns}": head + setup + (body + "\n") * turns + end + TAIL
            for name, (body, setup, end) in BODIES[gpu].items()
            for turns in (TIMES, 3 * TIMES)
        }
    )


def cycles(name: str, warps: int, gpu: str = "rtx3090") -> float:
    """Return the cycles of one repetition, all else subtracted."""
    program, array = repeated(gpu), np.zeros(1024, np.float32)
    once, thrice = (
        predict(program, gpu, 1, 32 * warps, [array], kernel=f"{name}{turns}").cycles
        for turns in (TIMES, 3 * TIMES)
    )
    return (thrice - once) / (2 * TIMES)


def test_a_chain_of_sums_takes_the_latency() -> None:
    assert cycles("chain", 1) == pytest.approx(4, abs=0.1)


def test_many_warps_fill_the_pipes() -> None:
    """128 lanes an SM on GA102, 64 on GA100: 16 warps of 32 sums are 4 and 8 cycles."""
    assert cycles("add", 16) == pytest.approx(4, abs=0.2)
    assert cycles("add", 16, "a100") == pytest.approx(8, abs=0.3)


@pytest.mark.parametrize(
    ("number", "held"), list(enumerate(PRODUCTS.values())), ids=[name[17:] for name in PRODUCTS]
)
def test_a_product_of_narrow_types_holds_the_tensor_core(number: int, held: int) -> None:
    """Four warps take turns at a tensor core."""
    taken = cycles(f"product{number}", 16, "rtx4090")
    assert taken == pytest.approx(4 * held, rel=0.02)


def test_a_scoreboard_holds_whatever_writes_it() -> None:
    """On Turing what comes of tensor cores has one, of a fixed latency though it is."""

    def instruction(
        kind: int, latency: int = 0, writes: int | None = None, waits: tuple[int, ...] = ()
    ) -> InstructionTiming:
        return InstructionTiming(kind, (), 0, latency, 1, waits, writes, None, ())

    timings = {
        0: instruction(FIXED, latency=14, writes=5),
        1: instruction(FIXED, waits=(5,)),
        2: instruction(EXIT),
    }
    warp = Warp(0, [0, 1, 2])
    assert Sm(find("t4"), timings, [warp], shared=0).run().cycles == pytest.approx(14 + 2, abs=1)


def test_three_registers_of_a_bank_take_three_cycles() -> None:
    assert cycles("chain", 16) == pytest.approx(12, abs=0.3)


def test_integers_have_half_the_lanes() -> None:
    assert cycles("permute", 16) == pytest.approx(8, abs=0.3)


def test_conflicts_take_a_cycle_a_wavefront() -> None:
    """All lanes of a warp in one bank are 32 wavefronts; each in its own is one, and a request two."""
    assert cycles("apart", 8) == pytest.approx(8 * 2, abs=1)
    assert cycles("one_bank", 8) == pytest.approx(8 * 32, rel=0.05)


def launched(kernel: str, gpu: str, **named: int) -> Prediction:
    return predict(
        kernel, gpu, named.get("grid", 1), named.get("block", 32), [np.zeros(4096, np.float32)]
    )


STREAM = HEAD.format(arch="sm_86") + "ld.global.f32 f1, [q]; add.f32 f0, f1, f0; " + TAIL


def test_a_load_waits_for_memory() -> None:
    predicted = launched(STREAM, "rtx3090")
    chip = find("rtx3090")
    assert chip.latency["l2"] < predicted.cycles < chip.latency["l2"] + 250
    assert predicted.stalls["long scoreboard"] > 0.5
    assert predicted.bound == "latency"


def test_more_ctas_than_fit_come_after_each_other() -> None:
    together = 82 * launched(STREAM, "rtx3090").occupancy.ctas
    single = launched(STREAM, "rtx3090", grid=together)
    two = launched(STREAM, "rtx3090", grid=2 * together)
    assert (single.generations, single.tail) == (1, 0)
    assert two.generations == 2
    later = two.cycles - single.cycles - find("rtx3090").latency["l2"]
    assert 0 < later < single.cycles, "who comes later finds in L1 what all read"
    assert launched(STREAM, "rtx3090", grid=together + 1).tail == 1


def test_the_clock_is_stated_and_counts() -> None:
    source, array = STREAM, np.zeros(4096, np.float32)
    slow, fast = (predict(source, "rtx3090", 8, 128, [array], clock=mhz) for mhz in (1000, 2000))
    assert (slow.clock_mhz, fast.clock_mhz) == (1000, 2000)
    assert slow.cycles == fast.cycles
    assert slow.seconds > fast.seconds


def test_a_loop_costs_what_its_turns_cost() -> None:
    """Most turns are left out; what they cost is as if they had been run."""

    def looped(turns: int) -> str:
        loop = f"mov.u32 turn, 0;\nmore: {CHAIN} {CHAIN} add.u32 turn, turn, 1; setp.lt.u32 u, turn, {turns};"
        return STREAM.replace(
            "ld.global.f32 f1, [q];", f"ld.global.f32 f1, [q]; {loop} @u bra more;"
        )

    program, array = joined(few=looped(101), many=looped(1001)), np.zeros(4096, np.float32)
    with_few, with_many = (
        predict(program, "rtx3090", 1, 256, [array], kernel=name).cycles for name in ("few", "many")
    )
    slope = (with_many - with_few) / 900
    assert 8 <= slope < 40
