"""The page of the lab in a browser: the tour by keys alone, what one types, what moves together, links, files, widths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.verbs.browser import Browser, needs_browser
from tests.verbs.lab.conftest import Lab

pytestmark = needs_browser

SMALL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry small(.param .u64 x) {
    .reg .b32 r<3>;
    .reg .b64 p;
    ld.param.u64 p, [x];
    mov.u32 r0, %tid.x;
    mul.wide.u32 p, r0, 4;
    ret;
}
"""
OPENS = "become({...fresh(), name: 'small.ptx', text: arguments[0], tab: arguments[1], launch: {block: '32', args: {x: 'zeros(32,u32)'}}})"  # fmt: skip
IDLE = (
    "running === null && VIEWS[state.tab].shown !== null && !VIEWS[state.tab].box.matches('.stale')"
)


def until(browser: Browser, condition: str) -> None:
    """Wait for what processes answer, which have to begin first."""
    browser.until(condition, 50)


def show(browser: Browser, text: str = SMALL, tab: str = "run") -> None:
    browser.js(OPENS, text, tab)
    until(browser, IDLE)


@pytest.fixture(autouse=True)
def no_errors(browser: Browser) -> Any:
    yield
    assert browser.errors() == []


@pytest.mark.thorough
def test_the_tour_goes_by_keys_alone(browser: Browser) -> None:
    until(browser, IDLE)
    for _ in range(6):
        browser.press("Tab")
        if browser.js("return document.activeElement.id") == "tour":
            break
    titles = []
    for number in range(8):
        browser.press("Enter")
        until(browser, f"state.stop === {number} && document.activeElement.id === 'onward'")
        until(browser, IDLE)
        titles.append(browser.text("#stop h2"))
        assert not browser.js("return VIEWS[state.tab].box.querySelector('.refusal')"), titles
    assert len(set(titles)) == 8
    assert browser.js("return VIEWS.predict.box.querySelectorAll('.gpu .time').length") == 3
    browser.press("Enter")
    until(browser, "state.stop === null")


@pytest.mark.thorough
def test_the_timeline_has_the_cycles_of_the_gpu_that_is_chosen(browser: Browser) -> None:
    show(browser, tab="trace")
    select = "VIEWS.trace.box.querySelector('.axis select')"
    assert browser.js(f"return {select}.value") == ""
    why = "((VIEWS.trace.box.querySelector('.axis .quiet') || {}).textContent || '')"
    for gpu, told in (("t4", "no cycles: .target sm_80 does not run on sm_75"), ("a100", "")):
        browser.js(f"{select}.focus()")
        browser.press("ArrowDown")
        until(browser, f"state.cycles === '{gpu}'")
        until(browser, IDLE)
        assert browser.js(f"return {why}") == told
        assert browser.js(f"return {select}.value") == gpu
    until(browser, "frames.trace.ready")


def test_what_one_types_is_told_at_once(browser: Browser) -> None:
    show(browser)
    browser.js(
        "goTo(8, 24); editor.dispatch({ selection: { anchor: editor.state.doc.line(8).to } })"
    )
    browser.press("Enter", *"adx.u32 r1, r0, r0;")
    until(browser, "document.querySelector('#faults').textContent.includes('adx')")
    assert "line 9" in browser.text("#faults")
    browser.js(
        "editor.dispatch({ changes: { from: editor.state.doc.line(9).from, to: editor.state.doc.line(9).to } })"
    )
    until(browser, "document.querySelector('#faults').textContent === ''")
    browser.press(*"shf.l.")
    until(browser, "document.querySelector('.cm-tooltip-autocomplete')")
    assert "shf.l.wrap" in browser.text(".cm-tooltip-autocomplete")
    browser.press("Escape")
    browser.js("goTo(8, 17)")
    until(browser, "document.querySelector('#word').textContent.includes('special register')")


def test_what_is_looked_at_moves_everywhere(browser: Browser) -> None:
    show(browser, tab="code")
    assert browser.js("return editor.dom.querySelectorAll('.cm-line.origin').length") > 0
    browser.click("#listing-sass li[data-origin='10']")
    assert browser.js("return state.line") == 10
    assert (
        browser.js("return editor.dom.querySelector('.cm-line.here').textContent.trim()") == "ret;"
    )
    assert "may issue" in browser.text("#bits")
    show(browser, tab="step")
    until(browser, "frames.step.ready && state.line === 7")
    browser.js("frames.step.frame.contentDocument.getElementById('on').click()")
    until(browser, "state.line === 8")
    browser.js("look({ line: 9, from: 'source' })")
    until(
        browser,
        "frames.step.frame.contentDocument.getElementById('count').textContent === '3 of 4'",
    )
    held = browser.js("return held('r0')")
    assert held == "0x00000000, as u32 0 in lane 0 of warp 0 after step 3"


