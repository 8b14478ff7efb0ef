"""Kernels of numba.cuda against NumPy: shared memory, atomics, warps, reductions, device functions."""

from typing import Any

import numpy as np
from numba import cuda, float32
from numba.core import config

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
TILE = 16


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def product(a: Any, b: Any) -> Any:
    return a * b


@cuda.jit  # type: ignore[untyped-decorator]
def matmul(a: Any, b: Any, c: Any) -> None:
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(cuda.gridDim.x):
        left[row, column] = a[y, column + tile * TILE]
        right[row, column] = b[row + tile * TILE, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += product(left[row, k], right[k, column])
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit  # type: ignore[untyped-decorator]
def histogram(x: Any, counts: Any) -> None:
    own = cuda.shared.array(16, np.int32)
    lane = cuda.threadIdx.x
    if lane < 16:
        own[lane] = 0
    cuda.syncthreads()
    at = cuda.grid(1)
    if at < x.size:
        cuda.atomic.add(own, x[at], 1)
    cuda.syncthreads()
    if lane < 16:
        cuda.atomic.add(counts, lane, own[lane])


@cuda.jit  # type: ignore[untyped-decorator]
def warp_sums(x: Any, votes: Any) -> None:
    lane = cuda.threadIdx.x
    value = x[lane]
    votes[lane] = cuda.ballot_sync(0xFFFFFFFF, value & 1)
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, distance)
    x[lane] = value


@cuda.jit  # type: ignore[untyped-decorator]
def mirrored_rows(x: Any) -> None:
    """Make each row of the one before, which threads of other CTAs have written."""
    column, grid = cuda.grid(1), cuda.cg.this_grid()
    for row in range(1, x.shape[0]):
        x[row, column] = x[row - 1, x.shape[1] - column - 1] + column
        grid.sync()


@cuda.reduce  # type: ignore[untyped-decorator]
def largest(a: Any, b: Any) -> Any:
    return max(a, b)


rng = np.random.default_rng(3)
a, b = rng.integers(-8, 8, (2, 32, 32)).astype(np.float32)
c = cuda.device_array((32, 32), np.float32)
matmul[(2, 2), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
assert np.array_equal(c.copy_to_host(), a @ b)  # integers: exact

values = rng.integers(0, 16, 1000).astype(np.int32)
counts = cuda.to_device(np.zeros(16, np.int32))
histogram[8, 128](cuda.to_device(values), counts)
assert np.array_equal(counts.copy_to_host(), np.bincount(values, minlength=16))

numbers = rng.integers(0, 100, 32).astype(np.int32)
sums, votes = cuda.to_device(numbers), cuda.to_device(np.zeros(32, np.uint32))
warp_sums[1, 32](sums, votes)
assert (sums.copy_to_host() == numbers.sum()).all()
assert (
    votes.copy_to_host() == sum(int(number & 1) << at for at, number in enumerate(numbers))
).all()

rows = cuda.to_device(np.zeros((5, 256), np.int32))
mirrored_rows[8, 32](rows)
columns = np.arange(256)
assert (
    rows.copy_to_host()[[1, 2, 3, 4]]
    == [columns, 255 + 0 * columns, 255 + columns, 510 + 0 * columns]
).all()

assert largest(cuda.to_device(values.astype(np.float64))) == values.max()
sass = str(matmul.inspect_sass())
assert "FADD" in sass or "FFMA" in sass
