"""The playground in Chromium: ptxlab in a browser, without a server, answers what it answers here.

PTXLAB_PYODIDE names a folder with the npm package pyodide and wheels of numpy, ml_dtypes and rich for it, as
``scripts/site`` fetches them to build/site/playground/pyodide. Without it these tests are skipped.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxlab.resources import path
from ptxlab.verbs.lab.answer import answer
from tests.verbs.browser import Browser, needs_browser

PYODIDE = os.environ.get("PTXLAB_PYODIDE")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),  # Python is fetched, and begins
    pytest.mark.skipif(not PYODIDE, reason="PTXLAB_PYODIDE names no folder with Pyodide"),
    needs_browser,
]

PRODUCT = "mma_m16n8k16_bf16_f32.ptx"
ASKED = {
    PRODUCT: ("diagnose", "run", "check", "profile", "trace"),
    "ldmatrix.ptx": ("run", "check", "profile"),
    "mbarrier.ptx": ("run", "check", "trace"),
    "tma_load_swizzle.ptx": ("run", "check"),
    "wgmma_m64n8k16_ss.ptx": ("run", "check"),
    "tcgen05_mma_f16.ptx": ("run", "check"),
}
"""Of which programs what is asked."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from scripts.build_site import playground

    folder = tmp_path_factory.mktemp("site") / "playground"
    playground(folder, Path(PYODIDE or ""))
    serve = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Browser() as browser:
            browser.open(f"http://127.0.0.1:{server.server_port}/index.html")
            until(
                browser, "document.getElementById('backend').textContent === 'runs in this browser'"
            )
            yield browser
        server.shutdown()


def until(page: Browser, condition: str, limit: float = 240) -> None:
    """Wait until an expression is true in the page, for longer than a test of a page without Python has to."""
    deadline = time.monotonic() + limit
    while not page.js(f"return Boolean({condition})"):
        assert time.monotonic() < deadline, (condition, page.errors())
        time.sleep(0.1)


def asked(page: Browser, request: dict[str, Any]) -> Any:
    """Return what the page's Python answers."""
    page.js(
        "window.said = null; backend.ask(arguments[0], () => {})"
        ".then((answer) => { window.said = answer; }, (error) => { window.said = { error: error.message }; })",
        request,
    )
    until(page, "window.said")
    return page.js("return window.said")


def alike(text: Any) -> Any:
    """Return an answer without the seconds that it took, and without what made the page."""
    if isinstance(text, dict):
        return {key: alike(value) for key, value in text.items() if key != "seconds"}
    return re.sub(r"[\d.e-]+ s of emulation", "", text) if isinstance(text, str) else text


def program(name: str, **more: Any) -> dict[str, Any]:
    text = path(f"ptx/{name}").read_text(encoding="utf-8")
    return {"name": name, "text": text, "options": [], **more}


@pytest.mark.parametrize("name", ASKED)
def test_programs_do_in_a_browser_what_they_do_here(name: str, page: Browser) -> None:
    """Bits, findings, counts and events, in the answer as a whole."""
    for want in ASKED[name]:
        request = program(name, want=want)
        here, there = answer(request), asked(page, request)
        assert here["status"] in (0, 1), here
        assert alike(there) == alike(here), want


def test_questions_about_the_text_have_the_same_answers(page: Browser) -> None:
    text = program(PRODUCT)["text"]
    line = next(
        n for n, line in enumerate(text.splitlines(), 1) if line.strip().startswith("mma.sync")
    )
    for want in ("hover", "complete"):
        request = {"want": want, "name": PRODUCT, "text": text, "line": line, "column": 8}
        assert asked(page, request) == answer(request)


def test_what_needs_a_tool_of_nvidia_says_so(page: Browser) -> None:
    for want, tool in (("sass", "nvJitLink"), ("predict", "nvJitLink")):
        said = asked(page, program(PRODUCT, want=want))
        assert said["status"] == 3
        assert said["error"]["message"].startswith(f"{tool} is not available")


def test_a_view_is_drawn(page: Browser) -> None:
    page.js("choose('run', true)")
    until(
        page,
        "document.querySelector('#view-run pre')?.textContent.includes('d  f32 16x8  changed')",
    )
    page.js("choose('check', true)")
    until(page, "document.querySelector('#view-check .verdict')")
    assert page.text("#view-check .verdict") == "Nothing is wrong"
    assert [error for error in page.errors() if "favicon" not in error] == []


def test_the_step_page_is_drawn_in_its_frame(page: Browser) -> None:
    page.js("choose('step', true)")
    frame = "document.querySelector('#view-step iframe')?.contentDocument?.body"
    until(page, f"{frame}?.textContent.includes('mma.sync.aligned.m16n8k16')")
    until(page, "frames.step.ready")


def test_what_is_ended_ends_and_the_next_request_is_answered(page: Browser) -> None:
    endless = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { again: bra again; }\n"
    )
    request = {
        "want": "run",
        "name": "k.ptx",
        "text": endless,
        "options": ["--grid", "1", "--block", "32"],
    }
    page.js(
        "window.ended = null; window.stop = new AbortController();"
        "backend.ask(arguments[0], () => {}, window.stop.signal).catch((error) => { window.ended = error.name; })",
        request,
    )
    time.sleep(1)
    assert page.js("return window.ended") is None
    page.js("window.stop.abort()")
    until(page, "window.ended", 10)
    assert page.js("return window.ended") == "AbortError"
    assert asked(page, program(PRODUCT, want="diagnose"))["status"] == 0, "by another worker"
