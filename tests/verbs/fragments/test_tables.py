"""CSV, Markdown and LaTeX: read back, they are the layouts."""

from __future__ import annotations

import csv as csv_reader
import re
from dataclasses import replace

import pytest

from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments.runs import Selection
from ptxlab.verbs.fragments.tables import csv, latex, markdown, tables
from tests.together import thorough

BF16 = multiplication("m16n8k16", "bf16")
DIFFERENT = {tuple(replace(o, dtype="") for o in i.operands): i for i in MULTIPLICATIONS}.values()
Rows = list[list[str]]


def numbers(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def check_by_register(layout: FragmentLayout, rows: Rows) -> None:
    head, *lines = rows
    name = layout.operand.lower()
    assert head == [layout.holder, *(f"{name}{r}" for r in range(layout.registers_per_lane))]
    assert [line[0] for line in lines] == [str(lane) for lane in range(layout.threads)]
    for line in lines:
        for register, cell in enumerate(line[1:]):
            elements = [
                (row, col)
                for run in cell.split(" ")
                for row in numbers(run.split(",")[0])
                for col in numbers(run.split(",")[1])
            ]
            held = layout.table()[int(line[0]), register]
            assert elements == [tuple(element) for element in held.tolist()]


def check_by_matrix(layout: FragmentLayout, matrix: int, rows: Rows) -> None:
    head, *lines = rows
    seen = set()
    for line in lines:
        for across, cell in zip(head[1:], line[1:], strict=True):
            places = [
                (int(lane), int(name[1:]))
                for part in cell.split(" ")
                for lane, names in [part.split(":")]
                for name in names.split(",")
            ]
            for row in numbers(line[0]):
                for col in numbers(across):
                    right = layout.registers(row, col)
                    assert sorted(places) == sorted(
                        (p.lane, p.register) for p in right if layout.matrix(p.lane) == matrix
                    )
                    seen.add((row, col))
    assert len(seen) == layout.rows * layout.cols


def check(instruction: MatrixInstruction, tables: list[Rows]) -> None:
    wanted = [
        (layout, matrix)
        for layout in instruction.operands
        for matrix in (None, *range(layout.matrices))
    ]
    for (layout, matrix), rows in zip(wanted, tables, strict=True):
        if matrix is None:
            check_by_register(layout, rows)
        else:
            check_by_matrix(layout, matrix, rows)


def read_markdown(text: str) -> list[Rows]:
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    split = [[line[2:-2].split(" | ") for line in block.splitlines()] for block in blocks]
    for head, rule, *_ in split:
        assert len("".join(rule).strip("-:|").split("|")) <= len(head)
    return [[head, *lines] for head, _, *lines in split]


def read_latex(text: str) -> list[Rows]:
    blocks = re.findall(r"\\begin\{tabular\}\{r\|(c+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    tables = []
    for columns, body in blocks:
        lines = [line for line in body.splitlines() if line != r"\hline"]
        rows = [line.removesuffix(r" \\").split(" & ") for line in lines]
        assert all(line.endswith(r" \\") for line in lines)
        assert all(len(row) == len(columns) + 1 for row in rows)
        tables.append(rows)
    return tables


@pytest.mark.parametrize("step", [3, *thorough([1])])
def test_the_tables_are_the_layouts(step: int) -> None:
    for instruction in (*[*DIFFERENT][::step], multiplication("wgmma.m64n24k16")):
        check(instruction, [[list(t.head), *map(list, t.lines)] for t in tables(instruction)])


@pytest.mark.parametrize("name", ["m16n8k16", "m8n8k4", "m16n8k256", "m16n8k64"])
def test_markdown_and_latex_read_back(name: str) -> None:
    instruction = multiplication(name)
    check(
        instruction,
        [[[c.strip() for c in row] for row in t] for t in read_markdown(markdown(instruction))],
    )
    check(
        instruction,
        [[[c.strip() for c in row] for row in t] for t in read_latex(latex(instruction))],
    )


def test_a_wrong_cell_would_be_seen() -> None:
    text = markdown(BF16).replace("9,4..5", "9,6..7", 1)
    with pytest.raises(AssertionError):
        check(BF16, read_markdown(text))
    with pytest.raises(AssertionError):
        check(BF16, read_latex(latex(BF16).replace("6:a1", "6:a2", 1)))


@pytest.mark.parametrize("name", ["m16n8k16", "m8n8k4", "m16n8k256", "wgmma.m64n24k16"])
def test_csv_reads_back(name: str) -> None:
    instruction = multiplication(name)
    lines = list(csv_reader.DictReader(csv(instruction).splitlines()))
    assert len(lines) == sum(o.table().size // 2 for o in instruction.operands)
    for line in lines:
        layout = instruction.operand(line["operand"])
        place = Place(*(int(line[key]) for key in ("lane", "register", "element")))
        element = int(line["row"]), int(line["col"])
        assert layout.element(*place) == element
        assert place in layout.registers(*element)
        assert int(line["low_bit"]) == place.element * layout.bits
        assert int(line["high_bit"]) - int(line["low_bit"]) + 1 == layout.bits
        assert int(line["matrix"]) == layout.matrix(place.lane)


def test_narrowing() -> None:
    lane = Selection(lane=6)
    assert len(csv(BF16, lane).splitlines()) == 1 + 8 + 4 + 4 + 4
    shown = read_markdown(markdown(BF16, lane))
    assert shown[0][1:] == [["6", "1,4..5", "9,4..5", "1,12..13", "9,12..13"]]
    assert sum(bool(cell.strip()) for row in shown[1][1:] for cell in row[1:]) == 4
    element = Selection(element=(9, 4))
    assert csv(BF16, element).splitlines()[1:] == [
        "A,0,6,1,0,0,15,9,4",
        "B,0,16,1,1,16,31,9,4",
        "C,0,6,2,0,0,31,9,4",
        "D,0,6,2,0,0,31,9,4",
    ]
