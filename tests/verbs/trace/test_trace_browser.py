"""The page of a trace in a real browser: what it draws and tells is what the events say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.main import main
from ptxlab.observe.timeline import Timeline
from ptxlab.observe.trace import trace
from ptxlab.verbs.trace import page as trace_page
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued
from tests.observe.pipelines import A_BYTES, EXCHANGE, RING, STEPS
from tests.observe.test_trace_tensor_memory import traced
from tests.verbs.browser import Browser, needs_browser

pytestmark = needs_browser


def launched(
    text: str, ctas: int, threads: int, *sizes: int, cluster: int | None = None
) -> Timeline:
    device = EmulatorDevice(TARGETS["sm_90a"])
    args = [device.zeros((size,), "u8") for size in sizes]
    return trace(device.load(text).kernel(), LaunchConfig.of(ctas, threads, 0, cluster), args)


@pytest.fixture(scope="module")
def ring() -> Timeline:
    return launched(RING, 1, 160, STEPS * A_BYTES, STEPS * 256, 64 * 8 * 4)


@pytest.fixture
def page(browser: Browser, ring: Timeline, tmp_path: Path) -> Browser:
    show(browser, ring, tmp_path)
    return browser


def show(browser: Browser, timeline: Timeline, folder: Path) -> None:
    path = folder / "trace.html"
    path.write_text(trace_page.page(timeline, {}), encoding="utf-8")
    browser.open(path.as_uri())
    painted(browser)


def painted(page: Browser) -> None:
    """Wait until what was asked for is drawn."""
    page.until("!asked && document.getElementById('lanes').width > 300")


def colours(page: Browser, lane: str, moments: list[float], down: float = 0.5) -> list[Any]:
    """Return for moments the colour that is drawn in a lane, by its name in the style sheet."""
    script = """
        const lane = lanes.find((one) => one.name === arguments[0]), ratio = devicePixelRatio || 1;
        const pen = $("lanes").getContext("2d");
        const named = Object.entries(colour).map(([name, hex]) =>
          [name, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join()]);
        return arguments[1].map((moment) => {
          const at = pen.getImageData(Math.round(x(moment) * ratio),
            Math.round((lane.top + arguments[2] * lane.height) * ratio), 1, 1).data;
          const found = named.find(([, rgb]) => rgb === [...at].slice(0, 3).join());
          return found ? found[0] : null;
        });"""
    return list(page.js(script, lane, moments, down))


def facts(page: Browser) -> dict[str, str]:
    script = (
        "return Object.fromEntries([...document.querySelectorAll('#inspector dt')]"
        ".map((term) => [term.textContent, term.nextSibling.textContent]))"
    )
    return dict(page.js(script))


def test_each_lane_is_there_by_name(page: Browser, ring: Timeline) -> None:
    names = page.js(
        "return [...document.querySelectorAll('#names span')].map((e) => e.textContent)"
    )
    warps = [f"warp {number}" for number in range(5)]
    tiles = [f"{tile.name} 2,304 B" for tile in ring.tiles]
    assert names == [
        *warps,
        *tiles,
        "wgmma",
        *(mbarrier.name for mbarrier in ring.mbarriers),
        "barrier 0",
    ]
    assert "It is no time" in page.text("#picture")
    assert page.text("#totals").startswith(f"steps {len(ring.executed)}, by 5 warps")


def test_steps_have_the_colour_of_their_class_in_the_lanes_of_their_warps(
    page: Browser, ring: Timeline
) -> None:
    classes = {
        "matrix multiply": "mma", "asynchronous copy": "copy", "synchronization": "sync",
        "global store": "memory", "param load": "memory",
    }  # fmt: skip
    for first in (0, 130, 700):
        page.js("look(arguments[0], arguments[0] + 60)", first)
        painted(page)
        for warp in (0, 4):
            steps = [
                step
                for step in range(first, first + 60)
                if step < len(ring.executed) and warp in ring.together[ring.who[step]]
            ]
            kinds = [ring.places[ring.executed[step]].kind for step in steps]
            drawn = colours(page, f"warp {warp}", [step + 0.5 for step in steps])
            assert drawn == [classes.get(kind, "other") for kind in kinds]


def test_phases_alternate_and_bytes_to_come_stand_below(page: Browser, ring: Timeline) -> None:
    empty = ring.mbarriers[5]
    begins = {state.phase: state.at for state in reversed(empty.states)}
    drawn = colours(page, empty.name, [at + 8 for _, at in sorted(begins.items())], 0.85)
    assert drawn == ["even", "odd", "even", "odd", "even"]
    full = ring.mbarriers[1]
    (waiting,) = [s.at for s in full.states if s.phase == 1 and s.tx == 2304]
    assert colours(page, full.name, [waiting - 4, waiting + 4], 0.85) == ["odd", None]


def test_pointing_at_a_fill_tells_of_it_and_outlines_what_it_has_to_do_with(
    page: Browser, ring: Timeline
) -> None:
    fill = ring.tiles[0].fills[1]
    assert fill.landed is not None
    page.js("look(arguments[0] - 20, arguments[1] + 20)", fill.since, fill.landed)
    page.js(
        "const lane = lanes.find((one) => one.kind === 'tile'), box = $('lanes').getBoundingClientRect();"
        "$('lanes').dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + x(arguments[0]),"
        " clientY: box.top + lane.top + 5 }))",
        fill.since + 30,
    )
    assert page.text("#inspector h2") == f"tiles, fill {fill.number}"
    told = facts(page)
    assert told["moves"] == "2,304 B"
    assert told["shared"] == "0x0 to 0x900"
    assert (told["began"], told["landed"]) == (f"{fill.since}", f"{fill.landed}")
    assert told["tells"] == "full, phase 1"
    line = ring.places[ring.executed[fill.since]].line
    assert page.text("#inspector li.at").startswith(str(line))
    related = page.js(
        "return related(state.hovered).map((one) => [one.kind, one.from, one.lane.name])"
    )
    assert ["step", fill.since, "warp 4"] in related
    assert ["step", fill.read[0], "warp 2"] in related
    phase = [s.at for s in ring.mbarriers[0].states if s.phase == 1]
    assert [at for kind, at, name in related if name == "full"] == phase


def test_all_can_be_reached_from_the_keyboard(page: Browser, ring: Timeline) -> None:
    page.js("$('lanes').focus()")
    page.press("ArrowRight")
    assert page.text("#inspector h2") == "mov.u32"
    page.press("ArrowRight")
    assert facts(page)["step"] == "1"
    page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
    assert page.text("#inspector h2") == "tiles, fill 0"
    page.press("ArrowRight")
    assert page.text("#inspector h2") == "tiles, fill 4"
    assert "tiles 2,304 B: tiles, fill 4; shared 0x0 to 0x900" in page.text("#say")
    page.press("+", "+")
    view = page.js("return [view.from, view.to]")
    assert view[1] - view[0] == pytest.approx(len(ring.executed) / 4)
    page.press("d")
    assert page.js("return view.from") > view[0]
    page.press("0", "Escape")
    assert page.js("return [view.from, view.to]") == [0, len(ring.executed)]
    assert page.text("#inspector h2") == "nothing chosen"


def test_the_longest_waits_lead_to_themselves(page: Browser, ring: Timeline) -> None:
    page.click("#inspector [data-lane]")
    longest = max(ring.waits, key=lambda wait: wait.until - wait.since)
    told = facts(page)
    assert (told["from"], told["until"]) == (f"{longest.since}", f"{longest.until}")
    assert told["who"] == "warp 4"
    assert told["ended by"].startswith("mbarrier.arrive.shared::cta.b64 of warps 0 to 3")


def test_another_scheme_is_drawn_in_its_colours(page: Browser) -> None:
    light = page.js("return colour.mma")
    page.click("#scheme")
    painted(page)
    assert page.js("return colour.mma") != light
    assert colours(page, "warp 0", [0.4]) == ["other"]
    page.scheme("dark")
    page.click("#scheme")
    assert page.js("return colour.mma") == light


def test_a_cluster_has_the_lanes_of_all_its_ctas(browser: Browser, tmp_path: Path) -> None:
    show(browser, launched(EXCHANGE, 2, 64, 1024, cluster=2), tmp_path)
    titles = browser.js(
        "return [...document.querySelectorAll('#names b')].map((e) => e.textContent)"
    )
    assert [title for title in titles if "rank" in title] == [
        "CTA (0, 0, 0), rank 0", "CTA (1, 0, 0), rank 1",
    ]  # fmt: skip
    assert titles[-1] == "barrier of the cluster"
    with browser.phone(390, 844):
        assert browser.js("return document.documentElement.scrollWidth") == 390


def test_a_page_of_other_events_would_be_seen(
    browser: Browser, ring: Timeline, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.html"
    right = trace_page.page(ring, {})
    path.write_text(right.replace('"kind":"matrix multiply"', '"kind":"global load"'), "utf-8")
    browser.open(path.as_uri())
    painted(browser)
    step = next(f.step for f in ring.flights if f.queue == "products")
    browser.js("look(arguments[0] - 5, arguments[0] + 20)", step)
    painted(browser)
    assert colours(browser, "warp 0", [step + 0.5]) == ["memory"]


def test_tensor_memory_has_lanes_in_each_cta_of_a_pair(browser: Browser, tmp_path: Path) -> None:
    problem = Problem("f16", 256, 32, "f16", "f16", group=2)
    timeline = traced(problem, issued(problem, "yes, 3"))  # a scaled D: nobody has measured that
    show(browser, timeline, tmp_path)
    names = browser.js("return lanes.map((lane) => [lane.cta, lane.name])")
    for cta in (0, 1):
        for name in ("tcgen05", "allocated", "columns 32 to 63", "bar"):
            assert [cta, name] in names
    assert [0, "commits"] in names
    [product] = [flight for flight in timeline.flights if flight.work == "product"]
    browser.js(
        "const lane = lanes.find((one) => one.kind === 'product' && one.cta === 1);"
        "keep(lane.items[0]); look(arguments[0] - 10, arguments[0] + 40)",
        product.step,
    )
    painted(browser)
    assert browser.text("#inspector h2") == "product of a pair"
    told = facts(browser)
    assert told["multiplies"] == "256 x 32 x 16 of f16, D f32, added to D"
    assert told["to cells"] == (
        "columns 32 to 63 of lanes 0 to 127 of rank 0, columns 32 to 63 of lanes 0 to 127 of rank 1"
    )
    assert told["bits"] == "unverified: nobody has measured them"
    related = browser.js("return related(state.pinned).map((one) => [one.kind, one.lane.name])")
    assert {"step": "warp 0", "commit": "commits", "columns": "columns 32 to 63"}.items() <= dict(
        related
    ).items()
    browser.js(
        "keep(lanes.find((one) => one.cta === 1 && one.name === 'columns 32 to 63').items[0])"
    )
    assert facts(browser)["cells"] == "columns 32 to 63 of lanes 0 to 127 of rank 1"
    with browser.phone(400, 844):
        assert browser.js("return document.documentElement.scrollWidth") == 400


def test_predicted_cycles_have_lanes_of_their_own(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "cycles.html"
    assert main(["trace", "ptx/mbarrier.ptx", "--gpu", "h100", "-o", str(path)]) == 0
    browser.open(path.as_uri())
    painted(browser)
    assert browser.text("#gpu") == "cycles on H100 SXM, predicted"
    browser.js("$('issues').focus()")
    browser.press("ArrowRight", "ArrowRight", "ArrowDown")
    chosen = browser.js(
        "const { warp, cycle, code } = cycles.pinned; return [warp, cycle, code.line]"
    )
    assert chosen[0] == 1
    assert f"cycle {chosen[1]}" in browser.text("#issue")
    assert browser.js("return place(stepOf(state.pinned)).line") == chosen[2]  # and above as well
    # Where it is drawn it is found.
    pointed = """
        const box = $("issues").getBoundingClientRect(), one = issuesOf[0][7];
        return issueUnder({ clientX: box.left + atCycle(one.cycle) + .5, clientY: box.top + 4 }) === one;"""
    browser.js("lookAtCycles(0, 40)")
    assert browser.js(pointed)
    with browser.phone(400, 844):
        assert browser.js("return document.documentElement.scrollWidth") == 400
