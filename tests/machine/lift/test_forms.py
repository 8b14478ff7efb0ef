"""Instructions of PTX give the same bits as what ptxas makes of them, lifted: random bits, edges, constants."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.errors import Unsupported
from ptxlab.machine.lift import table
from ptxlab.machine.lift.writer import Writer
from tests.machine.lift.programs import FormsProgram, differences, forms_of, programs

ARCHS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")


def check(arch: str, first: int, count: int) -> Iterator[str]:
    for program in programs(arch, first, count):
        try:
            lifted = program.lifted()
        except Unsupported as error:
            yield f"refused: {error.message}"
        else:
            yield from differences(program, lifted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_both_engines_agree(arch: str) -> None:
    told = list(check(arch, 0, 2))
    assert [line for line in told if not line.startswith("refused")] == []


@pytest.mark.parametrize("name", ["div.u64", "rem.s64", "div.rn.f64", "sqrt.rn.f64"])
def test_what_functions_compute_agrees(name: str) -> None:
    """Carries of products, and ways back from where a function is called."""
    [form] = [form for form in forms_of("sm_80") if form.name == name]
    program = FormsProgram(70, [form] * 4, "sm_80")
    assert differences(program, program.lifted()) == []


TURING = re.compile(
    r"cvt\.(rz\.(ftz\.)?(sat\.)?f16\.f32|(ftz\.)?(sat\.)?f32\.f16)$|set\.ne\.xor\.f16\.u64"
)


def test_what_turing_has_other_instructions_for_agrees() -> None:
    """A half cut off from f32 and one as f32 are sums there; of two zeros the lower halves are not compared."""
    forms = [form for form in forms_of("sm_75") if TURING.match(form.name)]
    assert len(forms) >= 7
    program = FormsProgram(3, forms, "sm_75")
    assert differences(program, program.lifted()) == []


NOT_THERE = """\
.version 8.1
.target sm_75
.address_size 64
.visible .entry halves(.param .u64 data)
{
    .reg .b64 x; .reg .f32 a; .reg .b16 h;
    ld.param.u64 x, [data]; ld.global.f32 a, [x]; cvt.rn.satfinite.f16.f32 h, a; st.global.b16 [x], h; ret;
}
"""


def test_what_a_chip_does_not_have_is_refused() -> None:
    """ptxas makes F2FP of it, which sm_75 does not have; nvdisasm prints nothing there."""
    device = open_device("emulator", arch="sm_75", engine="sass")
    with pytest.raises(Unsupported, match=r"'NAMELESS' at 0x0030: nvdisasm knows no such"):
        device.load(NOT_THERE).kernel("halves")


NARROW = re.compile(r"cvt\..*(e[2345]m[123]|ue8m0|\.rs\.|u8\.f32)")


@pytest.mark.parametrize(
    ("arch", "least"), [("sm_100a", 40), pytest.param("sm_90a", 14, marks=pytest.mark.thorough)]
)
def test_narrow_numbers_agree(arch: str, least: int) -> None:
    forms = [form for form in forms_of(arch) if NARROW.match(form.name)]
    assert len(forms) >= least
    program = FormsProgram(5, forms, arch)
    assert differences(program, program.lifted()) == []


PAIRS = """\
.version 9.0
.target {arch}
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .b64 x; .reg .b32 n; .reg .b16 h, g; .reg .f32 a, b, c, d; .reg .b8 p, q, r, s;
    ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, 16, x; ld.global.v4.f32 {{a, b, c, d}}, [x];
    cvt.rn.satfinite.e4m3x2.f32 h, a, b; cvt.rn.satfinite.relu.e5m2x2.f32 g, c, d; mov.b32 n, {{h, g}}; st.global.b32 [x], n;
    mov.b32 n, b; cvt.rn.satfinite.e5m2x2.f16x2 h, n; mov.b32 n, {{g, h}}; st.global.b32 [x + 4], n;
    {more}
    ret;
}}
"""
"""Two packed numbers in one word, of which machine code makes the second above the first."""
MORE = """\
    cvt.rp.satfinite.ue8m0x2.f32 h, a, b; cvt.rz.ue8m0x2.f32 g, d, c; mov.b32 n, {h, g}; st.global.b32 [x + 8], n;
    cvt.rn.satfinite.e2m1x2.f32 p, a, b; cvt.rn.satfinite.e2m1x2.f32 q, c, b; cvt.rn.satfinite.e2m1x2.f32 r, a, d;
    cvt.rn.satfinite.relu.e2m1x2.f32 s, d, b; mov.b32 n, {p, q, r, s}; st.global.b32 [x + 12], n;"""


def left(text: str, arch: str, words: Array, threads: int) -> list[list[int]]:
    """Return what each engine leaves of some words."""
    told = []
    for engine in ("ptx", "sass"):
        device = open_device("emulator", arch=arch, engine=engine)
        data = device.upload(words)
        device.load(text).kernel("k").launch(1, threads, [data])
        told.append(data.numpy().tolist())
    return told


@pytest.mark.parametrize(("arch", "more"), [("sm_90a", ""), ("sm_120a", MORE)])
def test_pairs_of_narrow_numbers_agree(arch: str, more: str) -> None:
    words = np.random.default_rng(4).integers(0x3E000000, 0x43000000, 256, np.uint32)
    words ^= np.random.default_rng(5).integers(0, 2, 256, np.uint32) << np.uint32(31)
    ptx, sass = left(PAIRS.format(arch=arch, more=more), arch, words, 64)
    assert ptx == sass


BITS = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b64 x; .reg .b32 n, mask, base, far;
    ld.param.u64 x, [data]; mov.u32 n, %tid.x; mad.wide.u32 x, n, 8, x; ld.global.v2.b32 {mask, base}, [x];
    shr.s32 far, base, 26; and.b32 base, base, 31; fns.b32 n, mask, base, far; st.global.b32 [x], n;
    fns.b32 n, mask, base, 0; st.global.b32 [x + 4], n;
    ret;
}
"""


