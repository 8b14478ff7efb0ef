"""Write docs/lab.webp: the page of ``ptxlab lab`` at an mma, as Chromium shows it.

PYTHONPATH=. python scripts/lab_picture.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from ptxlab.main import main
from tests.verbs.browser import Browser

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "lab.webp"
WIDTH, HEIGHT = 1400, 860
PROGRAM = "ptx/mma_m16n8k16_bf16_f32.ptx"
AT = "state.text.split('\\n').findIndex((line) => line.trim().startsWith('mma.sync')) + 1"


def picture(folder: Path) -> bytes:
    page = folder / "lab.html"
    if main(["lab", PROGRAM, "-o", str(page)]):
        raise SystemExit(1)
    with Browser() as browser, browser.phone(WIDTH, HEIGHT):  # a window is smaller than it says
        browser.scheme("light")
        browser.open(page.as_uri())
        browser.until("frames.step && frames.step.ready", 60)
        browser.js(f"look({{ line: {AT}, from: 'picture' }})")
        while browser.js("return held('d0')") is None:  # which is answered when the frame has moved
            sleep(0.1)
        return browser.picture(60)


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        PICTURE.write_bytes(picture(Path(made)))
