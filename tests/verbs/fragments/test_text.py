"""A fragment report as text and as JSON."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from ptxlab.fragments.handwritten import matrices, mismatches
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.report import FragmentReport, FragmentRun
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import find, multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments.picture import owners, pictures
from ptxlab.verbs.fragments.runs import Selection
from ptxlab.verbs.fragments.text import as_json, text
from ptxlab.view.colour import on_terminal, plain

NUMBERED: Fill = "numbered"
ADDRESSING: Fill = "addressing"
SM90 = TARGETS["sm_90a"]
BF16, F16 = multiplication("m16n8k16", "bf16"), multiplication("m16n8k16", "f16")


def run(instruction: MatrixInstruction, fill: Fill) -> FragmentRun:
    expected = matrices(instruction, fill)
    registers = {o.operand: o.pack(expected[o.operand]) for o in instruction.operands}
    return FragmentRun(fill, registers, frozenset("D"), expected["D"])


def report(instruction: MatrixInstruction, *, wrong: bool = False) -> FragmentReport:
    runs = (run(instruction, NUMBERED), run(instruction, ADDRESSING))
    if wrong:
        runs[0].registers["A"][5, 2] = runs[0].registers["A"][6, 2]
        assert runs[1].result is not None
        runs[1].result[9, 3] ^= runs[1].result.dtype.type(1)
    misplaced = mismatches(instruction, runs)
    return FragmentReport(
        instruction, "emulator", "ptxlab emulator", SM90, runs, 0, misplaced, None
    )


def section(shown: str, title: str) -> list[str]:
    """The lines below the title that starts with ``title``, up to the blank line."""
    lines = shown.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(title))
    return lines[first : lines.index("", first)] if "" in lines[first:] else lines[first:]


def test_lane_0_of_a_holds_the_eight_numbers_of_the_manual() -> None:
    shown = text(report(BF16), Selection(), full=True)
    rows = section(shown, "A: 16 x 16")
    assert rows[2].split() == ["lane", "a0", "a1", "a2", "a3"]
    held = [
        ("0,0..1", "0", "1"),
        ("8,0..1", "128", "129"),
        ("0,8..9", "8", "9"),
        ("8,8..9", "136", "137"),
    ]
    assert rows[3].split() == ["0", *(cell for register in held for cell in register)]
    assert len(rows) == 3 + 32


def test_many_small_elements_are_shown_by_place_and_as_bits() -> None:
    """Numbers that wrap at 4 bits tell no element from another; Matrix Fragments for mma.m16n8k64."""
    shown = text(report(multiplication("m16n8k64", "s4")), Selection(lane=6))
    words = ["1,16..23", "9,16..23", "1,48..55", "9,48..55"]
    cells = [cell for where in words for cell in (where, "0x76543210")]
    assert section(shown, "A: 16 x 64")[3].split() == ["6", *cells]


def test_the_bits_of_an_element_and_of_the_number_in_its_container() -> None:
    shown = text(report(multiplication("m16n8k32", "e2m1")), Selection(element=(3, 5)))
    assert "A[3,5] is in lane 13, register a0, element 1, bits 15:8 (the number in 13:10)" in shown
    shown = text(report(multiplication("m16n8k256", "b1")), Selection(element=(3, 5)))
    assert "A[3,5] is in lane 12, register a0, element 5, bit 5 and holds 1" in shown


@pytest.mark.parametrize("full", [False, True])
def test_every_cell_names_its_owner(full: bool) -> None:
    shown = text(report(BF16), Selection(), full=full)
    _, heads, *rows = section(shown, "A 16×16 bf16: lane:register")
    for row, line in enumerate(rows):
        index, *cells = line.split()
        assert int(index) == row
        for columns, cell in zip(heads.split(), cells, strict=True):
            lane, register = cell.split(":a")
            held = [BF16.operand("A").element(int(lane), int(register), i) for i in (0, 1)]
            first, last = map(int, columns.split(".."))
            assert held == [(row, first), (row, last)]
    assert len(rows) == 16


def test_what_is_on_one_screen() -> None:
    """A, then B and D side by side where they fit; C is D's."""
    wide, narrow = (text(report(BF16), Selection(), width=width) for width in (130, 80))
    assert len(wide.splitlines()) < 50
    assert max(map(len, wide.splitlines())) <= 130
    assert "C 16×8" not in wide
    assert section(wide, "B 16×8 bf16")[0].count("of each element") == 2
    assert section(narrow, "B 16×8 bf16")[0].count("of each element") == 1


def test_a_large_operand_shows_its_corner() -> None:
    form = find("wgmma.m64n256k16.ss", "bf16")
    lines = pictures(form, plain, None)
    (title,) = (line for line in lines if line.startswith("D 64×256"))
    assert title.endswith("the corner")
    whole = owners(form.operand("D"), Selection(), plain, None)
    assert len(lines) < 40 < len(whole)


