"""Write docs/step.webp: the page of ``ptxlab step`` on its way through an mma, as Chromium shows it, moving.

PYTHONPATH=. python scripts/step_picture.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ptxlab.main import main
from tests.verbs.browser import Browser

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "step.webp"
WIDTH, HEIGHT, QUALITY = 1400, 900, 30
KERNEL = "kernels/tensor_core.cu"
STOPS = (
    *(("cp.async.cg", 1000), ("ldmatrix", 1000), ("ldmatrix", 1000)),
    *(("mma.sync", 1500), ("mma.sync", 1500), ("mma.sync", 2500)),
)
"""The instructions that are stopped at, one after the other, and for how many milliseconds."""


def pictures(folder: Path) -> list[bytes]:
    """Return what the page shows at each stop, as WebP."""
    page = folder / "page.html"
    if main(["step", KERNEL, "-o", str(page)]):
        raise SystemExit(1)
    with Browser() as browser, browser.phone(WIDTH, HEIGHT):  # a window is smaller than it says
        browser.scheme("light")
        browser.open(page.as_uri())
        browser.until("!document.body.classList.contains('unpacking')")
        taken = []
        for instruction, _ in STOPS:
            browser.js(f"go(seek(1, (place) => place.text.startsWith('{instruction}')))")
            taken.append(browser.picture(QUALITY))
        return taken


def animated(
    frames: Sequence[bytes], milliseconds: Sequence[int], width: int = WIDTH, height: int = HEIGHT
) -> bytes:
    """Return pictures in WebP as one that moves, again and again: "WebP Container Specification", animation."""
    size = _number(width - 1, 3) + _number(height - 1, 3)
    body = _chunk(b"VP8X", _number(0x02, 4) + size) + _chunk(b"ANIM", bytes(6))
    for frame, duration in zip(frames, milliseconds, strict=True):
        position, whole = (
            bytes(6),
            _number(0x02, 1),
        )  # it is drawn over the one before, not mixed with it
        head = position + size + _number(duration, 3) + whole
        body += _chunk(b"ANMF", head + _image(frame))
    return _chunk(b"RIFF", b"WEBP" + body)


def _image(picture: bytes) -> bytes:
    """Return the chunk of a picture that is its pixels, without what is told of colours."""
    return picture[picture.index(b"VP8 ") :]


def _chunk(name: bytes, body: bytes) -> bytes:
    return name + _number(len(body), 4) + body + bytes(len(body) % 2)


def _number(value: int, nbytes: int) -> bytes:
    return value.to_bytes(nbytes, "little")


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        PICTURE.write_bytes(animated(pictures(Path(made)), [time for _, time in STOPS]))