def test_a_link_and_a_file_have_all_of_it(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    show(browser, SMALL.replace("4;", "8;"), "profile")
    browser.js("state.gpus = ['b200']; return keepNow()")
    address = browser.js("return location.href")
    assert "token" not in address
    saved = browser.js("return savedPage()")
    browser.open(address)
    until(browser, IDLE)
    assert browser.js("return [state.text.includes('r0, 8;'), state.tab, state.gpus, state.launch.args.x]") == [
        True, "profile", ["b200"], "zeros(32,u32)",
    ]  # fmt: skip
    (tmp_path / "saved.html").write_text(saved, encoding="utf-8")
    browser.open((tmp_path / "saved.html").as_uri())
    until(browser, IDLE)
    assert "mul.wide.u32 p, r0, 8;" in browser.text("#view-profile")
    browser.js("choose('check')")
    until(browser, IDLE)
    assert "Open it with ptxlab lab" in browser.text("#view-check .refusal")
    browser.open(lab.address)
    until(browser, IDLE)


@pytest.mark.thorough
def test_work_is_cancelled(browser: Browser) -> None:
    show(browser)
    browser.js(OPENS, SMALL.replace("ret;", "again: bra again;"), "run")
    until(browser, "running !== null && document.querySelector('#go').textContent === 'Cancel'")
    until(browser, "document.querySelector('#progress').textContent.includes('s')")
    browser.click("#go")
    until(browser, "running === null")
    assert browser.text("#progress") == "cancelled"
    assert browser.text("#go") == "Run"
    show(browser)


CONTRAST = """
const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const rgba = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
const over = (top, below) => { const part = top[3] / 255; return top.slice(0, 3).map((one, at) => one * part + below[at] * (1 - part)); };
const ground = (element) => { const own = rgba(getComputedStyle(element).backgroundColor); return own[3] === 255 || !element.parentElement ? own.slice(0, 3) : over(own, ground(element.parentElement)); };
const light = (colour) => colour.map((one) => one / 255).map((one) => (one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)).reduce((sum, one, at) => sum + one * [.2126, .7152, .0722][at], 0);
const faint = (element) => { for (let at = element; at; at = at.parentElement) if (getComputedStyle(at).opacity < 1) return true; return false; };
const bad = new Map();
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const box = element.getBoundingClientRect();
  if (!own || !box.width || !box.height || faint(element) || !element.checkVisibility({ visibilityProperty: true })) continue;
  const back = ground(element), ink = over(rgba(getComputedStyle(element).color), back);
  const [low, high] = [light(back), light(ink)].sort((a, b) => a - b), ratio = (high + .05) / (low + .05);
  if (ratio < 4.5) bad.set(`${element.tagName}.${element.className} ${element.textContent.trim().slice(0, 30)}`, Math.round(100 * ratio) / 100);
}
return [...bad].slice(0, 8);
"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_text_stands_out_at_every_width(browser: Browser, scheme: str) -> None:
    browser.scheme(scheme)
    try:
        show(browser, SMALL.replace("mov.u32 r0", "mov.f32 r0"))
        for tab in ("run", "profile", "code", "check"):
            show(browser, tab=tab)
            browser.js("document.querySelector('#launch').open = true; drawStop()")
            assert browser.js(CONTRAST) == [], tab
        for width in (400, 800):
            with browser.phone(width, 900):
                assert browser.js("return document.documentElement.scrollWidth") <= width
                assert browser.js(CONTRAST) == []
    finally:
        browser.scheme("light")
        browser.js("document.querySelector('#launch').open = false")


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_violates_what_axe_looks_for(browser: Browser, scheme: str) -> None:
    """The frames of Step and Timeline are pages of their own, with a test of their own."""
    browser.scheme(scheme)
    try:
        for tab in browser.js("return Object.keys(VIEWS)"):
            show(browser, tab=tab)
            browser.js("document.querySelector('#launch').open = true; drawStop()")
            assert browser.violated() == [], tab
        browser.js("document.querySelector('#tour').click()")
        until(browser, "state.stop === 0 && running === null")
        assert browser.violated() == []
    finally:
        browser.js("leaveTour()")
        browser.scheme("light")
        browser.js("document.querySelector('#launch').open = false")


def test_the_contrast_of_faint_text_is_found(browser: Browser) -> None:
    browser.js("$('say').textContent = 'faint'; $('say').style.color = '#999'")
    told = browser.js(CONTRAST)
    browser.js("$('say').textContent = ''; $('say').style.color = ''")
    assert len(told) == 1
    assert "faint" in told[0][0]
