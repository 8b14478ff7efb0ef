"""The pages, read by axe-core as by somebody who sees little contrast or goes by keys: WCAG A and AA, light and dark."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest

from ptxlab.main import main
from tests.verbs.browser import Browser, needs_browser

pytestmark = [needs_browser, pytest.mark.thorough]

PTX = "ptx/mma_m16n8k16_bf16_f32.ptx"
PAGES = {
    "atlas": ["fragments", "--html"],
    "profile": ["profile", PTX, "--format", "html"],
    "step": ["step", PTX],
    "trace": ["trace", PTX],
}
RUN = """
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
axe.run(document, {runOnly: tags}).then((done) => {
    window.violated = done.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target)}`);
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_violated(page: str, scheme: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main([*PAGES[page], "-o", str(path)]) == 0
    browser.scheme(scheme)
    browser.open(path.as_uri())
    browser.js(importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text())
    browser.js(RUN)
    browser.until("window.violated !== undefined", seconds=60)
    assert browser.js("return window.violated") == []
