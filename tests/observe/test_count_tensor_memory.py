"""What a profile counts of tcgen05, held against sizes of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.counters import Counts
from ptxlab.observe.profile import Profile, count
from ptxlab.verbs.profile import text as view
from tests.emulator.blackwell.cells import CTA_BYTES, device, module
from tests.emulator.blackwell.operands import Problem
from tests.emulator.blackwell.test_product import issued
from tests.emulator.blackwell.test_scaled_and_sparse import (
    META_AT,
    issued_scaled,
    put_metadata,
    put_scales,
    scaled,
    sparse,
)


def profiled(problem: Problem, body: str, cells: Array | None = None) -> Profile:
    gpu = device("sm_100a", "late")
    words = np.zeros(8, np.uint64)
    words[:3] = problem.words()
    before = problem.cells() if cells is None else cells
    arrays = [gpu.upload(array) for array in (before, problem.shared(), words)]
    text = module(body, 32768, problem.group, "sm_100a")
    config = LaunchConfig.of(problem.group, 128, cluster=problem.group)
    return count(gpu.load(text).kernel("k"), config, arrays)


def of_tensor_cores(profile: Profile) -> Counts:
    """The counters of the line that has tensor cores do something, for which there is one."""
    [line] = [
        instruction for instruction in profile.instructions if instruction.counts.tensor_shared
    ]
    return line.counts


@pytest.mark.parametrize("adds", ["yes", "no"])
@pytest.mark.parametrize(
    ("kind", "m", "n", "group", "stationary", "types", "size"),
    [
        ("f16", 128, 24, 1, False, ("f16", "f16", "f32"), 2), ("f16", 64, 16, 1, False, ("bf16", "bf16", "f32"), 2),
        ("f16", 32, 64, 1, True, ("f16", "f16", "f16"), 2), ("tf32", 256, 32, 2, False, ("tf32", "tf32", "f32"), 4),
        ("f8f6f4", 128, 32, 2, False, ("e2m1", "e5m2", "f32"), 1), ("i8", 128, 16, 1, False, ("s8", "u8", "s32"), 1),
    ],
)  # fmt: skip
def test_a_product(
    kind: str, m: int, n: int, group: int, stationary: bool, types: tuple[str, str, str], size: int, adds: str
) -> None:  # fmt: skip
    """A and B are read once, all of D is written, and read where it is added; numbers of D take a cell each."""
    problem = Problem(kind, m, n, *types, group=group, stationary=stationary)
    counts = of_tensor_cores(profiled(problem, issued(problem, adds)))
    assert counts.tensor_shared == size * problem.k * (m + n)
    assert counts.tensor_wavefronts == counts.tensor_ideal == counts.tensor_shared // 128
    assert (counts.tmem_read, counts.tmem_written) == ((adds == "yes") * 4 * m * n, 4 * m * n)
    operations = 2 * m * n * problem.k
    assert (counts.flops, counts.integer_ops) == (
        (0, operations) if kind == "i8" else (operations, 0)
    )


def test_what_else_lies_in_tensor_memory_is_read_too() -> None:
    """Of A 16 numbers of 16 bits a row; of each 32 rows the scales are there four times, 4 bytes a cell."""
    problem = Problem("f16", 128, 16, "f16", "f16")
    body = f".reg .b32 a; add.u32 a, t, 200;{issued(problem, 'no')}".replace("[d], x0", "[d], [a]")
    counts = of_tensor_cores(profiled(problem, body))
    assert (counts.tmem_read, counts.tensor_shared) == (128 * 16 * 2, 16 * 16 * 2)
    problem = Problem("mxf4", 128, 64, "e2m1", "e2m1")
    cells = problem.cells()
    a, _, b, _ = scaled(problem, 32, "ue8m0")
    put_scales(problem, cells, a, b)
    counts = of_tensor_cores(
        profiled(problem, issued_scaled(problem, "").replace("yes", "no"), cells)
    )
    assert counts.tmem_read == 4 * 4 * (128 + 64)
    problem = Problem("i8", 128, 16, "s8", "s8", "s32", more={"sparse": "yes"})
    stored, nibbles = sparse(problem)
    cells = problem.cells()
    put_metadata(problem, cells, nibbles, 0)
    body = issued(problem, "no").replace("mma", "mma.sp").replace("x1, idesc", "x1, [r10], idesc")
    problem.a = stored  # as shared memory has it
    counts = of_tensor_cores(profiled(problem, f"add.u32 r10, t, {META_AT};{body}", cells))
    assert counts.tmem_read == 4 * nibbles.size  # a cell for each four bits
    assert counts.integer_ops == 2 * 128 * 16 * 64


@pytest.mark.parametrize(
    ("shape", "rows", "width", "times"),
    [("128x256b", 128, 32, 1), ("4x256b", 4, 32, 1), ("64x128b.warpx2::02_13", 64, 16, 2), ("32x128b.warpx4", 32, 16, 4)],
)  # fmt: skip
def test_a_copy(shape: str, rows: int, width: int, times: int) -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    profile = profiled(problem, f"add.u32 r10, t, 200; tcgen05.cp.cta_group::1.{shape} [r10], x0;")
    counts = of_tensor_cores(profile)
    assert (counts.tensor_shared, counts.tmem_written) == (rows * width, times * rows * width)
    assert counts.tensor_wavefronts == counts.tensor_ideal == max(1, rows // 8) * width // 16
    assert (counts.tmem_read, counts.flops) == (0, 0)


@pytest.mark.parametrize("group", [1, 2])
def test_what_warps_load_and_store(group: int) -> None:
    """All of it, once; and what is given back is neither."""
    problem = Problem("f16", 128 * group, 32, "f16", "f16", group=group)
    profile = profiled(problem, issued(problem))
    totals = profile.totals
    assert (totals.tmem_loaded, totals.tmem_stored) == (group * CTA_BYTES, group * CTA_BYTES)
    assert profile.bytes_per_flop is not None
    moved = totals.tmem_read + totals.tmem_written + 2 * group * CTA_BYTES
    assert profile.bytes_per_flop["tensor_memory"] == moved / totals.flops
    told = view.text(profile, {}, by="ptx", full=True)
    stored = f"{group * CTA_BYTES:,} bytes loaded and {group * CTA_BYTES:,} stored by warps"
    assert f"Tensor Memory   {stored}, {totals.tmem_read:,} read and" in told
    assert ("tensor memory " in told) == (moved > 0)


def test_a_shift_moves_eight_columns_of_31_lanes() -> None:
    problem = Problem("f16", 128, 16, "f16", "f16")
    profile = profiled(problem, "add.u32 r10, t, 64; tcgen05.shift.cta_group::1.down [r10];")
    [line] = [
        instruction for instruction in profile.instructions if instruction.counts.tmem_written
    ]
    assert (line.counts.tmem_read, line.counts.tmem_written) == (31 * 32, 31 * 32)
