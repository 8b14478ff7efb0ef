"""The roofline: well-formed, small, every mark where the grid says its numbers are, no name on another."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from ptxlab.gemm import ALGORITHMS
from ptxlab.gemm.explain import LadderExplanation, tell
from ptxlab.isa.gpus import GPUS, Gpu
from ptxlab.verbs.gemm.roofline import svg
from ptxlab.view.palette import SCHEMES
from tests.gemm.rungs import counting, made, on_tensor_cores
from tests.together import in_one_test
from tests.verbs.browser import Browser, needs_browser

SVG = "{http://www.w3.org/2000/svg}"
BY_NAME = {gpu.name: gpu for gpu in GPUS}
H200, A100 = BY_NAME["H200 SXM"], BY_NAME["A100 SXM"]

Point = tuple[float, float]


def ladder(gpu: Gpu) -> LadderExplanation:
    """A ladder with rungs at the L1 cache, at issue, at the ceilings, and two at the same place."""
    naive = made("naive", sectors=34816, requests=8320)
    tiled = made("tiled", share=0.3, shared_wavefronts=16896, sectors=2560, requests=640)
    blocked = counting(tiled, shared_wavefronts=2176, sectors=800)
    vectorized = replace(blocked, algorithm=ALGORITHMS["block_tiled_vectorized"], share=0.85)
    cores = counting(on_tensor_cores(tiled), shared_wavefronts=230, sectors=200, requests=50)
    return tell(
        [
            naive,
            made("coalescing", sectors=20608, requests=8256),
            tiled,
            replace(blocked, algorithm=ALGORITHMS["block_tiled"], share=0.5),
            vectorized,
            replace(vectorized, algorithm=ALGORITHMS["warp_tiled"]),
            replace(cores, algorithm=ALGORITHMS["tensor_core_ptx"]),
            replace(cores, algorithm=ALGORITHMS["tensor_core"], share=1.0),
        ],
        gpu,
    )


def root_of(gpu: Gpu) -> ElementTree.Element:
    return ElementTree.fromstring(svg(ladder(gpu)))


def texts(root: ElementTree.Element, kind: str) -> list[tuple[str, float, float]]:
    return [
        (text.text or "", float(text.get("x", "")), float(text.get("y", "")))
        for text in root.iter(f"{SVG}text")
        if (text.get("class") or "") == kind
    ]


def scales(root: ElementTree.Element) -> tuple[Point, Point]:
    """Return what a pixel is on both axes as (at 1, for a decade), from the numbers at the grid."""
    across = [(math.log10(float(text)), x) for text, x, _ in texts(root, "i") if _is_number(text)]
    up = [(math.log10(float(text)), y - 3) for text, _, y in texts(root, "i e")]
    return _fit(across), _fit(up)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[\d.]+", text) is not None


def _fit(marks: list[Point]) -> Point:
    steps = [(b - a) / (at - other) for (other, a), (at, b) in pairwise(marks)]
    nearest = min(at - other for (other, _), (at, _) in pairwise(marks))
    assert (max(steps) - min(steps)) * nearest < 0.2  # the axis is logarithmic, in tenths of pixels
    (power, at), *_, (last, end) = marks
    return at - power * (step := (end - at) / (last - power)), step


def read(value: float, scale: Point) -> float:
    return float(10 ** ((value - scale[0]) / scale[1]))


def marks(root: ElementTree.Element) -> Iterator[tuple[str, Point, Point, str]]:
    """Yield rung, filled and hollow mark, and shape."""
    for group in root.iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        assert title is not None
        places = {}
        shape = ""
        for mark in group:
            if mark.tag == f"{SVG}circle":
                centre = float(mark.get("cx", "")), float(mark.get("cy", ""))
            elif mark.tag == f"{SVG}rect":
                half = float(mark.get("width", "")) / 2
                centre = float(mark.get("x", "")) + half, float(mark.get("y", "")) + half
            else:
                continue
            shape = mark.tag.removeprefix(SVG)
            places[mark.get("class")] = centre
        yield (title.text or "").split(":")[0], places["k"], places["w"], shape


@in_one_test("gpu", GPUS[1:])
def test_marks_stand_where_the_numbers_are(gpu: Gpu) -> None:
    root = root_of(gpu)
    across, up = scales(root)
    drawn = {name: (filled, hollow, shape) for name, filled, hollow, shape in marks(root)}
    steps = ladder(gpu).steps
    assert list(drawn) == [step.facts.algorithm.name for step in steps]
    for step in steps:
        filled, hollow, shape = drawn[step.facts.algorithm.name]
        under = step.bounds
        assert read(filled[0], across) == pytest.approx(under.intensity["L1"], rel=0.01)
        assert read(hollow[0], across) == pytest.approx(under.intensity["global"], rel=0.01)
        assert read(filled[1], up) == pytest.approx(under.tflops, rel=0.01)
        assert filled[1] == pytest.approx(hollow[1], abs=0.2)
        assert shape == ("rect" if step.facts.opcode == "HMMA" else "circle")


@pytest.mark.parametrize("gpu", [H200, A100], ids=lambda gpu: gpu.name)
def test_lines_are_the_published_peaks(gpu: Gpu) -> None:
    """Read two points of every slope, and the height of every ceiling."""
    root = root_of(gpu)
    across, up = scales(root)
    slopes, ceilings = [], []
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "o":
            x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", path.get("d", "")))
            if abs(y0 - y1) < 0.01:
                ceilings.append(read(y0, up))
            else:
                slopes += [read(y, up) / read(x, across) for x, y in ((x0, y0), (x1, y1))]
    per_second = gpu.sms * gpu.clock * 1e6 / 1e12
    speeds = [gpu.bandwidth / 1e3, gpu.l1 * per_second]
    speeds[1:1] = [gpu.l2 * gpu.clock / 1e6] if gpu.l2 else []
    assert slopes == pytest.approx([speed for speed in speeds for _ in range(2)], rel=0.02)
    fma, tensor = 256 * per_second, gpu.tensor["bf16", "f32"] * per_second
    fma /= 2 if gpu is A100 else 1
    more = [tensor * 0.65] if gpu is H200 else []
    assert ceilings == pytest.approx([fma, tensor, *more], rel=0.02)


def test_a_rung_that_memory_holds_back_stands_on_its_line() -> None:
    """Its filled mark is at the L1's speed; one that issue holds back is below."""
    root = root_of(H200)
    across, up = scales(root)
    speed = {name: read(at[1], up) / read(at[0], across) for name, at, _, _ in marks(root)}
    assert speed["naive"] == pytest.approx(33.45, rel=0.02)
    assert speed["tiled"] == pytest.approx(33.45, rel=0.02)
    assert speed["block_tiled"] < 30


