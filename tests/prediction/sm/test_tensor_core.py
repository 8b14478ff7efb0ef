"""Products in Tensor Memory, and who waits for them, beside what others measured on B200.

``ALONE`` and ``IN_A_ROW`` are cycles of SemiAnalysisAI/microbench-blackwell: of one product until a warp has
waited for its commit (``umma_latency``), and of each of 512 behind each other (``umma_throughput``).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import Launch
from ptxlab.machine.memory import GlobalWords
from ptxlab.machine.operands import SassAddress, read
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import tensor_registers
from ptxlab.machine.values import ALL
from ptxlab.matrix.instruction_descriptor import encode, shape
from ptxlab.prediction.chip import find
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.asynchronous import AsynchronousCopies
from ptxlab.prediction.following.lifted import computations
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm import tensor_work
from ptxlab.prediction.sm.mbarriers import ARRIVE, NOTHING, Operation
from ptxlab.prediction.sm.tensor_core import TensorCore, TensorMemory
from ptxlab.prediction.sm.tensor_work import Columns, Commit, TensorCopy, TensorProduct
from ptxlab.prediction.sm.timing import timings
from ptxlab.prediction.sm.warps import NEVER, Warp
from tests.machine.test_operations import instruction
from tests.together import in_one_test

B200 = find("b200")
WAIT = B200.latency["shared"]
KEY = (0, 1024)

SS, TS = True, False
ALONE = {
    (64, 64, 1, SS): 152, (64, 256, 1, SS): 248, (128, 64, 1, SS): 168, (128, 128, 1, SS): 200,
    (128, 256, 1, SS): 264, (128, 64, 1, TS): 136, (128, 256, 1, TS): 232, (128, 128, 2, SS): 197,
    (128, 256, 2, TS): 210, (256, 64, 2, SS): 202, (256, 256, 2, SS): 298, (256, 256, 2, TS): 266,
}  # fmt: skip
IN_A_ROW = {
    (64, 64, 1, SS): 32.3, (64, 256, 1, SS): 128.3, (128, 64, 1, SS): 48.3, (128, 96, 1, SS): 56.3,
    (128, 128, 1, SS): 64.3, (128, 256, 1, SS): 128.3, (128, 64, 1, TS): 32.2, (128, 64, 2, SS): 25.3,
    (128, 256, 2, SS): 64.4, (256, 64, 2, SS): 43.3, (256, 96, 2, SS): 49.7, (256, 256, 2, SS): 128.4,
}  # fmt: skip


def taken(product: TensorProduct, count: int) -> float:
    """Return the cycles until who waits for so many products goes on."""
    core = TensorCore(B200, defaultdict(float))
    for _ in range(count):
        core.multiply(0, product, 0)
    return core.done(Commit(KEY, product.ctas), 0) + WAIT


@in_one_test(("product", "cycles"), ALONE.items())
def test_one_product_takes_what_was_measured(
    product: tuple[int, int, int, bool], cycles: int
) -> None:
    assert taken(TensorProduct(*product), 1) == pytest.approx(cycles, abs=11)


@in_one_test(("product", "cycles"), IN_A_ROW.items())
def test_products_in_a_row_take_what_was_measured(
    product: tuple[int, int, int, bool], cycles: float
) -> None:
    multiplication = TensorProduct(*product)
    assert (taken(multiplication, 513) - taken(multiplication, 1)) / 512 == pytest.approx(
        cycles, abs=3.4
    )


def test_a_product_waits_for_copies_before_it_and_no_other_cta_does() -> None:
    busy: dict[str, float] = defaultdict(float)
    core = TensorCore(B200, busy)
    core.copy(0, TensorCopy(4096), 10)
    core.multiply(1, TensorProduct(128, 256, 1, TS), 0)
    assert core.done(Commit((1, 8)), 0) == 128 + B200.latency["commit"]
    core.multiply(0, TensorProduct(128, 256, 1, TS), 0)
    assert core.done(Commit(KEY), 0) == 256 + B200.latency["commit"]
    core.copy(0, TensorCopy(2048 * 10), 10)
    assert core.done(Commit(KEY), 0) == 10 + 12 * 44 + B200.latency["commit"]
    core.multiply(0, TensorProduct(128, 64, 1, TS), 0)
    assert core.done(Commit(KEY), 0) == 10 + 12 * 44 + 32 + B200.latency["commit"]
    assert busy["tensor"] == 4 * (128 + 128 + 32)


def test_a_commit_behind_nothing_is_told_at_once() -> None:
    assert TensorCore(B200, defaultdict(float)).done(Commit(KEY), 70) == 70 + B200.latency["commit"]


def test_who_finds_no_columns_waits_for_another_cta() -> None:
    woken: dict[int, float] = {}

    def wake(warp: Warp, at: float) -> None:
        woken[warp.cta] = warp.ready = at

    warps = [Warp(cta, [0]) for cta in range(4)]
    memory = TensorMemory(wake)
    for warp, granules in zip(warps, (8, 4, 8, 4), strict=True):
        memory.ask(warp, Columns(granules), 5)
    assert woken == {0: 5, 1: 5}
    assert (warps[2].ready, warps[2].waits_for) == (NEVER, "tensor memory")
    memory.ask(warps[1], Columns(0), 40)
    assert woken == {0: 5, 1: 5, 2: 40}
    memory.ask(warps[0], Columns(0), 60)
    assert woken == {0: 5, 1: 5, 2: 40, 3: 60}


def asked(text: str, words: dict[int, int], pairs: bool = False) -> object:
    """Return what an instruction asks, with uniform registers of some ``words``."""
    launch = Launch(TARGETS["sm_100a"], LaunchConfig.of(1, 32), b"", [])
    registers = Registers(launch, [0])
    for number, value in words.items():
        registers.words.write(256 + number, ALL, np.full(32, value, np.uint32))
    accesses = Accesses(launch, registers, GlobalWords([]), 1)
    copies = AsynchronousCopies(launch, registers, accesses, [0], pairs)
    i = instruction(text)
    if i.does == "tensor product":
        orders = copies.products(i, np.arange(32))
    else:
        [computation] = computations([i], launch.target)
        assert computation is not None
        demands = computation.demands(registers, ALL)
        orders = [each for demand in demands for each in copies.orders(i, demand, told=True)]
    ((order,),) = copies.asked(orders, told=True)
    return order


def test_a_product_is_what_its_descriptor_says() -> None:
    word = encode("f16", {"m": 256, "n": 96, "a type": "bf16", "b type": "bf16"})
    shared = "UTCHMMA.2CTA gdesc[UR8], gdesc[UR10], tmem[UR12], tmem[UR20], idesc[UR21], UPT"
    assert asked(shared, {21: word}) == TensorProduct(256, 96, 2, SS)
    scaled = encode("mxf4nvf4", {"m": 128, "n": 192})
    assert shape(scaled) == (128, 192, False)
    text = "UTCOMMA.4X tmem[UR8], gdesc[UR10], tmem[UR13], tmem[UR4], idesc[UR5], tmem[UR46], UP0"
    assert asked(text, {5: scaled}) == TensorProduct(128, 192, 1, TS)


@pytest.mark.parametrize(
    ("modifier", "sparse"), [(".WS", "no"), (".ASHIFT", "no"), ("", "yes")], ids=["ws", "ashift", "sp"]
)  # fmt: skip
def test_products_that_nobody_timed_are_refused(modifier: str, sparse: str) -> None:
    word = encode("f16", {"m": 128, "n": 64, "sparse": sparse})
    text = f"UTCHMMA{modifier} tmem[UR8], gdesc[UR10], tmem[UR12], tmem[UR20], idesc[UR21], UPT"
    with pytest.raises(Unsupported, match="nobody says how long 'UTCHMMA"):
        asked(text, {21: word})


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [("", 4096), (".128dp128bit", 2048), (".4x32dp128bit", 2048), (".2x64dp128bit_lw02_lw13", 2048), (".4dp256bit", 128)],
)  # fmt: skip
def test_a_copy_is_the_bytes_that_it_writes(shape: str, nbytes: int) -> None:
    assert asked(f"UTCCP.T.S{shape} tmem[UR16], gdesc[UR12]", {}) == TensorCopy(nbytes)


def test_a_copy_of_another_shape_is_refused() -> None:
    with pytest.raises(Unsupported, match="nobody says how long"):
        tensor_work.written(instruction("UTCCP.T.S.8x16dp128bit tmem[UR16], gdesc[UR12]"))


def test_a_commit_names_its_mbarrier_and_columns_are_granules() -> None:
    assert asked("UTCBAR.2CTA.MULTICAST [UR12], URZ, UR13", {12: 3 << 24 | 1096}) == Commit(
        (0, 1096), 2
    )
    assert asked("UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR5, UR8", {8: 4}) == Columns(4)
    assert asked("UTCATOMSWS.AND URZ, UR4", {4: 0xFFFF}) == Columns(0)


def test_the_second_of_a_pair_arrives_as_the_first_does() -> None:
    """At the first CTA by an address of the cluster; at its own, or at the other's, each does for itself."""
    near = asked("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", {4: 1096}, pairs=True)
    first = asked("SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [UR4], RZ", {4: 1096}, pairs=True)
    other = asked("SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [UR4], RZ", {4: 1 << 24 | 1096}, pairs=True)
    assert near == Operation(ARRIVE, (0, 1096), 32)
    assert first == Operation(ARRIVE, (0, 1096), 64)
    assert other == Operation(ARRIVE, (0, 1096), 32, far=True)
    text = "SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [UR4], RZ"
    assert asked(text, {4: 1096}) == Operation(ARRIVE, (0, 1096), 32)
    assert asked(text, {4: 72}, pairs=True) == Operation(NOTHING, (0, 72))


