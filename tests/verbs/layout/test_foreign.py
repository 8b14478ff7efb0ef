"""Layouts as CuTe prints them and as Triton's dialect has them, against what their documentation shows."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr

import numpy as np
import pytest

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.layouts.layout import ComposedLayout, Layout, Swizzle
from ptxlab.main import main
from ptxlab.matrix.catalog import multiplication
from ptxlab.verbs.layout.foreign import instruction, thread_values
from ptxlab.verbs.layout.layouts import Offsets
from ptxlab.verbs.layout.notation import element_bits, parse_layout
from tests.together import in_one_test

PRINTED = """\
TiledMMA
  ThrLayoutVMNK:  (_32,_2,_2,_1):(_1,_32,_64,_0)
  PermutationMNK: (_,_,_)
MMA_Atom
  ThrID:      _32:_1
  Shape_MNK:  (_16,_8,_16)
  LayoutA_TV: ((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))
  LayoutB_TV: ((_4,_8),(_2,_2)):((_16,_1),(_8,_64))
  LayoutC_TV: ((_4,_8),(_2,_2)):((_32,_1),(_16,_8))
"""
BLOCKED = "#ttg.blocked<{{sizePerThread = [2, 2], threadsPerWarp = [8, 4], warpsPerCTA = [{}], order = [1, 0]}}>"


def test_numbers_of_cute() -> None:
    assert parse_layout("(_8,_16):(_16,_1)") == Layout((8, 16), (16, 1))
    assert parse_layout("((_2,4),_8):((_1,16),_2)") == Layout(((2, 4), 8), ((1, 16), 2))


@pytest.mark.parametrize("between", [" o ", "_"])
@pytest.mark.parametrize(("bits", "base"), [(8, 4), (16, 3), (32, 2)])
def test_a_swizzle_before_a_pointer_is_of_bytes(between: str, bits: int, base: int) -> None:
    text = f"Sw<3,4,3>{between}smem_ptr[{bits}b](unset) o (_8,_64):(_64,_1)"
    layout = parse_layout(text)
    assert isinstance(layout, ComposedLayout)
    assert layout.swizzle == Swizzle(3, base, 3)
    assert element_bits(text) == bits
    swizzled = Swizzle(3, 4, 3)
    for row, col in ((0, 0), (3, 17), (7, 63)):
        assert layout(row, col) * bits // 8 == swizzled((64 * row + col) * bits // 8)


def test_an_atom_is_its_instruction() -> None:
    for text in ("SM80_16x8x16_F32BF16BF16F32_TN", "MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>"):
        atom = instruction(text)
        assert atom is not None
        assert atom.name == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    printed = instruction(PRINTED)
    assert printed is not None
    assert printed.shape == "m16n8k16"
    with pytest.raises(Unsupported, match="has its fragments as this atom says"):
        instruction(PRINTED.replace("(_32,_1),(_16,_8))", "(_32,_1),(_8,_16))"))
    assert instruction("2x6") is None


@pytest.mark.parametrize("warps", ["1, 2", "2, 1", "1, 1"])
def test_a_blocked_encoding(warps: str) -> None:
    """TritonGPUAttrDefs.td: 16 x 16 of which a thread has 2 x 2, a warp 8 x 4 threads, a CTA ``warps``."""
    layout = thread_values(BLOCKED.format(warps))
    assert layout is not None
    down, across = map(int, warps.split(", "))
    rows, cols = 16 * down, 8 * across
    row, col = np.indices((rows, cols))
    thread = (row % 16 // 2) * 4 + col % 8 // 2 + 32 * (row // 16 + col // 8)
    register = 2 * (row % 2) + col % 2
    assert (layout(thread, register) == row + rows * col).all()


def test_nvidia_mma_is_d_of_the_instruction() -> None:
    text = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 1], instrShape = [16, 8]}>"
    c = re.search(r"LayoutC_TV: (.*)", PRINTED)
    layout, printed = thread_values(text), parse_layout(c[1] if c else "")
    assert layout is not None
    where = np.indices((32, 4))
    assert (layout(*where) == printed(*where)).all()
    with pytest.raises(Unsupported, match="version 2 is read"):
        thread_values(text.replace("Major = 2", "Major = 3"))


def test_nvidia_mma_of_hopper_is_d_of_wgmma() -> None:
    """PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16": accumulator D, of four warps below each other.

    A second warpgroup is beside the first.
    """
    text = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 2], instrShape = [16, 32, 16]}>"
    layout = thread_values(text)
    assert layout is not None
    thread, i = np.indices((256, 16))
    row = 16 * (thread // 32 % 4) + thread % 32 // 4 + 8 * (i // 2 % 2)
    col = 32 * (thread // 128) + 2 * (thread % 4) + i % 2 + 8 * (i // 4)
    assert (layout(thread, i) == row + 64 * col).all()


def test_operands_of_dot_are_those_of_mma() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16", A and B; warps that are beside each other share A."""
    parent = "#ttg.nvidia_mma<{versionMajor = 2, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
    a = thread_values(f"#ttg.dot_op<{{opIdx = 0, parent = {parent}, kWidth = 2}}>")
    b = thread_values(f"#mma = {parent}\n#ttg.dot_op<{{opIdx = 1, parent = #mma, kWidth = 2}}>")
    assert a is not None
    assert b is not None
    thread, i = np.indices((128, 8))
    lane, warp = thread % 32, thread // 32
    row = lane // 4 + 8 * (i // 2 % 2) + 16 * (warp // 2)
    assert (a(thread, i) == row + 32 * (2 * (lane % 4) + i % 2 + 8 * (i // 4))).all()
    thread, i = np.indices((128, 4))
    lane, warp = thread % 32, thread // 32
    k = 2 * (lane % 4) + i % 2 + 8 * (i // 2)
    assert (b(thread, i) == k + 16 * (lane // 4 + 8 * (warp % 2))).all()
    with pytest.raises(Unsupported, match="for its parent"):
        thread_values("#ttg.dot_op<{opIdx = 1, parent = #mma, kWidth = 2}>")


@pytest.mark.parametrize("op", ["m16n8k16", "m16n8k32.s8", "wgmma.m64n32k16.f16"])
def test_linear_layouts_of_fragments_are_read_as_what_they_were_written_of(
    capsys: pytest.CaptureFixture[str], op: str
) -> None:
    assert main(["layout", op, "--format", "linear"]) == 0
    lines = dict(line.split(" = ", 1) for line in capsys.readouterr().out.splitlines())
    fragments = multiplication(op).operands
    assert list(lines) == [f"#{fragment.operand}" for fragment in fragments]
    for fragment in fragments:
        layout = thread_values(lines[f"#{fragment.operand}"])
        assert layout is not None
        table = fragment.table().reshape(fragment.threads, -1, 2)
        where = np.indices(table.shape[:2])
        assert (layout(*where) == table[..., 0] + fragment.rows * table[..., 1]).all()


@pytest.mark.parametrize(
    "layout", ["16x32", "(16,32)", "64x64 --swizzle 128B", "((4,8),16):((1,64),4)"]
)
def test_linear_layouts_of_memory_lead_from_offset_to_element(
    capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    words = layout.split(" ")
    assert main(["layout", *words, "--format", "linear"]) == 0
    out = capsys.readouterr().out
    rows = [list(map(int, row.split(","))) for row in re.findall(r"\[(\d+, \d+)\]", out)]
    assert main(["layout", *words, "--json"]) == 0
    offsets = np.array(json.loads(capsys.readouterr().out)["offsets"])
    assert out.startswith("#ttg.shared_linear<{offset = [[")
    for row, col in np.ndindex(offsets.shape):
        bits = [bit for bit in range(len(rows)) if offsets[row, col] >> bit & 1]
        assert tuple(np.bitwise_xor.reduce([rows[bit] for bit in bits] or [[0, 0]])) == (row, col)


def test_blocked_becomes_linear(capsys: pytest.CaptureFixture[str]) -> None:
    """Where 2 x 2 elements of a thread, 8 x 4 threads and two warps lead by bits: TritonGPUAttrDefs.td."""
    assert main(["layout", BLOCKED.format("1, 2"), "--format", "linear"]) == 0
    assert capsys.readouterr().out == (
        "#ttg.linear<{register = [[0, 1], [1, 0]], lane = [[0, 2], [0, 4], [2, 0], [4, 0], [8, 0]], "
        "warp = [[0, 8]], block = []}>\n"
    )


@in_one_test(
    ("words", "told"),
    [
        (["3x5", "--format", "linear"], "15 numbers, from [0, 0] on, make no linear layout"),
        (["(8,8):(16,1)", "--format", "linear"], "left out or met twice"),
        (["64x64", "--code", "cuda", "--format", "linear"], "only a layout and the fragments"),
        (["8x8", "--compare", "8x4"], "8 rows of 8 columns and 8 rows of 4 columns"),
        (["m16n8k16", "--compare", "m16n8k16"], "--operand chooses one"),
        (["m16n8k16", "--operand", "A", "--compare", "8x8"], "which thread holds them"),
        (["m16n8k16", "--operand", "Q"], "has no operand Q in registers\nhint: it has A, B, C, D"),
        (["8x8", "--operand", "A"], "--operand says nothing about this question"),
    ],
)
def test_what_is_not_linear_and_what_is_not_compared(words: list[str], told: str) -> None:
    err = io.StringIO()
    with redirect_stderr(err):
        assert main(["layout", *words]) == 2
    assert told in err.getvalue()


def test_layouts_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    d = "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>"
    assert main(["layout", d, "--compare", "m16n8k16", "--operand", "D"]) == 0
    assert capsys.readouterr().out == f"the same: all 128 of {d} and D of m16n8k16\n"
    swapped = d.replace("[[0, 1], [8, 0]]", "[[8, 0], [0, 1]]")
    assert main(["layout", swapped, "--compare", d]) == 1
    # values 1 and 2 of a thread are exchanged: the element below its 8 rows, and the one beside
    assert capsys.readouterr().out.splitlines() == [
        "64 places of 128 differ",
        "the first is thread 0, value 1",
        f"  element 8  {swapped}",
        f"  element 16  {d}",
    ]
    assert main(["layout", "8x8", "--swizzle", "2,1,2", "--compare", "8x8", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    moved = [
        [r, c, 8 * r + c ^ (8 * r + c >> 2 & 6), 8 * r + c] for r in range(8) for c in range(8)
    ]
    assert data["differing"] == [each for each in moved if each[2] != each[3]]
    assert data["layout"] == "Sw<2,1,2> o 0 o (8,8):(8,1)"


def test_other_names_of_cute() -> None:
    names = {
        "SM120_16x8x32_TN<cutlass::float_e4m3_t, float_e5m2_t, float>": "m16n8k32.row.col.f32.e4m3.e5m2.f32",
        "SM90::GMMA::MMA_64x64x16_F32F16F16_SS<Major::K, Major::K>": "m64n64k16.f32.f16.f16",
        "SM80_8x8x128_S32U1U1S32_TN_XORPOPC": "m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
    }
    for text, ends in names.items():
        form = instruction(text)
        assert form is not None
        assert form.name.endswith(ends)
    with pytest.raises(PtxlabError, match=r"is ldmatrix\.x4\.trans"):
        instruction("Copy_Atom<SM75_U16x8_LDSM_T, half_t>")
    with pytest.raises(PtxlabError, match="does not say its types"):
        instruction("SM120_16x8x32_TN")
    for text in ("smem_ptr[16b](0x7f) o (_8,_64):(_64,_1)", "S<0,4,3> o 0 o (8,64):(64,1)"):
        assert parse_layout(text)(3, 5) == 3 * 64 + 5


def test_a_linear_encoding_and_what_is_none() -> None:
    text = "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>"
    layout = thread_values(text)
    assert layout == parse_layout("((4,8),(2,2)):((32,1),(16,8))")
    with pytest.raises(Unsupported, match="two dimensions at once"):
        thread_values(text.replace("[8, 0]", "[8, 1]"))
    with pytest.raises(Unsupported, match="the encoding shared is not read"):
        thread_values("#ttg.shared<{vec = 8}>")
    with pytest.raises(PtxlabError, match="lacks 'order'"):
        thread_values("#ttg.blocked<{sizePerThread = [1, 8]}>")
    assert thread_values("(2,6):(6,1)") is None


def test_a_wide_tile_is_told_in_chunks_of_16_bytes() -> None:
    swizzled = Swizzle(3, 3, 3).compose(Layout.row_major((64, 64)))
    lines = Offsets(swizzled, 16).text(80).splitlines()
    rows = [list(map(int, line.split())) for line in lines if line.split()[0].isdecimal()]
    assert rows == [[row, *(chunk ^ row for chunk in range(8))] for row in range(8)]
    assert lines[-1] == "and so on, every 8 rows"
    assert "+---" in Offsets(swizzled, 16).text(), "a pipe gets every offset"
