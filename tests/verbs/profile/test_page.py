"""The page of a profile in a real browser: the chosen counter, its heat, and the way to the PTX."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.profile import count
from ptxlab.verbs.profile import page as profile_page
from tests.observe.programs import device
from tests.verbs.browser import Browser, needs_browser

pytestmark = needs_browser

SOURCE = """\
extern "C" __global__ void turn(float* data) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = data[32 * threadIdx.y + threadIdx.x];
    __syncthreads();
    data[32 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


def test_choosing_a_counter_and_following_a_line(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "turn.cu"
    file.write_text(SOURCE)
    emulator = device()
    kernel = emulator.load(file, options=["--generate-line-info"]).kernel()
    profile = count(
        kernel, LaunchConfig.of(1, (32, 32)), [emulator.upload(np.zeros(1024, np.float32))]
    )
    page = tmp_path / "turn.html"
    page.write_text(profile_page.page(profile, {str(file): SOURCE.splitlines()}))
    row = f'tr[data-here="{file}:5"]'
    heat = f"document.querySelector('{row}').style.getPropertyValue('--heat')"
    browser.open(page.as_uri())
    assert browser.text("#hottest li:first-child span:first-child").startswith("turn.cu:")
    assert browser.js("return document.querySelector('main details').open"), "the kernel's own file"
    assert browser.js("return document.documentElement.scrollHeight") < 2000
    executed = next(line.counts.executed for line in profile.sources[str(file)] if line.number == 5)
    assert browser.text(f"{row} td:nth-child(2)") == f"{executed}"
    browser.js(
        "const choice = document.getElementById('counter'); choice.value = 'shared_wavefronts';"
        "choice.dispatchEvent(new Event('change'))"
    )
    assert browser.text(f"{row} td:nth-child(2)") == "1,024"
    assert browser.js(f"return {heat}") == "1"
    assert "memory_l1_wavefronts_shared" in browser.js(
        "return document.getElementById('meaning').value"
    )
    browser.click(f"{row} td:first-child")
    chosen = browser.js(
        "return [...document.querySelectorAll('tr.chosen td:first-child')].map(c => +c.textContent)"
    )
    became = [i.line for i in profile.instructions if i.source and i.source.line == 5]
    assert chosen == [5, *became]
    assert browser.js("return location.hash") == "#turn.cu%3A5"
    browser.press("n", "?", "d")
    assert browser.js("return document.querySelectorAll('tr.chosen').length") > 0
    assert browser.js("return document.getElementById('keys').hidden") is False
    assert browser.js("return document.documentElement.dataset.scheme") in ("dark", "light")
