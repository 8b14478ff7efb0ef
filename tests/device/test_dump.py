"""Registers in the middle of a launch: looked at directly, and stored by a rewritten kernel."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.device.dump import launch_rewritten
from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Device, Dump, Dumped
from ptxlab.emulator.run import grid
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from tests.together import in_one_test

TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 y) twice(.reg .b32 x)
{
    add.u32 y, x, x;
    ret;
}
.visible .entry k(.param .u64 out, .param .u32 count)
{
    .reg .pred p;
    .reg .b16 h;
    .reg .b32 i, n, x, y;
    .reg .f64 d;
    .reg .b64 o;
    ld.param.u32 n, [count];
    mov.u32 x, %tid.x;
    mov.b16 h, -2;
    mov.b32 i, 0;
again:
    add.u32 i, i, 1;
    mad.lo.u32 x, x, 10, i;
    cvt.rn.f64.u32 d, x;
    setp.lt.u32 p, i, n;
    @p bra again;
    call (y), twice, (x);
    ld.param.u64 o, [out];
    mov.u32 x, %tid.x; mad.wide.u32 o, x, 4, o;
    @p mad.lo.u32 y, y, 3, 7;
    st.global.u32 [o], y;
    ret;
}
"""
KERNEL = TEXT.splitlines()


def line(text: str) -> int:
    """Return the number of the line that holds ``text``."""
    [number] = [n for n, at in enumerate(KERNEL, 1) if text in at]
    return number


def dump(device: Device, dump: Dump, text: str = TEXT, threads: int = 40) -> Dumped:
    """Launch ``text`` with n = 3 and return what the dump finds."""
    out = device.zeros(threads, "u32")
    result = device.load(text).kernel("k").launch(1, threads, [out, 3], dump=dump)
    assert (out.numpy() == 2 * (1000 * np.arange(threads) + 123)).all()
    assert result.dump is not None
    return result.dump


def test_an_iteration_of_a_loop(device: Device) -> None:
    lane = np.arange(40)
    dumped = dump(device, Dump("mad.lo", ("x", "i", "h", "p"), nth=2))
    assert dumped.registers == ("x", "i", "h", "p")
    assert dumped.types == ("b32", "b32", "b16", "pred")
    # The guarded mad is passed too: four times in all.
    assert (dumped.passes == 4).all()
    assert dumped.reached.all()
    expected = np.stack([100 * lane + 12, lane * 0 + 2, lane * 0 + 0xFFFE, lane * 0 + 1], axis=1)
    assert (dumped.words == expected).all()


def test_before_and_after(device: Device) -> None:
    before = dump(device, Dump(line("mad.lo.u32 x"), ("x",), before=True, nth=3))
    after = dump(device, Dump(line("mad.lo.u32 x"), ("x",), nth=3))
    assert (after.words == 10 * before.words + 3).all()


def test_a_label_is_the_instruction_after_it(device: Device) -> None:
    assert (dump(device, Dump("again", ("i",), before=True)).words == 0).all()
    assert (dump(device, Dump("again", nth=3)).words == 3).all()


def test_operands_and_doubles(device: Device) -> None:
    dumped = dump(device, Dump("cvt.rn", ("D", "A")))
    assert dumped.registers == ("d", "x")
    assert (dumped.words[:, 0].view(np.float64) == dumped.words[:, 1]).all()


def test_never_there(device: Device) -> None:
    dumped = dump(device, Dump("again", nth=4))
    assert not dumped.reached.any()
    assert (dumped.passes == 3).all()
    assert not dumped.words.any()


def test_a_device_function() -> None:
    dumped = dump(EmulatorDevice(TARGETS["sm_90a"]), Dump(line("add.u32 y, x, x"), ("D",)))
    assert (dumped.words[:, 0] == 2 * (1000 * np.arange(40) + 123)).all()


def test_registers_of_an_instruction_are_named_once() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    dumped = dump(device, Dump(line("add.u32 y, x, x")))
    assert dumped.registers == ("y", "x")
    assert (dumped.words[:, 1] == 1000 * np.arange(40) + 123).all()


def test_a_register_may_be_called_like_an_operand(device: Device) -> None:
    """It is the register that is meant then, not the destination."""
    text = TEXT.replace("n, x, y;", "n, x, y, A;").replace(
        "mov.b32 i, 0;", "mov.b32 i, 0; mov.b32 A, 77;"
    )
    dumped = dump(device, Dump("setp", ("A", "B")), text)
    assert dumped.registers == ("A", "n")
    assert dumped.words[:, 0].tolist() == [77] * 40


@pytest.mark.parametrize(
    "asked",
    [
        Dump("again", ("x", "i", "n"), before=True, nth=2),
        Dump("mad.lo", ("x", "p", "y"), nth=4),
        Dump("setp", (), nth=3),
        Dump("ret", ("d", "h"), before=True),
    ],
)
def test_both_ways_find_the_same(asked: Dump) -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    module = device.load(TEXT)
    kernel = module.kernel()
    assert kernel.function is not None
    out, config = device.zeros(80, "u32"), LaunchConfig.of((2, 2), (5, 3, 2))
    packed = kernel.packed([out, 3])
    direct = kernel.launch_packed(config, packed, asked).dump
    stored = launch_rewritten(module, kernel.function, asked, config, packed).dump
    assert direct is not None
    assert stored is not None
    assert direct.words.shape == (120, len(direct.registers))
    assert (direct.words == stored.words).all()
    assert (direct.passes == stored.passes).all()
    assert direct.places == stored.places


