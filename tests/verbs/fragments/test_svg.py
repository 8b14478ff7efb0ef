"""The pictures: well-formed, small, and every cell and hover text equal to the layout."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LDMATRIX, STMATRIX, LdMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments.runs import Selection
from ptxlab.verbs.fragments.svg import svg
from ptxlab.verbs.fragments.svg_operands import operand_svg
from ptxlab.view.palette import SCHEMES, lane_colour
from tests.together import in_one_test, thorough

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = re.compile(r"(\w+)\[(\d+)(?:\.\.(\d+))?,(\d+)(?:\.\.(\d+))?\]: (.*)")
HELD = re.compile(r"(?:lane|thread) (\d+), register ([a-d])(\d+), bits (\d+) to (\d+)")
Owner = tuple[int, int, int]
Held = dict[tuple[int, int, int], set[Owner]]

BF16 = multiplication("m16n8k16", "bf16")
DIFFERENT = {tuple(replace(o, dtype="") for o in i.operands): i for i in MULTIPLICATIONS}.values()
"""One instruction of each set of layouts."""


def cells(root: ElementTree.Element, group: str) -> Iterator[tuple[str, str, ElementTree.Element]]:
    """Yield text, hover text and rectangle of each cell of a group."""
    (group_of_cells,) = (g for g in root.iter(f"{SVG}g") if g.get("id") == group)
    for cell in group_of_cells:
        text, title, rect = (cell.find(f"{SVG}{tag}") for tag in ("text", "title", "rect"))
        assert text is not None
        assert text.text
        assert title is not None
        assert title.text
        assert rect is not None
        yield text.text, title.text, rect


def numbers(first: str, last: str | None) -> range:
    return range(int(first), int(last or first) + 1)


def read(root: ElementTree.Element, group: str, layout: FragmentLayout) -> set[tuple[int, ...]]:
    """Return (row, col, lane, register, low bit) of every element, as hover texts say it."""
    cells_read: set[tuple[int, ...]] = set()
    for text, title, rect in cells(root, group):
        match = ELEMENTS.fullmatch(title)
        assert match is not None, title
        assert match[1] == layout.operand
        elements = [
            (row, col) for row in numbers(match[2], match[3]) for col in numbers(match[4], match[5])
        ]
        held = [m.groups() for m in map(HELD.fullmatch, match[6].split(" and ")) if m]
        assert len(held) == len(match[6].split(" and "))
        lane, name, register = held[0][:3]
        assert text == f"{lane}:{name}{register}" + (f"×{len(held)}" if len(held) > 1 else "")
        assert rect.get("class") == f"l{int(lane) % 32}"
        for lane, _, register, low, high in held:
            assert int(high) - int(low) + 1 == len(elements) * layout.bits
            for i, (row, col) in enumerate(elements):
                cells_read.add((row, col, int(lane), int(register), int(low) + i * layout.bits))
    return cells_read


def expected(layout: FragmentLayout, matrix: int) -> set[tuple[int, ...]]:
    return {
        (row, col, lane, register, i * layout.bits)
        for lane, registers in enumerate(layout.table().tolist())
        for register, elements in enumerate(registers)
        for i, (row, col) in enumerate(elements)
        if layout.matrix(lane) == matrix
    }


@pytest.mark.parametrize("instructions", [[*DIFFERENT][::3], *thorough([[*DIFFERENT]])], ids=len)
def test_every_cell_says_what_the_layout_says(instructions: list[MatrixInstruction]) -> None:
    for instruction in instructions:
        cells_say_what_the_layout_says(instruction)


def cells_say_what_the_layout_says(instruction: MatrixInstruction) -> None:
    text = svg(instruction)
    assert len(text.encode()) < 160_000
    root = ElementTree.fromstring(text)
    groups = {g.get("id") for g in root.iter(f"{SVG}g")} - {None}
    for matrix in range(instruction.operand("D").matrices):
        for name in "ABD":
            group = (
                f"CandD{matrix}"
                if name == "D" and f"CandD{matrix}" in groups
                else f"{name}{matrix}"
            )
            layout = instruction.operand(name)
            assert read(root, group, layout) == expected(layout, matrix)
            groups.discard(group)
        if f"C{matrix}" in groups:
            assert read(root, f"C{matrix}", instruction.operand("C")) == expected(
                instruction.operand("C"), matrix
            )
            groups.discard(f"C{matrix}")
    assert not groups


@pytest.mark.parametrize(("col", "first"), [(0, 0), (21, 16)])
def test_a_warpgroup_is_drawn_by_eight_columns(col: int, first: int) -> None:
    """And A whole; of B, and of A in shared memory, the units of 16 bytes with their offsets."""
    warpgroup = multiplication("wgmma.m64n24k16")
    d, a = warpgroup.operand("D"), warpgroup.operand("A")
    selection = Selection(element=(35, col))
    root = ElementTree.fromstring(svg(warpgroup, selection))
    seen = {element for element in expected(d, 0) if first <= element[1] < first + 8}
    assert len(seen) == 64 * 8
    assert read(root, "D0", d) == seen
    assert read(root, "A0", a) == expected(a, 0)
    alone = ElementTree.fromstring(operand_svg(d, selection))
    assert read(alone, "D0", d) == seen
    text = svg(multiplication("wgmma.m64n24k16.ss"), selection)
    lines = f"{first}..{first + 7}"
    where = f"start + {first // 8} SBO + LBO" if first > 8 else "start + LBO"
    assert f"B[8..15,{lines}]: 8 lines of 16 bytes from {where} on" in text
    assert "A[56..63,8..15]: 8 lines of 16 bytes from start + 7 SBO + LBO on" in text


@in_one_test("move", [*LDMATRIX, *STMATRIX])
def test_rows_stand_beside_the_lanes_that_give_their_addresses(move: LdMatrix | StMatrix) -> None:
    """Lane r gives the address of row r of all matrices below each other, as the PTX ISA's table has it."""
    root = ElementTree.fromstring(svg(move, Selection(lane=3)))
    (layout,) = move.operands
    heights = {}
    for lane, (text, about, rect) in enumerate(cells(root, "address")):
        matrix, row = lane // move.rows, lane % move.rows
        assert about == f"lane {lane} gives the address of row {row} of matrix {matrix}"
        assert (text, rect.get("class")) == (f"lane {lane}", f"l{lane}")
        heights[lane] = float(rect.attrib["y"])
    assert len(heights) == layout.rows
    seen = set()
    for text, title, rect in cells(root, "R0"):
        match = ELEMENTS.fullmatch(title)
        assert match is not None
        assert float(rect.attrib["y"]) == heights[int(match[2])]
        row, col = int(match[2]), int(match[4])
        place = layout.registers(row, col)[0]
        assert text == f"{place.lane}:r{place.register}"
        seen |= {(i, j) for i in numbers(*match.group(2, 3)) for j in numbers(*match.group(4, 5))}
    assert len(seen) == layout.rows * layout.cols
    told = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert told.startswith(move.name)
    assert "6:r0 is register r0 of lane 6" in told


