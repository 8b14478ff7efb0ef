"""Write docs/lab.webp: the page of ``ptxlab lab`` at an mma, as Chromium shows it, going from tab to tab.

PYTHONPATH=. python scripts/lab_picture.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from ptxlab.main import main
from scripts.step_picture import animated
from tests.verbs.browser import Browser

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "lab.webp"
WIDTH, HEIGHT, QUALITY = 1400, 860, 40
TABS = (
    ("step", 3000),
    ("trace", 2000),
    ("check", 1500),
    ("profile", 2000),
    ("predict", 2000),
    ("code", 2500),
)
"""What is shown one after the other, and for how many milliseconds."""
PROGRAM = "ptx/mma_m16n8k16_bf16_f32.ptx"
AT = "state.text.split('\\n').findIndex((line) => line.trim().startsWith('mma.sync')) + 1"


def pictures(folder: Path) -> list[bytes]:
    """Return what the page shows at each tab, as WebP."""
    page = folder / "lab.html"
    if main(["lab", PROGRAM, "-o", str(page)]):
        raise SystemExit(1)
    taken = []
    with Browser() as browser, browser.phone(WIDTH, HEIGHT):  # a window is smaller than it says
        browser.scheme("light")
        browser.open(page.as_uri())
        browser.until("frames.step && frames.step.ready", 60)
        for tab, _ in TABS:
            browser.js(f"VIEWS.{tab}.tab.click()")
            browser.until(f"running === null && VIEWS.{tab}.shown !== null", 60)
            browser.js(f"look({{ line: {AT}, from: 'picture' }})")
            if tab == "step":  # which answers when its frame has moved
                browser.until("held('d0') != null", 60)
            sleep(1)  # what is in a frame is drawn after it is there
            taken.append(browser.picture(QUALITY))
    return taken


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        times = [time for _, time in TABS]
        PICTURE.write_bytes(animated(pictures(Path(made)), times, WIDTH, HEIGHT))
