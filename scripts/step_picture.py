"""Write docs/step.webp: the page of ``ptxlab step`` at an mma, as Chromium shows it.

PYTHONPATH=. python scripts/step_picture.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from ptxlab.main import main
from tests.verbs.browser import Browser

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "step.webp"
WIDTH, HEIGHT = 1400, 900
KERNEL, PRODUCT = "kernels/tensor_core.cu", "(place) => place.text.startsWith('mma.sync')"


def picture(folder: Path) -> bytes:
    page = folder / "page.html"
    if main(["step", KERNEL, "-o", str(page)]):
        raise SystemExit(1)
    with Browser() as browser, browser.phone(WIDTH, HEIGHT):  # a window is smaller than it says
        browser.scheme("light")
        browser.open(page.as_uri())
        browser.until("!document.body.classList.contains('unpacking')")
        browser.js(f"go(seek(1, {PRODUCT})); go(seek(1, {PRODUCT}))")
        return browser.picture()


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        PICTURE.write_bytes(picture(Path(made)))