def test_reading_would_see_another_layout() -> None:
    root = ElementTree.fromstring(svg(BF16).replace("lane 6, register a1", "lane 7, register a1"))
    with pytest.raises(AssertionError):
        read(root, "A0", BF16.operand("A"))
    right = ElementTree.fromstring(svg(BF16))
    f16 = multiplication("m16n8k16", "f16", "f16").operand("D")
    assert read(right, "CandD0", BF16.operand("D")) != expected(f16, 0)


def test_cells_lie_inside_the_picture_and_apart() -> None:
    for instruction in (BF16, multiplication("m16n8k256"), multiplication("m8n8k4", "f16", "f32")):
        root = ElementTree.fromstring(svg(instruction))
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for shift in root.findall(f"{SVG}g"):
            corners = set()
            for rect in shift.iter(f"{SVG}rect"):
                x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
                assert 0 <= x <= x + w <= width
                assert 0 <= y <= y + h <= height
                corners.add((x, y))
            assert len(corners) == sum(1 for _ in shift.iter(f"{SVG}rect"))


def test_a_lane_is_outlined_and_nothing_else() -> None:
    root = ElementTree.fromstring(svg(BF16, Selection(lane=6)))
    outlined = [g for g in root.iter(f"{SVG}g") if g.get("class") == "c m"]
    texts = [text.text for g in outlined for text in g.iter(f"{SVG}text")]
    assert sorted(filter(None, texts)) == sorted(
        [f"6:{n}{r}" for n, count in (("a", 4), ("b", 2), ("d", 4)) for r in range(count)]
    )
    assert 'class="c m"' not in svg(BF16)


def test_one_operand_alone() -> None:
    layout = BF16.operand("B")
    root = ElementTree.fromstring(operand_svg(layout))
    assert read(root, "B0", layout) == expected(layout, 0)


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG 2 defines it."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(ink: str, paper: str) -> float:
    low, high = sorted((luminance(ink), luminance(paper)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_on_every_lane(scheme: str) -> None:
    colours = {lane_colour(lane, dark=scheme == "dark") for lane in range(32)}
    assert len(colours) == 32
    assert min(contrast(SCHEMES[scheme]["ink"], colour) for colour in colours) > 4.5
    assert contrast(SCHEMES["light"]["ink"], SCHEMES["dark"]["paper"]) < 4.5


def test_the_style_holds_for_light_and_dark_and_for_this_picture_alone() -> None:
    style = ElementTree.fromstring(svg(BF16)).findtext(f"{SVG}style")
    assert style is not None
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    for rules, is_dark in ((light, False), (dark, True)):
        assert f".ptxlab .l6{{fill:{lane_colour(6, dark=is_dark)}}}" in rules
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", light)
    assert selectors
    assert all(selector.startswith(".ptxlab ") for selector in selectors)
