"""Where two launches part: the step, the register, and whether rounding explains it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.loading import Loadable
from ptxlab.device.protocol import Device, Module
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import diff as diff_module
from ptxlab.observe.addresses import device_dependent
from ptxlab.observe.diff import DeviceLaunch, DiffReport, Repeatable, diff
from ptxlab.observe.rounding import Executed, judge
from ptxlab.syntax import parse, to_text
from ptxlab.syntax.tree import PtxModule

TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{
    .reg .pred p, odd;
    .reg .b16 h;
    .reg .b32 i, n, x, y, a;
    .reg .f32 f;
    .reg .b64 o, q;
    .shared .b32 tile[64];
    ld.param.u32 n, [n + 0];
    ld.param.u64 o, [out];
    mov.u32 x, %tid.x;
    and.b32 y, x, 1;
    setp.ne.u32 odd, y, 0;
    mov.b32 i, 0;
again:
    add.u32 i, i, 1;
    mad.lo.u32 x, x, 3, i;
    @odd add.u32 x, x, 1000;
    setp.lt.u32 p, i, 5;
    @p bra again;
    cvt.rn.f32.u32 f, x;
    cvt.rn.f16.f32 h, f;
    mov.u32 a, tile;
    mov.u32 i, %tid.x; mad.wide.u32 q, i, 4, o;
    st.global.u32 [q], x;
    ret;
}
"""
TEXT = TEXT.replace("[n + 0]", "[count]").replace(".param .u32 n", ".param .u32 count")


class Faulty(EmulatorDevice):
    """An emulator on which one instruction is another one."""

    def __init__(self, right: str, wrong: str) -> None:
        super().__init__(TARGETS["sm_90a"])
        self._change = (right, wrong)

    def load(self, source: Loadable, *, options: Sequence[str] = ()) -> Module:
        assert isinstance(source, PtxModule)
        text = re.sub(" +", " ", to_text(source))
        assert self._change[0] in text
        return super().load(text.replace(*self._change), options=options)


def launch(threads: int = 70) -> Repeatable:
    module = parse(TEXT)

    def bound(device: Device) -> DeviceLaunch:
        out = device.zeros(2 * threads, "u32")
        return DeviceLaunch(device.load(module).kernel("k"), [out, 5], {}, [("out", out)])

    return Repeatable(module, "k", LaunchConfig.of(2, threads), bound)


def part(right: str, wrong: str, threads: int = 70) -> DiffReport:
    return diff(launch(threads), EmulatorDevice(TARGETS["sm_90a"]), Faulty(right, wrong))


def line(text: str) -> int:
    [number] = [n for n, at in enumerate(TEXT.splitlines(), 1) if text in at]
    return number


def test_the_same() -> None:
    report = diff(launch(), EmulatorDevice(TARGETS["sm_80"]), EmulatorDevice(TARGETS["sm_90a"]))
    assert report.same
    # n, x, y, odd, i; five times i, x, p and in half of the threads x; f, h.
    assert report.steps == 140 * (5 + 16 + 2) + 70 * 5