@pytest.mark.parametrize(
    ("modifiers", "registers"),
    [((), 1), (("x8",), 8), (("16dp256bit", "x4"), 16), (("16dp128bit", "x2"), 4), (("16dp64bit",), 1), (("16dp32bit_t0_t15", "x64"), 64)],
)  # fmt: skip
def test_loads_of_tensor_memory_are_so_many_registers(
    modifiers: tuple[str, ...], registers: int
) -> None:
    assert tensor_registers(modifiers) == registers


def test_a_load_holds_its_pipe_two_cycles_a_register_and_a_store_one() -> None:
    load, store = (
        timings([instruction(text)], [0], B200, {})[0]
        for text in ("LDTM.x16 R4, tmem[UR5]", "STTM.x16 tmem[UR5], R4")
    )
    assert (load.pipes, load.hold, load.latency) == (("tmem",), 32, 42)
    assert (store.hold, store.latency) == (16, 26)


def test_what_stands_before_an_address_is_told() -> None:
    for what in ("tmem", "gdesc", "idesc"):
        address = read(f"{what}[UR4+0x80]")
        assert isinstance(address, SassAddress)
        assert (address.what, address.offset) == (what, 0x80)
    plain = read("desc[UR8][R4.64]")
    assert isinstance(plain, SassAddress)
    assert plain.what == ""


