"""The pages, read by axe-core as by somebody who sees little contrast or goes by keys: WCAG A and AA, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxlab.main import main
from tests.verbs.browser import Browser, needs_browser

pytestmark = [needs_browser, pytest.mark.thorough]

PTX = "ptx/mma_m16n8k16_bf16_f32.ptx"
PAGES = {
    "atlas": ["fragments", "--html"],
    "lab": ["lab", PTX],
    "profile": ["profile", PTX, "--format", "html"],
    "step": ["step", PTX],
    "trace": ["trace", PTX],
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all pages."""
    folder = tmp_path_factory.mktemp("pages")
    for page, words in PAGES.items():
        assert main([*words, "-o", str(folder / f"{page}.html")]) == 0
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", [page for page in PAGES if page != "lab"])  # its own tests do
def test_nothing_is_violated(page: str, scheme: str, browser: Browser, written: Path) -> None:
    path = written / f"{page}.html"
    browser.scheme(scheme)
    browser.open(path.as_uri())
    assert browser.violated() == []


SMALL = """
const sizes = [];
for (const node of document.querySelectorAll("body *")) {
    const told = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!told || !node.getClientRects().length || node.closest("title, style, script, noscript")) continue;
    const scale = node.getScreenCTM ? node.getScreenCTM().a : 1;
    const size = parseFloat(getComputedStyle(node).fontSize) * scale;
    if (size < 10.99) sizes.push(`${node.tagName} ${node.className.baseVal ?? node.className} ${size}: ${node.textContent.slice(0, 20)}`);
}
return sizes;
"""
CUT = """
return [...document.querySelectorAll("body *")].filter((node) => {
    const style = getComputedStyle(node);
    return node.getClientRects().length && node.clientHeight && !["INPUT", "SELECT", "IFRAME", "OPTION"].includes(node.tagName)
        && ["auto", "scroll", "hidden"].includes(style.overflowY) && node.scrollHeight > node.clientHeight + 2;
}).map((node) => `${node.tagName}#${node.id}.${node.className.baseVal ?? node.className} ${node.scrollHeight} in ${node.clientHeight}`);
"""


@pytest.mark.parametrize("page", PAGES)
def test_no_letter_is_smaller_than_11_pixels_and_800_are_wide_enough(
    page: str, browser: Browser, written: Path
) -> None:
    for width, height in ((1400, 900), (800, 900), (400, 800)):
        with browser.phone(width, height):
            browser.open((written / f"{page}.html").as_uri())
            assert browser.js(SMALL) == []
            assert browser.js("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("page", PAGES)
def test_on_paper_nothing_is_dark_and_nothing_is_cut(
    page: str, browser: Browser, written: Path
) -> None:
    browser.open((written / f"{page}.html").as_uri())
    with browser.on_paper("dark"):
        ground = browser.js("return getComputedStyle(document.body).backgroundColor")
        assert min(map(int, re.findall(r"\d+", ground)[:3])) > 230
        assert browser.js(CUT) == []
        assert browser.pdf().startswith(b"%PDF")
