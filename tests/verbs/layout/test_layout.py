from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.layouts.layout import Layout, Swizzle
from ptxlab.layouts.shared_memory import ACCESSES
from ptxlab.main import main
from ptxlab.matrix.matrix_plan import FORMS
from ptxlab.verbs.layout.layouts import Offsets
from ptxlab.verbs.layout.notation import parse_layout
from ptxlab.verbs.layout.shared_memory import _vectors, check_shared
from tests.together import in_one_test

SVG = "{http://www.w3.org/2000/svg}"


def text(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = main(["layout", *arguments])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    output: dict[str, Any] = json.loads(text(capsys, *arguments, "--json"))
    assert output["schema"] == "ptxlab.layout/1"
    return output


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["layout", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("hint: ") == 1
    return err


@in_one_test(
    ("written", "notation"),
    [
        ("2x6", "(2,6):(6,1)"),
        ("2x3x4", "(2,3,4):(12,4,1)"),
        ("(2,6)", "(2,6):(1,2)"),
        ("6", "6:1"),
        ("6:2", "6:2"),
        (" ( (2,2) , 8 ) : ((1,16),2) ", "((2,2),8):((1,16),2)"),
        ("Sw<3,3,3> o (8,64):(64,1)", "Sw<3,3,3> o 0 o (8,64):(64,1)"),
        ("Sw<2,1,-2>o 2 o 2x2", "Sw<2,1,-2> o 2 o (2,2):(2,1)"),
        ("2 o (2,2):(6,1)", "2 o (2,2):(6,1)"),
    ],
)
def test_layouts_are_read(written: str, notation: str) -> None:
    layout = parse_layout(written)
    assert layout.notation == notation
    assert parse_layout(layout.notation) == layout
    if isinstance(layout, Layout):
        assert Layout(written) == layout


@in_one_test(
    ("written", "column", "words"),
    [
        ("", 1, "integer"),
        ("(2,6", 5, "')' or a comma"),
        ("(2,6:(6,1)", 5, "')' or a comma"),
        ("(2,6):(6)", 7, "nest"),
        ("(2,6): 6", 8, "nest"),
        ("(2,6):(6,-1)", 10, "integer"),
        ("(2,0):(6,1)", 1, "1 or more"),
        ("2x0", 1, "1 or more"),
        ("2x6 7", 5, "ends here"),
        ("2x", 2, "ends here"),
        ("Sw<3> o 2x6", 1, "Sw<bits"),
        ("Sw<3,3,2> o 2x6", 1, "is no swizzle"),
        ("Sw<3,3,3> 2x6", 11, "'o'"),
        ("(2,,6)", 4, "integer"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(written: str, column: int, words: str) -> None:
    with pytest.raises(PtxlabError, match=words.replace("(", r"\(").replace(")", r"\)")) as caught:
        parse_layout(written)
    assert caught.value.location is not None
    assert caught.value.location.column == column
    assert caught.value.hint is not None


def test_the_caret_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = refusal(capsys, "(2,6):(6").splitlines()
    assert lines[0] == "layout:1:9: expected ')' or a comma"
    assert lines[2].index("^") == lines[1].index("(2,6):(6") + 8


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, "2x6").rstrip() == str(Layout.row_major((2, 6)))
    swizzled = Swizzle(2, 1, 2).compose(Layout.row_major((4, 8)))
    assert text(capsys, "4x8", "--swizzle", "2,1,2").rstrip() == str(swizzled)
    assert text(capsys, "Sw<2,1,2> o 4x8").rstrip() == str(swizzled)
    assert text(capsys, "2x6", "--inverse").startswith("(6,2):(2,1)\n")
    assert text(capsys, "4x8", "--compose", "(8,2):(4,2)").startswith("(8,2):(1,16)\n")


def test_tiles_and_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    tile = text(capsys, "2x6", "--tile", "2x2", "--at", "0,1").splitlines()
    assert tile[0] == "2 o (2,2):(6,1)"
    assert [line for line in tile if "|" in line] == [" 0  |  2 |  3 |", " 1  |  8 |  9 |"]
    tiles = text(capsys, "2x6", "--tile", "2x2").splitlines()
    assert tiles[:2] == ["each (2,2):(6,1)", "at   (1,3):(0,2)"]
    output = data(capsys, "4x16", "--vectorize", "8", "--swizzle", "1,3,1")
    assert output["element"]["layout"] == "(1,8):(0,1)"
    assert output["offsets"] == [[0, 8], [24, 16], [32, 40], [56, 48]]
    assert data(capsys, "2x6", "--tile", "2x2", "--at", "0,2")["offset"] == 4


def test_offsets_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = data(capsys, "(2,(2,2)):(4,(2,1))")
    assert output["offsets"] == [[0, 2, 1, 3], [4, 6, 5, 7]]
    assert (output["shape"], output["stride"]) == ([2, [2, 2]], [4, [2, 1]])
    assert (output["size"], output["cosize"]) == (8, 8)
    assert "swizzle" not in output
    assert data(capsys, "4x8", "--swizzle", "2,1,2")["swizzle"] == [2, 1, 2]


def test_bank_conflicts_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    output = data(capsys, "64x64", "--swizzle", "2,3,3", "--banks", "ldmatrix,st128")
    before, after = output["conflicts"]["before"], output["conflicts"]["after"]
    assert [row["access"] for row in before] == ["ldmatrix", "st128"]
    assert [(row["wavefronts"], row["ideal"], row["excess"], row["worst"]) for row in before] == [
        (512, 64, 448, 8),
        (64, 64, 0, 1),
    ]
    assert [(row["wavefronts"], row["worst"]) for row in after] == [(128, 2), (64, 1)]
    assert output["smallest_swizzle"] == [3, 3, 3]
    assert output["smallest_padding"]["layout"] == "(64,64):(72,1)"
    written = text(capsys, "64x64", "--banks", "ldmatrix,st128")
    for line in (
        "ldmatrix         512     64     448       8-way",
        "ldmatrix: lanes of one pass start in banks 0 0 0 0 0 0 0 0",
        "smallest swizzle  Sw<3,3,3>",
        "smallest padding  (64,64):(72,1)",
    ):
        assert line in written
    free = text(capsys, "(64,64):(72,1)", "--banks", "stmatrix.trans")
    assert free.count("none needed") == 2
    none = text(capsys, "128x32", "--banks", "ldmatrix,st128")
    assert "smallest padding  none found" in none


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    question = ("64x64", "--swizzle", "3,3,3", "--plan", "ldmatrix.x4.trans", "--at", "16,32")
    plan = data(capsys, *question)["plan"]
    assert plan["instruction"] == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    assert plan["addresses"][9] == {
        "lane": 9,
        "matrix": 1,
        "row": 1,
        "first": [25, 32],
        "address": 25 * 128 + (4 ^ 25 % 8) * 16,
        "bank": 20,
    }
    assert plan["held"][5] == [[[r, c], [r + 1, c]] for c in (33, 41) for r in (18, 26)]
    assert (plan["wavefronts"], plan["ideal"]) == ([1, 1, 1, 1], 4)
    written = text(capsys, *question)
    assert "   9       1    1  25,32     3280  20-23" in written.splitlines()
    assert "wavefronts 1 + 1 + 1 + 1 = 4, ideal 4" in written
    beside = data(capsys, "64x64", "--plan", "ldmatrix.x2", "--across")["plan"]
    assert beside["addresses"][8]["first"] == [0, 8]
    assert "lane gives" in text(capsys, "64x64", "--plan", "stmatrix.x1")


def test_fragments_as_thread_value_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    written = text(capsys, "m16n8k16", "--dtype", "bf16")
    for line in (
        "A  16 x 16  bf16  ((4,8),(2,2,2)):((32,1),(16,8,128))",
        "  m  (lane / 4) + 8 * (register % 2)",
        "  k  2 * (lane % 4) + element + 8 * (register / 2)",
        "B  16 x 8  bf16  ((4,8),(2,2)):((16,1),(8,64))",
        "  n  (lane / 4)",
    ):
        assert line in written.splitlines()
    operands = data(capsys, "m16n8k16", "--dtype", "f16", "--acc", "f32")["operands"]
    assert operands["D"]["formulas"] == {
        "m": "(lane / 4) + 8 * (register / 2)",
        "n": "2 * (lane % 4) + (register % 2)",
    }
    assert operands["A"]["shape"] == [[4, 8], [2, 2, 2]]


@pytest.mark.parametrize(
    ("question", "cells"),
    [
        (("4x8",), 32),
        (("64x64", "--swizzle", "3,3,3", "--banks", "ldmatrix"), 512),
        (("64x64", "--plan", "ldmatrix.x4", "--at", "16,32"), 512),
    ],
)
def test_pictures(question: tuple[str, ...], cells: int, tmp_path: Path) -> None:
    file = tmp_path / "layout.svg"
    assert main(["layout", *question, "--format", "svg", "-o", str(file)]) == 0
    root = ET.parse(file).getroot()
    groups = root.findall(f"{SVG}g[@id='cells']/{SVG}g")
    assert len(groups) == cells
    labels = [group.findtext(f"{SVG}text") for group in groups]
    if "--plan" in question:
        assert {f"lane {lane}" for lane in range(32)} <= set(labels)
    if "--banks" in question:
        assert labels[8:16] == ["4", "0", "12", "8", "20", "16", "28", "24"]
        fills = {group.find(f"{SVG}rect").get("class") for group in groups}  # type: ignore[union-attr]
        assert len(fills) == 8
        legend = root.findall(f"{SVG}g[@id='banks']/{SVG}g/{SVG}text")
        assert [text.text for text in legend] == [str(bank) for bank in range(0, 32, 4)]
        told = [text.text for text in root.iter(f"{SVG}text")]
        assert told[1] == "ldmatrix: 64 wavefronts, ideal 64, free of conflicts"


def test_the_type_of_elements_is_how_many_bits_they_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("32x32", "--banks", "ldmatrix")
    assert data(capsys, *asked, "--dtype", "f32") == data(capsys, *asked, "--bits", "32")
    assert data(capsys, *asked, "--dtype", "f32") != data(capsys, *asked)


def test_a_table_that_is_too_wide_goes_on_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = "(4,40):(1,7)"
    whole = Offsets(parse_layout(layout), 16).text()
    narrow = Offsets(parse_layout(layout), 16).text(80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    numbers = [re.findall(r"\d+", text.split("\n", 1)[1]) for text in (whole, narrow)]
    assert sorted(set(numbers[0])) == sorted(set(numbers[1]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("2x6", "--tile", "2x4"), ["a tile of 4 does not divide a mode of 6"]),
        (("2x6", "--tile", "2x2", "--at", "0,3"), ["no tile (0, 3)", "1x3"]),
        (("2x6", "--tile", "2y2"), ["2y2", "ROWSxCOLUMNS"]),
        (("2x6", "--vectorize", "0"), ["'0'", "1 or more"]),
        (("2x6", "--vectorize", "4"), ["4 elements side by side"]),
        (("2x6", "--swizzle", "3,3"), ["'3,3'", "3 integers"]),
        (("2x6", "--swizzle", "3,3,2"), ["Sw<3,3,2> is no swizzle"]),
        (
            ("2x6", "--swizzle", "99,99,99"),
            ["Sw<99,99,99> reaches beyond the 63 bits of an offset"],
        ),
        (
            ("2x6", "--swizzle", "21,21,22"),
            ["Sw<21,21,22> reaches beyond the 63 bits of an offset"],
        ),
        (("Sw<1,0,1> o 2x6", "--swizzle", "1,0,1"), ["as it is"]),
        (("Sw<1,0,1> o 2x6", "--inverse"), ["inverse"]),
        (("2x6", "--compose", "2 o 2x2"), ["2 o (2,2):(2,1)"]),
        (("(4,3):(3,1)", "--compose", "3:3"), ["do not fit"]),
        (("2x6", "--tile", "2x2", "--vectorize", "2"), ["not allowed with"]),
        (("2x6", "--at", "0,1"), ["--at says nothing"]),
        (("2x6", "--across"), ["--across says nothing"]),
        (("2x6", "--dtype", "bf16"), ["--dtype says nothing"]),
        (("2x6", "--dtype", "bf16", "--inverse"), ["--dtype says nothing"]),
        (("m16n8k16", "--tile", "2x2"), ["--tile says nothing", "fragments"]),
        (("m16n8k16", "--format", "svg"), ["no picture"]),
        (("m16n8k17",), ["no instruction is m16n8k17"]),
        (("64x64", "--banks", "ldmatrx"), ["did you mean ldmatrix?", *ACCESSES]),
        (("64x64", "--plan", "ldmatrix.x3"), ["did you mean", *FORMS]),
        (("2x6", "--banks", "ldmatrix"), ["8 elements side by side"]),
        (("4096x4096", "--banks", "ldmatrix"), ["33,554,432 bytes"]),
        (("4096x4096",), ["16,777,216 elements", "--tile"]),
    ],
)
def test_refusals(
    arguments: tuple[str, ...], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, *arguments)
    assert all(word in message for word in words), message


# ---- descriptors ----


def described(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    output: dict[str, Any] = json.loads(text(capsys, *arguments, "--json"))
    assert output["schema"] == "ptxlab.layout.descriptor/1"
    return output


def test_the_descriptor_of_a_tile(capsys: pytest.CaptureFixture[str]) -> None:
    """128 bytes of k are a whole span: the start moves by 32 bytes, and lines of 8 are 1024 apart."""
    question = ("128x64", "--descriptor", "wgmma", "--swizzle", "128B", "--address", "0x400")
    lines = text(capsys, *question).splitlines()
    assert lines[0] == "wgmma matrix descriptor  0x4000004000010040"
    assert "32-45      64  stride byte offset   1024 bytes" in lines
    assert lines[-1] == "k by 16  start address 0x400 0x420 0x440 0x460"
    output = described(capsys, *question)
    assert output["value"] == "0x4000004000010040"
    assert output["tile"]["starts"] == [0x400, 0x420, 0x440, 0x460]
    assert [f["stored"] for f in output["fields"]] == [0x40, 1, 64, 0, 1]
    along_mn = described(
        capsys, "128x64", "--descriptor", "tcgen05", "--major", "mn", "--swizzle", "64B"
    )
    assert along_mn["tile"]["starts"] == [0, 4096, 8192, 12288]
    assert along_mn["value"] == "0x8000408000200000"


def test_a_descriptor_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    output = described(capsys, "0x4000004000010040", "--descriptor", "wgmma")
    values = {f["name"]: f["value"] for f in output["fields"]}
    assert values == {
        "start address": 0x400,
        "leading byte offset": 16,
        "stride byte offset": 1024,
        "base offset": 0,
        "swizzle": "128B",
    }
    assert output["tile"] is None


def test_instruction_descriptors(capsys: pytest.CaptureFixture[str]) -> None:
    question = ("128x256", "--descriptor", "kind::f16", "--dtype", "bf16", "--acc", "f32")
    assert text(capsys, *question).startswith("kind::f16  0x08400490\n")
    mixed = described(
        capsys, "64x8", "--descriptor", "kind::f8f6f4", "--dtype", "e5m2.e2m1", "--major", "mn.k",
        "--field", "negate b=yes",
    )  # fmt: skip
    assert (
        int(mixed["value"], 16) == 1 << 4 | 1 << 7 | 5 << 10 | 1 << 14 | 1 << 15 | 1 << 17 | 4 << 24
    )
    again = described(capsys, mixed["value"], "--descriptor", "kind::f8f6f4")
    assert again["fields"] == mixed["fields"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("128x64", "--descriptor", "wgmm"), ["did you mean wgmma?", "kind::mxf4nvf4"]),
        (("128x60", "--descriptor", "wgmma", "--swizzle", "128B"), ["k is 60, no multiple of 64"]),
        (("128", "--descriptor", "wgmma"), ["not ROWSxK", "0x"]),
        (("128x64", "--descriptor", "wgmma", "--swizzle", "3,3,3"), ["no swizzle B,M,S", "128B"]),
        (("128x64", "--descriptor", "wgmma", "--dtype", "e4m3", "--major", "mn"), ["along k"]),
        (("128x64", "--descriptor", "wgmma", "--field", "size=1"), ["no field size"]),
        (("128x64", "--descriptor", "wgmma", "--field", "size"), ["not NAME=VALUE"]),
        (("0x1", "--descriptor", "wgmma", "--major", "k"), ["--major says nothing"]),
        (("0x1", "--descriptor", "tcgen05"), ["version, cannot be 0"]),
        (("0x08400490", "--descriptor", "kind::tf32"), ["a type, cannot be 1"]),
        (("128x256", "--descriptor", "kind::f16", "--address", "0"), ["about a tile"]),
        (("0xzz", "--descriptor", "wgmma"), ["'0xzz' is not an integer"]),
        (("64x64", "--descriptor", "wgmma", "--field", "base offset=x"), ["'x' is not an integer"]),
        (("128x64", "--major", "k"), ["--major says nothing about this question"]),
    ],
)
def test_descriptors_that_cannot_be(
    arguments: tuple[str, ...], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = refusal(capsys, *arguments)
    for word in words:
        assert word in message


def test_vectors_of_a_picture_lie_where_their_layout_runs() -> None:
    """Each says in which banks it lies, of which there are 32: from the last one on it is the first again."""
    rows = _vectors([[0, 16], [128, 120]], 1, 16, {120: "lane 5"})
    columns = _vectors([[0, 16], [128, 120]], 0, 16, {})
    assert [(cell.row, cell.col) for cell in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(cell.row, cell.col) for cell in columns] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [(cell.label, cell.bank, cell.outlined) for cell in rows] == [
        ("0", 0, False), ("4", 4, False), ("0", 0, False), ("lane 5", 30, True),
    ]  # fmt: skip
    assert rows[1].title == "0,1: byte 16, banks 4 to 7"
    assert rows[3].title == "1,1: byte 120, banks 30 to 1"


def test_a_tile_is_no_larger_than_shared_memory() -> None:
    most = 327 * 1024  # CUTLASS's arch.h: sm_107, which has more than any other
    check_shared(Layout((most // 2,), (1,)), 16)
    with pytest.raises(
        PtxlabError, match=r"takes 334,850 bytes of shared memory, and a CTA has 334,848"
    ):
        check_shared(Layout((most // 2 + 1,), (1,)), 16)
