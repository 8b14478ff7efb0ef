"""``ptxlab dump`` of accumulators in Tensor Memory, and of a tile on its way there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ptxlab.device.snapshot import SharedSnapshot
from ptxlab.errors import PtxlabError
from ptxlab.main import main
from ptxlab.verbs.dump.tensor_memory import tile
from tests.emulator.blackwell.operands import lane_column
from tests.verbs.dump.test_dump import answer, run

PRODUCT, GEMM = "ptx/tcgen05_mma_f16.ptx", "ptx/gemm_tcgen05_f16_f32.ptx"


def snapshot(rank: int = 0) -> SharedSnapshot:
    """A CTA that has allocated columns 64 to 319 of a Tensor Memory that holds other numbers everywhere."""
    rng = np.random.default_rng(rank)
    cells = rng.integers(0, 1 << 32, (128, 512), dtype=np.uint32)
    allocated = (np.arange(512) >= 64) & (np.arange(512) < 320)
    return SharedSnapshot(np.zeros(16, np.uint8), {}, {}, cells, allocated, rank)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("layout", "m", "n"),
    [("A", 256, 32), ("B", 128, 32), ("C", 128, 32), ("D", 128, 24), ("E", 64, 64), ("F", 64, 16), ("G", 32, 64)],
)  # fmt: skip
def test_each_layout_of_an_accumulator(layout: str, m: int, n: int, rank: int) -> None:
    memory = snapshot(rank)
    shown = tile(f"96:{m}x{n}:u32:{layout}")
    accumulator = shown.read(memory)
    first = shown.first_row(memory)
    assert first == (rank * m // 2 if layout in "ABC" else 0)
    assert accumulator.shape == (m // 2 if layout in "ABC" else m, n)
    for row, col in np.ndindex(accumulator.shape):
        cta, lane, column = lane_column(first + row, col, m, n, layout)
        assert cta == (rank if layout in "ABC" else 0)
        assert accumulator[row, col] == memory.cells[lane, 96 + column]


def test_numbers_of_16_bits() -> None:
    """Of D each has the low half of a cell; elsewhere two share one."""
    memory = snapshot()
    assert (tile("64:128x8:u16").read(memory) == memory.cells[:, 64:72] & 0xFFFF).all()
    packed = tile("64:128x8:u16:lanes").read(memory)
    assert (packed[:, ::2] == memory.cells[:, 64:68] & 0xFFFF).all()
    assert (packed[:, 1::2] == memory.cells[:, 64:68] >> 16).all()
    assert (tile("64:32x6:e4m3:lanes").width, tile("64:32x6:f32:lanes").width) == (2, 6)


def test_what_is_not_there() -> None:
    memory = snapshot()
    with pytest.raises(PtxlabError, match=r"columns 32 to 95 .* not all allocated") as refused:
        tile("32:128x64:f32").read(memory)
    assert refused.value.hint == "256 columns are, the first at 64"
    with pytest.raises(PtxlabError, match="columns 500 to 515"):
        tile("500:128x16:f32").read(memory)
    for text, message in (
        ("x:128x16:f32", "COLUMN:MxN:TYPE"), ("0:128x16", "COLUMN:MxN:TYPE"), ("0:64x16:f32:D", "an m of 128"),
        ("0:128x12:f32", "whole eights"), ("0:200x8:f32", "128 lanes"), ("0:128x16:f64", "no type 'f64'"),
        ("0:128x16:f32:H", "no layout 'H'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            tile(text)


def test_the_accumulator_is_what_the_program_stores(capsys: pytest.CaptureFixture[str]) -> None:
    arch = ("--arch", "sm_100a")
    output = answer(
        capsys, PRODUCT, *arch, "--at", "tcgen05.ld", "--before", "--tmem", "0:128x64:f32"
    )
    [shown] = output["tensor_memory"]
    assert (shown["column"], shown["layout"], shown["first_row"]) == (0, "D", 0)
    assert main(["run", PRODUCT, *arch, "--json", "--device", "emulator"]) == 0
    assert shown["values"] == stored(capsys)
    early = answer(capsys, PRODUCT, *arch, "--at", "tcgen05.mma", "--tmem", "0:128x64:f32")
    assert not np.any(early["tensor_memory"][0]["values"])  # nobody has waited for it
    status, out, _ = run(capsys, PRODUCT, *arch, "--at", "tcgen05.ld", "--tmem", "32:128x8:f32")
    assert status == 0
    lines = out.splitlines()
    [title] = [at for at, line in enumerate(lines) if line.startswith("Tensor Memory")]
    assert lines[title] == "Tensor Memory from column 32 on  128 x 8 of f32, layout D"
    assert lines[title + 1].split() == [*map(str, range(8))]
    row = [float(value) for value in lines[title + 2 + 5].split()]
    assert row == pytest.approx([5, *shown["values"][5][32:40]])
    status, _, err = run(capsys, PRODUCT, *arch, "--at", "mbarrier.init", "--tmem", "64:128x8:f32")
    assert status == 2
    assert "columns 64 to 71 of Tensor Memory are not all allocated there" in err


def stored(capsys: pytest.CaptureFixture[str]) -> Any:
    return {a["name"]: a["values"] for a in json.loads(capsys.readouterr().out)["arguments"]}["d"]


def test_a_tile_from_global_memory_to_tensor_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of A and B through their swizzle, and D when the last of the three steps is waited for."""
    where = ("--arch", "sm_100a", "--at", "tcgen05.mma", "--before", "--warp", "1")
    tiles = ("--tile", "tiles:128x64:f16:128B", "--tile", "tiles+16384:128x64:f16:128B")
    output = answer(capsys, GEMM, *where, *tiles, "--nth", "9")
    assert main(["run", GEMM, "--arch", "sm_100a", "--json", "--device", "emulator"]) == 0
    given = {a["name"]: a.get("values") for a in json.loads(capsys.readouterr().out)["arguments"]}
    a, b = (np.array(given[name]) for name in "AB")
    for shown, matrix in zip(output["tiles"], (a, b), strict=True):
        assert (
            np.array(shown["values"]) == matrix[:128, 128:192]
        ).all()  # the third step: the first stage again
    done = answer(
        capsys, GEMM, *where[:2], "--at", "tcgen05.ld", "--before", "--cta", "1", "--tmem", "0:128x128:f32"
    )  # fmt: skip
    d = np.array(done["tensor_memory"][0]["values"])
    assert (d == np.array(given["d"])[:, 128:]).all()
    np.testing.assert_allclose(d, a @ b[128:].T, rtol=1e-3, atol=1e-3)
