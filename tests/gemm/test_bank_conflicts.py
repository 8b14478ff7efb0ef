"""tensor_core.cu meets no bank twice in a pass: every access to shared memory, counted on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Problem
from ptxlab.gemm.problem import LAYOUTS, uploaded
from ptxlab.gemm.tile import Tile
from ptxlab.observe.counters import Counts, total
from ptxlab.observe.profile import Counted, Profile, count
from tests.gemm.simt import QUICK

KERNEL = ALGORITHMS["tensor_core"]
FILE = resources.path(KERNEL.file)
CASES = [
    *(
        pytest.param(dtype, "f32", layout, marks=[pytest.mark.thorough] * (layout != once))
        for dtype, once in (("bf16", "nn"), ("tf32", "tn"))
        for layout in LAYOUTS
    ),
    ("f16", "f16", "nt"),
]
TILE = KERNEL.cut({"BM": 192, "BN": 64, "WM": 96, "WN": 32}, "bf16")  # three or six panels of m
M, N, K = 192, 128, 64

Count = Callable[..., Profile]


@pytest.fixture
def counted(device: Device) -> Count:
    """Count what a kernel does for a product."""
    if device.kind != "emulator":
        pytest.skip("a GPU counts with Nsight Compute")

    def run(file: Path, problem: Problem, tile: Tile = TILE) -> Profile:
        config = KERNEL.launch(problem, tile)
        with uploaded(device, problem, problem.inputs()) as x:
            kernel = device.load(file, options=KERNEL.options(problem, tile)).kernel()
            return count(kernel, config, x.arguments())

    return run


def changed(folder: Path, old: str, new: str) -> Path:
    """Return the kernel in ``folder``, with another text in the one of its files that has it."""
    having = 0
    for name in ("tensor_core.cu", "operand.cuh", "result.cuh", "swizzle.cuh"):
        text = (FILE.parent / name).read_text()
        having += old in text
        (folder / name).write_text(text.replace(old, new))
    assert having == 1
    return folder / "tensor_core.cu"


def sum_of(profile: Profile, opcode: str, *modifiers: str) -> Counts:
    """Add up the counters of all instructions that begin like that."""

    def is_one(counted: Counted) -> bool:
        instruction = counted.instruction
        return instruction.opcode == opcode and set(modifiers) <= set(instruction.modifiers)

    return total(instruction.counts for instruction in profile.instructions if is_one(instruction))


@pytest.mark.parametrize(("dtype", "acc", "layout"), CASES)
def test_no_access_conflicts(counted: Count, dtype: str, acc: str, layout: str) -> None:
    profile = counted(FILE, Problem(M, N, K, dtype, acc, layout=layout))
    for instruction in profile.instructions:
        assert instruction.counts.shared_wavefronts == instruction.counts.shared_ideal, (
            instruction.instruction
        )
        assert instruction.counts.sectors == instruction.counts.sectors_ideal, (
            instruction.instruction
        )

    # A load of one fragment of A or two of B is 4 passes, at each step along k and before the first.
    # Each CTA copies its part of A and B once, and each warp reads its part of D back from a slab.
    warps = profile.threads // 32
    size, step = (4, 8) if dtype == "tf32" else (2, 16)
    loads, before = (TILE.wm + TILE.wn) // 16, 1 + TILE.wn // 16
    of_d = TILE.wm * TILE.wn * (2 if acc == "f16" else 4) // 128
    read = total(sum_of(profile, opcode) for opcode in ("ldmatrix", "ld"))
    assert read.shared_wavefronts == warps * (4 * (K // step * loads + before) + of_d)
    copied = sum_of(profile, "cp", "async")
    assert copied.global_read == profile.ctas * size * K * (TILE.bm + TILE.bn)
    assert copied.shared_wavefronts == copied.shared_written // 128


# What is copied element by element is laid out as what is copied at once, of which both types run above.
@pytest.mark.parametrize("dtype", ["bf16", pytest.param("tf32", marks=pytest.mark.thorough)])
def test_nor_do_copies_of_single_elements(counted: Count, dtype: str) -> None:
    profile = counted(FILE, Problem(61, 75, 37, dtype))
    stored = sum_of(profile, "st", "shared")
    assert stored.shared_wavefronts == stored.shared_ideal > 0
    assert sum_of(profile, "cp", "async").global_read == 0


def test_d_is_written_in_whole_lines(counted: Count) -> None:
    """A warp stores 512 bytes at once: four rows of 32 f32."""
    profile = counted(FILE, Problem(M, N, K))
    stored = sum_of(profile, "st", "global")
    assert stored.global_written == 4 * M * N == 512 * stored.requests
    assert stored.sectors == 16 * stored.requests


@pytest.mark.parametrize(("edge", "times"), [("row >= own.row", 1), ("row >= 0", 2)])
def test_what_tiles_have_in_common_is_written_once(
    counted: Count, tmp_path: Path, edge: str, times: int
) -> None:
    """Of 200 rows the second tile has 8, and is moved back over 184 of the first."""
    m, n = 200, 64
    file = changed(tmp_path, "row >= own.row", edge)
    profile = counted(file, Problem(m, n, K))
    written = sum_of(profile, "st", "global").global_written
    assert written == 4 * n * (m + (times - 1) * 184)


@pytest.mark.parametrize(
    ("dtype", "acc", "layout", "opcode"),
    [
        ("bf16", "f32", "tt", "ldmatrix"),
        ("tf32", "f32", "tn", "ld"),
        ("f16", "f16", "nt", "st"),
    ],
)
def test_without_the_swizzle_they_do(
    counted: Count, tmp_path: Path, dtype: str, acc: str, layout: str, opcode: str
) -> None:
    file = changed(tmp_path, "(byte ^ row / rows_in_a_pass % units * UNIT)", "byte")
    problem = Problem(64, 64, K, dtype, acc, layout=layout)
    small = KERNEL.cut(QUICK[KERNEL.name], dtype)
    counts = sum_of(counted(file, problem, small), opcode)
    assert counts.shared_wavefronts >= 2 * counts.shared_ideal