def test_bits_are_found_alike() -> None:
    """The one that is up to 32 further, up or down, from any of a word."""
    words = np.random.default_rng(6).integers(0, 1 << 32, 2048, np.uint32)
    words[::4] &= np.roll(words, 1)[::4]
    ptx, sass = left(BITS, "sm_80", words, 1024)
    assert ptx == sass
    assert {*ptx} == {*range(32), 0xFFFFFFFF}


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_what_tf32_cuts_off_agrees(arch: str) -> None:
    """With NaN of which nothing is left but an infinity: ptxas makes the conversion of integers."""
    forms = [form for form in forms_of(arch) if form.name.startswith("cvt.rna")]
    assert len(forms) == 2
    program = FormsProgram(1, forms * 4, arch)
    assert differences(program, program.lifted()) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tenth", range(30))
@pytest.mark.parametrize("arch", ARCHS)
def test_both_engines_agree_on_every_form(arch: str, tenth: int) -> None:
    told = list(check(arch, 10 * tenth, 10))
    assert [line for line in told if not line.startswith("refused")] == []


def test_a_rule_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logic that is always a shift differs, and nothing does that is right."""

    def wrong(w: Writer) -> None:
        w.modifiers.ignore(*w.modifiers.names)
        w.emit(f"shl.b32 {w.dest()}, {w.word(w.i.sources[0])}, 1")

    [program] = programs("sm_80", 0, 1)
    assert isinstance(program, FormsProgram)
    right = differences(program, program.lifted())
    monkeypatch.setitem(table.RULES, "LOP3", wrong)
    assert right == []
    assert differences(program, program.lifted()) != []


def test_a_modifier_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(w: Writer) -> None:
        w.emit(f"mov.b32 {w.dest()}, 0")

    [program] = programs("sm_80", 0, 1)
    monkeypatch.setitem(table.RULES, "LOP3", forgetful)
    with pytest.raises(Unsupported, match=r"k\.sass:\d+.*what \.\w+ does here is not modelled"):
        program.lifted()