def test_one_operand_alone() -> None:
    shown = text(report(BF16), Selection(operand="B"))
    assert "B: 16 x 8 (k x n)" in shown
    assert "A: " not in shown
    assert "D: " not in shown


def test_plain_text_has_no_escape_and_aligned_columns() -> None:
    for instruction in (BF16, F16):
        shown = text(report(instruction), Selection(), full=True)
        assert "\x1b" not in shown
        for title in ("A 16", "B 16", "C 16", "D 16", "D: as the program"):
            assert len({len(line) for line in section(shown, title)[1:]}) == 1
    assert "inf" in section(text(report(F16), Selection(), full=True), "D: as the program")[-1]


def test_colour_changes_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    coloured = text(report(BF16), Selection(), on_terminal())
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text(report(BF16), Selection())
    colours = {on_terminal()("x", lane) for lane in range(32)}
    assert len(colours) == 32


def test_verdicts_and_mismatches() -> None:
    right = text(report(BF16), Selection())
    assert "WRONG" not in right
    assert "unverified on hardware" in right
    wrong = text(report(BF16, wrong=True), Selection())
    assert "layout    WRONG: 2 elements not as predicted" in wrong
    assert "result    WRONG: 1 element not as predicted" in wrong
    rows = [line.split() for line in section(wrong, "mismatches")[2:]]
    assert rows[0] == ["numbered", "A", "register", "5", "2", "0", "15:0", "1", "10", "26", "28"]
    assert rows[1] == ["numbered", "A", "register", "5", "2", "1", "31:16", "1", "11", "27", "29"]
    assert rows[2][:9] == ["addressing", "D", "memory", "5", "3", "0", "31:0", "9", "3"]


def test_narrowing_to_a_lane() -> None:
    shown = text(report(BF16), Selection(lane=5))
    assert len(section(shown, "A: 16 x 16")) == 3 + 1
    assert section(shown, "A: 16 x 16")[3].split()[:4] == ["5", "1,2..3", "18", "19"]
    assert set(re.findall(r"\b(\d+):[abcd]\d", shown)) == {"5"}
    rows = [line.split()[0] for line in section(shown, "A 16×16 bf16: lane:register")[2:]]
    assert rows == ["1", "9"]


def test_narrowing_to_an_element() -> None:
    lines = text(report(BF16), Selection(element=(3, 5))).splitlines()[-4:]
    where = "A[3,5] is in lane 14, register a0, element 1, bits 31:16"
    assert lines[0] == f"{where} and holds 53 (0x4254)"
    assert [line.split()[4:6] for line in lines] == [
        ["14,", "register"], ["21,", "register"], ["14,", "register"], ["14,", "register"]
    ]  # fmt: skip


def test_json_is_the_contract() -> None:
    data = json.loads(json.dumps(as_json(report(BF16), Selection()), allow_nan=False))
    assert data["schema"] == "ptxlab.fragments/1"
    assert data["instruction"] == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    assert (data["device"], data["arch"]) == ("emulator", "sm_90a")
    assert list(data["operands"]) == ["A", "B", "C", "D"]
    a = data["operands"]["A"]
    assert [a[key] for key in ("rows", "cols", "dtype", "bits", "registers")] == [
        16,
        16,
        "bf16",
        16,
        4,
    ]
    assert np.array(a["map"]).shape == (32, 4, 2, 2)
    assert a["map"][0] == [[[0, 0], [0, 1]], [[8, 0], [8, 1]], [[0, 8], [0, 9]], [[8, 8], [8, 9]]]
    assert a["dump"][0] == ["0x3f800000", "0x43014300", "0x41104100", "0x43094308"]
    assert len(data["operands"]["D"]["dump"]) == 32
    assert data["verified"] == {"layout": True, "result": True, "hardware": None}
    assert data["mismatches"] == []
    assert "selection" not in data


def test_json_of_a_selection_and_of_mismatches() -> None:
    data = as_json(report(BF16, wrong=True), Selection(element=(3, 9)))
    assert data["selection"] == [
        {
            "operand": "A",
            "lane": 12,
            "register": 2,
            "element": 1,
            "low_bit": 16,
            "high_bit": 31,
            "row": 3,
            "col": 9,
            "bits": "0x4264",
        }
    ]
    assert data["verified"]["layout"] is False
    assert data["verified"]["result"] is False
    first = data["mismatches"][0]
    assert (first["lane"], first["register"], first["expected"], first["found"]) == (
        5, 2, "0x41d0", "0x41e0"
    )  # fmt: skip
    assert len(data["mismatches"]) == 3
