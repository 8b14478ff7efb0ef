"""mbarriers, copies with tensor maps and products of warpgroups, by pencil and beside the emulator."""

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
from ptxlab.prediction.chip import find
from ptxlab.prediction.predict import as_machine_code, of_launch, predict
from ptxlab.prediction.sm import mbarriers as phases
from ptxlab.prediction.sm.mbarriers import Operation, SmMbarriers
from tests.prediction.running import issued, joined

KEY = (0, 1024)
MODULE = """\
.version 8.0
.target sm_90a
.address_size 64
"""
PRODUCTS = """\
.visible .entry {name}(.param .u64 out)
{{
  .reg .f32 d<{sums}>; .reg .b64 a, q; .reg .b32 t;
  .shared .align 1024 .b8 s[40960];
  ld.param.u64 q, [out]; mov.u32 t, %tid.x; mad.wide.u32 q, t, 4, q;
  mov.b64 a, 0x4000004000010040;
  {zero}
  wgmma.fence.sync.aligned;
  {products}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  {stores}
  ret;
}}
"""


def products(n: int, dtype: str, k: int, count: int) -> str:
    """Return a kernel of ``count`` products of a warpgroup."""
    names = [f"d{i}" for i in range(n // 2)]
    scales = "1, 1, 1, 0, 0" if k == 16 else "1, 1, 1"
    product = (
        f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{dtype}.{dtype}"
        f" {{{', '.join(names)}}}, a, a, {scales};\n"
    )
    return PRODUCTS.format(
        name=f"k{n}x{count}",
        sums=n // 2,
        zero=" ".join(f"mov.f32 {name}, 0f00000000;" for name in names),
        products=product * count,
        stores=" ".join(f"st.global.f32 [q], {name};" for name in names),
    )


SHAPES = ((256, "bf16", 16), (128, "e4m3", 32), (32, "bf16", 16))
FEW, MANY = 8, 24
ALL_PRODUCTS = MODULE + "".join(
    products(*shape, count) for shape in SHAPES for count in (FEW, MANY)
)


def product_cycles(n: int) -> float:
    """Return how long one of many products of a warpgroup takes, all else subtracted."""
    few, many = (
        predict(
            ALL_PRODUCTS, "h100", 1, 128, [np.zeros(128, np.float32)], kernel=f"k{n}x{count}"
        ).cycles
        for count in (FEW, MANY)
    )
    return (many - few) / (MANY - FEW)


def test_products_are_as_fast_as_the_tensor_cores() -> None:
    """4096 FLOP a clock: m64nNk16 takes N / 2 cycles, and as many with twice the k of 8 bits."""
    assert product_cycles(256) == pytest.approx(128, abs=0.1)
    assert product_cycles(128) == pytest.approx(64, abs=0.1)


def test_short_products_wait_for_shared_memory() -> None:
    """2 KiB of A and 32 N bytes of B at 128 bytes a clock: 16 + N / 4 cycles."""
    assert product_cycles(32) == pytest.approx(24, abs=0.1)


def test_a_phase_ends_when_all_arrived_and_all_bytes_came() -> None:
    barriers = SmMbarriers()
    barriers.do(Operation(phases.INIT, KEY, 2))
    assert not barriers.do(Operation(phases.ARRIVE, KEY, 1, 64), 5.0)
    assert not barriers.landed(KEY, 64, 1, 90.0)
    assert barriers.do(Operation(phases.ARRIVE, KEY, 1), 7.0)
    assert barriers.phase(KEY) == 1
    assert barriers.ended(KEY, 1) == 90.0


def test_bytes_that_come_before_they_are_expected_end_no_phase() -> None:
    barriers = SmMbarriers()
    barriers.do(Operation(phases.INIT, KEY, 1))
    assert not barriers.landed(KEY, 64, 1)
    assert barriers.do(Operation(phases.ARRIVE, KEY, 1, 64))


@pytest.mark.parametrize("expected", [64, 128])
def test_what_a_cluster_shares_counts_once_or_for_each(expected: int) -> None:
    barriers = SmMbarriers()
    barriers.do(Operation(phases.INIT, KEY, 1))
    barriers.do(Operation(phases.ARRIVE, KEY, 1, expected))
    assert barriers.landed(KEY, 64, 2)


def test_too_many_arrivals_are_refused() -> None:
    barriers = SmMbarriers()
    barriers.do(Operation(phases.INIT, KEY, 1))
    with pytest.raises(Unsupported, match="more threads arrive"):
        barriers.do(Operation(phases.ARRIVE, KEY, 2))


def test_warps_that_hand_over_wait_for_each_other() -> None:
    """A tile takes two hand-overs, there and back, of an arrival and a wait of 29 cycles each, and a load."""

    def of(tiles: int) -> float:
        data = np.zeros((tiles, 32), np.int32)
        return predict("ptx/mbarrier.ptx", "h100", 1, 64, [data, data, tiles]).cycles

    each = (of(24) - of(8)) / 16
    assert 4 * 29 < each < 4 * 29 + find("h100").latency["l2"]
    assert predict(
        "ptx/mbarrier.ptx", "h100", 1, 64, [np.zeros((8, 32), np.int32)] * 2 + [8]
    ).stalls["mbarrier"] > 0.3  # fmt: skip


@pytest.mark.parametrize(("gpu", "arch"), [("h100", "sm_90a"), ("rtx5090", "sm_120a")])
def test_a_copy_with_a_tensor_map_is_the_bytes_of_its_box(gpu: str, arch: str) -> None:
    """Rows 30 to 39 of a box of 16 are in the tensor: 10 of 128 bytes, and all 16 are counted."""
    target = TARGETS[arch]
    program, cubin = load_assembled("ptx/tma_load_swizzle.ptx", target)
    with closing(open_device("emulator", arch=target.name)) as device:
        kernel = device.load(program).kernel(None)
        a = device.zeros((40, 128), np.uint16)
        out = device.zeros((16, 64), np.uint16)
        tensor_map = device.tensor_map(a, (16, 64), swizzle="128B")
        args = [a, tensor_map, out, out, 32, 30]
        assembly, config = Assembly(program, cubin), LaunchConfig.of(1, 128)
        copies = issued(*as_machine_code(assembly, kernel, config, args)).copies
        chip = find(gpu)
        predicted = of_launch(assembly, kernel, config, args, chip)
        slow = replace(chip, latency=chip.latency | {"tma": chip.latency["tma"] + 1000})
        later = of_launch(assembly, kernel, config, args, slow)
        without = replace(chip, latency={n: c for n, c in chip.latency.items() if n != "tma"})
        with pytest.raises(
            Unsupported, match=rf"no timing is known of 'UTMALDG.*on {chip.gpu.name}"
        ):
            of_launch(assembly, kernel, config, args, without)
    (copy,) = copies
    assert copy.nbytes == 16 * 128
    first_row = (a.address + 2 * (30 * 128 + 32)) // 32
    assert copy.sectors == tuple(first_row + 8 * row + n for row in range(10) for n in range(4))
    assert predicted.cycles > chip.latency["l2"] + chip.latency["tma"]
    assert later.cycles - predicted.cycles == pytest.approx(1000, abs=2)
    assert later.stalls["mbarrier"] > predicted.stalls["mbarrier"]


def test_a_wait_for_a_phase_that_nobody_ends_is_refused() -> None:
    text = (
        "\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
        ".shared .align 8 .b64 b; .reg .pred p;\n"
        "mbarrier.init.shared::cta.b64 [b], 1;\n"
        "w: mbarrier.try_wait.parity.shared::cta.b64 p, [b], 0;\n@!p bra w;\nret;\n}\n"
    )
    both = joined(never=text, ended=text.replace("[b], 0", "[b], 1"))
    with pytest.raises(Unsupported, match="nobody ends") as told:
        predict(both, "h100", 1, 1, kernel="never")
    assert told.value.location is not None
    assert predict(both, "h100", 1, 1, kernel="ended").cycles > 29


CLUSTER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k() .reqnctapercluster 2, 1, 1
{
  .shared .align 8 .b64 b; .reg .pred p, first; .reg .b32 lane;
  mov.u32 lane, %laneid; setp.eq.u32 first, lane, 0;
  @first mbarrier.init.shared::cta.b64 [b], 1;
  barrier.cluster.arrive; barrier.cluster.wait;
  @!first bra end;
  mbarrier.arrive.shared::cta.b64 _, [b];
w: mbarrier.try_wait.parity.shared::cta.b64 p, [b], 0;
  @!p bra w;
end:
  barrier.cluster.arrive; barrier.cluster.wait;
  ret;
}
"""


@pytest.mark.parametrize(("gpu", "target"), [("h100", "sm_90"), ("b200", "sm_100")])
def test_the_barrier_of_a_cluster_takes_the_way_there(gpu: str, target: str) -> None:
    """Two barriers with the way to another SM, and a hand-over by one lane between them."""
    latency = find(gpu).latency
    program = CLUSTER.replace("sm_90", target).replace("8.0", "8.7")
    without = program.replace("mbarrier.arrive.shared::cta.b64 _, [b];", "")
    both = joined(whole=program, without=without)
    cycles = predict(both, gpu, 2, 32, kernel="whole").cycles
    assert 2 * (latency["cluster"] + latency["shared"]) < cycles
    assert cycles < 2 * (latency["cluster"] + latency["shared"]) + 300
    with pytest.raises(Unsupported, match="nobody ends"):
        predict(both, gpu, 2, 32, kernel="without")
