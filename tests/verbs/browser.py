"""A real browser for the tests: Chromium, spoken to through chromedriver's W3C WebDriver protocol."""

from __future__ import annotations

import base64
import importlib.resources
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key WebDriver gives references to elements under."""

KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004"}
KEYS |= {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}


AXE = """
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
axe.run(document, {runOnly: tags, iframes: false}).then((done) => {
    window.violated = done.violations.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.target)}`);
});
"""


def missing() -> str | None:
    """Say what is not installed, None when all is there."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    hint = "on Debian: apt install chromium chromium-driver"
    return f"no {' and no '.join(lacking)} ({hint})" if lacking else None


# Where a browser is promised its absence is a failure, not a reason to skip.
needs_browser = pytest.mark.skipif(
    missing() is not None and not os.environ.get("PTXLAB_NEEDS_BROWSER"), reason=str(missing())
)


class Browser:
    """One window. Elements are named by CSS selectors."""

    def __init__(self, width: int = 1400, height: int = 1000) -> None:
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._base = f"http://127.0.0.1:{self._port()}/session"
        # The one that never had a window does the same in a third of the time.
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments.append(f"--window-size={width},{height}")
        options = {"goog:chromeOptions": {"args": arguments, "binary": program}}
        options["goog:loggingPrefs"] = {"browser": "ALL"}
        session = self._call("POST", "", {"capabilities": {"alwaysMatch": options}})
        self._base += f"/{session['sessionId']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)
            # A browser that has not ended yet would go on for ever.
            with suppress(ProcessLookupError):
                os.killpg(self._driver.pid, signal.SIGKILL)

    def open(self, url: str) -> None:
        """Load a page anew and wait until it was drawn: keys pressed before that are lost."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})
        drawn = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        self._call("POST", "/execute/async", {"script": drawn, "args": []})

    def js(self, script: str, *args: object) -> Any:
        """Run a function body in the page and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def until(self, condition: str, seconds: float = 10) -> None:
        """Wait until an expression is true in the page, so many seconds at most."""
        deadline = time.monotonic() + seconds
        while not self.js(f"return {condition}"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never was {condition}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def hover(self, selector: str, right: float = 0.0, down: float = 0.0) -> None:
        """Move the mouse over an element, off its middle by parts of its width and height."""
        self._point(selector, right, down, click=False)

    def click(self, selector: str, right: float = 0.0, down: float = 0.0) -> None:
        self._point(selector, right, down, click=True)

    def tap(self, selector: str) -> None:
        """Touch the middle of an element with a finger."""
        self._point(selector, 0, 0, click=True, kind="touch")

    def press(self, *keys: str) -> None:
        """Press keys, by name or character, one after the other, wherever the focus is."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self._actions({"type": "key", "id": "keyboard", "actions": actions})

    def scheme(self, name: str) -> None:
        """Have the system say that it is ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self._cdp("Emulation.setEmulatedMedia", {"features": [feature]})

    @contextmanager
    def on_paper(self, scheme: str) -> Iterator[None]:
        """Have the page laid out for a printer, of a system that is ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._cdp("Emulation.setEmulatedMedia", {"media": "print", "features": [feature]})
        try:
            yield
        finally:
            self._cdp("Emulation.setEmulatedMedia", {"media": "", "features": []})

    def pdf(self) -> bytes:
        """Return the page as it is printed on A4, with its grounds."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.7, "printBackground": True}
        return base64.b64decode(self._cdp("Page.printToPDF", paper)["data"])

    @contextmanager
    def phone(self, width: int, height: int) -> Iterator[None]:
        """Have the page seen on a phone of this size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self._cdp("Emulation.clearDeviceMetricsOverride", {})

    def violated(self) -> list[str]:
        """Return which rules of WCAG A and AA axe-core finds violated and where, frames of the page aside."""
        axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js")
        self.js(f"window.violated = undefined;{axe.read_text()}")
        self.js(AXE)
        self.until("window.violated !== undefined", seconds=60)
        told: list[str] = self.js("return window.violated")
        return told

    def errors(self) -> list[str]:
        """Return what the page wrote to the console as errors since last asked."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def screenshot(self) -> bytes:
        return base64.b64decode(self._call("GET", "/screenshot"))

    def picture(self, quality: int) -> bytes:
        """Return what is seen as WebP, which is smaller: of so much quality, 100 at most."""
        screenshot = self._cdp("Page.captureScreenshot", {"format": "webp", "quality": quality})
        return base64.b64decode(screenshot["data"])

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if port := re.search(r"successfully on port (\d+)", line):
                return int(port[1])
        raise RuntimeError("chromedriver did not start")

    def _point(
        self, selector: str, right: float, down: float, *, click: bool, kind: str = "mouse"
    ) -> None:
        element = self._call("POST", "/element", {"using": "css selector", "value": selector})
        width, height = self.js(
            "arguments[0].scrollIntoView({block: 'nearest'});"
            "const box = arguments[0].getBoundingClientRect(); return [box.width, box.height]",
            element,
        )
        move = {
            "type": "pointerMove",
            "duration": 0,
            "origin": {ELEMENT: element[ELEMENT]},
            "x": round(right * width),
            "y": round(down * height),
        }
        press: list[dict[str, Any]] = [
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        actions = [move, *press * click]
        parameters = {"pointerType": kind}
        self._actions({"type": "pointer", "id": kind, "parameters": parameters, "actions": actions})

    def _actions(self, source: dict[str, Any]) -> None:
        self._call("POST", "/actions", {"actions": [source]})

    def _cdp(self, command: str, params: dict[str, Any]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from error
