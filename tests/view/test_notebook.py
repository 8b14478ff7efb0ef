"""What a notebook shows: the pictures, found by the names Jupyter asks for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from ptxlab.fragments import receipts
from ptxlab.isa import find
from ptxlab.view.svg import operand_svg, svg

BF16 = find("m16n8k16", "bf16")


@pytest.mark.parametrize(
    ("shown", "picture"),
    [(BF16, svg(BF16)), (BF16.operand("A"), operand_svg(BF16.operand("A")))],
    ids=["instruction", "operand"],
)
def test_jupyter_finds_the_pictures(shown: Any, picture: str) -> None:
    assert shown._repr_svg_() == picture
    html = shown._repr_html_()
    assert picture in html
    root = ElementTree.fromstring(html)
    assert root.tag == "figure"
    assert root.find("figcaption") is not None


def test_the_caption_says_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "hardware", lambda instruction: None)
    assert "sm_80 · PTX 7.0" in BF16._repr_html_()
    assert "unverified on hardware" in BF16._repr_html_()
    monkeypatch.setattr(receipts, "hardware", lambda instruction: "NVIDIA <Test>")
    caption = re.findall("<figcaption>(.*)</figcaption>", BF16._repr_html_())
    assert caption[0].endswith("verified on NVIDIA &lt;Test&gt;")
    a = BF16.operand("A")._repr_html_()
    assert "A 16×16 bf16 · 4 registers of 32 bits a lane" in a