@in_one_test("gpu", GPUS[1:])
def test_names_do_not_cover_each_other_or_marks(gpu: Gpu) -> None:
    root = root_of(gpu)
    names = texts(root, "h")
    assert [name for name, _, _ in names] == [
        step.facts.algorithm.name for step in ladder(gpu).steps
    ]
    boxes = [(x, y - 9, x + 6.1 * len(name), y + 2) for name, x, y in names]
    dots = [(x - 5, y - 5, x + 5, y + 5) for _, *both, _ in marks(root) for x, y in both]
    pairs = [*combinations(boxes, 2), *((box, dot) for box in boxes for dot in dots)]
    for a, b in pairs:
        assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (a, b)
    for left, top, right, bottom in boxes:
        assert left > 62
        assert top > 56
        assert right < 62 + 760
        assert bottom < 56 + 520


def test_arrows_lead_to_what_improves() -> None:
    """To every rung but the first and those too near, which stand on each other."""
    explained = ladder(H200)
    root = ElementTree.fromstring(svg(explained))
    arrows = [path.get("d", "") for path in root.iter(f"{SVG}path") if path.get("class") == "a"]
    places = {name: at for name, at, _, _ in marks(root)}
    far = [
        (places[step.after], places[step.facts.algorithm.name])
        for step in explained.steps
        if step.after and math.dist(places[step.after], places[step.facts.algorithm.name]) > 20
    ]
    assert len(arrows) == len(far) >= 3
    for path, (start, end) in zip(arrows, far, strict=True):
        x0, y0, x1, y1 = map(float, re.findall(r"[\d.]+", path)[:4])
        assert (x0, y0) == pytest.approx(start, abs=0.1)
        assert math.dist((x1, y1), end) < 8


def test_small_accessible_light_and_dark() -> None:
    picture = svg(ladder(H200))
    assert len(picture) < 24_000
    root = ElementTree.fromstring(picture)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert (
        title.text == "Roofline of the H200 SXM: the ladder at 64 x 64 x 64 (m x n x k), on sm_90a"
    )
    style = "".join(element.text or "" for element in root.iter(f"{SVG}style"))
    for colour in (scheme[name] for scheme in SCHEMES.values() for name in ("ink", "paper")):
        assert colour in style
    assert "prefers-color-scheme:dark" in style
    assert "nothing is measured" in picture
    # Slopes differ by their dashes, kinds of rungs by shapes: colour says nothing alone.
    dashes = re.findall(r'class="o" stroke-dasharray="([^"]*)"', picture)
    assert len(set(dashes[:2])) == 2


def test_one_rung_alone_has_a_picture() -> None:
    root = ElementTree.fromstring(svg(tell([made("naive")], A100)))
    assert len(list(marks(root))) == 1
    assert not [text for text, _, _ in texts(root, "h q") if "tensor" in text]


@needs_browser
def test_in_a_browser_no_text_is_on_another(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "roofline.svg"
    file.write_text(svg(ladder(H200)), encoding="utf-8")
    browser.open(file.as_uri())
    boxes = browser.js(
        "return [...document.querySelectorAll('text:not([transform])')].map(text => {"
        "const b = text.getBoundingClientRect();"
        "return [text.textContent, b.left, b.top + 2, b.right, b.bottom - 2]})"
    )
    width, height = browser.js(
        "const b = document.documentElement.getBBox(); return [b.width, b.height]"
    )
    for (a, *first), (b, *second) in combinations(boxes, 2):
        apart = first[0] >= second[2] or second[0] >= first[2]
        assert apart or first[1] >= second[3] or second[1] >= first[3], (a, b)
    for text, left, top, right, bottom in boxes:
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width, text
        assert bottom <= height, text
