"""The atlas page in a real browser: what it draws and says is compared with the layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxlab.fragments import receipts
from ptxlab.fragments.code import accesses, cuda, ptx
from ptxlab.layouts.shared_memory import wavefronts
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES
from ptxlab.matrix.trace import SharedPlace, trace
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.verbs.fragments import atlas
from tests.verbs.browser import Browser, needs_browser

pytestmark = needs_browser

BF16 = multiplication("m16n8k16", "bf16")
DIFFERENT = list({i.operands: i for i in MULTIPLICATIONS}.values())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    path.write_text(atlas.page(MULTIPLICATIONS, BF16), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Browser:
    browser.open(address)
    return browser


def cell(operand: str, row: int, col: int, layout: FragmentLayout) -> str:
    """Return the selector of the cell at an element; cells are in the order of their corners."""
    length = max(1, layout.elements_per_register)
    number = (
        row // length * layout.cols + col
        if operand == "B"
        else row * (layout.cols // length) + col // length
    )
    return f'[data-operand="{operand}"] [data-run="{number}"]'


def shown(page: Browser, kind: str) -> list[str]:
    """Return the texts of the cells of that kind (at, on, feeds), lanes of the key left out."""
    script = (
        "return [...document.querySelectorAll(`#stage [data-operand] .${arguments[0]} text`)]"
        ".map((text) => text.textContent)"
    )
    return [str(text) for text in page.js(script, kind)]


def address_of(page: Browser) -> str:
    return str(page.js("return decodeURIComponent(location.hash)"))


def test_it_opens_at_the_chosen_instruction(page: Browser) -> None:
    assert page.text("#name") == BF16.name
    assert page.text("#list [aria-current]").startswith("m16n8k16")
    gpu = receipts.hardware(BF16)
    assert (f"verified on {gpu}" if gpu else "unverified on hardware") in page.text("#facts")
    assert "sm_80" in page.text("#facts")


def test_every_layout_drawn_is_the_layout(page: Browser) -> None:
    """Have the page's own code say the places of all elements of all instructions."""
    script = """
        const found = {};
        document.body.hidden = true;  // nothing has to be laid out
        for (const name of arguments[0]) {
          state.entry = entries.find((entry) => entry.name === name);
          state.matrix = 0;
          drawAll();
          found[name] = Object.fromEntries(Object.keys(state.entry.operands).map((letter) => {
            const layout = operand(letter);
            const cells = [...document.querySelectorAll(`[data-operand="${letter}"] [data-run] text`)];
            return [letter, [layout.table, cells.map((text) => text.textContent)]];
          }));
        }
        return JSON.stringify(found);"""
    output = json.loads(page.js(script, [i.name for i in DIFFERENT]))
    for instruction in DIFFERENT:
        for layout in instruction.operands:
            table, cells = output[instruction.name][layout.operand]
            assert table == layout.table().tolist()
            if cells:
                name = layout.operand.lower()
                owners = {
                    f"{lane}:{name}{register}"
                    for lane in range(32)
                    for register in range(layout.registers_per_lane // layout.copies)
                    if layout.matrix(lane) == 0
                }
                assert {text.split("×")[0] for text in cells} == owners


def test_hovering_an_element_says_lane_register_and_bits(page: Browser) -> None:
    layout = BF16.operand("A")
    page.hover(cell("A", 9, 5, layout), right=0.25)
    assert page.text("#inspector h2") == "A[9,5]"
    place = layout.registers(9, 5)[0]
    assert (place.lane, place.register, place.element) == (6, 1, 1)
    where = page.text("#inspector .where")
    assert where.split() == ["lane", "6", "register", "a1", "bits", "16", "to", "31"]
    page.hover(cell("A", 9, 5, layout), right=-0.25)
    assert page.text("#inspector h2") == "A[9,4]"
    assert shown(page, "at") == ["6:a1"]
    lane = [f"6:{n}{r}" for n, count in (("a", 4), ("b", 2), ("d", 4)) for r in range(count)]
    assert sorted(shown(page, "at") + shown(page, "on")) == sorted(lane)
    page.hover("h1")
    assert shown(page, "at") == []
    assert page.text("#inspector h2") == "nothing chosen"


def feeding(instruction: MatrixInstruction, row: int, col: int) -> list[str]:
    """Return lane:register of all of A, then B, that goes into an element of D."""
    a, b = instruction.operand("A"), instruction.operand("B")
    left = [p for k in range(instruction.k) for p in a.registers(row, k)]
    right = [p for k in range(instruction.k) for p in b.registers(k, col)]
    return [
        *dict.fromkeys(f"{p.lane}:a{p.register}" for p in left),
        *dict.fromkeys(f"{p.lane}:b{p.register}" for p in right),
    ]


def test_an_element_of_d_lights_what_feeds_it(page: Browser) -> None:
    chosen = "return [...document.querySelectorAll('.sum .chip')].map((e) => e.textContent)"
    for instruction in (BF16, multiplication("m16n8k64", "s4"), multiplication("m8n8k4", "f64")):
        page.js(
            "location.hash = arguments[0]; readHash(); drawAll()", f"op={instruction.name}&at=D,3,4"
        )
        assert page.text("#inspector h2") == "D[3,4]"
        assert page.text("#name") == instruction.name
        assert shown(page, "on") == feeding(instruction, 3, 4)
        c = instruction.operand("C").registers(3, 4)[0]
        assert set(page.js(chosen)) == {*feeding(instruction, 3, 4), f"{c.lane}:c{c.register}"}


def test_hovering_a_lane_shows_its_elements(page: Browser) -> None:
    page.hover('#stage [data-lane="13"]')
    assert page.text("#inspector h2") == "lane 13"
    assert set(shown(page, "on")) == {
        f"13:{n}{r}" for n, count in (("a", 4), ("b", 2), ("d", 4)) for r in range(count)
    }
    (row, col), _ = BF16.operand("A").table()[13, 1].tolist()
    assert f"a1A[{row},{col}..{col + 1}]" in page.text("#inspector .held")


def test_a_tap_keeps_and_the_address_says_it(page: Browser, address: str) -> None:
    page.click(cell("D", 5, 2, BF16.operand("D")))
    page.hover("h1")
    assert page.text("#inspector h2") == "D[5,2]"
    assert address_of(page) == f"#op={BF16.name}&at=D,5,2"
    page.open(address + address_of(page))
    assert page.text("#inspector h2") == "D[5,2]"
    page.click(cell("D", 5, 2, BF16.operand("D")))
    page.hover("h1")
    assert page.text("#inspector h2") == "nothing chosen"
    assert address_of(page) == f"#op={BF16.name}"


def test_a_finger_does_what_the_mouse_does(page: Browser) -> None:
    page.tap('#stage [data-lane="9"]')
    assert page.text("#inspector h2") == "lane 9"
    page.tap(cell("B", 2, 3, BF16.operand("B")))
    assert page.text("#inspector h2").startswith("B[")
    assert "register b0" in page.text("#inspector .where")
    assert "&at=B," in address_of(page)


def test_searching_and_choosing(page: Browser) -> None:
    page.press("/")
    page.until("document.activeElement.id === 'search'")
    page.press(*"e4m3 k32 f16")
    page.until("document.querySelector('#search').value === 'e4m3 k32 f16'")
    names = page.js(
        "return [...document.querySelectorAll('#list button')].map((b) => b.dataset.name)"
    )
    assert names
    for name in names:
        assert all(word in name for word in ("e4m3", "k32", "f16"))
    page.press("Enter")
    assert page.text("#name") == names[0]
    assert address_of(page) == f"#op={names[0]}"
    page.js("history.back()")
    page.until(f"document.querySelector('#name').textContent === {BF16.name!r}")
    page.click("#search")
    page.press("Escape")
    known = (MULTIPLICATIONS, atlas.MOVES, WGMMA, TENSOR_MEMORY_MOVES)
    assert page.text("#count") == f"{sum(map(len, known))} instructions"


def test_searching_an_element_jumps_to_it_with_its_code(page: Browser) -> None:
    page.press("/")
    page.until("document.activeElement.id === 'search'")
    page.press(*"D[5,6]")
    place = BF16.operand("D").registers(5, 6)[0]
    assert page.text("#inspector h2") == "D[5,6]"
    assert f"lane {place.lane} register d{place.register}" in page.text(
        "#inspector .where + .where"
    )
    codes = page.js("return [...document.querySelectorAll('.code pre')].map((e) => e.textContent)")
    assert codes == [cuda(BF16.operand("D")), "\n".join(ptx(BF16.operand("D"), place))]
    page.js(
        "Object.defineProperty(navigator, 'clipboard',"
        "{ value: { writeText: (text) => { window.copied = text; } } })"
    )
    page.click(".code .copy")
    assert page.js("return window.copied") == codes[0]
    page.js("$('search').value = 'HGMMA D[41,77]'; search()")
    assert page.text("#count") == "no D[41,77]: D is 16×8"
    page.click("#list button")
    assert page.text("#inspector h2") == "D[41,77]"
    form = multiplication(str(page.text("#name")))
    place = form.operand("D").registers(41, 77)[0]
    codes = page.js("return [...document.querySelectorAll('.code pre')].map((e) => e.textContent)")
    assert codes[1] == "\n".join(ptx(form.operand("D"), place))


def test_the_code_of_every_operand_is_that_of_the_command_line(page: Browser) -> None:
    script = """
        return arguments[0].map((name) => {
          state.entry = entries.find((entry) => entry.name === name);
          return Object.keys(state.entry.operands).map((letter) => {
            const layout = operand(letter);
            const place = { lane: 9, register: layout.registers - 1, element: layout.elements - 1 };
            const found = accessOf(letter, place);
            return found && [found.cuda, ...found.ptx.split("\\n")];
          });
        });"""
    some = [i for i in DIFFERENT if not i.layout_open]
    for instruction, codes in zip(some, page.js(script, [i.name for i in some]), strict=True):
        for layout, code in zip(instruction.operands, codes, strict=True):
            last = layout.registers_per_lane - 1, layout.elements_per_register - 1
            expected = accesses(layout, Place(9, *last))[1:]
            assert (code or []) == [line.strip() for line in expected]


def test_what_has_no_fragments_is_found_with_the_reason(page: Browser) -> None:
    script = "$('search').value = arguments[0]; search(); return $('list').textContent"
    assert "tcgen05.mma D = A * B + D. No thread holds" in page.js(script, "tcgen05 mma")
    assert "tcgen05.mma D = A * B + D. No thread holds" in page.js(script, "UTCHMMA")
    assert page.js(script, "HMMA.16816.F32.BF16").startswith("mma 1m16n8k16bf16 → f32")
    assert page.js(script, "16816").startswith("mma ")
    assert page.js(script, "ldsm x4").startswith("ldmatrix ")
    assert page.js(script, "fp8 m16n8k32").startswith("mma ")
    assert "s8 → s32" in page.js(script, "int8 k32")
    halves = page.js(script, "half m16n8k16 mma.sync")
    assert "f16 → f16" in halves
    assert "m16n8k16bf16" not in halves
    assert page.js(script, "no such").startswith("Nothing has all of these words.")


@pytest.mark.parametrize("width", [390, 700, 1000, 1400])
def test_an_empty_box_covers_nothing(browser: Browser, address: str, width: int) -> None:
    with browser.phone(width, 844):
        browser.open(f"{address}#op={BF16.name}")
        box, stage, marks = browser.js(
            "return ['inspector', 'stage', 'marks'].map((id) => {"
            "const box = $(id).getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })"
        )
    for left, top, right, bottom in (stage, marks):
        apart = box[0] >= right or box[2] <= left or box[1] >= bottom or box[3] <= top
        assert apart, (box, stage, marks)


def test_the_keyboard_reaches_everything(page: Browser) -> None:
    page.js("document.querySelector('[data-operand=\"A\"]').focus()")
    page.press("ArrowDown", "ArrowDown", "ArrowRight")
    assert page.text("#inspector h2") == "A[1,1]"
    assert page.text("#say").startswith("A[1,1] is in lane 4, register a0, element 1")
    page.press("Tab")
    assert page.js("return document.activeElement.dataset.operand") == "B"
    frame = "getComputedStyle(document.activeElement.querySelector('.frame')).stroke"
    assert page.js(f"return {frame}") != "none"
    page.press("Escape")
    assert page.text("#inspector h2") == "nothing chosen"
    page.js("document.querySelector('[data-lanes]').focus()")
    page.press("ArrowRight", "ArrowDown", "ArrowRight")
    assert page.text("#inspector h2") == "lane 5"
    assert address_of(page).endswith("&lane=5")


def test_a_bad_address_falls_back(browser: Browser, address: str) -> None:
    browser.open(f"{address}#op=no.such&at=A,99,1&lane=40&pitch=7")
    assert browser.text("#name") == BF16.name
    assert browser.text("#inspector h2") == "nothing chosen"


def test_the_four_products_of_m8n8k4(browser: Browser, address: str) -> None:
    instruction = multiplication("m8n8k4", "f16", "f32")
    browser.open(f"{address}#op={instruction.name}")
    browser.click('[data-matrix-pick="2"]')
    lanes = browser.js(
        "return [...document.querySelectorAll('[data-operand=\"A\"] text')].map((t) => t.textContent)"
    )
    assert {int(text.split(":")[0]) // 4 % 4 for text in lanes} == {2}
    assert address_of(browser) == f"#op={instruction.name}&matrix=2"


def row_addresses(matrices: int, pitch: int, swizzle: int) -> list[list[int]]:
    """Return the byte addresses of the 8 rows of each matrix: two below each other, then beside."""
    plain = [
        [(row + 8 * (matrix % 2)) * pitch + 16 * (matrix // 2) for row in range(8)]
        for matrix in range(matrices)
    ]
    mask = (1 << swizzle) - 1
    return [[start ^ (((start >> 7) & mask) << 4) for start in rows] for rows in plain]


def words_of_one_bank(addresses: list[list[int]]) -> int:
    """Count in words: for each eight rows, the most words that one bank must give."""
    total = 0
    for rows in addresses:
        words: dict[int, set[int]] = {}
        for word in (start // 4 + i for start in rows for i in range(4)):
            words.setdefault(word % 32, set()).add(word)
        total += max(map(len, words.values()))
    return total


def test_ldmatrix_counts_its_bank_conflicts(page: Browser) -> None:
    names = {m.matrices: m.name for m in LDMATRIX if m.shape == "m8n8" and not m.trans}
    assert set(names) == {1, 2, 4}
    script = """
        document.body.hidden = true;  // nothing has to be laid out
        return arguments[0].map(([name, pitch, swizzle]) => {
          location.hash = `op=${name}&pitch=${pitch}&swizzle=${swizzle}`;
          readHash();
          drawAll();
          return [$("verdict").textContent, document.querySelectorAll(".clash").length];
        });"""
    pitches = (16, 32, 64, 80, 128, 144, 272)
    cases = [(n, p, swizzle) for n in names for p in pitches for swizzle in range(4)]
    told = page.js(script, [(names[n], *place) for n, *place in cases])
    for (matrices, *place), (verdict, clashes) in zip(cases, told, strict=True):
        addresses = row_addresses(matrices, *place)
        right = words_of_one_bank(addresses)
        assert wavefronts(np.array(addresses), 16).sum() == right
        assert verdict.startswith(f"{right} wavefront")
        assert bool(clashes) == (right > matrices)


def test_ldmatrix_shows_the_plan_of_a_lane(browser: Browser, address: str) -> None:
    x4 = next(m for m in LDMATRIX if m.matrices == 4 and m.trans)
    browser.open(f"{address}#op={x4.name}&pitch=128&swizzle=3")
    browser.hover('#stage [data-bank][data-lane="19"]')
    assert x4.addressed_row(19) == (2, 3)
    assert "address of row 3 of matrix 2: 0x01a0" in browser.text("#inspector .where")
    first = x4.fragment.table()[19, 0].tolist()
    assert f"matrix 1: {' '.join(f'[{r},{c}]' for r, c in first)}" in browser.text(
        "#inspector .held"
    )
    browser.click('[data-swizzle="0"]')
    assert address_of(browser).endswith("pitch=128&swizzle=0")
    assert browser.text("#verdict").startswith("32 wavefronts for 4 phases")


def test_light_and_dark(page: Browser) -> None:
    def ground() -> list[int]:
        colour = str(page.js("return getComputedStyle(document.body).backgroundColor"))
        return [int(part) for part in colour[4:-1].split(",")]

    def lane() -> str:
        return str(page.js("return getComputedStyle(document.querySelector('#stage .l6')).fill"))

    light, colour = ground(), lane()
    assert min(light) > 230
    page.scheme("dark")
    assert max(ground()) < 40
    assert lane() != colour
    page.click("#scheme")
    assert (ground(), lane()) == (light, colour)


def test_a_screenshot_has_every_lane_s_colour(page: Browser) -> None:
    assert page.screenshot().startswith(b"\x89PNG")
    fills = page.js(
        "return [...document.querySelectorAll('#stage [data-lane] rect')].map((r) => getComputedStyle(r).fill)"
    )
    assert len(set(fills)) == 32


def test_movmatrix_shows_where_an_element_goes(browser: Browser, address: str) -> None:
    browser.open(f"{address}#op={MOVMATRIX.name}&at=A,2,5")
    assert browser.text("#inspector h2") == "A[2,5]"
    source, destination = (
        layout.registers(2, 5)[0] for layout in (MOVMATRIX.source, MOVMATRIX.destination)
    )
    assert shown(browser, "at") == [f"{source.lane}:a0"]
    assert f"D in lane {destination.lane} register d0" in browser.text("#inspector")
    assert set(shown(browser, "on")) == {f"{source.lane}:d0", f"{destination.lane}:d0"}


def test_every_instruction_can_be_chosen_and_touched(page: Browser) -> None:
    """Go through all kinds of entries with a lane and an element chosen: no error, no stray text."""
    script = """
        document.body.hidden = true;  // nothing has to be laid out
        const seen = new Set(), bad = [];
        for (const entry of entries) {
          const kind = JSON.stringify([entry.operands, entry.load, entry.sparse, entry.scales]);
          if (seen.has(kind)) continue;
          seen.add(kind);
          choose(entry);
          pin({ lane: 6 });
          for (const name of Object.keys(entry.operands || {})) pin({ operand: name, row: 1, col: 1 });
          if (/undefined|NaN|null/.test($("main").textContent)) bad.push(entry.name);
        }
        return [seen.size, bad];"""
    count, bad = page.js(script)
    assert count > 100
    assert bad == []


def test_a_warpgroup_shows_its_threads_and_shared_memory(browser: Browser, address: str) -> None:
    """wgmma m64n96k16: another n and other columns are chosen, and an element of D is traced."""
    form = multiplication("wgmma.m64n96k16.rs", "bf16")
    browser.open(f"{address}#op={form.key}&at=D,41,77")
    assert browser.text("#name") == form.key
    place = form.operand("D").registers(41, 77)[0]
    assert f"thread {place.lane} register d{place.register}" in browser.text("#inspector")
    assert shown(browser, "at") == [f"{place.lane}:d{place.register}"]
    sums = browser.js("return [...document.querySelectorAll('.sum td')].map((e) => e.textContent)")
    (element,) = trace(form, 41, 77)
    for term in element.terms[::2]:
        (a,), (b,) = term.a, term.b[0]
        assert isinstance(b, SharedPlace)
        assert f"{a[0]}:a{a[1]}" in sums
    assert element.terms[8].b[0][0].formula in sums  # type: ignore[union-attr]
    browser.js(
        "const n = document.querySelector('#number'); n.value = '24';"
        "n.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    assert browser.text("#name") == form.key.replace("n96", "n24")
    browser.hover('[data-operand="B"] [data-unit]', right=-0.2, down=-0.2)
    assert browser.text("#inspector h2").startswith("B[")
    assert "shared memory start" in browser.text("#inspector")
    browser.js("location.hash = arguments[0]", f"op={form.key}&lane=127")
    browser.until("document.querySelector('#inspector h2').textContent === 'thread 127'")
    assert "warp 3" in browser.text("#inspector .where")


def test_metadata_and_scales_stand_below_the_dot_product(browser: Browser, address: str) -> None:
    """Owners as the PTX ISA's figures of sparse mma.m16n8k64 and of block scaling have them."""
    browser.open(f"{address}#op={multiplication('mma.sp.m16n8k64', 's8').name}&at=D,3,5")
    held = browser.text("#inspector .held")
    assert held == "j 0..15lane 12 bits 0 to 31j 16..31lane 14 bits 0 to 31"
    browser.open(
        f"{address}#op={multiplication('m16n8k64.mxf4nvf4.scale_vec::4X.ue4m3').name}&at=D,3,5"
    )
    rows = browser.js("return [...document.querySelectorAll('.sum tr')].map((e) => e.textContent)")
    assert rows[-4:] == [
        f"{16 * block}..{16 * block + 15}lane 12 byte {block}lane 20 byte {block}"
        for block in range(4)
    ]


def test_what_is_selected_stays_in_sight_in_a_narrow_window(browser: Browser, address: str) -> None:
    with browser.phone(390, 844):
        browser.open(f"{address}#op={BF16.name}&at=D,3,5")
        assert browser.js("return document.documentElement.scrollWidth") == 390
        top, bottom = browser.js(
            "const box = document.querySelector('#inspector').getBoundingClientRect();"
            "return [box.top, box.bottom]"
        )
        assert 400 < top < bottom <= 844


def test_a_name_of_several_forms_opens_the_first(browser: Browser, address: str) -> None:
    browser.open(f"{address}#op=wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16")
    assert browser.text("#name") == "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16.rs"


def test_tensor_memory_has_a_picture(browser: Browser, address: str) -> None:
    (move,) = (
        m for m in TENSOR_MEMORY_MOVES if m.name.startswith("tcgen05.ld.sync.aligned.16x256b.x8.b")
    )
    browser.open(f"{address}#op={move.name}&at=R,9,37")
    place = move.layout.registers(9, 37)[0]
    assert f"lane {place.lane} register r{place.register}" in browser.text("#inspector .where")
    assert shown(browser, "at") == [f"{place.lane}:r{place.register}"]


def test_a_page_with_another_layout_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    right = atlas.page((BF16,), BF16)
    steps = '"steps":{"lane":[[0,2],[0,4],[1,0],[2,0],[4,0]],"register":[[8,0],[0,8]]'
    assert right.count(steps) == 1
    path = tmp_path / "wrong.html"
    path.write_text(right.replace(steps, steps.replace("[[0,2],[0,4]", "[[0,4],[0,2]")), "utf-8")
    browser.open(path.as_uri())
    browser.hover(cell("A", 9, 5, BF16.operand("A")), right=0.25)
    assert browser.text("#inspector .where").split()[:2] == ["lane", "5"]