@pytest.mark.parametrize("window", [1 << 27, 1 << 12])
def test_the_first_register(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """With a small window there are many of them, and the same is found."""
    monkeypatch.setattr(diff_module, "WINDOW_BYTES", window)
    report = part("mad.lo.u32 x, x, 3, i;", "mad.lo.u32 x, x, 3, i; @odd shl.b32 x, x, 1;")
    assert report.first is not None
    assert report.first.instruction.position.line == line("mad.lo.u32 x")
    assert report.first.thread == 1
    assert report.first.register == "x"
    assert report.first.bits == (4, 8)
    assert report.first.judgement.values == ((4,), (8,))
    assert report.first.judgement.verdict == "wrong"
    assert report.first.lanes == 16
    [out] = report.outputs
    assert (out.name, out.differing, out.total, out.index) == ("out", 35, 140, (1,))


def test_a_later_iteration() -> None:
    report = part("setp.lt.u32 p, i, 5;", "setp.lt.u32 p, i, 4;")
    assert report.first is not None
    assert report.first.instruction.name == "setp.lt.u32"
    assert report.first.step == 5 + 3 * 4 - 1  # of thread 0, which makes 3 steps an iteration
    assert report.first.bits == (1, 0)
    assert report.first.judgement.type == "pred"


def test_another_way() -> None:
    report = part("@p bra again;", "@!p bra again;")
    assert report.first is not None
    assert report.first.judgement.verdict == "control flow"
    assert report.first.instruction.name == "setp.lt.u32"
    assert report.first.register == ""


def test_a_difference_that_no_array_shows() -> None:
    report = part("cvt.rn.f16.f32 h, f;", "cvt.rz.f16.f32 h, f;")
    assert not any(output.differing for output in report.outputs)
    assert report.first is not None
    assert report.first.register == "h"
    assert report.first.judgement.verdict == "rounding"


def test_what_is_left_out() -> None:
    [kernel] = parse(TEXT).entries
    assert device_dependent(kernel, ["out"]) == {"o", "q", "a"}
    assert device_dependent(kernel, []) == {"a"}


CALLS = """\
.version 8.0
.target sm_80
.address_size 64
.func (.param .b64 back) at(.param .b64 p) { ret; }
.func (.param .b32 back) read(.param .b64 p) { ret; }
.func (.reg .f32 y) half(.reg .f32 x) { ret; }
.visible .entry k(.param .u64 out)
{
    .reg .b64 base, moved, long;
    .reg .f32 found, f, g;
    ld.param.u64 base, [out];
    {
        .param .b64 given; .param .b64 back;
        st.param.b64 [given], base;
        call (back), at, (given);
        ld.param.b64 moved, [back];
    }
    {
        .param .b64 given; .param .b32 back;
        st.param.b64 [given], moved;
        call (back), read, (given);
        ld.param.f32 found, [back];
    }
    {
        .param .b64 given; .param .b64 back;
        st.param.b64 [given], 5;
        call (back), at, (given);
        ld.param.b64 long, [back];
    }
    call (g), half, (f);
}
"""


def test_what_functions_return_of_addresses_is_left_out() -> None:
    """The names of a call's parameters are used again, by calls that were given no address."""
    [kernel] = parse(CALLS).entries
    assert device_dependent(kernel, ["out"]) == {"base", "moved"}


def test_a_narrow_number_that_a_function_makes_of_an_address_is_one_where_memory_is() -> None:
    text = CALLS.replace(
        "    call (g), half, (f);\n",
        "    .reg .b32 row, sum; call (row), stage, (base); call (sum), stage, (base); ld.shared.f32 f, [row];\n",
    ).replace(
        ".func (.reg .f32 y)",
        ".func (.reg .b32 r) stage(.reg .b64 p) { ret; }\n.func (.reg .f32 y)",
    )
    [kernel] = parse(text).entries
    assert device_dependent(kernel, ["out"]) == {"base", "moved", "row"}
    assert device_dependent(kernel, []) == set()


# ---- the verdict ----------------------------------------------------------------------------

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0,d1,d2,d3}, {a0,a1,a2,a3}, {b0,b1}, {c0,c1,c2,c3};"


def step(text: str, types: tuple[str, ...], a: Any, b: Any, **sources: Any) -> Executed:
    module = parse(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { .reg .b32 d<4>, a<4>, b<2>, c<4>;"
        f" .reg .f32 f, g; .reg .b32 x; {text} }}"
    )
    [site] = instructions(module.entries[0])
    words = (np.array(a, np.uint64), np.array(b, np.uint64))
    return Executed(site.instruction, types, sources, words)


def f32(*values: float) -> list[int]:
    return [int(bits) for bits in np.array(values, np.float32).view(np.uint32)]


@pytest.mark.parametrize(
    ("text", "a", "b", "verdict"),
    [
        ("add.f32 f, f, g;", 1.0, 1 + 2.0**-23, "rounding"),
        ("add.f32 f, f, g;", 1.0, 1 + 2.0**-20, "wrong"),
        ("add.f32 f, f, g;", 1.0, float("nan"), "wrong"),
        ("add.f32 f, f, g;", 1.0, -1.0, "wrong"),
        ("ex2.approx.f32 f, g;", 1.0, 1 + 2.0**-20, "rounding"),
        ("ex2.approx.f32 f, g;", 1.0, 1 + 2.0**-15, "wrong"),
    ],
)
def test_scalars(text: str, a: float, b: float, verdict: str) -> None:
    assert judge(step(text, ("f32",), [f32(a)], [f32(b)]), 0, 0).verdict == verdict


def test_integers_never_differ_by_rounding() -> None:
    judgement = judge(step("add.u32 x, x, 1;", ("b32",), [[7]], [[8]]), 0, 0)
    assert (judgement.verdict, judgement.values) == ("wrong", ((7,), (8,)))


@pytest.mark.parametrize(
    ("apart", "verdict"), [(2.0**-19, "rounding"), (2.0**-6, "wrong")]
)  # fmt: skip
def test_products_cancel(apart: float, verdict: str) -> None:
    """1000 - 1000 and a rest: the sum is small, what it was made of was not."""
    ones = {f"a{i}": np.full(32, 0x3C003C00, np.uint64) for i in range(4)}
    b = {f"b{i}": np.full(32, 0x3C00BC00, np.uint64) for i in range(2)}  # -1, 1, -1, 1, ...
    c = {f"c{i}": np.zeros(32, np.uint64) for i in range(4)}
    left = np.zeros((32, 4), np.uint64)
    other = np.full((32, 4), f32(apart)[0], np.uint64)
    judgement = judge(step(MMA, ("b32",) * 4, left, other, **ones, **b, **c), 3, 1)
    assert judgement.verdict == verdict
    assert judgement.type == "f32"
    assert judgement.values == ((0.0,), (apart,))