SHARED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .b32 first, own[4];
    .reg .b32 a, c, x, y;
    mov.u32 c, %ctaid.x;
    mov.u32 x, %tid.x;
    mov.u32 a, own;
    mad.lo.u32 x, c, 1000, x;
    st.shared.u32 [a+8], c;
    {
        .shared .b32 own[2];
        .reg .b32 inner;
        mov.u32 inner, own;
        st.shared.u32 [inner], 77;
        bar.sync 0;
    }
    ret;
}
"""


def test_each_thread_of_any_wave_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    kernel = device.load(SHARED).kernel()
    wanted = [1000 * cta + thread for cta in range(7) for thread in range(40)]
    for threads in (64, 128, 16384):
        monkeypatch.setattr(grid, "WAVE_THREADS", threads)
        dumped = kernel.launch(7, 40, [0], dump=Dump("mad.lo", ("x",))).dump
        assert dumped is not None
        assert dumped.words[:, 0].tolist() == wanted


@pytest.mark.parametrize("cta", [0, 2, 5])
def test_shared_memory_is_that_of_the_threads_cta(
    monkeypatch: pytest.MonkeyPatch, cta: int
) -> None:
    """Of two variables of a name it is the one that the place sees."""
    monkeypatch.setattr(grid, "WAVE_THREADS", 256)
    kernel = EmulatorDevice(TARGETS["sm_90a"]).load(SHARED).kernel()
    dumped = kernel.launch(7, 40, [0], dump=Dump("bar.sync", thread=40 * cta + 3, before=True)).dump
    assert dumped is not None
    assert dumped.shared is not None
    words, places = dumped.shared.data.view(np.uint32), dumped.shared.variables
    assert len(words) == 7
    assert words[places["own"] // 4] == 77
    assert cta in words.tolist()
    outside = kernel.launch(7, 40, [0], dump=Dump("ret", thread=40 * cta + 3, before=True)).dump
    assert outside is not None
    assert outside.shared is not None
    assert outside.shared.data.view(np.uint32)[outside.shared.variables["own"] // 4 + 2] == cta


VARIABLES = """\
.version 8.0
.target sm_80
.address_size 64
.global .u32 count[2] = {5, 6};
.global .u64 where = count;
.global .u32 total;
.visible .entry k(.param .u64 out)
{
    .reg .b32 x; .reg .b64 o;
    ld.global.u64 o, [where];
    ld.global.u32 x, [o+4];
    add.u32 x, x, 1;
    st.global.u32 [o+4], x;
    st.global.u32 [total], x;
    ret;
}
"""


def test_a_rewritten_kernel_has_the_variables_and_leaves_them_changed() -> None:
    """What they hold goes there and back, but for addresses: those are of variables of its own."""
    device = EmulatorDevice(TARGETS["sm_90a"])
    module = device.load(VARIABLES)
    function, config = module.kernel().function, LaunchConfig.of(1, 1)
    assert function is not None
    pointer = module.variable("where").numpy().tolist()
    for turn in (7, 8):
        packed = module.kernel().packed([0])
        dumped = launch_rewritten(module, function, Dump("add.u32", ("x",)), config, packed).dump
        assert dumped is not None
        assert dumped.words.tolist() == [[turn]]
        assert module.variable("count").numpy().tolist() == [5, turn]
        assert module.variable("total").numpy().tolist() == turn
        assert module.variable("where").numpy().tolist() == pointer


@in_one_test(
    ("asked", "message", "hint"),
    [
        (Dump("mma.sync"), "k has no label or instruction mma.sync", None),
        (Dump("ma"), "no label or instruction ma", None),
        (
            Dump("again", ("D",), of="mad.lo"),
            "operand D of mad.lo.u32 is not the same at each of 2",
            "name the line",
        ),
        (Dump("agian"), "no label or instruction agian", "did you mean again?"),
        (Dump(4000), "no instruction on line 4000", f"the nearest is on line {len(KERNEL) - 1}"),
        (Dump("again", ("z",)), "no register named z", None),
        (Dump("again", ("C",)), "add.u32 has no registers as operand C", "operands are counted D"),
        (Dump("again", nth=0), "for the first time, not for time 0", None),
        (Dump("mov"), "not all of them have registers of the same types", "name the registers"),
    ],
)
def test_what_is_not_there(device: Device, asked: Dump, message: str, hint: str | None) -> None:
    kernel = device.load(TEXT).kernel("k")
    with pytest.raises(PtxlabError, match=message) as caught:
        kernel.launch(1, 32, [device.zeros(32, "u32"), 3], dump=asked)
    if hint is not None:
        assert caught.value.hint is not None
        assert hint in caught.value.hint


def test_no_device_function_on_a_gpu() -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    module = device.load(TEXT)
    function = module.kernel().function
    assert function is not None
    with pytest.raises(Unsupported, match="device function twice on a GPU"):
        launch_rewritten(module, function, Dump(line("add.u32 y")), LaunchConfig.of(1, 32), b"")
