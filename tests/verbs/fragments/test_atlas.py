"""The atlas page without a browser: complete, small, self-contained, and its data the layouts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from ptxlab.fragments import receipts
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.matrix.wmma import WMMA_MOVES
from ptxlab.verbs.fragments import atlas
from ptxlab.verbs.fragments.atlas_tables import compact

BF16 = multiplication("m16n8k16", "bf16")


@cache
def text() -> str:
    """The page, made by the first test that asks for it: who only collects tests can spare it."""
    return atlas.page(MULTIPLICATIONS, BF16)


class Page(HTMLParser):
    """Collects what the page loads, and the text of each script and style."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.loaded += [v for k, v in attrs if k in ("src", "href", "data", "action") and v]
        if tag in ("script", "style"):
            self.texts.append((named.get("type") or tag, ""))

    def handle_data(self, data: str) -> None:
        if self.texts and self.tags[-1] in ("script", "style"):
            kind, text = self.texts[-1]
            self.texts[-1] = (kind, text + data)


@cache
def parsed() -> Page:
    page = Page()
    page.feed(text())
    return page


def content(kind: str) -> str:
    (content_of_kind,) = (text for name, text in parsed().texts if name == kind)
    return content_of_kind


def table(entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Add the steps up in the plainest way: bit by bit."""
    shape = (entry.get("threads", 32), entry["registers"], entry["elements"])
    if "cells" in entry:
        return np.stack(np.divmod(np.reshape(entry["cells"], shape), entry["cols"]), axis=-1)
    places = np.zeros((*shape, 2), np.int64)
    for part, index in zip(("lane", "register", "element"), np.indices(shape), strict=True):
        for bit, step in enumerate(entry["steps"][part]):
            places[index >> bit & 1 == 1] += step
    return places


def test_the_page_is_one_small_file_that_loads_nothing() -> None:
    assert len(text().encode()) < 2_000_000
    assert parsed().loaded == ["#"]
    assert not re.search(r"@\w+@", text())
    everything = content("style") + content("script")
    for word in ("url(", "@import", "fetch(", "XMLHttpRequest", "import(", "http://", "https://"):
        assert word not in everything, word


def test_its_data_is_every_instruction_and_every_layout() -> None:
    data = json.loads(content("application/json"))
    assert [entry["name"] for entry in data["instructions"]] == [i.name for i in MULTIPLICATIONS]
    moves = {entry["name"]: entry for entry in data["moves"]}
    assert list(moves) == [move.name for move in atlas.MOVES]
    assert len(moves) == len(LDMATRIX) + len(STMATRIX) + 1 + len(WMMA_MOVES)
    assert data["first"] == BF16.name
    tables = [table(entry) for entry in data["layouts"]]
    for entry, instruction in zip(data["instructions"], MULTIPLICATIONS, strict=True):
        assert list(entry["operands"]) == [o.operand for o in instruction.operands]
        for layout in instruction.operands:
            number = entry["operands"][layout.operand]
            packed = data["layouts"][number]
            assert (packed["rows"], packed["cols"]) == (layout.rows, layout.cols)
            assert (packed["bits"], packed["matrices"]) == (layout.bits, layout.matrices)
            assert np.array_equal(tables[number], layout.table())
        if metadata := instruction.metadata:
            sparse = data["sparse"][entry["sparse"]]
            assert (sparse["kept"], sparse["of"]) == metadata.granularity
            for row, chunk in np.ndindex(instruction.m, metadata.chunks):
                assert tuple(sparse["places"][row][chunk]) == metadata.place(row, chunk)
        for scale in instruction.scales:
            packed = data["scales"][entry["scales"][scale.operand]]
            for line, block in np.ndindex(scale.lines, scale.blocks):
                assert tuple(packed["places"][line][block]) == scale.place(line, block)
    for move in (*LDMATRIX, *STMATRIX):
        number = moves[move.name]["load"]["fragment"]
        assert np.array_equal(tables[number], move.fragment.table())
    for wmma in WMMA_MOVES:
        number = moves[wmma.name]["operands"][wmma.layout.operand]
        assert np.array_equal(tables[number], wmma.layout.table())
    transposed = moves[MOVMATRIX.name]["operands"]
    assert np.array_equal(tables[transposed["A"]], MOVMATRIX.source.table())
    assert np.array_equal(tables[transposed["D"]], MOVMATRIX.destination.table())


def test_its_groups_are_every_instruction_of_a_warpgroup_and_of_tensor_memory() -> None:
    """Each has the first columns of the largest one's layout, in the first registers."""
    data = json.loads(content("application/json"))
    largest = {name: table(data["layouts"][name]) for name in range(len(data["layouts"]))}
    seen: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for group in data["groups"]:
        last = group["choices"][-1]
        for number in group["choices"]:
            tables = {name: largest[at] for name, at in group["operands"].items()}
            scaled = tables[group["scaled"]]
            tables[group["scaled"]] = scaled[:, : scaled.shape[1] * number // last]
            seen[group["name"].replace("{n}", str(number))] = tables
    every: tuple[Form, ...] = (*WGMMA, *TENSOR_MEMORY_MOVES)
    forms = {form.key: form for form in every}
    assert seen.keys() == forms.keys()
    for key, form in list(forms.items())[::7]:
        for layout in form.operands:
            assert np.array_equal(seen[key][layout.operand], layout.table())
    sparse = next(g for g in data["groups"] if "sparse" in g and ".f16.f16" in g["name"])
    (metadata,) = (w.metadata for w in WGMMA if w.key == sparse["name"].replace("{n}", "8"))
    assert metadata is not None
    assert tuple(data["sparse"][sparse["sparse"]]["places"][41][5]) == metadata.place(41, 5)


def test_a_layout_that_is_no_sum_of_bits_is_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = BF16.operand("A").table().copy()
    shuffled[[3, 17]] = shuffled[[17, 3]]
    monkeypatch.setattr(FragmentLayout, "table", lambda self: shuffled)
    entry = compact(BF16.operand("A"))
    assert "steps" not in entry
    assert np.array_equal(table(entry), shuffled)


def test_a_receipt_of_a_gpu_marks_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> dict[str, str | None]:
        data = atlas.data(MULTIPLICATIONS[:4], BF16)
        return {entry["name"]: entry["hardware"] for entry in data["instructions"]}

    monkeypatch.setattr(receipts, "proven", lambda: {BF16.name: "NVIDIA Test"})
    assert shown() == {i.name: "NVIDIA Test" if i == BF16 else None for i in MULTIPLICATIONS[:4]}
    monkeypatch.setattr(receipts, "proven", dict)
    assert set(shown().values()) == {None}


def test_each_move_names_its_section_of_the_manual() -> None:
    data = json.loads(content("application/json"))
    sections = {data["sections"][entry["section"]] for entry in data["moves"]}
    assert sections == {
        "Warp-level matrix load instruction: ldmatrix",
        "Warp-level matrix store instruction: stmatrix",
        "Warp-level matrix transpose instruction: movmatrix",
        "Warp-level Matrix Fragment",
    }


def test_what_is_no_script_cannot_end_the_data() -> None:
    assert "</" not in content("application/json")
    assert parsed().tags.count("script") == 2