PROGRAM = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 turns)
{
  .reg .b32 n, parity, d, word; .reg .b64 a; .reg .pred over, more, one;
  .shared .align 8 .b64 b; .shared .align 4 .b32 slot; .shared .align 1024 .b8 s[16384];
  ld.param.u32 n, [turns]; mov.b32 parity, 0; mov.b64 a, 0x4000404000010040;
  mbarrier.init.shared::cta.b64 [b], 1;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;
  bar.sync 0;
  ld.shared.b32 d, [slot]; mov.b32 word, IDESC;
  elect.sync _|one, -1;
  @!one bra done;
turn:
  tcgen05.mma.cta_group::1.kind::f16 [d], a, a, word, 1;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [b];
w: mbarrier.try_wait.parity.shared::cta.b64 over, [b], parity;
  @!over bra w;
  xor.b32 parity, parity, 1;
  sub.u32 n, n, 1; setp.ne.u32 more, n, 0;
  @more bra turn;
done:
  bar.sync 0;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 d, 128;
  ret;
}
"""


def test_a_turn_of_product_commit_and_wait_takes_what_was_measured() -> None:
    """Of m128n128 200 cycles, and what else is in this loop: a register comes to the uniform file, 29."""
    word = encode("f16", {"m": 128, "n": 128, "a type": "bf16", "b type": "bf16"})
    program = PROGRAM.replace("IDESC", str(word))
    few, many = (predict(program, "b200", 1, 32, [turns]).cycles for turns in (8, 24))
    assert (many - few) / 16 == pytest.approx(200 + WAIT, abs=20)
