"""The places in shared memory that tensor_core.cu uses, computed by its own code on the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Tile

PROBE = """
#include "tensor_core.cu"
extern "C" __global__ void probe(u32* rows, u32* copies) {
    const int warp = threadIdx.x / 32;
    Warp tile(warp / (BN / WN) * WM, warp % (BN / WN) * WN);
    rows += (STEPS + WN / 16) * threadIdx.x;
    for (int i = 0; i < STEPS; i++) rows[i] = tile.a_row[i];
    for (int j = 0; j < WN / 16; j++) rows[STEPS + j] = tile.b_row[j];
    copies[2 * threadIdx.x] = CopyA(0, nullptr, 0, 0, BM, BK, BK).to;
    copies[2 * threadIdx.x + 1] = CopyB(A_BYTES, nullptr, 0, 0, BK, BN, BN).to;
}
"""

TILES = [
    ALGORITHMS["tensor_core"].tile,
    Tile(64, 64, 32, 32, 32, 2),
    Tile(128, 128, 64, 64, 32, 4),
    Tile(128, 256, 32, 64, 64, 3),
]


Offsets = npt.NDArray[np.uint32]


def probe(device: Device, folder: Path, tile: Tile) -> tuple[Offsets, Offsets]:
    """Return by thread the rows named in ldmatrix, first of A and then of B, and where it copies to."""
    file = folder / "probe.cu"
    file.write_text(PROBE)
    threads = 32 * (tile.bm // tile.wm) * (tile.bn // tile.wn)
    rows = device.zeros((threads, tile.bk // 16 + tile.wn // 16), "u32")
    copies = device.zeros((threads, 2), "u32")
    kernel = device.load(file, options=tile.options).kernel("probe")
    kernel.launch(1, threads, [rows, copies])
    return rows.numpy(), copies.numpy()


def free_of_conflicts(offsets: Offsets) -> list[bool]:
    """Say for each column whether every 8 threads touch 16 bytes of 8 different bank groups."""
    assert (offsets % 16 == 0).all()
    banks = np.sort((offsets // 16 % 8).reshape(-1, 8, offsets.shape[1]), axis=1)
    return [bool(free) for free in (banks == np.arange(8)[:, None]).all(axis=(0, 1))]


@pytest.mark.parametrize("tile", TILES)
def test_eight_chunks_lie_in_different_banks(device: Device, tmp_path: Path, tile: Tile) -> None:
    rows, copies = probe(device, tmp_path, tile)
    assert all(free_of_conflicts(rows))
    assert all(free_of_conflicts(copies))


@pytest.mark.parametrize("tile", TILES)
def test_without_the_swizzle_they_do_not(device: Device, tmp_path: Path, tile: Tile) -> None:
    text = resources.path("kernels/tensor_core.cu").read_text()
    swizzle = "(chunk ^ (row / rows_across_banks & mask))"
    assert swizzle in text
    (tmp_path / "tensor_core.cu").write_text(text.replace(swizzle, "chunk"))
    rows, _ = probe(device, tmp_path, tile)
    assert not any(free_of_conflicts(rows))


@pytest.mark.parametrize("tile", TILES)
def test_ldmatrix_looks_where_the_copies_went(device: Device, tmp_path: Path, tile: Tile) -> None:
    rows, copies = probe(device, tmp_path, tile)
    threads = len(rows)
    places: list[dict[tuple[int, int], int]] = []  # of A and of B: (row, chunk) to offset
    base = 0
    for first, height, width in zip(
        copies.T.tolist(), (tile.bm, tile.bk), (tile.bk, tile.bn), strict=True
    ):
        chunks = width // 8
        places.append(
            {
                (row + thread // chunks, thread % chunks): first[thread] + 16 * chunks * row
                for row in range(0, height, threads // chunks)
                for thread in range(threads)
            }
        )
        end = base + 2 * height * width
        assert sorted(places[-1].values()) == list(range(base, end, 16))
        base = end

    steps, warps_across = tile.bk // 16, tile.bn // tile.wn
    for thread, named in enumerate(rows.tolist()):
        warp, lane = divmod(thread, 32)
        top, left = warp // warps_across * tile.wm, warp % warps_across * tile.wn // 8
        down, right = lane % 16, lane // 16
        a = [places[0][top + down, 2 * step + right] for step in range(steps)]
        b = [places[1][down, left + 2 * j + right] for j in range(tile.wn // 16)]
        assert named == a + b
