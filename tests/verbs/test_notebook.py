"""What a notebook shows: the pictures, found by the names Jupyter asks for."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from html import escape
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Dump
from ptxlab.fragments import receipts
from ptxlab.layouts.layout import Layout, Swizzle
from ptxlab.main import main
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX
from ptxlab.verbs import results
from ptxlab.verbs.fragments.svg import svg
from ptxlab.verbs.fragments.svg_operands import operand_svg

BF16 = multiplication("m16n8k16", "bf16")


@pytest.mark.parametrize(
    ("shown", "picture"),
    [
        (BF16, svg(BF16)),
        (LDMATRIX[0], svg(LDMATRIX[0])),
        (MOVMATRIX, svg(MOVMATRIX)),
        (BF16.operand("A"), operand_svg(BF16.operand("A"))),
    ],
    ids=["mma", "ldmatrix", "movmatrix", "operand"],
)
def test_jupyter_finds_the_pictures(shown: Any, picture: str) -> None:
    assert shown._repr_svg_() == picture
    html = shown._repr_html_()
    assert picture in html
    root = ElementTree.fromstring(html)
    assert root.tag == "figure"
    assert root.find("figcaption") is not None


def test_a_layout_is_drawn_with_its_offsets_unless_it_is_large() -> None:
    swizzled = Swizzle(3, 3, 3).compose(Layout((8, 64), (64, 1)))
    shown = html(swizzled)
    assert "Sw&lt;3,3,3&gt; o 0 o (8,64):(64,1)" in shown
    titles = re.findall(r"<title>(\d+),(\d+): offset (\d+), bank", shown)
    assert len(titles) == 512
    assert all(int(o) == 64 * int(r) + (int(c) ^ int(r) << 3) for r, c, o in titles)
    assert Layout.row_major((4096, 4096))._repr_html_() is None


def html(shown: Any) -> str:
    return str(shown._repr_html_())


def test_the_caption_says_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "hardware", lambda instruction: None)
    assert "sm_80 · PTX 7.0" in html(BF16)
    assert "unverified on hardware" in html(BF16)
    monkeypatch.setattr(receipts, "hardware", lambda instruction: "NVIDIA <Test>")
    caption = re.findall("<figcaption>(.*)</figcaption>", html(BF16))
    assert caption[0].endswith("verified on NVIDIA &lt;Test&gt;")
    a = html(BF16.operand("A"))
    assert "A 16×16 bf16 · 4 registers of 32 bits a lane" in a


def test_a_dump_is_shown_as_its_verb_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Each element of D where its lane and register are, and the whole as JSON in a file that is called so."""
    left, right = np.eye(16), np.arange(128.0).reshape(16, 8)
    device = open_device("emulator")
    kernel = device.load("ptx/mma_m16n8k16_bf16_f32.ptx").kernel()
    types = ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32
    arrays = [
        device.upload(x.astype(t)) for x, t in zip((left, right, 0 * right), types, strict=True)
    ]
    dumped = kernel.launch(1, 32, [*arrays, 16], dump=Dump("mma.sync", ("D",))).dump
    assert dumped is not None
    said = dumped.as_text()
    assert said.startswith("after mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 (line ")
    assert "launch   ptx/mma_m16n8k16_bf16_f32.ptx on emulator (sm_90a)" in said
    assert "reached  32 of 32 threads" in said
    rows = [line.split()[1:] for line in said.splitlines() if re.match(r" *\d+( +\d+){8}$", line)]
    assert np.array_equal(np.array(rows, float), right)
    assert html(dumped) == f"<pre>{escape(said)}</pre>"
    argv = ["dump", "ptx/mma_m16n8k16_bf16_f32.ptx", "--at", "mma.sync", "--regs", "D", "--json"]
    assert main(argv) == 0
    of_verb = json.loads(capsys.readouterr().out)
    assert results.said(dumped).as_json().keys() == of_verb.keys()
