"""The page of a recording in a real browser: what it shows is what was recorded, whichever way one goes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS, WARP
from ptxlab.launch_config import LaunchConfig
from ptxlab.layouts.shared_memory import wavefronts
from ptxlab.main import main
from ptxlab.matrix.catalog import multiplication
from ptxlab.observe.recording import Recording
from ptxlab.observe.step import step
from ptxlab.verbs.step import page as step_page
from tests.emulator.blackwell.operands import Problem
from tests.observe.pipelines import A_BYTES, RING, STEPS
from tests.observe.test_step_tensor_memory import cells_after, recorded
from tests.verbs.browser import Browser, needs_browser

STRIDED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry strided()
{
    .shared .align 16 .b8 words[1024];
    .reg .b32 lane, at;
    mov.u32 lane, %laneid;
    mov.u32 at, words;
    mad.lo.u32 at, lane, 16, at;
    st.shared.b32 [at], lane;
    mov.u32 at, words;
    mad.lo.u32 at, lane, 32, at;
    st.shared.v4.b32 [at], {lane, lane, lane, lane};
    ret;
}
"""
"""Stores with bank conflicts: words 16 bytes apart, and vectors 32 bytes apart."""
pytestmark = needs_browser


@pytest.fixture(scope="module")
def ring() -> Recording:
    device, random = EmulatorDevice(TARGETS["sm_90a"]), np.random.default_rng(1)
    sizes = (STEPS * A_BYTES, STEPS * 256, 2048)
    bits = [random.integers(0, 60, (size // 2, 2)).astype(np.uint8) for size in sizes]
    args = [device.upload(bit.ravel()) for bit in bits]
    return step(device.load(RING).kernel(), LaunchConfig.of(1, 160), args)


@pytest.fixture(scope="module")
def product() -> Recording:
    device, random = EmulatorDevice(TARGETS["sm_90a"]), np.random.default_rng(2)
    kernel = device.load(Path("ptx/mma_m16n8k16_bf16_f32.ptx")).kernel()
    a, b = (
        random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((16, 32), (32, 8))
    )
    args = [device.upload(a), device.upload(b), device.zeros((16, 8), "f32"), 32]
    return step(kernel, LaunchConfig.of(1, 32), args)


def show(browser: Browser, recording: Recording, folder: Path, moment: str = "") -> None:
    path = folder / "step.html"
    path.write_text(step_page.page(recording), encoding="utf-8")
    browser.open(path.as_uri() + moment)
    browser.until("!document.body.classList.contains('unpacking')")


def held(recording: Recording, warp: int, at: int) -> dict[int, Any]:
    """Return by number what the lanes of a warp hold in registers after a step."""
    return {
        number: words.T.ravel().tolist()
        for when, who, number, words in recording.became()
        if who == warp and when <= at
    }


def test_registers_and_memory_are_those_recorded_forwards_and_backwards(
    browser: Browser, ring: Recording, tmp_path: Path
) -> None:
    show(browser, ring, tmp_path)
    script = """
        state.warp = arguments[1]; go(arguments[0]);
        return [held.get(arguments[1]).map((words) => words && [...words]), [...memory]];"""
    for at, warp in ((5, 0), (700, 4), (300, 1), (12, 4), (len(ring.timeline.executed) - 1, 2)):
        registers, memory = browser.js(script, at, warp)
        expected = held(ring, warp, at)
        for number, words in enumerate(registers):
            assert (words or [0] * len(expected.get(number, []))) == expected.get(
                number, words or []
            )
        stored = np.zeros(len(memory), np.uint32)
        for when, first, words in ring.stored():
            if when <= at:
                stored[first : first + len(words)] = words
        assert memory == stored.tolist()
    unwritten = """
        state.register = data.registers.findIndex(({ bits }) => bits === 64);
        held.get(state.warp)[state.register] = undefined;
        drawRegisters(null, null);
        return document.querySelector(`#lanes td[data-at="${state.register}"]`).textContent;"""
    assert browser.js(unwritten) == "0"


def test_fragments_are_drawn_with_what_the_registers_hold(
    browser: Browser, product: Recording, tmp_path: Path
) -> None:
    show(browser, product, tmp_path)
    browser.press("m", "m")
    assert browser.text("#which button").startswith("mma.sync.aligned.m16n8k16")
    titles = browser.js("return [...document.querySelectorAll('#operands .c')].map(aboutElement)")
    form = multiplication("m16n8k16", "bf16")
    at = int(browser.js("return state.step"))
    now, before = held(product, 0, at), held(product, 0, at - 1)
    names = {
        register.name: n
        for n, register in enumerate(product.registers)
        if register.function == product.timeline.kernel
    }
    for name, source, dtype in (
        ("D", now, np.float32),
        ("A", before, ml_dtypes.bfloat16),
        ("B", before, ml_dtypes.bfloat16),
    ):
        layout = form.operand(name)
        words = np.array(
            [source[names[f"{name.lower()}{i}"]] for i in range(layout.registers_per_lane)],
            np.uint32,
        ).T
        bits = layout.unpack(words)
        expected = bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype).astype(np.float32)
        drawn = [title for title in titles if title.startswith(f"{name}[")]
        assert len(drawn) == layout.rows * layout.cols
        for title in drawn:
            element, value = title.split(" = ")
            row, col = map(int, element[2:-1].split(","))
            number, lane = value.split(", lane ")
            assert np.float32(number) == expected[row, col]
            assert int(lane.split(",")[0]) == layout.registers(row, col)[0].lane


def test_an_element_of_d_lights_what_it_is_made_of(
    browser: Browser, product: Recording, tmp_path: Path
) -> None:
    show(browser, product, tmp_path)
    browser.press("m", "m")
    lit = """
        const cell = [...document.querySelectorAll('#operands .c')].find((one) => one.dataset.about.startsWith('NAME,5,6,'));
        cell.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
        return [...document.querySelectorAll('#operands .feeds')].map((one) => one.dataset.about.split(',').slice(0, 3).join());
    """
    expected = {f"A,5,{k}" for k in range(16)} | {f"B,{k},6" for k in range(16)}
    assert set(browser.js(lit.replace("NAME", "D"))) - {"C,5,6"} == expected
    assert browser.js(lit.replace("NAME", "A")) == []


def test_the_ptx_has_the_lines_of_its_source(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["step", "kernels/naive.cu", "-o", str(page)]) == 0
    browser.open(page.as_uri())
    browser.until("!document.body.classList.contains('unpacking')")
    lines = browser.js(
        "return [...document.querySelectorAll('#ptx li')].map((one) => one.textContent)"
    )
    at = [line for line in lines if ".loc" in line]
    assert any(
        line.endswith("sum += A(row, p) * B(p, column);") and "// naive.cu:52" in line
        for line in at
    )


def test_bits_are_the_numbers_of_their_type(
    browser: Browser, product: Recording, tmp_path: Path
) -> None:
    show(browser, product, tmp_path)
    types = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
    }
    for name, dtype in types.items():
        size = np.dtype(dtype).itemsize
        count = 1 << (8 * size)
        script = "return range(arguments[1]).map((bits) => String(numberOf(arguments[0], bits)))"
        mine = [float(text) for text in browser.js(script, name, count)]
        with np.errstate(invalid="ignore"):  # what a signaling NaN raises
            known = np.arange(count).astype(f"u{size}").view(dtype).astype(np.float64)
        assert np.array_equal(np.array(mine), known, equal_nan=True)
    texts = browser.js(
        "return [['s16x2', 0x8000ffff], ['f32', 0x40490fdb], ['s8x4', 0x80ff0102], ['hex', 0x1234]]"
        ".map(([kind, word]) => elements(kind, [word], 32, whole).join(' '))"
    )
    assert texts == ["-1 -32768", "3.1415927", "2 1 -1 -128", "00001234"]
    assert math.isclose(
        float(browser.js("return numberOf('f64', 0x54442d18, 0x400921fb)")), math.pi
    )


def test_the_address_keeps_the_moment_and_keys_go_on(
    browser: Browser, product: Recording, tmp_path: Path
) -> None:
    show(browser, product, tmp_path, "#step=70&as=hex&register=d1&lane=9")
    last = held(product, 0, 70)
    [number] = [
        n
        for n, register in enumerate(product.registers)
        if (register.name, register.function) == ("d1", product.timeline.kernel)
    ]
    bits = f"{last[number][9]:08x}"
    assert f"0x{bits}" in browser.text("#chosen")
    assert bits == browser.text(f'tr[data-lane="9"] td[data-at="{number}"]')
    assert browser.text("#ptx [aria-current]").startswith("218")
    browser.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert browser.js("return state.step") == 71
    browser.press("[")
    assert browser.js("return [state.step, location.hash]") == [
        70, "#step=70&warp=0&as=hex&register=d1&lane=9"
    ]  # fmt: skip
    browser.press("]")
    later = int(browser.js("return state.step"))
    assert "d1" in product.timeline.places[product.timeline.executed[later]].text
    assert later > 70
    browser.js("goToLine({ target: document.querySelector('#ptx li.ran') })")
    first = min(instruction.line for instruction in product.timeline.places)
    assert browser.text("#ptx [aria-current]").startswith(str(first))


def test_words_of_shared_memory_say_who_wrote_them(browser: Browser, tmp_path: Path) -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    kernel = device.load(Path("ptx/ldmatrix.ptx")).kernel("ldmatrix_x1")
    tile = device.upload(np.arange(64, dtype=np.uint16))
    recording = step(kernel, LaunchConfig.of(1, WARP), [tile, device.zeros(32, "b32")])
    show(
        browser, recording, tmp_path, f"#step={len(recording.timeline.executed) - 1}&address=0x414"
    )
    [stores] = [
        instruction
        for instruction in recording.timeline.places
        if instruction.text.startswith("st.shared")
    ]
    assert browser.text("#chosen").startswith("0x414 rows+0x14, bank 5 0x000b000a")
    assert f"written by line {stores.line}, warp 0, lane 1" in browser.text("#chosen")
    browser.press("[")
    at = int(browser.js("return state.step"))
    assert recording.timeline.places[recording.timeline.executed[at]] == stores
    assert "32 lanes write 16 bytes each: 4 wavefronts, no" in browser.text("#touched")


def test_the_factors_of_a_warpgroup_are_drawn_from_shared_memory(
    browser: Browser, tmp_path: Path
) -> None:
    """A and B are what was given to the kernel, whatever way they lie in shared memory."""
    device, random = EmulatorDevice(TARGETS["sm_90a"]), np.random.default_rng(3)
    kernel = device.load(Path("ptx/wgmma_m64n8k16_ss.ptx")).kernel()
    a, b = (random.standard_normal(n).astype(ml_dtypes.bfloat16) for n in ((64, 16), (8, 16)))
    args = [device.upload(a), device.upload(b), device.zeros((64, 8), "f32")]
    recording = step(kernel, LaunchConfig.of(1, 128), args)
    show(browser, recording, tmp_path)
    browser.js("seeWarp(2); matrixBy(1)")
    titles = browser.js("return [...document.querySelectorAll('#operands .c')].map(aboutElement)")
    for name, matrix, rows in (("A", a, range(32, 48)), ("B", b.T, range(16))):
        drawn = {
            tuple(map(int, title[2 : title.index("]")].split(","))): title.split()[3].rstrip(",")
            for title in titles
            if title.startswith(f"{name}[")
        }
        assert {element: np.float32(number) for element, number in drawn.items()} == {
            (row, col): np.float32(matrix[row, col])
            for row in rows
            for col in range(matrix.shape[1])
        }
    assert "A is read, 2,048 bytes from" in browser.text("#touched")
    browser.js(
        "find('wgmma.mma_async', 1); choose({ register: Number(Object.keys(data.descriptors)[0]), lane: 0 })"
    )
    assert "stride byte offset" in browser.text("#chosen")


def test_wavefronts_are_those_of_bank_conflicts(browser: Browser, tmp_path: Path) -> None:
    device = EmulatorDevice(TARGETS["sm_90a"])
    recording = step(device.load(STRIDED).kernel(), LaunchConfig.of(1, WARP), [])
    show(browser, recording, tmp_path)
    seen = []
    for store in ("st.shared.b32", "st.shared.v4"):
        assert browser.js("return find(arguments[0], 1)", store)
        seen.append(browser.text("#touched").split(";")[0])
    lanes = np.arange(WARP)
    for told, addresses, size in zip(
        seen, (lanes * 16, (lanes * 32).reshape(4, 8)), (4, 16), strict=True
    ):
        fronts = int(wavefronts(addresses, size).sum())
        most = fronts - (4 if size == 16 else 1)
        assert (
            told
            == f"32 lanes write {size} bytes each: {fronts} wavefronts, of which {most} for bank conflicts"
        )


def test_what_is_typed_is_found(browser: Browser, product: Recording, tmp_path: Path) -> None:
    show(browser, product, tmp_path)
    assert browser.js("return placeOf(state.step).fragments.length") > 0, "it opens at matrices"
    browser.press("?")
    assert (
        browser.js("return getComputedStyle(document.querySelector('.keys')).position") == "fixed"
    )
    browser.press("?")
    browser.js("go(0)")
    browser.press("/")
    browser.press(*"d1", "Enter")
    first = browser.js("return [state.step, nameOf(state.register)]")
    writes = [
        at
        for at, n in enumerate(product.timeline.executed)
        if any(product.registers[write].name == "d1" for write in product.operands[n].writes)
    ]
    assert first == [writes[0], "d1"]
    browser.press("Enter")
    assert browser.js("return state.step") == writes[1]
    assert browser.js("return find('218', 1)")
    assert browser.text("#ptx [aria-current]").startswith("218")
    assert not browser.js("return find('no such', 1)")


@pytest.mark.thorough
def test_the_registers_of_a_product_fit_beside_its_source(
    browser: Browser, product: Recording, tmp_path: Path
) -> None:
    """Where there is less room numbers are briefer, and no column is out of sight."""
    looks = (
        "return [[...document.querySelectorAll('#lanes thead th button')].map((one) => one.firstChild.textContent),"
        " [...document.querySelectorAll('#lanes tbody tr:first-child td')].map((one) => one.textContent),"
        " ['#lanes', '#operands .scrolls'].map((id) => document.querySelector(id)).map((box) => box.scrollWidth <= box.clientWidth)]"
    )
    written = {}
    for width in (1900, 1000, 769):
        with browser.phone(width, 900):
            show(browser, product, tmp_path)
            browser.until(f"innerWidth === {width}")
            names, texts, fits = browser.js(looks)
            assert fits[0], width
            assert fits[1] or width == 1000, width
            written[width] = dict(zip(names, texts, strict=True))
    for name in ("a0", "a3", "b1", "d0", "d3"):
        full, brief = ([float(x) for x in written[width][name].split()] for width in (1900, 1000))
        assert np.allclose(brief, full, rtol=0.06, atol=0.006), name
    assert max(len(text) for text in written[1000].values()) <= 10


def test_it_fits_a_phone_in_the_dark(browser: Browser, ring: Recording, tmp_path: Path) -> None:
    show(browser, ring, tmp_path, "#step=300")
    browser.scheme("dark")
    with browser.phone(390, 844):
        browser.until("innerWidth === 390")
        assert browser.js("return document.documentElement.scrollWidth") == 390
        ground = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(13, 17, 23)"


def test_tensor_memory_is_that_recorded_and_told_cell_by_cell(
    browser: Browser, tmp_path: Path
) -> None:
    problem = Problem("f16", 64, 16, "f16", "f16")
    recording = recorded(problem)
    show(browser, recording, tmp_path)
    [product] = [flight for flight in recording.timeline.flights if flight.work == "product"]
    assert product.landed is not None
    last = len(recording.timeline.executed) - 1
    script = (
        "go(arguments[0]); return [[...cells], document.getElementById('cellfacts').textContent]"
    )
    for at in (last, product.step, product.landed - 1, 10):
        cells, said = browser.js(script, at)
        assert cells == cells_after(recording, at).ravel().tolist()
        if at == product.step:
            assert (
                "a product to columns 32 to 47 of lanes 0 to 111 begins: 64 x 16 x 16 of f16"
                in said
            )
        if at == product.landed - 1:
            assert "cells new" in said
            assert browser.text("#now").startswith("a commit arrives the product of line")
    # Row 20 of an m of 64 is in the second quarter: lane 36. The cell is pointed at and clicked.
    browser.js("go(arguments[0])", last - 30)
    where = browser.js(
        "const box = $('cells').getBoundingClientRect(), wide = ($('cells').querySelector('canvas').clientWidth - 38) / 512;"
        "return [(34 + 40.5 * wide) / box.width - .5, (15 + 36.5 * 3) / box.height - .5]"
    )
    browser.click("#cells", *where)
    held = cells_after(recording, last - 30)[36, 40]
    value = float(held.view(np.float32))
    told = browser.text("#cell")
    assert told.startswith(f"lane 36, column 40 0x{held:08x} f32 {value:g} by the product of line ")
    browser.js("choose({ register: Number(Object.keys(data.descriptors)[0]), lane: 0 })")
    assert "version 1" in browser.text("#chosen")
    with browser.phone(400, 844):
        assert browser.js("return document.documentElement.scrollWidth") == 400
